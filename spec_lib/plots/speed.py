"""What was measured: tokens per second, speed-up against one factor, where the time goes, what others report."""

from __future__ import annotations

from collections.abc import Sequence

from ..benchmark import GOOGLE, MORE, OWN, Measurement, Reported, Row, rows
from ..benchmark.settings import PLAIN
from ..theory import expected_tokens
from .glyphs import token_label
from .style import BELOW, BESIDE, DIAMOND, GREYS, PALETTE, SHADES, figure

VARIANT_LOOKS = {  # colour and hatch of each variant; what writes the target's distribution has the target's colour
    "target alone": (PALETTE["target"], ""),
    "draft alone": (PALETTE["draft"], "xx"),
    "speculative, google": (PALETTE["target"], "//"),
    "speculative, deepmind": (PALETTE["target"], ".."),
    "target alone, own pass": (SHADES[2], ""),
    "draft alone, own pass": (PALETTE["draft"], ".."),
    "speculative, own pass": (SHADES[2], "//"),
    "transformers": ("#666666", ""),
    "transformers, assisted": ("#666666", "//"),
    "block verification, own pass": (SHADES[1], "//"),
    "shared noise, own pass": (SHADES[1], ".."),
    "prompt lookup, own pass": (SHADES[1], "xx"),
    "early exit, own pass": (SHADES[1], "++"),
    "trained head, own pass": (SHADES[1], "oo"),
    "tree of 16, own pass": (SHADES[1], "**"),
}


def plot_variants(rows: Sequence[Row], title: str, save=None) -> None:
    """Tokens per second of each variant, with the standard deviation, the speed-up and a prediction.

    rows: as `benchmark.rows` gives them.  save: a path or an open binary file for a PNG; None shows it.
    """
    base = next((r.tokens_per_second for r in rows if r.variant == "target alone"), None)
    rates = {r.variant: r.tokens_per_second for r in rows}
    most = max([rate or 0 for name, rate in rates.items() if not name.startswith("draft alone")], default=0) or 1
    with figure(8.5, 0.42 * len(rows) + 1.2, suptitle=title, save=save) as axis:
        ends = [_draw_variant(axis, y, r, rates.get(PLAIN[r.variant]), most) for y, r in enumerate(rows)]
        right = 1.05 * max(ends, default=most)
        for y, row in enumerate(rows):  # in a column of their own, which no bar and no line reaches
            axis.annotate(_variant_in_words(row, most), (right, y), va="center", fontsize=9, annotation_clip=False)
        if any(r.predicted for r in rows):
            axis.plot([], [], **DIAMOND, color="white", label="predicted from alpha, c and v")
        if base:
            axis.axvline(base, color="black", lw=1, ls="--", label="the target alone")
            axis.legend(**{**BELOW, "bbox_to_anchor": (0.5, -2.25 / max(9, len(rows)))}, ncols=2)
        axis.set_yticks(range(len(rows)), [r.variant for r in rows])
        axis.invert_yaxis()
        axis.set(xlabel="tokens per second (whisker: standard deviation of a text's)", xlim=(0, right))


def _draw_variant(axis, y: int, row: Row, plain: float | None, most: float) -> float:
    """One bar; one that is much faster than all others (the draft alone) is cut off.  Returns where it ends.

    plain: tokens per second of the plain loop that the prediction is relative to."""
    rate = row.tokens_per_second
    if rate is None:
        return 0.0
    shown, (colour, hatch) = min(rate, 1.5 * most), VARIANT_LOOKS[row.variant]
    spread = rate * row.sd / row.seconds if shown == rate else 0  # a bar that is cut off shows no end
    axis.barh(y, shown, 0.7, xerr=spread, capsize=4, color=colour, hatch=hatch, edgecolor="white")
    predicted = plain * row.predicted if plain and row.predicted else 0
    if predicted:
        axis.plot(predicted, y, **DIAMOND, color="white", ms=7, zorder=3)
    return max(shown + spread, predicted)


def _variant_in_words(row: Row, most: float) -> str:
    rate = row.tokens_per_second
    if rate is None:
        return (row.note or "nothing measured").split(":")[0]  # the table says it in full
    words = f"{rate:.0f} tokens/s" + (" (bar cut off)" if rate > 1.5 * most else "")
    return words + (f", {row.speedup:.2f} x" if row.speedup else "")


def sweep_points(sweep: Sequence[Measurement], variant: str = GOOGLE) -> list[dict]:
    """{"value", "speedup", "half", "repeated", "tokens_per_pass", "predicted", "alpha"} at each value of a sweep.

    sweep: one measurement for each value, as `benchmark.sweep` gives them.  speedup: over the plain loop on the same
    forward passes (`Row.over_plain`).  half: of its 95 % interval.
    repeated: whether some texts were written several times, as at temperature 0.  Values where the variant was not
    measured are left out.
    """
    found = []
    for m in sweep:
        row = next((r for r in rows(m) if r.variant == variant), None)
        if row and row.over_plain:
            evaluations = len(m.variants[variant].seconds)
            repeated = row.texts < evaluations if row.texts else not m.setting.temperature and evaluations > 1
            copied = {k: getattr(row, k) for k in ("tokens_per_pass", "predicted", "alpha")}
            speed = {"speedup": row.over_plain, "half": row.plain_margin or 0.0}
            found.append({"value": m.value, **speed, "repeated": repeated, **copied})
    return found


