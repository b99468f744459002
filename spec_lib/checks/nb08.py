"""The exercises of notebook 08: tokens of a round, best gamma, largest c, the identity, alpha of whole rounds."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence

import torch

from ..records import Round
from .engine import Exercise
from .reference import mean, over_verdicts


def stretches(length: float, n: int, generator: torch.Generator) -> list[float]:
    """The overlap at n positions of a made-up text: 0.9 or 0.5, either with probability a half for each stretch, whose
    lengths are geometric with mean `length`."""
    new = torch.rand(n, generator=generator) < 1 / length  # a stretch begins here
    first = torch.where(new, torch.arange(n), 0).cummax(0).values  # where this position's stretch began
    easy = torch.rand(n, generator=generator) < 0.5
    return [0.9 if x else 0.5 for x in easy[first].tolist()]


def _tokens(acceptance: Sequence[float]) -> float:
    """Expected tokens of a round."""
    return over_verdicts(acceptance, lambda n: n + 1)


def _reached(acceptance: Sequence[float]) -> list[float]:
    """The probability that a round writes a token at each position, the one after the draft included."""
    return [math.prod(acceptance[:i]) for i in range(len(acceptance) + 1)]


TOKENS_FROM_POSITIONS = Exercise.against(
    _tokens,
    cases={
        "one draft token, .7": ([0.7],),
        "two draft tokens, .9 and .6": ([0.9, 0.6],),
        "the same, .6 and .9": ([0.6, 0.9],),
        "the mixture of stretches: .7, .757, .806, .841": ([0.7, 0.757, 0.806, 0.841],),
        "the first draft token is never accepted": ([0.0, 0.9, 0.9],),
        "every draft token is accepted": ([1.0, 1.0, 1.0],),
        "no draft": ([],),
    },
    mistakes={
        "the token that the target adds is not counted": lambda a: sum(_reached(a)) - 1,
        "the probabilities are added as if every position were reached; multiply along the draft": lambda a: 1 + sum(a),
        "the mean over the positions was put into the formula for one alpha: the order of the positions matters": (
            lambda a: sum(mean(a) ** i for i in range(len(a) + 1))
        ),
        "the last draft token is missing: a round can write one token more than it drafts": (
            lambda a: sum(_reached(a)[:-1])
        ),
        "only drafts that are accepted whole are counted: the others write tokens too": (
            lambda a: 1 + len(a) * _reached(a)[-1]
        ),
        "a draft token that is reached counts before it is accepted: multiply first, then add": (
            lambda a: 1 + sum(_reached(a)[:-1])
        ),
        "the whole draft counts as one token: a token is written for each position that is reached": (
            lambda a: 1 + _reached(a)[-1]
        ),
        "the first position's probability was taken for all: each has its own": (
            lambda a: sum((a or [0.0])[0] ** i for i in range(len(a) + 1))
        ),
        "each position's probability was raised to a power; multiply it with those of the positions before it": (
            lambda a: 1 + sum(x ** (i + 1) for i, x in enumerate(a))
        ),
    },
)


def check_tokens_from_positions(function: Callable[[list[float]], float]) -> bool:
    """function(acceptance) -> expected tokens per target pass; acceptance[i]: at position i + 1, once it is reached."""
    return TOKENS_FROM_POSITIONS.check(function)


def _gains(alpha: float, c: float, seconds: dict[int, float]) -> dict[int, float]:
    """Speed-up at each gamma for which the table says what the verification pass costs."""
    return {n - 1: _tokens([alpha] * (n - 1)) / ((n - 1) * c + seconds[n] / seconds[1]) for n in seconds}


def _best(gains: dict[int, float]) -> int:
    return max(sorted(gains), key=gains.__getitem__)


def _interpolated(alpha: float, c: float, seconds: dict[int, float]) -> int:
    """The best gamma of all up to the longest pass, which are taken to lie on straight lines between the measured."""
    full, known = dict(seconds), sorted(seconds)
    for low, high in itertools.pairwise(known):
        for n in range(low + 1, high):
            full[n] = seconds[low] + (seconds[high] - seconds[low]) * (n - low) / (high - low)
    return _best(_gains(alpha, c, full))


GAMMA_FROM_TABLE = Exercise.against(
    lambda alpha, c, seconds: _best(_gains(alpha, c, seconds)),
    cases={
        "alpha .7, c .077, a pass of 10 ms and a tenth more for each further token": (
            0.7,
            0.077,
            {n: 0.010 * (1 + 0.1075 * (n - 1)) for n in range(1, 10)},
        ),
        "alpha .7, c .077, every pass 50 ms": (0.7, 0.077, {n: 0.050 for n in range(1, 10)}),
        "alpha .8, c .1, the second token costs a quarter more, the others nothing": (
            0.8,
            0.1,
            {1: 0.8, **{n: 1.0 for n in range(2, 10)}},
        ),
        "alpha .9, c .1, measured at n = 1, 2, 3, 5, 9 only": (
            0.9,
            0.1,
            {1: 0.02, 2: 0.025, 3: 0.027, 5: 0.028, 9: 0.06},
        ),
        "alpha .2, c .3, every pass 50 ms": (0.2, 0.3, {n: 0.050 for n in range(1, 10)}),
        "alpha .5, c .1, n tokens cost n passes": (0.5, 0.1, {n: 0.4 * n for n in range(1, 7)}),
        "alpha .7, c .1, measured at n = 1, 2 and 9 only": (0.7, 0.1, {1: 1.0, 2: 1.2, 9: 1.3}),
    },
    mistakes={
        "every pass counts as one, as in the idealised formula; the table says what it costs": (
            lambda a, c, v: _best(_gains(a, c, dict.fromkeys(v, 1.0)))
        ),
        "the pass is taken over gamma tokens; it also reads the last one of the text: gamma + 1": (
            lambda a, c, v: _best({g: _tokens([a] * g) / (g * c + (v[g] / v[1] if g else 1.0)) for g in [0, *v]})
        ),
        "seconds and passes are mixed: c counts in passes over one token, so divide the table by its first entry": (
            lambda a, c, v: _best({n - 1: _tokens([a] * (n - 1)) / ((n - 1) * c + v[n]) for n in v})
        ),
        "drafting is free here; gamma passes of the draft model cost gamma c": lambda a, c, v: _best(_gains(a, 0.0, v)),
        "plain decoding is not among the choices: where nothing pays, answer 0": (
            lambda a, c, v: _best({g: gain for g, gain in _gains(a, c, v).items() if g})
        ),
        "this gamma has the most tokens per target pass, not the most a second": lambda a, c, v: max(v) - 1,
        "this is the number of tokens in the pass; gamma is one less": lambda a, c, v: _best(_gains(a, c, v)) + 1,
        "a gamma counts only if its pass, over gamma + 1 tokens, was measured: guess nothing in between": _interpolated,
        "this is the speed-up at the best gamma; return the gamma": lambda a, c, v: max(_gains(a, c, v).values()),
    },
    errors={"KeyError": "some lengths are missing in the table: take each n from the table, and gamma as n - 1"},
)


def check_gamma_from_table(function: Callable[[float, float, dict[int, float]], int]) -> bool:
    """function(alpha, c, seconds) -> the gamma of the largest speed-up, 0 where none pays; seconds[n]: a target pass
    over n tokens."""
    return GAMMA_FROM_TABLE.check(function)


def _limits(alpha: float, v: list[float]) -> list[float]:
    """The c at which each gamma from 1 on neither wins nor loses."""
    return [(_tokens([alpha] * g) - v[g]) / g for g in range(1, len(v))]


BREAK_EVEN_C = Exercise.against(
    lambda alpha, v: max(0.0, *_limits(alpha, v)),
    cases={
        "alpha .7, every pass costs 1": (0.7, [1.0] * 6),
        "alpha .7, a tenth more for each further token": (0.7, [1.0, 1.1, 1.2, 1.3, 1.4]),
        "alpha .8, a step at the second token": (0.8, [1.0, 1.4, 1.4, 1.4, 1.4, 1.4]),
        "alpha .5, a step at the third token": (0.5, [1.0, 1.0, 2.0, 2.0]),
        "alpha .3, n tokens cost n passes": (0.3, [1.0, 2.0, 3.0]),
        "alpha .9, a step at the second token: the longest draft is the best": (0.9, [1.0, 2.0, 2.0, 2.0]),
    },
    mistakes={
        "this is the idealised formula's answer, alpha: the longer pass was taken for free, or as if it read gamma "
        "tokens": lambda alpha, v: alpha,
        "only gamma = 1 was tried; where the cost is a step, a longer draft shares it": (
            lambda alpha, v: max(0.0, _limits(alpha, v)[0])
        ),
        "this is what all draft passes of a round may cost together; the round makes gamma of them": (
            lambda alpha, v: max(0.0, *(limit * g for g, limit in enumerate(_limits(alpha, v), 1)))
        ),
        "the smallest limit was taken: you choose gamma, so the best one counts": (
            lambda alpha, v: max(0.0, min(_limits(alpha, v)))
        ),
        "no draft model costs less than nothing: answer 0 where nothing pays": lambda alpha, v: max(_limits(alpha, v)),
        "the pass is taken over gamma + 2 tokens: v counts from v[0], a pass over one": (
            lambda alpha, v: max(
                0.0, *((_tokens([alpha] * g) - v[min(g + 1, len(v) - 1)]) / g for g in range(1, len(v)))
            )
        ),
        "the tokens are divided by the pass, as if it were the whole round: the drafting is to be added to it": (
            lambda alpha, v: max(0.0, *((_tokens([alpha] * g) / v[g] - 1) / g for g in range(1, len(v))))
        ),
        "a round writes one token besides the accepted ones: the expected tokens begin with 1": (
            lambda alpha, v: max(0.0, *((_tokens([alpha] * g) - 1 - v[g]) / g for g in range(1, len(v))))
        ),
        "a round makes gamma draft passes, not gamma + 1": (
            lambda alpha, v: max(0.0, *((_tokens([alpha] * g) - v[g]) / (g + 1) for g in range(1, len(v))))
        ),
        "the last entry of v counts, too: gamma goes up to len(v) - 1": (
            lambda alpha, v: max([0.0, *_limits(alpha, v)[:-1]])
        ),
        "the longest draft was taken: the gamma with the most tokens per target pass need not be the best": (
            lambda alpha, v: max(0.0, _limits(alpha, v)[-1])
        ),
    },
)


def check_break_even_c(function: Callable[[float, list[float]], float]) -> bool:
    """function(alpha, v) -> the largest c at which some gamma is no loss, 0 if there is none; v[n - 1]: cost of a pass
    over n tokens, in passes over one."""
    return BREAK_EVEN_C.check(function)


def _rounds(*rows: tuple[int, int, str]) -> tuple[list[Round]]:
    """The arguments of a call with these rounds: drafted, accepted, what cut the round short."""
    found = []
    for k, n, cut in rows:
        ended = cut == "eos"
        origin = None if ended else "plain" if k == 0 else "bonus" if n == k else "resampled"
        found.append(Round(torch.zeros(k, dtype=torch.int64), n, None if ended else 1, origin, cut=bool(cut)))
    return (found,)


def _verdicts(rounds: list[Round]) -> list[bool]:
    """One for each verified draft token of a whole round."""
    return [v for r in rounds if not r.cut for v in [True] * r.accepted + [False] * (r.accepted < len(r.drafted))]


def _whole(rounds: list[Round]) -> list[Round]:
    return [r for r in rounds if not r.cut]


def _rate(rounds: list[Round], rejected: Callable[[Round], int] = lambda r: r.accepted < len(r.drafted)) -> float:
    accepted = sum(r.accepted for r in rounds)
    return accepted / (accepted + sum(map(rejected, rounds)))


ALPHA_OF_WHOLE_ROUNDS = Exercise.against(
    lambda rounds: mean(_verdicts(rounds)),
    cases={
        "three whole rounds, 2, 4 and 1 of 4 accepted": _rounds((4, 2, ""), (4, 4, ""), (4, 1, "")),
        "two whole rounds, then a last one cut to one draft token, which was rejected": (
            _rounds((4, 2, ""), (4, 4, ""), (1, 0, "end"))
        ),
        "an end-of-text token among the accepted ones cut the last round": (
            _rounds((4, 1, ""), (4, 0, ""), (4, 3, "eos"))
        ),
        "two texts in one list, with a cut round in the middle": (
            _rounds((4, 3, ""), (2, 0, "end"), (4, 4, ""), (4, 1, ""))
        ),
        "a text that ended with a whole round, and a round without a draft before it": (
            _rounds((0, 0, "end"), (4, 2, ""))
        ),
    },
    mistakes={
        "the rounds that were cut short are still in": _rate,
        "draft tokens after a rejection count as rejected; they were never verified": (
            lambda rounds: _rate(_whole(rounds), lambda r: len(r.drafted) - r.accepted)
        ),
        "every round counts one rejection, also a full acceptance": lambda rounds: _rate(_whole(rounds), lambda r: 1),
        "the last round of the list is dropped, cut or not: look at r.cut": lambda rounds: _rate(rounds[:-1]),
        "only rounds with a rejection are counted, so the best ones are missing": (
            lambda rounds: _rate([r for r in _whole(rounds) if r.rejected is not None])
        ),
        "the rates of the rounds were averaged: all verified draft tokens weigh the same, so add up first": (
            lambda rounds: mean(_rate([r]) for r in _whole(rounds) if len(r.drafted))
        ),
    },
)


def check_alpha_of_whole_rounds(function: Callable[[list[Round]], float]) -> bool:
    """function(rounds) -> acceptance rate over the verified draft tokens of the rounds that were not cut short."""
    return ALPHA_OF_WHOLE_ROUNDS.check(function)


def _traced(*rows: tuple[int, list[float]]) -> tuple[list[Round]]:
    """The arguments of a call with these whole rounds: accepted, overlap at each position of the draft and after it."""
    found = []
    for n, overlap in rows:
        k = len(overlap) - 1
        origin = "bonus" if n == k else "resampled"
        found.append(Round(torch.zeros(k, dtype=torch.int64), n, 1, origin, overlap=torch.tensor(overlap)))
    return (found,)


def _of_text(rounds: list[Round]) -> list[float]:
    """The overlap at each position of the text."""
    return [float(x) for r in rounds for x in r.overlap[: r.accepted + 1]]


def _at_bonus(rounds: list[Round]) -> list[float]:
    return [float(r.overlap[-1]) for r in rounds if r.origin == "bonus"]


def _sides(rounds: list[Round]) -> tuple[float, float]:
    n = len(_of_text(rounds))
    return len(rounds) / n, 1 - sum(_of_text(rounds)) / n + sum(_at_bonus(rounds)) / n


def _with_right_side(right: Callable[[list[Round]], float]) -> Callable[[list[Round]], tuple[float, float]]:
    return lambda rounds: (_sides(rounds)[0], right(rounds))


def _all_overlaps(rounds: list[Round]) -> float:
    """The right side, with the positions after a rejection counted in alpha."""
    every = [float(x) for r in rounds for x in r.overlap]
    return 1 - mean(every) + sum(_at_bonus(rounds)) / len(_of_text(rounds))


def _tested_only(rounds: list[Round]) -> float:
    """The right side, with alpha over the tested positions only."""
    tested = [float(x) for r in rounds for x in r.overlap[: r.accepted + (r.origin == "resampled")]]
    return 1 - mean(tested) + sum(_at_bonus(rounds)) / len(_of_text(rounds))


def _accepted_only(rounds: list[Round]) -> float:
    """The right side, with the overlap at the target's own token left out of the sum."""
    n = len(_of_text(rounds))
    return 1 - sum(float(x) for r in rounds for x in r.overlap[: r.accepted]) / n + sum(_at_bonus(rounds)) / n


