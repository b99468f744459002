"""A simulated accelerator: a device "sim" in the CPU's memory, as strict as CUDA, that notes when the host waits.

`with connected():` makes the device available, `torch.device("sim")`; tensors that live there are `SimTensor`s.  What
mixes them with CPU tensors raises the RuntimeError that CUDA raises, with CUDA's exceptions: a CPU tensor without
dimensions may be a number in an elementwise operation, and an index on the CPU may pick from a tensor on the device.
`with counting() as waits:` lists by name each operation for which the host would wait for the device.

Only two kernels are registered with PyTorch: one makes an empty `SimTensor`, one copies into it.  Every other operation
reaches `SimTensor.__torch_dispatch__`, which checks where its arguments are and then computes on the CPU.
"""

from __future__ import annotations

import contextlib
import functools
import weakref
from collections.abc import Callable, Iterable, Iterator

import torch
from torch.utils import backend_registration

SUPPORTED = hasattr(backend_registration, "_setup_privateuseone_for_python_backend")  # not in old releases of PyTorch

CPU, aten = torch.device("cpu"), torch.ops.aten
COUNTS: list[list[str]] = []  # one list for each `counting` that is open
LIMITS: list[str] = []  # "mps" within `like_mps`
# Operations that take a number from a CPU tensor without dimensions, besides those that PyTorch tags as pointwise.
TAKE_A_NUMBER = {aten.fill, aten.fill_, aten.masked_fill, aten.masked_fill_}
INDEXING = {aten.index, aten.index_put, aten.index_put_, aten._index_put_impl_}
# A value that the host needs, or a shape that only the device knows.
ASKING = {torch.Tag.data_dependent_output, torch.Tag.dynamic_output_shape}


class SimTensor(torch.Tensor):
    """A tensor on the simulated device.  Its numbers are in `inner`, which no operation on CPU tensors can reach."""

    __torch_function__ = torch._C._disabled_torch_function_impl

    @staticmethod
    def __new__(cls, inner: torch.Tensor):
        layout = {"strides": inner.stride(), "storage_offset": inner.storage_offset(), "dtype": inner.dtype}
        out = torch.Tensor._make_wrapper_subclass(cls, inner.shape, device="sim:0", **layout)
        out.inner = inner
        return out

    @classmethod
    def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        _refuse_mixing(func, args, kwargs)
        _note_waiting(func, args, kwargs)
        to_host = _device(kwargs) == "cpu" or (func is aten.copy_.default and args[0].device == CPU)
        wrappers = {id(x.inner): x for x in _leaves(args, kwargs) if type(x) is SimTensor}
        inner = {name: _map(_inside, x) for name, x in kwargs.items()} | ({"device": CPU} if _device(kwargs) else {})
        out = func(*_map(_inside, args), **inner)
        if LIMITS:
            _refuse_as_mps(func, args, kwargs, [] if to_host else _leaves([out], {}))
        for x in wrappers.values():
            if x.shape != x.inner.shape:  # `arange` makes an empty tensor and gives it its size
                x.data = SimTensor(x.inner)
        if to_host:
            return out
        # An operation in place returns the very tensor that it was given, and the model may hold its wrapper.
        return _map(
            lambda x: wrappers[id(x)] if id(x) in wrappers else SimTensor(x) if isinstance(x, torch.Tensor) else x, out
        )

    def tolist(self):
        """As of any tensor; PyTorch refuses it to a subclass (as it does the methods below)."""
        _note("tolist")
        return self.inner.tolist()

    def numpy(self, *args, **kwargs):
        """TypeError, as on CUDA."""
        raise TypeError("can't convert sim:0 device type tensor to numpy. Use Tensor.cpu() to copy the tensor first.")

    __array__ = numpy

    def __repr__(self, **kwargs):
        _note("print")
        return f"{repr(self.inner)[:-1]}, device='sim:0')"

    def __format__(self, spec: str):
        return format(self.item(), spec) if self.ndim == 0 else format(repr(self), spec)


def _leaves(args: Iterable, kwargs: dict) -> Iterator:
    for x in (*args, *kwargs.values()):
        if isinstance(x, list | tuple):
            yield from x
        else:
            yield x


def _map(change: Callable, x):
    """x changed, or a list or tuple of what it holds changed."""
    return type(x)([_map(change, y) for y in x]) if isinstance(x, list | tuple) else change(x)


class Generator(torch.Generator):
    """A generator on the simulated device: the CPU's, as all that computes there.  PyTorch lets none be registered, so
    that `torch.Generator("sim")` fails."""

    made = weakref.WeakValueDictionary()  # by address: an operation is given another object for the same generator

    def __init__(self):
        self.made[self._cdata] = self


def _inside(x):
    return x.inner if type(x) is SimTensor else x


def _device(kwargs: dict) -> str | None:
    return None if kwargs.get("device") is None else torch.device(kwargs["device"]).type


