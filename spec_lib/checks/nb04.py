"""The exercises of notebook 04: the tokens of a round, of a greedy round, and how many without a bonus."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import torch

from .engine import Exercise
from .reference import Row, distribution, lacks, over_verdicts, pick

Round = Callable[[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor], list[int]]


def _rest(p: Row, q: Row) -> Row:
    """The residual, not divided by its sum; p where it has no mass."""
    rest = lacks(p, q)
    return rest if sum(rest) > 0 else p


def _accepts(p: float, q: float, u: float) -> bool:
    return u * q < p  # accepted with probability p/q: no division needed


def _round(
    accepts: Callable[[float, float, float], bool] = _accepts,
    resample: Callable[[Row, Row], Row] = _rest,
    bonus: int | None = -1,
    own: bool = True,
    uniform: Callable[[Sequence[float], int], float] = lambda u, t: u[t],
) -> Round:
    """A round on plain lists; each argument is something that a mistake gets wrong.

    resample: weights of the token after a rejection.  bonus: its row of p, None for no bonus.  own: whether the target
    adds a token.  uniform: the one that decides at position t.
    """

    def tokens(*tensors):
        p, q, x, u, v = (t.tolist() for t in tensors)
        for t, token in enumerate(x):
            if not accepts(p[t][token], q[t][token], uniform(u, t)):
                return x[:t] + ([pick(resample(p[t], q[t]), v)] if own else [])
        return x if bonus is None or not own else [*x, pick(p[bonus], v)]

    return tokens


def _verdicts(p: torch.Tensor, q: torch.Tensor, x: torch.Tensor, u: torch.Tensor) -> list[bool]:
    """Of all draft tokens, also of those after a rejection."""
    return [_accepts(float(p[t, token]), float(q[t, token]), float(u[t])) for t, token in enumerate(x.tolist())]


def _keeps_later(p, q, x, u, v):
    verdicts = _verdicts(p, q, x, u)
    first = verdicts.index(False) if False in verdicts else None
    weights = p[-1].tolist() if first is None else _rest(p[first].tolist(), q[first].tolist())
    return [token for token, accepted in zip(x.tolist(), verdicts, strict=True) if accepted] + [pick(weights, float(v))]


def _never_ends(bonus: bool) -> Round:
    def tokens(p, q, x, u, v):
        written = [
            token if accepted else pick(_rest(p[t].tolist(), q[t].tolist()), float(v))
            for t, (token, accepted) in enumerate(zip(x.tolist(), _verdicts(p, q, x, u), strict=True))
        ]
        return [*written, pick(p[-1].tolist(), float(v))] if bonus else written

    return tokens


def _keeps_the_rejected(p, q, x, u, v):
    *accepted, own = _round()(p, q, x, u, v)
    return [*accepted, *x[len(accepted) : len(accepted) + 1].tolist(), own]


def _row_before(p, q, x, u, v):
    *accepted, own = _round()(p, q, x, u, v)
    n = len(accepted)
    return [*accepted, own if n == len(x) else pick(_rest(p[n - 1].tolist(), q[n - 1].tolist()), float(v))]


def _uses_a_verdicts_uniform(p, q, x, u, v):
    n = len(_round()(p, q, x, u, v)) - 1
    return _round()(p, q, x, u, u[n] if n < len(x) else v)


def _counts_later(p, q, x, u, v):
    n = sum(_verdicts(p, q, x, u))
    weights = p[-1].tolist() if n == len(x) else _rest(p[n].tolist(), q[n].tolist())
    return [*x[:n].tolist(), pick(weights, float(v))]


def _ends_after_one(p, q, x, u, v):
    first = _verdicts(p, q, x, u)[:1]
    return [*x[:1].tolist(), pick(p[-1].tolist(), float(v))] if all(first) else _round()(p, q, x, u, v)


def _row_after(p, q, x, u, v):
    written = _round(bonus=None)(p[1:], q, x, u, v)
    return [*written, pick(p[-1].tolist(), float(v))] if written == x.tolist() else written


def _likeliest(p, q, x, u, v):
    n = len(_round()(p, q, x, u, v)) - 1
    weights = p[-1].tolist() if n == len(x) else _rest(p[n].tolist(), q[n].tolist())
    return [*x[:n].tolist(), weights.index(max(weights))]


def _multiplied(limit: float) -> Round:
    """Each token's p/q, at most `limit`, times those of the tokens before it."""

    def tokens(p, q, x, u, v):
        chances = [min(limit, float(p[t, token] / q[t, token])) for t, token in enumerate(x.tolist())]
        chances = [math.prod(chances[: t + 1]) for t in range(len(x))]
        n = next((t for t, chance in enumerate(chances) if not u[t] < chance), len(x))
        weights = p[-1].tolist() if n == len(x) else _rest(p[n].tolist(), q[n].tolist())
        return [*x[:n].tolist(), pick(weights, float(v))]

    return tokens


