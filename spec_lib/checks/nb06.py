"""The exercises of notebook 06: what to cut from two caches, what the draft model has to read, and how much is read."""

from __future__ import annotations

from collections.abc import Callable

from .engine import Exercise


def _caches(drafted: list[int], n: int, token: int) -> tuple[list[int], list[int], list[int]]:
    """One round on lists: the text that it adds, and what target and draft model have read, right or wrong."""
    return [*drafted[:n], token], list(drafted), list(drafted[:-1])


def _still_text(read: list[int], text: list[int]) -> int:
    """How many tokens at the beginning of what was read are text."""
    kept = 0
    while kept < min(len(read), len(text)) and read[kept] == text[kept]:
        kept += 1
    return kept


def _trims(gamma: int, n: int) -> tuple[int, ...]:
    text, *caches = _caches(list(range(gamma)), n, -1)
    return tuple(len(read) - _still_text(read, text) for read in caches)


TRIMS = Exercise.against(
    _trims,
    cases={
        "gamma 4, 1 accepted": (4, 1),
        "gamma 4, none accepted": (4, 0),
        "gamma 4, 3 accepted": (4, 3),
        "gamma 4, all accepted": (4, 4),
        "gamma 1, none accepted": (1, 0),
        "gamma 1, all accepted": (1, 1),
        "gamma 8, 3 accepted": (8, 3),
    },
    mistakes={
        "the draft model's cache is cut as much as the target's, but it never held the last draft token": (
            lambda gamma, n: (gamma - n, gamma - n)
        ),
        "the draft model's cache is cut by a negative number after a full acceptance: there is nothing to cut": (
            lambda gamma, n: (gamma - n, gamma - 1 - n)
        ),
        "the two are swapped: the target is the first": lambda gamma, n: (max(gamma - 1 - n, 0), gamma - n),
        "one cut too many: neither model has read the token that the target added": (
            lambda gamma, n: (gamma + 1 - n, gamma - n)
        ),
        "this is how much stays, not how much is cut": lambda gamma, n: (n, min(n, gamma - 1)),
    },
)


def check_trims(function: Callable[[int, int], tuple[int, int]]) -> bool:
    """function(gamma, n) -> (tokens to cut from the target's cache, from the draft model's)."""
    return TRIMS.check(function)


def _unread(drafted: list[int], n: int, token: int) -> list[int]:
    text, _, read = _caches(drafted, n, token)
    return text[_still_text(read, text) :]


PENDING_FOR_DRAFT = Exercise.against(
    _unread,
    cases={
        f"drafted {drafted}, {n} accepted, then {token}": (drafted, n, token)
        for drafted, n, token in (
            ([11, 12, 13, 14], 2, 99),
            ([11, 12, 13, 14], 0, 99),
            ([11, 12, 13, 14], 3, 99),
            ([11, 12, 13, 14], 4, 99),
            ([21], 0, 98),
            ([21], 1, 98),
        )
    },
    mistakes={
        "the last draft token is forgotten after a full acceptance: the draft model has not read it yet": (
            lambda drafted, n, token: [token]
        ),
        "the last accepted token is fed again: the draft model has read every draft token but its last": (
            lambda drafted, n, token: [*drafted[max(n - 1, 0) : n], token]
        ),
        "all accepted tokens are fed again: they are in the cache already": (
            lambda drafted, n, token: [*drafted[:n], token]
        ),
        "the last draft token is fed also where it was rejected": lambda drafted, n, token: [drafted[-1], token],
        "the rejected token is fed: it is no part of the text": (
            lambda drafted, n, token: [*drafted[n : n + 1], token]
        ),
        "the two are in the wrong order: the draft token comes before the bonus": (
            lambda drafted, n, token: [token, *drafted[n - 1 :]]
        ),
        "the bonus token is missing": lambda drafted, n, token: [drafted[-1]],
    },
)


def check_pending_for_draft(function: Callable[[list[int], int, int], list[int]]) -> bool:
    """function(drafted, n, token) -> the ids that the draft model has to read first in the next round."""
    return PENDING_FOR_DRAFT.check(function)


def _fed(size: int, gamma: int, cached: bool, after_full: bool) -> tuple[int, int]:
    """One round, pass by pass."""
    text = list(range(size))
    read = {"target": size - 1, "draft": size - 1 - after_full}  # before the round
    fed = {"target": 0, "draft": 0}

    def a_pass(model: str) -> None:
        fed[model] += len(text) - (read[model] if cached else 0)
        read[model] = len(text)

    for i in range(gamma):
        a_pass("draft")
        text.append(size + i)
    a_pass("target")
    return fed["target"], fed["draft"]


FED_IN_ROUND = Exercise.against(
    _fed,
    cases={
        "text of 10, gamma 4, with caches": (10, 4, True, False),
        "text of 10, gamma 4, with caches, after a full acceptance": (10, 4, True, True),
        "text of 10, gamma 1, without caches": (10, 1, False, False),
        "text of 10, gamma 4, without caches": (10, 4, False, False),
        "text of 1000, gamma 4, without caches, after a full acceptance": (1000, 4, False, True),
    },
    mistakes={
        "the text's last token is missing from the target's pass: with the draft these are gamma + 1": (
            lambda s, g, cached, full: (g, g + full) if cached else (s + g - 1, _fed(s, g, cached, full)[1])
        ),
        "the last draft token is counted for the draft model: it is not read, as what follows it is not needed": (
            lambda s, g, cached, full: (g + 1, g + 1) if cached else (s + g, sum(s + i for i in range(g + 1)))
        ),
        "one token is forgotten after a full acceptance: the draft model then reads two in its first pass": (
            lambda s, g, cached, full: _fed(s, g, cached, False)
        ),
        "the extra token is the draft model's alone: the target is never one short": (
            lambda s, g, cached, full: (g + 1 + full, g + full) if cached else _fed(s, g, cached, full)
        ),
        "without a cache each draft pass reads a text that has grown by one": (
            lambda s, g, cached, full: _fed(s, g, cached, full) if cached else (s + g, s * g)
        ),
        "without a cache everything is read again, so no token is left over after a full acceptance": (
            lambda s, g, cached, full: (_fed(s, g, cached, full)[0], _fed(s, g, cached, False)[1] + full)
        ),
    },
)


def check_fed_in_round(function: Callable[[int, int, bool, bool], tuple[int, int]]) -> bool:
    """function(size, gamma, cached, after_full) -> positions that target and draft model read in one round."""
    return FED_IN_ROUND.check(function)
