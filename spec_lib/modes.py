"""Evaluation mode and no gradients, for the time of a forward pass."""

from __future__ import annotations

import torch


class evaluating:
    """`with evaluating(module):` its parts are in evaluation mode and keep no gradients; then each gets its flag back.

    Dropout would make every pass over one text another distribution.  One object may be entered many times: the walk
    through the module is done once, when it is made.
    """

    def __init__(self, module: torch.nn.Module):
        self.parts = list(module.modules())

    def __enter__(self) -> None:
        self.training = [part for part in self.parts if part.training]
        for part in self.training:
            part.training = False
        self.no_grad = torch.no_grad()
        self.no_grad.__enter__()

    def __exit__(self, *error) -> None:
        self.no_grad.__exit__(*error)
        for part in self.training:
            part.training = True