def _without_the_rejected(p, q, x, u, v):
    n = len(_round()(p, q, x, u, v)) - 1
    weights = p[n].tolist()
    if n < len(x):
        weights[int(x[n])] = 0.0
    return [*x[:n].tolist(), pick(weights, float(v))]


def _bonus_of_rest(p, q, x, u, v):
    written = _round(bonus=None)(p, q, x, u, v)
    weights = _rest(p[-1].tolist(), q[-1].tolist()) if len(q) else p[-1].tolist()
    return [*written, pick(weights, float(v))] if written == x.tolist() else written


def _bonus_of_q(p, q, x, u, v):
    return _round()(torch.cat([p[:-1], q[-1:]]) if len(q) else p, q, x, u, v)


_P = torch.stack([distribution(*r) for r in ((5, 3, 2), (5, 3, 2), (3, 3, 4), (1, 6, 3), (5, 3, 2))]) / 10
_Q = torch.stack([distribution(*r) for r in ((2, 5, 3), (2, 5, 3), (3, 6, 1), (4, 5, 1))]) / 10
_DRAFT = torch.tensor([0, 2, 1, 0])
_FORBIDS = torch.stack([distribution(0.0, 0.6, 0.4), distribution(0.2, 0.2, 0.6)])  # the target never writes token 0

_TWO_IN_REST = torch.stack([torch.stack([distribution(0.5, 0.4, 0.1), distribution(0.2, 0.2, 0.6)])] * 2)


def _given(p: torch.Tensor, q: torch.Tensor, drafted: torch.Tensor | list, uniforms: list[float], v: float) -> tuple:
    drafted = torch.as_tensor(drafted, dtype=torch.int64)
    return p, q, drafted, distribution(*uniforms), torch.tensor(v, dtype=torch.float64)


