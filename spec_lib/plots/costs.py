"""Lines over one axis, what a pass over n tokens costs, and what theory promises for such a cost."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch

from ..theory import expected_tokens, walltime_improvement
from .style import BELOW, BESIDE, DIAMOND, GREYS, PALETTE, figure


def plot_lines(
    x: Sequence[float], series: dict[str, Sequence[float]], title: str, xlabel: str, ylabel: str, log: bool = False
) -> None:
    """Lines over one axis, told apart by marker and dash as well as by colour.

    series: name -> its value at each x.  A series that is named like a colour's meaning ("target", "draft", ...) has
    that colour.  log: a logarithmic axis of x, with the numbers written out.
    """
    colours, marks = [GREYS[0], PALETTE["target"], PALETTE["draft"], PALETTE["bonus"]], ["o--", "s-", "^:", "d-."]
    with figure(7, 3.4, title=title) as axis:
        for i, (name, values) in enumerate(series.items()):
            axis.plot(x, [float(v) for v in values], marks[i % 4], color=PALETTE.get(name, colours[i % 4]), label=name)
        axis.set(xlabel=xlabel, ylabel=ylabel)
        top = max((float(v) for values in series.values() for v in values), default=0)
        axis.set_ylim(0, 1.08 * top if top > 0 else 1)  # from 0, and with room for the highest mark
        if log:
            axis.set_xscale("log")
            axis.set_xticks(x, [f"{value:g}" for value in x])
            axis.minorticks_off()
        axis.legend()


def pass_curve(times: dict, relative: bool = False) -> list[tuple[int, float, float, float]]:
    """(n, low, median, high) of each n, in order: milliseconds, the middle half of the runs between low and high.

    times: n -> seconds of each run, as `benchmark.pass_seconds` gives them or a recording holds them (n as text).
    relative: in passes over the fewest tokens instead, v(n) / v(1).
    """
    rows = []
    for n, seconds in sorted((int(n), sorted(map(float, values))) for n, values in times.items()):
        x, cut = torch.tensor(seconds, dtype=torch.float64), len(seconds) // 4
        rows.append((n, 1000 * seconds[cut], 1000 * float(x.quantile(0.5)), 1000 * seconds[-1 - cut]))
    unit = rows[0][2] if relative else 1.0
    return [(n, low / unit, middle / unit, high / unit) for n, low, middle, high in rows]


def plot_pass_cost(series: dict[str, dict], title: str, relative: bool = False) -> None:
    """v(n) of one or more models over n, with the spread of the runs, and the time of n passes over one token.

    series: the model's name -> {n: seconds of each run}, as `pass_curve` takes it.  A name that begins with a colour's
    meaning ("target", "draft") has that colour.  Dashed: once and twice the first model's pass over the fewest tokens.
    """
    marks, others = ["s-", "^:", "o--", "d-.", "v-", "P--"], [GREYS[1], GREYS[0], GREYS[2], PALETTE["bonus"]]
    with figure(8.5, 3.8, suptitle=title) as axis:
        top, reach = 0.0, 1
        for i, (name, times) in enumerate(series.items()):
            rows = pass_curve(times, relative)
            n, low, middle, high = zip(*rows, strict=True)
            colour = PALETTE.get(name.split()[0], others[i % len(others)])
            axis.plot(n, middle, marks[i % len(marks)], color=colour, label=name, ms=5)
            axis.fill_between(n, low, high, color=colour, alpha=0.2, lw=0)
            if i == 0:
                first, line = middle[0], (n, [x * middle[0] / n[0] for x in n])
            top, reach = max(top, *high), max(reach, *n)
        axis.plot(*line, color="black", lw=1, ls=(0, (1, 3)), label="n passes over one token each")
        top = 1.15 * max(top, 2 * first)
        for times_first, label in ((1, "once"), (2, "twice")):
            axis.axhline(times_first * first, color="black", lw=0.8, ls="--", zorder=0)
            at = {"xycoords": ("axes fraction", "data"), "textcoords": "offset points", "fontsize": 9}
            axis.annotate(label, (1.0, times_first * first), (4, -3), **at)
        axis.set_xticks([n for n in (1, 8, 16, 24, 32, 48, 64, 96, 128) if n <= reach])
        ylabel = "passes over one token" if relative else "milliseconds"
        axis.set(xlabel="tokens in the pass, n", ylabel=ylabel, xlim=(0, 1.02 * reach), ylim=(0, top))
        axis.legend(loc="center left", bbox_to_anchor=(1.08, 0.5))


def attainable(intensity: float, bandwidth: float, peak: float) -> float:
    """The roofline: operations a second at this many operations per byte.  bandwidth: bytes a second; peak: op/s."""
    return min(peak, intensity * bandwidth)


def plot_roofline(cards: dict[str, tuple[float, float]], points: dict[str, float], title: str) -> None:
    """The rooflines of some cards, and on the first one the arithmetic intensity of some passes.

    cards: name -> (bytes a second, operations a second).  points: name -> operations per byte.
    """
    xs = [2 ** (i / 8) for i in range(-8, 89)]  # from a half to 2048 operations per byte
    (bandwidth, peak), styles = next(iter(cards.values())), ["-", "--", ":"]
    with figure(8.5, 4.2, title=title) as axis:
        for i, (name, (b, most)) in enumerate(cards.items()):
            ys = [attainable(x, b, most) / 1e12 for x in xs]
            colour = "black" if i == 0 else GREYS[0]
            axis.plot(xs, ys, styles[i % 3], color=colour, lw=2 if i == 0 else 1.2, label=name)
        ridge = peak / bandwidth
        axis.axvspan(ridge, xs[-1], color=GREYS[3], alpha=0.5, lw=0)
        axis.axvline(ridge, color="black", lw=0.8, ls=(0, (1, 3)))
        for i, (name, x) in enumerate(points.items()):
            y = attainable(x, bandwidth, peak) / 1e12
            axis.plot(x, y, "os^D"[i % 4], color=PALETTE["target"], markeredgecolor="black", ms=9, zorder=5)
            shift, side = ((10, -14), "left") if x < ridge else ((0, -20), "center")
            axis.annotate(name, (x, y), shift, ha=side, textcoords="offset points", fontsize=9, zorder=6)
        axis.set(xscale="log", yscale="log", xlim=(xs[0], xs[-1]))
        ticks = [1, 5, 20, 64, 200, 512, 2000]
        axis.set_xticks(ticks, [str(x) for x in ticks])
        heights = [10.0**k for k in range(-1, 4)]
        axis.set_yticks(heights, [f"{y:g}" for y in heights])
        axis.minorticks_off()
        axis.set_ylim(attainable(xs[0], bandwidth, peak) / 3e12, 4 * max(most for _, most in cards.values()) / 1e12)
        bottom, above = axis.get_ylim()
        for x, said, side in ((0.93 * ridge, "memory-bound", "right"), (1.07 * ridge, "compute-bound", "left")):
            axis.text(x, 0.7 * above, said, ha=side, va="top", fontsize=10)
        below = {"textcoords": "offset points", "ha": "right", "fontsize": 9}
        axis.annotate(f"ridge: {ridge:.0f}", (ridge, bottom), (-4, 4), **below)
        axis.set(xlabel="arithmetic intensity, operations per byte (16-bit weights: tokens in the pass)")
        axis.set_ylabel("attainable, 10\u00b9\u00b2 operations a second")
        axis.legend(loc="center left", bbox_to_anchor=(1.0, 0.5))


COST_LOOKS = [("#BBBBBB", "//"), ("#E5E5E5", "xxx"), ("#EEEEEE", ".."), ("#999999", "++")]  # of the parts, from below
REMAINDER = "not explained by the three"


def stacked(parts: dict[str, Sequence[float]]) -> dict[str, list[tuple[float, float]]]:
    """(bottom, top) of each part in each bar, stacked in the order given.  parts: name -> its size in each bar."""
    found: dict[str, list[tuple[float, float]]] = {}
    bottom = [0.0] * max((len(values) for values in parts.values()), default=0)
    for name, values in parts.items():
        found[name] = [(b, b + float(v)) for b, v in zip(bottom, values, strict=True)]
        bottom = [top for _, top in found[name]]
    return found


def plot_cost_parts(
    counts: Sequence[int], parts: dict[str, Sequence[float]], measured: Sequence[float], title: str
) -> None:
    """Estimated parts of a pass, stacked, beside the measured pass, in milliseconds; one pair of bars for each n.

    counts: the n of each pair.  parts: name -> milliseconds at each n.  measured: milliseconds at each n.  What the
    parts leave unexplained is an empty box on top of them.
    """
    x = range(len(counts))
    tops = [sum(float(values[i]) for values in parts.values()) for i in x]
    with figure(8.5, 3.8, suptitle=title) as axis:
        for (name, spans), (colour, hatch) in zip(stacked(parts).items(), COST_LOOKS, strict=False):
            for i, (bottom, top) in enumerate(spans):
                label = name if i == 0 else None
                axis.bar(i - 0.2, top - bottom, 0.36, bottom, color=colour, hatch=hatch, edgecolor="black", label=label)
        values = [float(v) for v in measured]
        rest = [max(0.0, v - top) for v, top in zip(values, tops, strict=True)]
        axis.bar([i - 0.2 for i in x], rest, 0.36, tops, color="white", edgecolor="black", ls=":", label=REMAINDER)
        axis.bar([i + 0.2 for i in x], values, 0.36, color=PALETTE["target"], label="a pass, measured")
        axis.set_xticks(x, [str(n) for n in counts])
        axis.set(xlabel="tokens in the pass, n", ylabel="milliseconds")
        axis.legend(**BESIDE)


_WHITE = {"facecolor": "white", "edgecolor": "none", "pad": 1.5}


def marginal_gains(alpha: float, c: float, most: int = 8) -> list[tuple[float, float]]:
    """(tokens that draft token g adds to a round, tokens that its time is worth), for g = 1 ... most.

    The time of a draft token, c, would yield c times the speed-up at gamma = g - 1 (idealised formula).  A longer draft
    pays as long as the first is larger.
    """
    return [
        (
            expected_tokens(alpha, g) - expected_tokens(alpha, g - 1),
            c * expected_tokens(alpha, g - 1) / ((g - 1) * c + 1),
        )
        for g in range(1, most + 1)
    ]


def plot_marginal(alpha: float, c: float, title: str, most: int = 8) -> None:
    """What each further draft token adds (bars) and what its time is worth (diamonds), in tokens."""
    x = range(1, most + 1)
    adds, worth = zip(*marginal_gains(alpha, c, most), strict=True)
    with figure(7, 3.4, title=title) as axis:
        colours = [PALETTE["accepted"] if a > w else "white" for a, w in zip(adds, worth, strict=True)]
        hatches = ["" if a > w else "xx" for a, w in zip(adds, worth, strict=True)]
        bars = axis.bar(x, adds, 0.7, color=colours, edgecolor=PALETTE["accepted"], label="it adds to the round")
        for bar, hatch in zip(bars, hatches, strict=True):
            bar.set_hatch(hatch)
        axis.plot(x, worth, "k:", lw=1)
        axis.plot(x, worth, **DIAMOND, color=PALETTE["draft"], ms=8, label="the loop writes in its time anyway")
        for i, value in zip(x, adds, strict=True):
            look = {"ha": "center", "fontsize": 9, "bbox": {**_WHITE, "pad": 1}}
            axis.annotate(f"{value:.2f}", (i, 0), (0, 5), textcoords="offset points", **look)
        axis.set(
            xlabel="draft token, by its position in the draft",
            ylabel="tokens",
            ylim=(0, 1.12 * max(*adds, *worth) or 1),
        )
        axis.set_xticks(x)
        axis.legend()


def gain_grid(
    alphas: Sequence[float], cs: Sequence[float], score_cost: Callable[[int], float] | None = None, max_gamma: int = 16
) -> list[list[float]]:
    """The walltime improvement at the best gamma of at least 1: one row for each c, one number for each alpha."""
    return [
        [max(walltime_improvement(a, g, c, score_cost) for g in range(1, max_gamma + 1)) for a in alphas] for c in cs
    ]


_LOSES = {"facecolor": "#f2f2f2", "hatch": "xx", "edgecolor": "#bbbbbb"}


def plot_region(
    title: str,
    score_cost: Callable[[int], float] | None = None,
    points: dict[str, tuple[float, float]] | None = None,
    max_gamma: int = 16,
    c_max: float = 0.6,
) -> None:
    """Over alpha and c: lines of equal gain at the best gamma, and, crossed out, where speculation loses.

    score_cost: as in `walltime_improvement`.  points: name -> (alpha, c), drawn and named.
    """
    import matplotlib.pyplot as plt

    alphas, cs = [i / 50 for i in range(51)], [c_max * i / 40 for i in range(41)]
    gains = gain_grid(alphas, cs, score_cost, max_gamma)
    most = max(max(row) for row in gains)
    with figure(7, 4, title=title) as axis:
        if min(min(row) for row in gains) < 1:
            with plt.rc_context({"hatch.color": _LOSES["edgecolor"]}):
                axis.contourf(alphas, cs, gains, levels=[0, 1], colors=[_LOSES["facecolor"]], hatches=["xx"])
            axis.contour(alphas, cs, gains, levels=[1], colors=["black"], linewidths=[2])
        levels = [x for x in (1.25, 1.5, 2, 3, 4) if x < most]
        if levels:
            lines = axis.contour(alphas, cs, gains, levels=levels, colors=[PALETTE["target"]], linewidths=[1])
            axis.clabel(lines, fmt=lambda x: f"{x:g} x", fontsize=8)
        limit = [0, min(1, c_max)]
        axis.plot(limit, limit, "k:", lw=2, label="alpha = c: even by the idealised formula")
        axis.fill_between([], [], [], label="speculation loses", **_LOSES)
        for i, (name, (alpha, c)) in enumerate((points or {}).items()):
            axis.plot(alpha, c, **{**DIAMOND, "marker": "os^Dv"[i % 5]}, color=PALETTE["draft"], ms=9)
            # A name beside its point; on the other side where an earlier point, whose name it would hide, is near.
            near = any(abs(a - alpha) < 0.3 and abs(b - c) < c_max / 12 for a, b in list(points.values())[:i])
            look = {"textcoords": "offset points", "fontsize": 9, "bbox": _WHITE, "zorder": 6}
            axis.annotate(name, (alpha, c), (-9, 9) if near else (9, -3), ha="right" if near else "left", **look)
        axis.set(xlabel="acceptance rate alpha", ylabel="cost ratio c", xlim=(0, 1), ylim=(0, c_max))
        axis.legend(**BELOW, ncols=2, fontsize=9)  # a point may lie anywhere on the map
