"""The toy of notebook 07: two tables of three tokens, and how far a distribution of texts is from the target's."""

from __future__ import annotations

import torch

from .reference import distribution

P = torch.stack([distribution(0.5, 0.3, 0.2), distribution(0.1, 0.6, 0.3), distribution(0.3, 0.3, 0.4)])
Q = torch.stack([distribution(0.2, 0.5, 0.3), distribution(0.4, 0.5, 0.1), distribution(0.3, 0.6, 0.1)])


def of_texts(table: torch.Tensor, length: int) -> torch.Tensor:
    """The probability of every text of this length after token 0, (vocab, ..., vocab): products of the table's rows."""
    p = table[0]
    for _ in range(length - 1):
        p = p[..., None] * table  # every text so far, times every next token
    return p


def distances(found: torch.Tensor, table: torch.Tensor) -> list[float]:
    """Total variation from the table's own texts, over the first 1, 2, 3, ... tokens, to three decimals.

    found: the probability of every text, (vocab, ..., vocab).
    """
    far = []
    for length in range(1, found.ndim + 1):
        rest = tuple(range(length, found.ndim))
        shorter = found.sum(rest) if rest else found
        far.append(round(float((shorter - of_texts(table, length)).abs().sum() / 2), 3) + 0.0)  # no -0.0
    return far