ROUND_TOKENS = Exercise.against(
    _round(),
    cases={
        "one draft token, accepted, then the bonus": _given(_P[:2], _Q[:1], [0], [0.9], 0.3),
        "one draft token, rejected": _given(_P[2:4], _Q[2:3], [1], [0.7], 0.35),
        "the notebook's draft a c b a": _given(_P, _Q, _DRAFT, [0.9, 0.4, 0.7, 0.1], 0.35),
        "the same draft, all four accepted": _given(_P, _Q, _DRAFT, [0.9, 0.4, 0.3, 0.1], 0.75),
        "two draft tokens, b b, both accepted": _given(_P[2:5], _Q[2:4], [1, 1], [0.2, 0.6], 0.45),
        "the same draft, the second token rejected": _given(_P, _Q, _DRAFT, [0.3, 0.8, 0.2, 0.1], 0.9),
        "the same draft, the last token rejected": _given(_P, _Q, _DRAFT, [0.2, 0.1, 0.4, 0.3], 0.1),
        "a draft token with p = 0 and a uniform of exactly 0": _given(
            _FORBIDS, distribution(0.5, 0.25, 0.25)[None], [0], [0.0], 0.5
        ),
        "two tokens in the residual, p = .5 .4 .1 and q = .2 .2 .6": _given(
            _TWO_IN_REST[:, 0], _TWO_IN_REST[:1, 1], [2], [0.5], 0.8
        ),
        "the same, with a smaller v": _given(_TWO_IN_REST[:, 0], _TWO_IN_REST[:1, 1], [2], [0.5], 0.25),
        "nothing drafted": _given(_P[:1], _Q[:0], [], [], 0.6),
    },
    mistakes={
        "draft tokens after the rejection are kept; they continue a text that does not exist": _keeps_later,
        "the rejected draft token is kept beside the resampled one": _keeps_the_rejected,
        "the round goes on after a rejection: it ends there": _never_ends(bonus=True),
        "the round goes on after a rejection, and has no bonus": _never_ends(bonus=False),
        "the accepted draft tokens are missing: they are text too": lambda *a: _round()(*a)[-1:],
        "the target's own token is missing, resampled or bonus": _round(own=False),
        "the bonus is missing: when all are accepted, the last row of p is still unused": _round(bonus=None),
        "the bonus is drawn from the last draft token's row; it comes after it, from the last row": _round(bonus=-2),
        "the bonus is drawn from the first row of p; it comes from the last": _round(bonus=0),
        "the bonus is drawn from a residual; nothing was rejected, so it comes from the last row of p": _bonus_of_rest,
        "the token after a rejection is drawn from p; it comes from the residual": _round(resample=lambda p, q: p),
        "the token after a rejection is drawn from q; it comes from the residual": _round(resample=lambda p, q: q),
        "the token after a rejection is drawn from |p - q|; the residual is max(0, p - q)": (
            _round(resample=lambda p, q: [abs(a - b) for a, b in zip(p, q, strict=True)])
        ),
        "only the rejected token is taken out of p; the residual takes all of q out, and stops at 0": (
            _without_the_rejected
        ),
        "the ratios are multiplied up; each draft token is tested with its own p/q alone": _multiplied(math.inf),
        "the acceptance probabilities are multiplied up; each draft token is tested with its own alone": _multiplied(1),
        "the residual is the wrong way round: it is what the target has and the draft lacks": (
            _round(resample=lambda p, q: _rest(q, p))
        ),
        "the residual is taken one position too early": _row_before,
        "the ratio is upside down: it is p/q": _round(lambda p, q, u: u * p < q),
        "a tie accepts: with a uniform of 0 a token that the target forbids is written; compare strictly": (
            _round(lambda p, q, u: u * q <= p)
        ),
        "one uniform decides about all draft tokens; each position has its own": _round(uniform=lambda u, t: u[0]),
        "the uniforms are compared with p instead of p/q": _round(lambda p, q, u: u < p),
        "accept and reject are swapped": _round(lambda p, q, u: not u * q < p),
        "a draft token is accepted only where p is at least q; below it, it still has the chance p/q": (
            _round(lambda p, q, u: p >= q)
        ),
        "the last draw uses the uniform of a verdict again; `v` is there for it": _uses_a_verdicts_uniform,
        "`v` decides about the draft tokens; each has its own in `uniforms`": (
            lambda p, q, x, u, v: _round(uniform=lambda u, t: float(v))(p, q, x, u, v)
        ),
        "all verdicts that say accept are counted; the count stops at the first rejection": _counts_later,
        "the round ends after the first draft token: let the bonus wait until the loop is over": _ends_after_one,
        "the row of p is one too late: draft token t is verified with row t": _row_after,
        "the last token is the likeliest one; draw it with `v`": _likeliest,
        "the bonus is drawn from q; it comes from the last row of p": _bonus_of_q,
    },
    errors={"ValueError: p must be one distribution": "a token is drawn from one row of p, or from its residual"},
)


def check_round_tokens(function: Round) -> bool:
    """function(p, q, drafted, uniforms, v) -> the tokens that one round writes, v being the last draw's uniform."""
    return ROUND_TOKENS.check(function)


def _greedy(best: list[int], drafted: list[int]) -> list[int]:
    """The general rule on one-hot distributions: the ratio is 1 or 0, the residual is the target's choice."""
    written = []
    for b, x in zip(best, drafted, strict=False):
        if x != b:
            return [*written, b]
        written.append(x)
    return [*written, best[len(drafted)]]


def _agreeing(best: list[int], drafted: list[int]) -> list[int]:
    return [x for b, x in zip(best, drafted, strict=False) if x == b]


