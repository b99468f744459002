"""The devices of this machine: which there are, what they are called, and models that use one thread of the CPU."""

from __future__ import annotations

import contextlib
import functools
import platform
import re
from collections.abc import Callable, Iterator
from pathlib import Path

import torch

READ_LATE = {"mps"}  # devices that read what is copied to them without waiting only later, when it may be gone


def find_device(name: str | torch.device) -> torch.device:
    """The device of this name; ValueError where there is none, or this machine does not have it."""
    try:
        device = torch.device(name)
    except RuntimeError:
        raise ValueError(f"there is no device {name!r}: use cuda, mps or cpu.") from None
    missing = device.type != "cpu" and not available(device.type)
    if missing or device.type == "cuda" and (device.index or 0) >= max(1, torch.cuda.device_count()):
        raise ValueError(f"this machine has no {device}: leave the device out, or use cpu.")
    return device


def available(kind: str) -> bool:
    """Whether this machine has a device of this kind ("cuda", "mps"); False where torch cannot tell ("meta")."""
    module = getattr(torch, kind, None)
    return module is not None and hasattr(module, "is_available") and module.is_available()


def machine(device: torch.device) -> str:
    """The model of the processor that computes, GPU or CPU; never the name of the computer."""
    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    found = None
    with contextlib.suppress(OSError):
        found = re.search(r"^model name\s*:\s*(.+)$", Path("/proc/cpuinfo").read_text(), re.M)
    return found[1].strip() if found else platform.processor() or platform.machine()


def one_thread(model: torch.nn.Module) -> None:
    """Let this model's calls on the CPU use one thread, whatever number is set, and restore that number after each.

    Its matrices are so small that a second thread saves little, and when another process holds that thread's core,
    the first waits for it at every operation: calls have been seen to take a hundred times as long.  Copies of the
    model, and what `torch.save` or pickle makes of it, keep to one thread too.
    """
    kind = type(model)
    model.__class__ = kind if hasattr(kind, "on_many_threads") else _on_one_thread(kind)


@functools.cache
def _on_one_thread(kind: type[torch.nn.Module]) -> type[torch.nn.Module]:
    """The subclass of a model's class whose `forward` uses one thread.

    A subclass, because copies keep their class; a pair of hooks would not restore the number after Ctrl-C.
    """

    class OneThread(kind):
        on_many_threads = kind

        @functools.wraps(kind.forward)
        def forward(self, *args, **kwargs):
            with single_thread() if self.device.type == "cpu" else contextlib.nullcontext():
                return super().forward(*args, **kwargs)

        def __reduce_ex__(self, protocol):  # no module holds this class by name: pickle the one it is made of
            _, _, *state = super().__reduce_ex__(protocol)
            return _empty, (kind,), *state

    OneThread.__name__, OneThread.__qualname__ = kind.__name__, kind.__qualname__
    return OneThread


def to_device(x: torch.Tensor, device: torch.device | str, dtype: torch.dtype | None = None) -> torch.Tensor:
    """x on this device, in this dtype; the host does not wait for a copy to a GPU.

    It does wait where the numbers would be wrong otherwise: those that come to the host may be read at once, and MPS
    would read memory that is used again by then (PyTorch's issue 189690).
    """
    device = torch.device(device)
    return x.to(device, dtype or x.dtype, non_blocking=x.is_cpu and device.type not in READ_LATE)


@contextlib.contextmanager
def single_thread() -> Iterator[None]:
    """One thread of the CPU inside, and the number that was set before again afterwards, whatever happens."""
    threads = torch.get_num_threads()
    if threads > 1:
        torch.set_num_threads(1)
    try:
        yield
    finally:
        if threads > 1:
            torch.set_num_threads(threads)


def threads_of(model) -> Callable[[], contextlib.AbstractContextManager]:
    """What makes the block in which a transformers model works: one thread where `one_thread` was asked for it and it
    is on the CPU, else as set.  Asked for a Model, or for rows of one, it looks at what these hold as their `model`."""
    for _ in range(2):  # rows of a Model of the transformers model
        model = model if hasattr(model, "on_many_threads") else getattr(model, "model", model)
    alone = hasattr(model, "on_many_threads") and model.device.type == "cpu"
    return single_thread if alone else contextlib.nullcontext


def threads_for(x: torch.Tensor) -> contextlib.AbstractContextManager:
    """For an operation on this tensor: one thread where it is small and on the CPU, else as set.

    PyTorch splits some operations by rows however few numbers these hold, and a second thread whose core is busy is
    then waited for, as above.  2**15 numbers are what it gives a thread elsewhere.
    """
    return single_thread() if x.is_cpu and x.numel() < 2**15 else contextlib.nullcontext()


def _empty(kind: type[torch.nn.Module]) -> torch.nn.Module:
    """A model on one thread without its state, which unpickling fills in."""
    made = _on_one_thread(kind)
    return made.__new__(made)
