"""Where the time of a pass goes: its operations, recorded once and replayed without the model.  Notebook 13."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from statistics import median

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from .timing import in_turn

Operation = tuple[Callable, tuple, dict]  # what is called, and its arguments
PRODUCTS, ATTENTION, OTHERS = "matrix products", "attention", "other operations"
BETWEEN = "between the operations"


class _Recorder(TorchDispatchMode):
    def __init__(self):
        super().__init__()
        self.calls: list[Operation] = []

    def __torch_dispatch__(self, operation, types, args=(), kwargs=None):
        self.calls.append((operation, args, kwargs or {}))
        return operation(*args, **(kwargs or {}))


@torch.no_grad()
def recorded(call: Callable[[], object]) -> list[Operation]:
    """All operations of PyTorch that the call calls, in order: (operation, args, kwargs), as below autograd."""
    with _Recorder() as recorder:
        call()
    return recorder.calls


@torch.no_grad()
def replay(calls: list[Operation]) -> None:
    """The same operations on the same tensors, and nothing between them."""
    for function, args, kwargs in calls:
        function(*args, **kwargs)


def part_of(operation) -> str:
    """PRODUCTS, ATTENTION or OTHERS."""
    name = name_of(operation)
    return PRODUCTS if name in ("addmm", "mm", "bmm") else ATTENTION if "attention" in name else OTHERS


def name_of(operation) -> str:
    """ "addmm" of torch.ops.aten.addmm.default."""
    return str(operation).split(".")[1]


def launches(calls: list[Operation]) -> int:
    """How many of them compute something: all but those that return a view of what they are given."""

    def a_view(operation) -> bool:
        returns = [r.alias_info for r in operation._schema.returns]
        view = name_of(operation) == "_unsafe_view"  # which does not say so in its signature
        return view or any(alias is not None and not alias.is_write for alias in returns)

    return sum(not a_view(operation) for operation, _, _ in calls)


@torch.no_grad()
def _directly(call: Operation) -> Operation:
    """The call by the name that Python code calls it by: a recorded operation itself is called more slowly."""
    operation, args, kwargs = call
    for home in (torch.Tensor, torch, torch._C._nn):
        function = getattr(home, name_of(operation), None)
        if function is not None:
            try:
                function(*args, **kwargs)
            except (TypeError, RuntimeError):
                continue  # another signature: a split by sizes, say
            return function, args, kwargs
    return call


def pass_parts(
    passes: Mapping[str, Callable[[], object]], runs: int = 25, device: torch.device | str | None = None
) -> dict[str, dict[str, float]]:
    """For each pass, median milliseconds {PRODUCTS, ATTENTION, OTHERS, BETWEEN}, which add up to the whole pass.

    passes: name -> a call that makes one pass and can be repeated.  The pass and the replays of its parts take turns.
    BETWEEN is what the pass takes longer than its parts: modules, checks, bookkeeping.  A little below 0 on a busy
    machine, or where the replay itself takes time.  On a GPU the parts are what launching and running them takes.
    ValueError for fewer than one run.
    """
    calls: dict[tuple[str, str], Callable[[], object]] = {}
    for name, call in passes.items():
        operations = recorded(call)
        for part in (PRODUCTS, ATTENTION, OTHERS):
            mine = [_directly(c) for c in operations if part_of(c[0]) == part]
            calls[name, part] = lambda mine=mine: replay(mine)
        calls[name, BETWEEN] = call
    seconds = in_turn(calls, runs, device)
    found: dict[str, dict[str, float]] = {name: {} for name in passes}
    for (name, part), times in seconds.items():
        taken = sum(found[name].values()) if part == BETWEEN else 0.0
        found[name][part] = 1000 * median(times) - taken
    return found
