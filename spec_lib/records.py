"""What a speculative text leaves behind: rounds, the finished text, and its statistics.  Notebooks 00 and 08."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

import torch

from .numbers import described


class CacheLengths(NamedTuple):
    """Tokens in a cache before a round, when it was fullest, and after the rollback."""

    before: int
    filled: int
    after: int


@dataclass(eq=False)  # tensors have no single truth value, so rounds are compared by identity
class Round:
    """What one target pass did.

    drafted: (k,) int64 on the CPU.  accepted: how many of them were emitted.  token: what the target added; None
    only when an accepted draft token was EOS.  origin: "resampled" (from the residual distribution, after a rejection)
    | "bonus" (all accepted) | "plain" (nothing was drafted) | None (no token).  cut: the round could not run its
    course, because the budget or the draft's context ended or because EOS fell inside it; it stays out of fits.
    token_by_token: the rule stopped at the first rejected token, so that the rejected ones can be counted.
    parents: of a tree, as in `Draft`; path: the indices of its accepted tokens.  Both None for a chain.
    Where they were traced also, on the CPU: uniforms (k,), p (k + 1, vocab), q (k, vocab), overlap (k + 1,) = sum
    min(p, q) (the last NaN where the session cannot look ahead), and what each cache held (`CacheLengths`; positions
    fed = filled - before).
    """

    drafted: torch.Tensor
    accepted: int
    token: int | None
    origin: str | None
    cut: bool = False
    token_by_token: bool = True
    parents: list[int] | None = None
    path: list[int] | None = None
    uniforms: torch.Tensor | None = None
    p: torch.Tensor | None = None
    q: torch.Tensor | None = None
    overlap: torch.Tensor | None = None
    target_cache: CacheLengths | None = None
    draft_cache: CacheLengths | None = None

    @property
    def tokens(self) -> list[int]:
        """The tokens that this round added to the text, in order."""
        kept = self.drafted[: self.accepted] if self.path is None else self.drafted[self.path]
        return kept.tolist() + ([] if self.token is None else [self.token])

    @property
    def rejected(self) -> int | None:
        """The rejected draft token, or None; None for a tree, where it may be several."""
        return int(self.drafted[self.accepted]) if self.origin == "resampled" and self.path is None else None


@dataclass(eq=False)
class Generation:
    """A finished text.

    tokens: (new,) int64 on the CPU.  ids: (1, prompt + new) on the prompt's device, without the padding that an
    attention mask hid.  rounds: [] for autoregressive.  stop_reason: "eos" | "length"; of an `Engine`'s request also
    "cancelled" and "error", and None while it is written.
    """

    tokens: torch.Tensor
    ids: torch.Tensor
    rounds: list[Round] = field(default_factory=list)
    stop_reason: str = "length"


@dataclass(frozen=True)
class Summary:
    """Counts over rounds, and the numbers that are often confused (each NaN where it is undefined).

    alpha: acceptance rate, accepted / (accepted + rejected): draft tokens after a rejection were never tested.  NaN
        where they were (block verification, trees): then tokens_per_pass is what counts.
    mean_overlap: mean of sum min(p, q) over the tested positions (rounds whose overlap was traced only).
    tokens_per_pass: emitted tokens per target pass.
    share: accepted / drafted, the misleading one: it falls with gamma although nothing got worse.
    """

    passes: int
    emitted: int
    drafted: int
    accepted: int
    rejected: int
    bonus: int
    plain: int
    alpha: float
    mean_overlap: float
    tokens_per_pass: float
    share: float


def as_rounds(rounds: Iterable[Round] | Generation) -> list[Round]:
    """Rounds as a list, also those of a generation; ValueError for what holds none."""
    given = rounds.rounds if isinstance(rounds, Generation) else rounds
    found = list(given) if isinstance(given, Iterable) else None
    if found is None or isinstance(given, (str, dict)) or not all(hasattr(r, "accepted") for r in found):
        hint = " (of several: [r for g in generations for r in g.rounds])" if found else ""
        got = described(given if found is None else found[0] if found else given)
        raise ValueError(f"rounds must be those of a generation, g.rounds{hint}, got {got}")
    return found


def summarize(rounds: Iterable[Round] | Generation) -> Summary:
    """The one home of a generation's statistics; they count what was emitted.  Notebook 08."""
    rounds = as_rounds(rounds)
    origins = [r.origin for r in rounds]
    accepted, rejected = sum(r.accepted for r in rounds), origins.count("resampled")
    drafted, emitted = sum(len(r.drafted) for r in rounds), accepted + sum(r.token is not None for r in rounds)
    traced = [r for r in rounds if r.overlap is not None and r.token_by_token]
    countable = all(r.token_by_token for r in rounds)
    overlaps = [x for r in traced for x in r.overlap[: r.accepted + (r.origin == "resampled")].tolist()]

    def ratio(a: float, b: float) -> float:
        return a / b if b else math.nan

    return Summary(
        passes=len(rounds),
        emitted=emitted,
        drafted=drafted,
        accepted=accepted,
        rejected=rejected,
        bonus=origins.count("bonus"),
        plain=origins.count("plain"),
        alpha=ratio(accepted, accepted + rejected) if countable else math.nan,
        mean_overlap=ratio(sum(overlaps), len(overlaps)),
        tokens_per_pass=ratio(emitted, len(rounds)),
        share=ratio(accepted, drafted),
    )


def identity_sides(rounds: Iterable[Round] | Generation) -> tuple[float, float]:
    """Target passes for each token of the text, and what that is in expectation, under any dependence whatever.

    The second is (1 - alpha) + (bonus tokens / tokens) * mean overlap at the bonus positions, alpha the mean overlap
    over all positions of the text.  rounds: whole and traced; (NaN, NaN) for none.  The second is NaN where an
    overlap is, of a session that cannot look ahead.  ValueError for untraced rounds and for those of a tree, which have
    no overlap.  Derived in notebook 08.
    """
    rounds = as_rounds(rounds)
    if any(r.overlap is None for r in rounds):
        raise ValueError("a round has no overlap: write with trace=True (the rounds of a tree have none)")
    overlaps = [x for r in rounds for x in r.overlap[: r.accepted + 1].tolist()]  # of each token that was emitted
    at_bonus = [float(r.overlap[r.accepted]) for r in rounds if r.origin == "bonus"]
    if not overlaps:
        return math.nan, math.nan
    return len(rounds) / len(overlaps), (len(overlaps) - sum(overlaps) + sum(at_bonus)) / len(overlaps)
