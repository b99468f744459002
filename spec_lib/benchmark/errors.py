"""How sure a ratio of two times is: the one rule behind every error bar.  Notebook 09."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import sqrt
from statistics import NormalDist, mean

# Quantiles of Student's t at 97.5 per cent, for 1 to 10 degrees of freedom.
FEW = (12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228)


@dataclass(frozen=True)
class Ratio:
    """A ratio of times.  error: its standard error.  margin: half its 95 % interval.  texts: different ones behind it.

    error and margin are None where there is one text only: nothing says how far the next one would be from it.
    """

    value: float
    error: float | None
    margin: float | None
    texts: int


def t_quantile(freedom: int) -> float:
    """How many standard errors the 95 % interval reaches to each side.  freedom: n - 1; ValueError below 1.

    12.7 for two texts, 4.3 for three, 2.1 for eighteen, 1.96 for very many: where texts are few, their spread is itself
    hardly known.  From a table to 10, beyond it Student's series in 1 / freedom, right to three decimals.
    """
    if freedom < 1:
        raise ValueError(f"one text has no spread: {freedom} degrees of freedom")
    if freedom <= len(FEW):
        return FEW[freedom - 1]
    z = NormalDist().inv_cdf(0.975)
    terms = (z**3 + z) / 4, (5 * z**5 + 16 * z**3 + 3 * z) / 96, (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / 384
    return z + sum(term / freedom**power for power, term in enumerate(terms, 1))


def ratio(above: Sequence[float], below: Sequence[float], texts: Sequence[int] | None = None) -> Ratio:
    """How many times as long `above` took as `below`, mean over mean, and how sure that is.

    above, below: seconds of the same evaluations, in pairs.  texts: which text each evaluation wrote (equal numbers,
    equal texts); None: all differ.  ValueError for unequal lengths, or none.  The rule, in three lines:

    1. Both ran side by side, so a slow spell met both: what is left is d = above / its mean - below / its mean, a pair.
    2. The relative standard error of the ratio is that of the mean of d, stdev(d) / sqrt(n) (the delta method).
    3. The 95 % interval reaches `t_quantile(n - 1)` standard errors to each side, where n counts different texts.

    A text that was written again is no new evidence about texts, so its d are added up before they are squared.
    """
    if len(above) != len(below) or not above:
        raise ValueError(f"the times must come in pairs, got {len(above)} and {len(below)}")
    value, top, bottom = mean(above) / mean(below), mean(above), mean(below)
    sums: dict[int, float] = {}
    for text, a, b in zip(texts or range(len(above)), above, below, strict=True):
        sums[text] = sums.get(text, 0.0) + a / top - b / bottom
    n = len(sums)
    if n == 1:
        return Ratio(value, None, None, 1)
    error = value * sqrt(n / (n - 1) * sum(s * s for s in sums.values())) / len(above)
    return Ratio(value, error, t_quantile(n - 1) * error, n)
