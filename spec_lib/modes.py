"""Evaluation mode and no gradients, for the time of a forward pass."""

from __future__ import annotations

import torch


class evaluating:
    """`with evaluating(module):` inside, the module is in evaluation mode and no gradients are recorded.

    Afterwards each submodule's own flag is restored.  With dropout on, two passes over the same text would give
    different distributions.  One object may be entered again and again, also while it is still entered; the walk
    through the module is done once, when it is made.
    """

    def __init__(self, module: torch.nn.Module):
        self.parts = list(module.modules())
        self.entered: list[tuple[list[torch.nn.Module], torch.no_grad]] = []

    def __enter__(self) -> None:
        training, no_grad = [part for part in self.parts if part.training], torch.no_grad()
        self.entered.append((training, no_grad))
        for part in training:
            part.training = False
        no_grad.__enter__()

    def __exit__(self, *error) -> None:
        training, no_grad = self.entered.pop()
        no_grad.__exit__(*error)
        for part in training:
            part.training = True