def plot_sweep(sweeps: dict[str, Sequence[Measurement]], title: str, xlabel: str, save=None) -> None:
    """Speed-up against one factor, measured (lines) and predicted (open marks), for each machine by name.

    sweeps: the machine's name -> its sweep, as `sweep_points` takes it.  save: as in `plot_variants`.
    """
    drawn = {name: found for name, sweep in sweeps.items() if (found := sweep_points(sweep))}
    own = {f"{name}, own pass": found for name, sweep in sweeps.items() if (found := sweep_points(sweep, OWN))}
    for variant in MORE:
        where = {name: sweep_points(sweep, variant) for name, sweep in sweeps.items()}
        own |= {f"{name}, {variant}" if len(sweeps) > 1 else variant: found for name, found in where.items() if found}
    drawn |= own
    values = list(dict.fromkeys(str(p["value"]) for found in drawn.values() for p in found))
    marks, dashes = ["o", "s", "^", "v", "P", "X", "*", "d"], ["-", "--", "-.", ":"]
    with figure(8, 3.8, suptitle=title, save=save) as axis:
        for i, (name, found) in enumerate(drawn.items()):
            colour = GREYS[i % 2 * 2] if name.endswith(tuple(MORE)) else SHADES[i % len(SHADES)]
            x = [values.index(str(p["value"])) for p in found]
            y, errors = [p["speedup"] for p in found], [p["half"] for p in found]
            ordered = all(isinstance(p["value"], int | float) for p in found)  # a line joins no names
            look = {
                "color": colour,
                "marker": marks[i % len(marks)],
                "ls": dashes[i % 4] if ordered else "none",
                "capsize": 4,
            }
            axis.errorbar(x, y, errors, **look, label=name)
            predicted = [(a, p["predicted"]) for a, p in zip(x, found, strict=True) if p["predicted"] is not None]
            if predicted:
                axis.plot(*zip(*predicted, strict=True), **{**DIAMOND, "markeredgecolor": colour}, color="white", ms=8)
        if drawn:
            axis.plot([], [], **DIAMOND, color="white", ms=8, label="predicted")
            axis.legend(**BELOW, ncols=2)
            tops = [max(p["speedup"] + p["half"], p["predicted"] or 0) for found in drawn.values() for p in found]
            axis.set_ylim(0, 1.15 * max(1.1, *tops))
        else:
            axis.text(0.5, 0.5, "no recording of this yet", ha="center", transform=axis.transAxes)
        axis.axhspan(0, 1, color="#DDDDDD", alpha=0.5, lw=0)
        axis.axhline(1, color="black", lw=1, ls="--")
        axis.text(-0.45, 0.05, "slower than the target alone" + (", each on its own passes" if own else ""), fontsize=9)
        axis.set_xticks(range(len(values)), [token_label(v, 24) for v in values])
        axis.set(xlabel=xlabel, ylabel="times as fast (bars: 95 %)")
        axis.set_xlim(-0.5, max(0, len(values) - 1) + 0.5)


def plot_reported(rows: Sequence[Reported], title: str) -> None:
    """Reported speed-ups, a line each: predicted and measured, beside the tokens per target pass that the idealised
    formula expects (bar) and the most that any pattern of acceptance can give, 1 / (1 - alpha) (tick)."""
    y = list(range(len(rows)))
    with figure(8.5, 0.36 * len(rows) + 1.2, title=title) as axis:
        grey = {"color": "#e6e6e6", "edgecolor": "#999999"}
        tokens = [expected_tokens(r.alpha, r.gamma) for r in rows]
        axis.barh(y, tokens, 0.7, **grey, label="tokens per target pass,\nidealised formula")
        tick = {"marker": "|", "ls": "none", "ms": 17, "markeredgewidth": 2.5, "color": PALETTE["rejected"]}
        axis.plot([1 / (1 - r.alpha) for r in rows], y, **tick, label="1 / (1 - alpha), any pattern")
        axis.plot([r.predicted for r in rows], y, **DIAMOND, color=PALETTE["draft"], ms=7, label="predicted speed-up")
        look = {**DIAMOND, "marker": "o", "color": PALETTE["target"], "ms": 8}
        axis.plot([r.measured for r in rows], y, **look, label="measured speed-up")
        axis.set_yticks(y, [r.name for r in rows])
        axis.invert_yaxis()
        axis.axvline(1, color="black", lw=1, ls="--")
        axis.set(xlabel="times as fast as plain decoding; tokens per target pass")
        axis.legend(**BESIDE)
