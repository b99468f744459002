"""What to expect: tokens per target pass, speed-up, best gamma.  Leviathan et al. (2211.17192), section 3; notebook 08.

alpha: acceptance rate in [0, 1], taken as independent from token to token.  gamma: draft tokens in a round.
c: time of one draft pass over time of one target pass.  ValueError outside these ranges.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

from .numbers import as_float, as_int, described


def expected_tokens(alpha: float, gamma: int) -> float:
    """Tokens per target pass, (1 - alpha^(gamma+1)) / (1 - alpha): Eq. 1, summed so that alpha = 1 needs no care."""
    gamma = _check(alpha, gamma)
    return float(sum(alpha**i for i in range(gamma + 1)))


def walltime_improvement(alpha: float, gamma: int, c: float, score_cost: Callable[[int], float] | None = None) -> float:
    """Speed-up over one token per pass: expected_tokens / (gamma c + score_cost(gamma + 1)).  Theorem 3.8.

    score_cost: n -> cost of a target pass over n tokens, in passes over one; None: 1, as the paper assumes.
    Below 1, speculation loses.
    """
    gamma = _check(alpha, gamma, c)
    if score_cost is not None and not callable(score_cost):
        raise TypeError(f"score_cost must be a function of a number of tokens, as lambda n: 1.2, got {score_cost!r}")
    cost = score_cost(gamma + 1) if score_cost is not None and gamma else 1.0
    if not 0 < as_float(cost) < math.inf:
        raise ValueError(f"score_cost must give a number above 0, and gave {described(cost)} for {gamma + 1} tokens")
    return expected_tokens(alpha, gamma) / (gamma * c + cost)


def round_cost(gamma: int, c: float, v: Mapping[int, float]) -> float:
    """Time of a round over that of a target pass over one token: gamma c + v(gamma + 1) / v(1).

    v: n -> measured time of a target pass over n tokens, in any unit; it needs 1 and gamma + 1.
    """
    gamma = _check(1.0, gamma, c)
    return gamma * c + _cost(v, gamma + 1)


def predict(alpha: float, gamma: int, c: float, v: Mapping[int, float]) -> float:
    """Speed-up from costs that were measured: `walltime_improvement` with v as in `round_cost`.  Theorem 3.8."""
    return walltime_improvement(alpha, gamma, c, lambda n: _cost(v, n))


def best_gamma(alpha: float, c: float, score_cost: Callable[[int], float] | None = None, max_gamma: int = 16) -> int:
    """The gamma in 0 ... max_gamma of the largest improvement; 0 where speculation never pays."""
    max_gamma = _check(alpha, max_gamma, c)
    return max(range(max_gamma + 1), key=lambda gamma: (walltime_improvement(alpha, gamma, c, score_cost), -gamma))


def operations_factor(alpha: float, gamma: int, c_hat: float) -> float:
    """Arithmetic done over that of plain decoding, (gamma c_hat + gamma + 1) / expected_tokens.  Theorem 3.11.

    c_hat: operations per token of the draft over the target's.
    """
    gamma = _check(alpha, gamma, c_hat)
    return (gamma * c_hat + gamma + 1) / expected_tokens(alpha, gamma)


def _cost(v: Mapping[int, float], n: int) -> float:
    try:
        return v[n] / v[1]
    except (LookupError, TypeError, ZeroDivisionError):
        raise ValueError(
            f"v must hold the time of a pass over 1 token and over {n}, numbers above 0, got {described(v)}"
        ) from None


def _check(alpha: float, gamma: int, c: float = 0.0) -> int:
    """gamma as an int."""
    if not 0 <= as_float(alpha) <= 1:
        raise ValueError(f"alpha is a rate between 0 and 1, got {described(alpha)}")
    if (as_int(gamma) if as_int(gamma) is not None else -1) < 0:
        raise ValueError(f"gamma must be a whole number of at least 0, got {described(gamma)}")
    if not 0 <= as_float(c) < math.inf:
        raise ValueError(f"the draft's cost must be a finite number of at least 0, got {described(c)}")
    return as_int(gamma)