def _refuse_mixing(func, args, kwargs) -> None:
    """RuntimeError where CUDA would raise it: for a tensor, or a generator, that is not on the device."""
    leaves, packet = list(_leaves(args, kwargs)), func.overloadpacket
    if any(isinstance(x, torch.Generator) and x._cdata not in Generator.made for x in leaves):
        raise RuntimeError("Expected a 'sim' device type for generator but found 'cpu'")
    on_cpu = [x for x in leaves if isinstance(x, torch.Tensor) and type(x) is not SimTensor]
    if not on_cpu or packet is aten.copy_:
        return
    if packet in INDEXING and type(args[0]) is not SimTensor:
        raise RuntimeError("indices should be either on cpu or on the same device as the indexed tensor (cpu)")
    if packet in INDEXING:
        on_cpu = [x for x in args[2:3] if type(x) is not SimTensor and x.ndim]  # of the indices any may be there
    elif packet in TAKE_A_NUMBER or (torch.Tag.pointwise in func.tags and not ASKING & set(func.tags)):
        written = kwargs.get("out", args[0] if packet.__name__.endswith("_") else None)
        numbers = [x for x in on_cpu if x.ndim == 0 and x is not written]
        on_cpu = [] if len(numbers) == len(on_cpu) <= (2 if packet is aten.where else 1) else on_cpu
    if on_cpu:
        raise RuntimeError(
            "Expected all tensors to be on the same device, but found at least two devices, sim:0 and cpu! "
            f"(when calling {func})"
        )


def _refuse_as_mps(func, args, kwargs, made: Iterable) -> None:
    """TypeError for float64, and RuntimeError for a copy from the host that does not wait: MPS reads its source later,
    when the memory may be in use again."""
    if any(isinstance(x, torch.Tensor) and x.dtype == torch.float64 for x in made):
        raise TypeError("Cannot convert a MPS Tensor to float64 dtype as the MPS framework doesn't support float64.")
    late = kwargs.get("non_blocking", len(args) > 2 and args[2] is True)
    if func.overloadpacket is aten.copy_ and args[1].device == CPU and late and args[1].numel():
        raise RuntimeError("the source of this copy may be gone when it is read")


def _note_waiting(func, args, kwargs) -> None:
    """Note the operation if the host would wait: for a value, for a shape, or for a copy that is not non_blocking."""
    packet, name = func.overloadpacket, func.overloadpacket.__name__
    blocking = not kwargs.get("non_blocking", len(args) > 2 and args[2] is True)
    if packet is aten._to_copy and _device(kwargs) == "cpu" and blocking:
        _note("to host")
    elif packet is aten.copy_ and args[0].device != args[1].device and blocking and args[1].numel():
        _note("to host" if args[0].device == CPU else "to device")
    elif packet in INDEXING:
        indices = [x for x in args[1] if x is not None]
        if any(x.device == CPU for x in indices):
            _note("to device")
        # Which elements a mask selects, only the device knows; one value for all of them needs no count.
        if any(x.dtype in (torch.bool, torch.uint8) for x in indices) and (packet is aten.index or args[2].numel() > 1):
            _note("mask")
    elif ASKING & set(func.tags) and kwargs.get("output_size") is None:
        _note({"_local_scalar_dense": "item"}.get(name, name))


def _note(name: str) -> None:
    for waits in COUNTS:
        waits.append(name)


@contextlib.contextmanager
def counting() -> Iterator[list[str]]:
    """The names of the operations for which the host waits in the block, in order."""
    waits: list[str] = []
    COUNTS.append(waits)
    try:
        yield waits
    finally:
        COUNTS[:] = [x for x in COUNTS if x is not waits]


@contextlib.contextmanager
def like_mps() -> Iterator[None]:
    """The device as limited as Apple's in the block."""
    LIMITS.append("mps")
    try:
        yield
    finally:
        LIMITS.pop()


@functools.cache
def _register():
    """The module torch.sim.  PyTorch has one device of this kind for the whole process, and keeps it."""

    class Module(backend_registration._DummyBackendModule):
        connected = False

        def is_available(self) -> bool:  # so `torch.accelerator` knows of no device while it is not connected
            return self.connected

    # At its first use the engine of gradients starts a thread for each device, and this one's can abort the process
    # at its end; so the engine is used once before there is such a device.  There are no gradients on it.
    torch.ones((), requires_grad=True).backward()
    module = Module()
    backend_registration._setup_privateuseone_for_python_backend("sim", backend_module=module)

    def empty(make, *args, **kwargs):
        return SimTensor(make(*args, **{k: v for k, v in kwargs.items() if k in ("dtype", "memory_format")}))

    def at_once(func, *args):  # in `torch.tensor`, whose operations do not reach `__torch_dispatch__`
        return SimTensor.__torch_dispatch__(func, (), args)

    module.kernels = library = torch.library.Library("aten", "IMPL")  # they live as long as it does
    for name, kernel in {
        "empty.memory_format": functools.partial(empty, torch.empty),
        "empty_strided": functools.partial(empty, torch.empty_strided),
        "_copy_from": lambda source, to, non_blocking=False: at_once(aten.copy_.default, to, source, non_blocking),
        "_local_scalar_dense": functools.partial(at_once, aten._local_scalar_dense.default),
    }.items():
        library.impl(name, kernel, "PrivateUse1")
    return module


@contextlib.contextmanager
def connected() -> Iterator[torch.device]:
    """The device "sim", available to the block, where a `torch.accelerator.synchronize` is noted too."""
    module, real = _register(), torch.accelerator.synchronize
    swap = torch.__future__.get_swap_module_params_on_conversion()
    module.connected, torch.accelerator.synchronize = True, lambda device=None: _note("synchronize")
    torch.__future__.set_swap_module_params_on_conversion(True)  # so that tied weights stay tied, as on the way to CUDA
    try:
        yield torch.device("sim:0")
    finally:
        module.connected, torch.accelerator.synchronize = False, real
        torch.__future__.set_swap_module_params_on_conversion(swap)
