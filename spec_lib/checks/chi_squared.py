"""The test of notebook 07 with its bookkeeping: rare categories pooled, many experiments at once, power."""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping
from typing import NamedTuple

import torch

Weights = Mapping[Hashable, float]  # outcome -> probability, or how often it was counted
LEVEL = 0.001  # significance level: how often a right sampler raises an alarm
LEAST = 10  # the smallest expected count of a category


class Result(NamedTuple):
    """Of one test.  d: degrees of freedom; 0 where all counts share one category, so that nothing is tested."""

    statistic: float
    d: int
    p_value: float


def chi_square(counts: torch.Tensor, p: torch.Tensor) -> torch.Tensor:
    """Pearson's statistic of counts (..., categories) against the distribution p (categories,); derived in 07."""
    expected = counts.sum(-1, keepdim=True) * p
    return ((counts - expected) ** 2 / expected).sum(-1)


def p_value(statistic: torch.Tensor, d: int) -> torch.Tensor:
    """The probability that a chi-squared variable with d degrees of freedom is at least as large; derived in 07."""
    return torch.special.gammaincc(torch.tensor(d / 2, dtype=torch.float64), statistic / 2)


def sample_counts(p: torch.Tensor, samples: int, experiments: int, seed: int) -> torch.Tensor:
    """Counts (experiments, categories): in each experiment, `samples` draws from p (categories,), float64.

    Category by category from the binomial distribution, so that the number of draws costs nothing.  For literal p: one
    that is computed differs between machines in the last digits, and then so may all that follows (`drawn_counts`).
    """
    generator = torch.Generator().manual_seed(seed)
    left, mass = torch.full((experiments,), float(samples), dtype=torch.float64), 1.0
    columns = []
    for share in p.tolist()[:-1]:
        chance = min(max(share / mass, 0.0), 1.0) if mass > 0 else 0.0
        columns.append(torch.binomial(left, torch.full_like(left, chance), generator=generator))
        left, mass = left - columns[-1], mass - share
    return torch.stack([*columns, left], dim=-1)


def drawn_counts(p: torch.Tensor, samples: int, experiments: int, seed: int) -> torch.Tensor:
    """As `sample_counts`, draw by draw: one uniform for each, so that the last digits of p decide hardly any."""
    generator, size, edges, parts = torch.Generator().manual_seed(seed), len(p), p.cumsum(0)[:-1].float(), []
    for start in range(0, experiments, 1000):
        rows = min(1000, experiments - start)
        drawn = torch.bucketize(torch.rand(rows, samples, generator=generator), edges, right=True)
        drawn += size * torch.arange(rows)[:, None]
        parts.append(drawn.flatten().bincount(minlength=rows * size).view(rows, size))
    return torch.cat(parts).double()


def pooled(p: Weights, samples: int, *others: Weights, least: float = LEAST) -> list[torch.Tensor]:
    """(p, *others) over categories in each of which p expects at least `least` of `samples` counts, float64.

    The likeliest outcomes of p have a category each; all others, those that p never gives among them, share the last.
    """
    outcomes = sorted(p, key=p.__getitem__, reverse=True)
    alone = sum(samples * p[x] >= least for x in outcomes)
    while 0 < alone < len(outcomes) and samples * sum(p[x] for x in outcomes[alone:]) < least:
        alone -= 1  # the shared category takes one more
    tables = []
    for weights in (p, *others):
        table = [float(weights.get(x, 0.0)) for x in outcomes[:alone]]
        rest = float(sum(weights.values())) - sum(table)
        if alone < len(outcomes):
            table.append(rest)
        else:
            table[-1] += rest
        tables.append(torch.tensor(table, dtype=torch.float64))
    return tables


def goodness_of_fit(counts: Weights, p: Weights, least: float = LEAST) -> Result:
    """Test the null hypothesis that the counts are draws from p.  least: as in `pooled`."""
    expected, seen = pooled(p, int(sum(counts.values())), counts, least=least)
    d = len(expected) - 1
    if d == 0:
        return Result(0.0, 0, 1.0)
    statistic = chi_square(seen, expected / expected.sum())
    return Result(float(statistic), d, float(p_value(statistic, d)))


def alarm_rate(p: Weights, truth: Weights, samples: int, experiments: int, seed: int, level: float = LEVEL) -> float:
    """The share of simulated experiments in which a sampler of distribution `truth` is found not to draw from p.

    With truth = p that is the significance level as it really is; otherwise it is the power.
    """
    null, real = pooled(p, samples, truth)
    if len(null) == 1:
        return 0.0
    counts = drawn_counts(real / real.sum(), samples, experiments, seed)
    found = p_value(chi_square(counts, null / null.sum()), len(null) - 1) < level
    return float(found.double().mean())


def critical_value(d: int, level: float = LEVEL) -> float:
    """The statistic whose p-value is the level: scipy's chi2.isf(level, d).  By bisection."""
    low, high = 0.0, 1.0
    while float(p_value(torch.tensor(high, dtype=torch.float64), d)) > level:
        high *= 2
    for _ in range(100):
        middle = (low + high) / 2
        above = float(p_value(torch.tensor(middle, dtype=torch.float64), d)) > level
        low, high = (middle, high) if above else (low, middle)
    return high


def power(d: int, noncentrality: float, level: float = LEVEL) -> float:
    """P(a noncentral chi-squared variable > the critical value): scipy's ncx2.sf(critical, d, noncentrality).

    Its distribution is a mixture of chi-squared ones with d + 2 j degrees of freedom, j from a Poisson distribution.
    """
    half, most = noncentrality / 2, int(noncentrality / 2 + 20 * math.sqrt(noncentrality + 1) + 50)
    j = torch.arange(most, dtype=torch.float64)
    log_weights = j * math.log(half) - half - torch.lgamma(j + 1) if half > 0 else torch.where(j == 0, 0.0, -math.inf)
    beyond = torch.special.gammaincc(d / 2 + j, torch.full_like(j, critical_value(d, level) / 2))
    return float((log_weights.exp() * beyond).sum())


def noncentrality_for(d: int, wanted: float = 0.99, level: float = LEVEL) -> float:
    """The smallest noncentrality N delta^2 with which the test with d degrees of freedom has the wanted power."""
    low, high = 0.0, 1.0
    while power(d, high, level) < wanted:
        high *= 2
    for _ in range(50):
        middle = (low + high) / 2
        low, high = (low, middle) if power(d, middle, level) >= wanted else (middle, high)
    return high
