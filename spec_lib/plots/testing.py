"""Tests of a sampler: what is likely by chance, what a fault does to the statistic, and which test sees which fault."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from .style import BESIDE, GREYS, PALETTE, figure


def statistic_bins(values: dict[str, Sequence[float]], bins: int = 40) -> tuple[list[float], dict[str, list[float]]]:
    """(bins + 1 edges, name -> the share of its values in each bin), the edges shared by all.

    values: name -> any number of values of at least 0.  What lies beyond 99 % of all is put into the last bin.
    """
    series = {name: torch.as_tensor(x, dtype=torch.float64).flatten() for name, x in values.items()}
    end = float(torch.cat(list(series.values())).quantile(0.99)) or 1.0
    found = {}
    for name, x in series.items():
        bin_of = (x / end * bins).long().clamp(0, bins - 1)
        found[name] = (bin_of.bincount(minlength=bins) / max(len(x), 1)).tolist()
    return [end * i / bins for i in range(bins + 1)], found


def plot_statistics(values: dict[str, Sequence[float]], critical: float, title: str) -> None:
    """Histograms of a test's statistic for two samplers (or more), and the critical value.

    values: name -> the statistic in each of its experiments.
    """
    edges, shares = statistic_bins(values)
    with figure(8, 3.4, title=title) as axis:
        for i, (name, heights) in enumerate(shares.items()):
            above = float((torch.as_tensor(values[name], dtype=torch.float64) > critical).double().mean())
            look = {"color": "none", "hatch": ["", "///", "xxx"][i % 3], "edgecolor": "black"}
            look = look if i else {"color": GREYS[0], "alpha": 0.6, "hatch": "", "edgecolor": "white"}
            said = f"{name}: {above:.1%} beyond the critical value"
            axis.bar(edges[:-1], heights, edges[1] - edges[0], align="edge", lw=0.5, label=said, **look)
        axis.axvline(critical, color="black", ls="--", lw=1.5)
        top = (critical, axis.get_ylim()[1])
        axis.annotate("alarm \u2192", top, (4, -10), textcoords="offset points", fontsize=10)
        axis.set(xlabel="chi-squared statistic (the last bar holds all larger ones)", ylabel="share of the experiments")
        axis.set_xlim(0, None)
        axis.legend()


def plot_scores(values: dict[str, Sequence[float]], width: float, title: str, xlabel: str) -> None:
    """Histograms of a few scores, one row for each sampler over the same axis, each with its mean.

    values: name -> the score of each of its texts.  width: of a bin.
    """
    series = {name: [float(v) for v in x] for name, x in values.items()}
    lows = [int(min(x) // width) for x in series.values()]
    highs = [int(max(x) // width) + 1 for x in series.values()]
    edges = [width * i for i in range(min(lows), max(highs) + 1)]
    looks = [{"color": PALETTE["target"]}, {"color": PALETTE["rejected"], "hatch": "///"}]
    shape = {"nrows": len(series), "sharex": True, "sharey": True, "squeeze": False}
    with figure(7.5, 1.6 + 1.2 * len(series), suptitle=title, **shape) as axes:
        for i, (axis, (name, x)) in enumerate(zip(axes.flat, series.items(), strict=True)):
            axis.hist(x, edges, edgecolor="white", **looks[i % 2])
            mean = sum(x) / len(x)
            axis.axvline(mean, color="black", ls="--", lw=1.5)
            axis.set_title(f"{name}: mean {mean:.2f} (dashed)", loc="left", fontsize=10)
            axis.set_ylabel("texts")
            axis.yaxis.get_major_locator().set_params(integer=True)
        axes.flat[-1].set_xlabel(xlabel)


def plot_ranks(found: dict[str, tuple[Sequence[float], Sequence[float]]], title: str, bins: int = 16) -> None:
    """How often the likeliest tokens were written, the next likeliest, ... down to the unlikeliest, and how often they
    should have been: a panel for each sampler, bars and a black line, logarithmic.

    found: name -> (seen, expected), each (vocab,), by rank.  bins: of equal width; they divide the vocabulary.
    """
    with figure(2.2 * len(found) + 1, 2.9, suptitle=title, ncols=len(found), sharey=True, squeeze=False) as axes:
        for axis, (name, pair) in zip(axes.flat, found.items(), strict=True):
            seen, expected = (torch.as_tensor(x, dtype=torch.float64).view(bins, -1).sum(1).tolist() for x in pair)
            size = len(pair[0])
            edges = [1 + size * i / bins for i in range(bins + 1)]
            axis.bar(edges[:-1], seen, size / bins, align="edge", color=GREYS[1], edgecolor="white", label="written")
            axis.stairs(expected, edges, color="black", lw=1.5, baseline=None, label="expected")
            axis.set(yscale="log", ylim=(0.5, None), xlabel="rank", xlim=(1, size + 1))
            axis.minorticks_off()
            axis.set_yticks([1, 10, 100, 1000], ["1", "10", "100", "1,000"])
            axis.set_xticks([1, size // 2, size], ["1", f"{size // 2:,}", f"{size:,}"])
            axis.set_title(name, loc="left", fontsize=10)
        axes.flat[0].set_ylabel("texts (logarithmic)")
        axes.flat[-1].legend(**BESIDE)


def plot_power_curves(curves: dict[str, Sequence[tuple[int, float, float]]], title: str) -> None:
    """Power against the samples N, and beside it the same points against N delta^2.

    curves: name -> (N, N delta^2, power) of each point.
    """
    looks = [("#0072B2", "o", "-"), ("#D55E00", "s", "--"), ("#009E73", "^", "-."), ("#666666", "D", ":")]
    with figure(10, 3.5, suptitle=title, ncols=2, sharey=True) as axes:
        for (name, points), (colour, mark, line) in zip(curves.items(), looks, strict=False):
            n, shift, power = zip(*points, strict=True)
            look = {"color": colour, "marker": mark, "ls": line, "ms": 5}
            axes[0].plot(n, power, **look)
            axes[1].plot(shift, power, **look, label=name)
        axes[0].set(xscale="log", xlabel="samples N (logarithmic)", ylabel="power", ylim=(-0.03, 1.03))
        axes[1].set(xscale="log", xlim=(1, 130), xlabel="N \u03b4\u00b2 (logarithmic)")
        for axis, ticks in zip(axes, ([100, 1000, 10_000], [1, 3, 10, 30, 100]), strict=True):
            axis.minorticks_off()
            axis.set_xticks(ticks, [f"{x:,}" for x in ticks])
        axes[1].legend(**BESIDE)


def plot_power(table: dict[str, Sequence[float | None]], tests: Sequence[str], title: str) -> None:
    """Power of each test (columns) against each fault (rows): dark and with its number where the fault is caught.

    table: the fault's name -> the power of each test against it, None where the test is blind: what it looks at is
    distributed as it should be.  tests: their names.
    """
    rows = [[0.0 if x is None else float(x) for x in row] for row in table.values()]
    with figure(1.05 * len(tests) + 2.6, 0.5 * len(rows) + 1.2, title=title) as axis:
        axis.imshow(rows, cmap="Greys", vmin=0, vmax=1.15, aspect="auto")
        for y, row in enumerate(table.values()):
            for x, value in enumerate(row):
                said = "blind" if value is None else f"{value:.2f}" if value >= 0.1 else f"{value:.3f}"
                look = {"style": "italic", "color": "#555555"} if value is None else {"color": "black"}
                look |= {"color": "white"} if value is not None and value > 0.55 else {}
                axis.text(x, y, said, ha="center", va="center", fontsize=9, **look)
        axis.set_xticks(range(len(tests)), tests)
        axis.set_yticks(range(len(rows)), list(table))
        axis.xaxis.tick_top()
        for edge in range(1, len(rows)):
            axis.axhline(edge - 0.5, color="white", lw=2)
        for edge in range(1, len(tests)):
            axis.axvline(edge - 0.5, color="white", lw=2)
        axis.tick_params(length=0)
        axis.spines[:].set_visible(False)
