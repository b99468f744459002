"""Evaluation mode and no gradients, for the time of a forward pass."""

from __future__ import annotations

import threading
import weakref

import torch

_LOCK = threading.Lock()
_PASSES: weakref.WeakKeyDictionary = weakref.WeakKeyDictionary()  # module -> [blocks it is in now, its own flag]


class evaluating:
    """`with evaluating(module):` inside, the module is in evaluation mode and no gradients are recorded.

    Afterwards each submodule's own flag is restored, by the last block that it is in: threads may share a module.  With
    dropout on, two passes over the same text would give different distributions.  One object may be entered again and
    again, also while it is still entered; the walk through the module is done once, when it is made.
    """

    def __init__(self, module: torch.nn.Module):
        self.parts = list(module.modules())
        self.entered = threading.local()  # gradients are switched for each thread by itself

    def __reduce__(self) -> tuple:
        """A copy, a pickled one too, is one of the copied module that nobody has entered."""
        return evaluating, (self.parts[0],)

    def __enter__(self) -> None:
        with _LOCK:
            held = [part for part in self.parts if part.training or (_PASSES and part in _PASSES)]  # mostly none
            for part in held:
                _PASSES.setdefault(part, [0, part.training])[0] += 1
                part.training = False
        no_grad = torch.no_grad()
        self.entered.stack = [*getattr(self.entered, "stack", []), (held, no_grad)]
        no_grad.__enter__()

    def __exit__(self, *error) -> None:
        *self.entered.stack, (held, no_grad) = self.entered.stack
        no_grad.__exit__(*error)
        with _LOCK:
            for part in held:
                _PASSES[part][0] -= 1
                if not _PASSES[part][0]:
                    part.training = _PASSES.pop(part)[1]
