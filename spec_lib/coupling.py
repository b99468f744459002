"""Shared noise: target and draft race with the same clocks, so that speculative and plain sampling write one text.

Daliri, Musco, Suresh, *Coupling without Communication and Drafter-Invariant Speculative Decoding* (2408.07978).  The
noise belongs to a position of the text, whoever draws there and with which distribution.  Derived in notebook 11.
"""

from __future__ import annotations

import torch

from .devices import threads_for
from .numbers import as_int


class SharedNoise:
    """A `Randomness` whose noise depends on the seed and the position alone, and the rule that goes with it.

    seed: an int of 64 bits.  Given as `generator`, it makes `speculative` write the tokens that `autoregressive` writes
    with it, for any draft and gamma, up to rounding of the logits (two runners that arrive nearly at once may change
    places).  Under another rule it would be wrong, since the token after a rejection would be drawn with the noise that
    drew the rejected one: the loops refuse that.
    ValueError for another seed.
    """

    def __init__(self, seed: int):
        if (number := as_int(seed)) is None or not -(2**63) <= number < 2**64:
            raise ValueError(f"the seed of shared noise must be a whole number of 64 bits, got {seed!r}")
        signed = (number + 2**63) % 2**64 - 2**63  # the same bits as int64
        self.key = int(_mixed(torch.tensor(signed)))  # neighbouring seeds have nothing in common

    def draw(self, p: torch.Tensor, position: int | torch.Tensor) -> torch.Tensor:
        """One token (1,) int64 from the distribution p (vocab,): the first to arrive in a race, argmin E_x / p_x."""
        if not isinstance(position, torch.Tensor):
            position = torch.full((), position, device=p.device)  # unlike `torch.tensor`, it waits for no device
        return self._first(p.unsqueeze(0), position.to(p.device).view(1))

    def uniforms(self, k: int, position: int) -> torch.Tensor:
        """(k,) NaN: the rule that goes with this noise needs no uniforms."""
        return torch.full((k,), torch.nan)

    def verify_coupled(
        self, p: torch.Tensor, q: torch.Tensor, drafted: torch.Tensor, uniforms: torch.Tensor, position: int
    ):
        """The target draws its own token at every position; drafted tokens are accepted while they are the same.

        Arguments and meaning as `protocols.Rule`, position: that of the first drafted token.  Returns (n, one-hot
        distribution of the target's own token there); nothing here waits for the device.
        """
        k = len(drafted)
        own = self._first(p, position + torch.arange(k + 1, device=p.device))  # (k + 1,)
        n = (own[:k] == drafted).cumprod(0).sum()
        return n, torch.zeros_like(p[0]).scatter_(0, own.index_select(0, n.view(1)), 1)

    def clocks(self, positions: torch.Tensor, vocab: int) -> torch.Tensor:
        """E (n, vocab) float32, independent exponential waiting times for each of positions (n,) int64 and each token.

        They are computed from (seed, position, token) alone, on any device the same to rounding.
        """
        tokens = torch.arange(vocab, device=positions.device)
        bits = _mixed(_mixed(positions + self.key).unsqueeze(1) + tokens)
        u = ((bits >> 11) & (2**53 - 1)).float() / 2**53  # in [0, 1]; the small ones, which win, are the finest
        with threads_for(u):
            return -torch.log1p(-u.clamp(2.0**-54, 1 - 2.0**-24))

    def _first(self, p: torch.Tensor, positions: torch.Tensor) -> torch.Tensor:
        """The winner (n,) of each race, p (n, vocab).  A token of probability 0 never arrives."""
        clocks = self.clocks(positions, p.shape[1])
        return torch.where(p > 0, clocks / p, torch.inf).argmin(1)


def _mixed(x: torch.Tensor) -> torch.Tensor:
    """int64 to int64, one to one, each bit of the result depending on all bits: one step of SplitMix64 (Steele, Lea,
    Flood 2014).  torch has no generator that is asked for a position."""
    x = x + (0x9E3779B97F4A7C15 - 2**64)
    x = (x ^ (x >> 30 & 2**34 - 1)) * (0xBF58476D1CE4E5B9 - 2**64)
    x = (x ^ (x >> 27 & 2**37 - 1)) * (0x94D049BB133111EB - 2**64)
    return x ^ (x >> 31 & 2**33 - 1)
