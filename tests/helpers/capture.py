"""CUDA graphs without a card: what stands in for PyTorch's records each operation and runs it again on the same memory.

`with pretended() as events:` puts it in place; `GPT2(model, graphs=True)` then captures on any device.  As on a card:
PyTorch's functions take these arguments; a replay knows nothing of the numbers that Python had meanwhile; what a
capture returns holds nothing (here NaN) until it was replayed; a wait for the device in a capture is refused.
What only a card shows: whether its kernels can be captured, the memory that graphs share, streams that run at once.
"""

from __future__ import annotations

import contextlib
import inspect
from collections.abc import Iterator

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from spec_lib import graphs
from tests.helpers import sim


class Recording(TorchDispatchMode):
    """Notes each operation, its arguments and what it returned."""

    def __init__(self):
        super().__init__()
        self.calls, self.made = [], []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        out = func(*args, **kwargs)
        if sim.ASKING & set(func.tags):
            raise RuntimeError(f"operation not permitted when stream is capturing: {func}")
        self.calls.append((func, args, kwargs, out))
        known = {_storage(x) for x in _tensors((args, kwargs))}
        self.made += [x for x in _tensors(out) if _storage(x) not in known]
        return out

    def forget(self) -> None:
        """A capture runs nothing: what it made is not there yet."""
        for x in self.made:
            x.fill_(torch.nan if x.is_floating_point() else 0)

    def replay(self) -> None:
        """Every operation once more, into the memory of the first time."""
        for func, args, kwargs, out in self.calls:
            for old, new in zip(_tensors(out), _tensors(func(*args, **kwargs)), strict=True):
                if _storage(old) != _storage(new):
                    old.copy_(new)


def _tensors(tree) -> list[torch.Tensor]:
    return [x for x in tree_leaves(tree) if isinstance(x, torch.Tensor)]


def _storage(x: torch.Tensor) -> int:
    return (x.inner if type(x) is sim.SimTensor else x).untyped_storage().data_ptr()


@contextlib.contextmanager
def pretended() -> Iterator[list[str]]:
    """Any device captures in the block.  The list tells, in order, what was asked of the streams and graphs."""
    events: list[str] = []
    takes = inspect.signature(torch.cuda.graph.__init__)

    class Stream:
        def __init__(self, name):
            self.name = name if isinstance(name, str) else "side"

        def wait_stream(self, other):
            events.append(f"{self.name} waits for {other.name}")

    class Graph:
        def replay(self):
            events.append("replay")
            self.recording.replay()

    @contextlib.contextmanager
    def graph(*args, **kwargs):
        given = takes.bind(None, *args, **kwargs).arguments  # TypeError where PyTorch's own does not take these
        assert given["pool"] == "memory" and given["stream"].name == "side"
        events.append("capture")
        with sim.counting() as waits, Recording() as recording:
            yield
        assert waits == [], "operation not permitted when stream is capturing"
        recording.forget()
        given["cuda_graph"].recording = recording

    @contextlib.contextmanager
    def stream(of):
        events.append(f"on {of.name}")
        yield
        events.append("back")

    with pytest.MonkeyPatch.context() as patch:
        for name, value in {
            "Stream": Stream,
            "current_stream": lambda: Stream("here"),
            "stream": stream,
            "device": lambda device: contextlib.nullcontext(),
            "CUDAGraph": Graph,
            "graph": graph,
            "graph_pool_handle": lambda: "memory",
        }.items():
            patch.setattr(torch.cuda, name, value)
        patch.setattr(graphs, "check", lambda graphs, device: None)
        yield events
