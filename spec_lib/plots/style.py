"""How every figure and every marked text looks: one palette with one meaning, and never colour alone.

matplotlib is imported only where a figure is drawn.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from .glyphs import make_legible

# Okabe and Ito's colours, which people with any colour vision tell apart; the hatch or letter says it in grey.
PALETTE = {
    "target": "#0072B2",
    "draft": "#E69F00",
    "accepted": "#009E73",
    "rejected": "#D55E00",
    "resampled": "#CC79A7",
    "bonus": "#56B4E9",
    "plain": "#999999",
}
SHADES = ["#0072B2", "#8FC1DE", "#003A5C", "#C9DFEC"]  # the target under several settings
GREYS = ["#666666", "#BBBBBB", "#333333", "#DDDDDD"]  # of series whose name has no colour of its own
HATCHES = ["", "//", "..", "xx", "++"]
LETTERS = {"accepted": "A", "rejected": "R", "resampled": "S", "bonus": "B", "plain": "P"}
# What each origin looks like in HTML and on a terminal: a colour, and a shape that stays without it.
CSS = {
    "prompt": "opacity:.7",  # of the theme's own ink: no fixed grey is legible on white and on black
    "accepted": "background:#009E7333;border-bottom:2px solid #009E73;text-decoration:none",
    "resampled": "background:#CC79A755;border-bottom:3px double #8a3f6a;font-weight:bold",
    "bonus": "background:#56B4E955;border-bottom:2px dotted #0a5c8f;font-style:italic",
    "plain": "border-bottom:1px solid #999",
}
ANSI = {"prompt": "2", "accepted": "4;32", "resampled": "1;35", "bonus": "3;36", "plain": "0"}
MEANING = {
    "accepted": "draft token that the target accepted",
    "resampled": "resampled by the target after a rejected draft token",
    "bonus": "the target's extra token after a whole accepted draft",
    "plain": "the target alone",
}
# The elements that have these shapes by themselves, since GitHub's pages drop what CSS says.
ELEMENT = {"accepted": "ins", "resampled": "strong", "bonus": "em", "plain": "span"}
SHAPE = {"accepted": "underlined", "resampled": "bold", "bonus": "italic", "plain": "plain"}

STYLE = {
    "axes.spines.top": False,
    "axes.spines.right": False,
    "legend.frameon": False,
    "text.parse_math": False,  # a token may hold dollar signs
}
# Where a legend stands that would hide what is drawn.
BESIDE = {"loc": "center left", "bbox_to_anchor": (1.0, 0.5)}
BELOW = {"loc": "upper center", "bbox_to_anchor": (0.5, -0.2)}
# What a draft loses is an empty, crossed box; a prediction is a diamond.
CROSSED = {"color": "none", "edgecolor": PALETTE["rejected"], "hatch": "xxx"}
DIAMOND = {"marker": "D", "ls": "none", "markeredgecolor": "black"}


@contextmanager
def figure(width: float, height: float, title: str | None = None, suptitle: str | None = None, save=None, **grid):
    """A figure of this size in inches, in the course's style: `with figure(8, 3.4, title="...") as axis: ...`.

    title: above the axis (the first, if there are several).  suptitle: above the whole figure, which is wider where a
    legend stands beside the axis.  grid: what `Figure.subplots` takes (nrows, height_ratios, ...).

    At the end, whatever the fonts cannot draw is written out (`glyphs.make_legible`), the figure is shown, or written
    as PNG where `save`, a path or an open binary file, is given, and closed.
    """
    import matplotlib.pyplot as plt

    # Before the style: making the first figure loads the notebook's backend, whose settings must outlive the style.
    made = plt.figure(figsize=(width, height), layout="constrained")
    stays = False
    try:
        with plt.rc_context(STYLE):
            axes = made.subplots(**grid)
            yield axes
            if title is not None:
                (axes if hasattr(axes, "set_title") else axes.flat[0]).set_title(title)
            if suptitle is not None:
                made.suptitle(suptitle)
            make_legible(made)
        if save is None:
            plt.show()
            stays = plt.isinteractive()  # a window, or a notebook, which closes what it has shown itself
        else:
            made.savefig(save, format="png", dpi=110)
    finally:
        if not stays:
            plt.close(made)


def beside_each_other(count: int, bars: int) -> Iterator[tuple[list[float], float]]:
    """(x of each bar, width) of each of `bars` series that stand side by side over the positions 0 to count - 1."""
    width = 0.8 / bars
    for i in range(bars):
        yield [x + (i - (bars - 1) / 2) * width for x in range(count)], width