GREEDY_TOKENS = Exercise.against(
    _greedy,
    cases={
        "two draft tokens, the second differs": ([5, 7, 3], [5, 6]),
        "all three draft tokens agree": ([5, 7, 3, 8], [5, 7, 3]),
        "the first of three differs, the others agree": ([5, 7, 3, 8], [4, 7, 3]),
        "the first and the third agree, the second differs": ([5, 7, 3, 8], [5, 9, 3]),
        "nothing drafted": ([6], []),
        "four draft tokens, token 0 among them": ([0, 0, 4, 1, 2], [0, 0, 4, 0]),
    },
    mistakes={
        "the target's own token is missing": lambda b, x: _greedy(b, x)[:-1],
        "the bonus is missing: when all agree, the last of best is written too": lambda b, x: _greedy(b, x)[: len(x)],
        "draft tokens that agree after the first that differs are counted too": (
            lambda b, x: [*x[: len(_agreeing(b, x))], b[len(_agreeing(b, x))]]
        ),
        "all that agree are counted; the count stops at the first that differs": (
            lambda b, x: b[: len(_agreeing(b, x)) + 1]
        ),
        "draft tokens after the first that differs are kept": (
            lambda b, x: [*_agreeing(b, x), b[len(_agreeing(b, x))]]
        ),
        "what is added is always the last of best; after a rejection it is the target's choice at that position": (
            lambda b, x: [*_greedy(b, x)[:-1], b[-1]]
        ),
        "the rejected draft token is written, not the target's choice": lambda b, x: x[: len(_greedy(b, x))],
        "this is how many draft tokens are accepted, not the tokens": lambda b, x: len(_greedy(b, x)) - 1,
        "every choice of the target is written; those after a wrong draft token belong to another text": lambda b, x: b,
    },
    errors={"IndexError": "where all agree, the loop has to end with the draft: `best` has one token more"},
)


def check_greedy_tokens(function: Callable[[list[int], list[int]], list[int]]) -> bool:
    """function(best, drafted) -> the tokens that a greedy round writes; best has one token more than drafted."""
    return GREEDY_TOKENS.check(function)


def _without_bonus(alpha: float, gamma: int) -> float:
    return over_verdicts([alpha] * gamma, lambda n: n + (n < gamma))


TOKENS_WITHOUT_BONUS = Exercise.against(
    _without_bonus,
    cases={
        "alpha = 0.7, gamma = 2": (0.7, 2),
        "alpha = 0.7, gamma = 4": (0.7, 4),
        "alpha = 0.7, gamma = 1, one draft token": (0.7, 1),
        "alpha = 0.5, gamma = 3": (0.5, 3),
        "alpha = 0.0, gamma = 4, nothing is ever accepted": (0.0, 4),
        "alpha = 1.0, gamma = 4, everything is accepted": (1.0, 4),
    },
    mistakes={
        "this is with the bonus": lambda a, k: over_verdicts([a] * k, lambda n: n + 1),
        "only accepted draft tokens are counted; after a rejection one is resampled, and that is a token too": (
            lambda a, k: over_verdicts([a] * k, lambda n: n)
        ),
        "this is what is lost, not what is left": lambda a, k: a**k,
        "draft tokens are counted as if a rejection did not end the round": lambda a, k: a * k,
        "the loss is alpha^gamma, the probability that all gamma are accepted": (
            lambda a, k: _without_bonus(a, k) + a**k - a
        ),
        "the closed form divides by 1 - alpha, which is 0 here; a sum needs no division": (
            lambda a, k: math.nan if a == 1 else _without_bonus(a, k)
        ),
        "at alpha = 1 every round writes gamma tokens, not one": lambda a, k: 1 if a == 1 else _without_bonus(a, k),
        "at alpha = 1 every round writes gamma tokens, not none": lambda a, k: 0 if a == 1 else _without_bonus(a, k),
        "alpha^0 = 1 is missing in the sum: every round writes a first token": lambda a, k: _without_bonus(a, k) - 1,
        "the last term is missing: the sum has gamma of them, from alpha^0 to alpha^(gamma - 1)": (
            lambda a, k: _without_bonus(a, k - 1)
        ),
        "this is one token too many: alpha^0 in the sum is the first token already": (
            lambda a, k: 1 + _without_bonus(a, k)
        ),
    },
    errors={"ZeroDivisionError": "the closed form divides by 1 - alpha, and alpha may be 1; a sum needs no division"},
)


def check_tokens_without_bonus(function: Callable[[float, int], float]) -> bool:
    """function(alpha, gamma) -> mean tokens of a round without a bonus, each draft token accepted with alpha."""
    return TOKENS_WITHOUT_BONUS.check(function)
