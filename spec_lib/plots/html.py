"""The HTML that the widgets are built of: a table, a box of a given width, a token, and the stacked overlap.

The looks stand in each element: a widget's HTML has no style sheet of its own, and a theme's must not matter.
"""

from __future__ import annotations

import html
from collections.abc import Iterable, Sequence

from .characters import visible
from .distributions import overlap_parts
from .style import PALETTE

LEFT = "text-align:left;padding:0 .5em 0 0"
LONGEST = 12  # the longest bar, in em: fits beside its numbers at 150 % zoom
DASHED = f"border:2px dashed {PALETTE['rejected']}"  # what is lost: rejected, or cut off a cache
COLLAPSED = "border-collapse:collapse"


def table(rows: Iterable[Sequence[str]], looks: Sequence[str], heads: Sequence[str] = (), look: str = COLLAPSED) -> str:
    """A table of ready HTML.

    rows: the cells of each line.  looks: the CSS of each column.  heads: of the columns, if they have any.  look: the
    CSS of the whole table.
    """

    def row(cells: Sequence[str], kind: str) -> str:
        styled = zip(cells, looks, strict=True)
        return "<tr>" + "".join(f'<{kind} style="{css}">{cell}</{kind}>' for cell, css in styled) + "</tr>"

    body = (row(heads, "th") if heads else "") + "".join(row(cells, "td") for cells in rows)
    return f'<table style="{look}">{body}</table>'


def box(width: float, look: str) -> str:
    """A box of one line's height, `width` em wide; look: CSS.  A border lies inside the width."""
    return f'<span style="display:inline-block;box-sizing:border-box;height:1em;width:{width:.3f}em;{look}"></span>'


def bar_table(rows: Iterable[Sequence[str]]) -> str:
    """A table of (name, bar, what it says), a line each."""
    looks = ("text-align:right;padding-right:.6em", "text-align:left;white-space:nowrap")
    return table(rows, (*looks, "text-align:left;padding-left:.6em"))


def code(token: str, look: str = "") -> str:
    """A token's text; a long one may break, or it would push the numbers out of a narrow window."""
    return f'<code style="overflow-wrap:anywhere;{look}">{html.escape(visible(token))}</code>'


def bars(p: Sequence[float], q: Sequence[float] | None, labels: Sequence[str]) -> str:
    """The stacked overlap as HTML: a line a token, accepted (solid), resampled (striped) and rejected (dashed).

    q: None where nothing was drafted; then p alone, a solid bar.
    """
    if q is None:
        em = LONGEST / max(*map(float, p), 1e-9)
        solid = f"background:{PALETTE['target']}"
        return bar_table(
            (code(x), box(em * float(a), solid), f"p {float(a):.3f}") for x, a in zip(labels, p, strict=True)
        )
    parts = overlap_parts(p, q)
    em = LONGEST / max(max(map(float, p)), max(map(float, q)), 1e-9)
    stripes = f"repeating-linear-gradient(45deg,{PALETTE['resampled']} 0 4px,#fff 4px 6px)"
    looks = {
        "accepted": ("accepted", f"background:{PALETTE['accepted']}"),
        "resampled": ("resampled", f"background:{stripes}"),
        "rejected": ("rejected", DASHED),
    }
    rows = []
    for i, label in enumerate(labels):
        shown = {part: values[i] for part, values in parts.items()}
        boxes = "".join(box(em * shown[part], look) for part, (_, look) in looks.items() if shown[part] > 0)
        numbers = " ".join(f"{name} {shown[part]:.3f}" for part, (name, _) in looks.items() if shown[part] >= 0.0005)
        rows.append((code(label), boxes, numbers))
    legend = "accepted (solid): min(p, q) &nbsp; resampled (striped): max(0, p - q) &nbsp; "
    legend += "rejected (dashed): max(0, q - p)<br>"
    legend += "solid and striped reach p; solid and dashed reach q"
    return f"{bar_table(rows)}<small>{legend}</small><br>"
