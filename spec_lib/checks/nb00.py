"""The exercises of notebook 00: tokens per target pass and the acceptance rate."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch

from ..records import Round
from .engine import Case, Exercise
from .reference import mean


def _rounds(accepted: Sequence[int], drafted: Sequence[int]) -> list[Round]:
    return [
        Round(torch.zeros(k, dtype=torch.int64), n, 1, "plain" if k == 0 else "bonus" if n == k else "resampled")
        for n, k in zip(accepted, drafted, strict=True)
    ]


_ENDED = Round(torch.zeros(3, dtype=torch.int64), 2, None, None)  # by an accepted end-of-text token

TOKENS_PER_PASS = Exercise(
    cases=(
        Case("one round, 2 of 4 draft tokens accepted", (_rounds([2], [4]),), 3.0),
        Case("rounds with 4, 2, 0 and 3 of 4 accepted", (_rounds([4, 2, 0, 3], [4] * 4),), 3.25),
        Case("a round without a draft", (_rounds([0, 4], [0, 4]),), 3.0),
        Case("an accepted token ended the text: nothing was added", ([_ENDED],), 2.0),
    ),
    mistakes={
        "the target's own token (resampled or bonus) is not counted": lambda rs: mean(r.accepted for r in rs),
        "rejected draft tokens are counted as text": lambda rs: mean(len(r.drafted) + 1 for r in rs),
        "the tokens are added up, not divided by the passes": lambda rs: sum(r.accepted + 1 for r in rs),
    },
)


def check_tokens_per_pass(function: Callable[[list[Round]], float]) -> bool:
    """function(rounds) -> emitted tokens per target pass."""
    return TOKENS_PER_PASS.check(function)


def _rate(rounds: list[Round], rejected: Callable[[Round], int]) -> float:
    accepted = sum(r.accepted for r in rounds)
    return accepted / (accepted + sum(map(rejected, rounds)))


ACCEPTANCE_RATE = Exercise(
    cases=(
        Case("one round, 2 of 4 draft tokens accepted", (_rounds([2], [4]),), 2 / 3),
        Case("rounds with 4, 2, 0 and 3 of 4 accepted", (_rounds([4, 2, 0, 3], [4] * 4),), 0.75),
        Case("the last round drafts 3 only, all accepted", (_rounds([4, 2, 0, 3], [4, 4, 4, 3]),), 9 / 11),
        Case(
            "the second round ends with an accepted end-of-text token: nothing was rejected in it",
            ([*_rounds([2], [4]), _ENDED],),
            4 / 5,
        ),
    ),
    mistakes={
        "a round that stopped at an accepted end-of-text token counts as a rejection; nothing was rejected in it": (
            lambda rs: _rate(rs, lambda r: r.accepted < len(r.drafted))
        ),
        "draft tokens after a rejection count as rejected; the target never verified them": (
            lambda rs: _rate(rs, lambda r: len(r.drafted) - r.accepted)
        ),
        "every round counts one rejection, also those that accepted the whole draft": lambda rs: _rate(rs, lambda r: 1),
        "this is the share of rounds that accepted everything": lambda rs: mean(r.origin == "bonus" for r in rs),
    },
)


def check_acceptance_rate(function: Callable[[list[Round]], float]) -> bool:
    """function(rounds) -> accepted / (accepted + rejected)."""
    return ACCEPTANCE_RATE.check(function)