def _over(rounds: list[Round], n: int) -> tuple[float, float]:
    """Both sides with n in the place of the number of tokens."""
    return len(rounds) / n, 1 - sum(_of_text(rounds)) / n + sum(_at_bonus(rounds)) / n


def _last(rounds: list[Round]) -> float:
    """The overlaps at the last position of each round's draft and bonus, added up."""
    return sum(float(r.overlap[-1]) for r in rounds)


IDENTITY_SIDES = Exercise.against(
    _sides,
    cases={
        "one round of 2, the first accepted": _traced((1, [0.9, 0.6, 0.2])),
        "one round of 2, both accepted": _traced((2, [0.9, 0.6, 0.2])),
        "three rounds of 2: 0, 2 and 1 accepted": _traced(
            (0, [0.4, 0.9, 0.8]), (2, [0.9, 0.7, 0.5]), (1, [0.8, 0.6, 1])
        ),
        "four rounds of 3, two of them accepted whole": (
            _traced(
                (3, [0.9, 0.8, 0.9, 0.7]), (0, [0.2, 0.6, 0.6, 0.1]), (3, [1, 0.9, 0.5, 0.3]), (1, [0.7, 0.4, 0.9, 0.9])
            )
        ),
    },
    mistakes={
        "overlaps after a rejection are counted in alpha; those positions never belonged to the text": (
            _with_right_side(_all_overlaps)
        ),
        "alpha leaves out the bonus positions; it is the mean over all positions of the text": (
            _with_right_side(_tested_only)
        ),
        "the bonus term is missing: this is the least that a text can need": (
            _with_right_side(lambda rounds: 1 - mean(_of_text(rounds)))
        ),
        "the bonus term counts the bonus tokens; each counts only with the overlap at its position": (
            _with_right_side(lambda rounds: 1 - mean(_of_text(rounds)) + len(_at_bonus(rounds)) / len(_of_text(rounds)))
        ),
        "the bonus term is divided by the number of passes, not of tokens": (
            _with_right_side(lambda rounds: 1 - mean(_of_text(rounds)) + sum(_at_bonus(rounds)) / len(rounds))
        ),
        "the tokens that the target adds are not counted": lambda rounds: tuple(
            x * len(_of_text(rounds)) / max(sum(r.accepted for r in rounds), 1) for x in _sides(rounds)
        ),
        "alpha is taken over the accepted draft tokens; the token that the target adds has its position, too": (
            _with_right_side(_accepted_only)
        ),
        "the tokens are counted without the one that the target adds in each round": lambda rounds: _over(
            rounds, max(sum(r.accepted for r in rounds), 1)
        ),
        "alpha itself is added; the first term is 1 - alpha": _with_right_side(
            lambda rounds: mean(_of_text(rounds)) + sum(_at_bonus(rounds)) / len(_of_text(rounds))
        ),
        "the overlaps are averaged round by round; every position of the text counts the same": _with_right_side(
            lambda rounds: (
                1 - mean(mean(_of_text([r])) for r in rounds) + sum(_at_bonus(rounds)) / len(_of_text(rounds))
            )
        ),
        "the bonus term is summed over resampled tokens as well; a bonus comes only after a whole accepted draft": (
            _with_right_side(lambda rounds: 1 - mean(_of_text(rounds)) + _last(rounds) / len(_of_text(rounds)))
        ),
        "the mean overlap at the bonus positions counts by their share: times bonus tokens, divided by tokens": (
            _with_right_side(lambda rounds: 1 - mean(_of_text(rounds)) + mean(_at_bonus(rounds) or [0.0]))
        ),
        "what was drafted after a rejection is no token of the text: a round has `accepted` + 1 positions": (
            lambda rounds: (
                len(rounds) / sum(len(r.overlap) for r in rounds),
                1
                - mean(x for r in rounds for x in r.overlap.tolist())
                + sum(_at_bonus(rounds)) / sum(len(r.overlap) for r in rounds),
            )
        ),
        "the left side is tokens per target pass; it is passes per token": lambda rounds: (
            1 / _sides(rounds)[0],
            _sides(rounds)[1],
        ),
        "the two sides are swapped": lambda rounds: _sides(rounds)[::-1],
        "this is tokens per target pass; both sides are passes per token": lambda rounds: tuple(
            1 / x for x in _sides(rounds)
        ),
    },
)


def check_identity_sides(function: Callable[[list[Round]], tuple[float, float]]) -> bool:
    """function(rounds) -> (passes / tokens, (1 - alpha) + bonus tokens / tokens * mean overlap at the bonus positions)
    of whole, traced rounds."""
    return IDENTITY_SIDES.check(function)
