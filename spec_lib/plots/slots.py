"""The rectangle that several texts share, and the slots as texts come and go.  Drawn in notebook 12."""

from __future__ import annotations

from collections.abc import Sequence

from .style import BELOW, HATCHES, PALETTE, SHADES, figure

_KEPT = {"color": PALETTE["target"] + "30", "edgecolor": PALETTE["target"], "lw": 0.8}
_NEW = {"color": PALETTE["target"], "edgecolor": "black", "lw": 0.8}
_STALE = {"color": "none", "edgecolor": PALETTE["rejected"], "hatch": "xxx", "lw": 0.8}
_PADDING = {"color": "none", "edgecolor": PALETTE["plain"], "ls": ":", "lw": 1.2}


def plot_rectangle(
    lengths: Sequence[int], counts: Sequence[int], stale: Sequence[int], columns: int, title: str
) -> None:
    """A row for each slot: what its text holds, its new tokens, and what earlier rounds left beyond them.

    lengths: tokens that each slot holds before the pass.  counts: new tokens of each in this pass.  stale: columns
    after the length that hold rejected tokens.  columns: of the rectangle; the last one is where padding goes.
    """
    most = max(counts)
    with figure(9, 0.5 * len(lengths) + 1.7, title=title) as axis:
        seen = set()

        def box(row: int, column: int, name: str, look: dict) -> None:
            axis.barh(row, 0.94, 0.8, left=column - 0.47, label=None if name in seen else name, **look)
            seen.add(name)

        for row, (length, count, left) in enumerate(zip(lengths, counts, stale, strict=True)):
            for column in range(length):
                box(row, column, "held (K, V)", _KEPT)
            for column in range(length + count, length + left):
                box(row, column, "rejected earlier: hidden, then overwritten", _STALE)
            for column in range(length, length + count):
                box(row, column, "new in this pass (N)", _NEW)
                axis.text(column, row, "N", ha="center", va="center", color="white", fontsize=9)
            if count < most:
                box(row, columns - 1, "padding", _PADDING)
                axis.text(columns - 1, row, f"{most - count}", ha="center", va="center", fontsize=9)
        axis.set_yticks(range(len(lengths)), [f"slot {i}: length {n}" for i, n in enumerate(lengths)])
        axis.set_xticks(range(columns))
        axis.set(xlabel="column of the cache = position in the text", xlim=(-0.6, columns - 0.4))
        axis.set_ylim(len(lengths) - 0.4, -0.6)
        axis.tick_params(length=0)
        axis.spines[:].set_visible(False)
        axis.legend(ncols=4, **{**BELOW, "bbox_to_anchor": (0.5, -0.35)}, fontsize=8)


def plot_slots(steps: Sequence[Sequence[tuple[int, int]]], slots: int, title: str) -> None:
    """Time from left to right, a line for each slot: which text had it, and how many tokens each round wrote.

    steps: for each step, (text, tokens written) of slot 0, 1, ...; a missing slot was empty.
    """
    with figure(9.5, 0.55 * slots + 1.5, title=title) as axis:
        for step, texts in enumerate(steps):
            for slot, (text, tokens) in enumerate(texts):
                look = {"color": SHADES[text % len(SHADES)], "hatch": HATCHES[text // len(SHADES) % len(HATCHES)]}
                axis.barh(slot, 0.96, 0.84, left=step + 0.02, edgecolor="white", **look)
                ink = "black" if text % len(SHADES) in (1, 3) else "white"
                box = {"facecolor": look["color"], "edgecolor": "none", "pad": 1}
                axis.text(step + 0.5, slot, str(tokens), ha="center", va="center", color=ink, fontsize=9, bbox=box)
                before = steps[step - 1] if step else []
                if slot >= len(before) or before[slot][0] != text:  # it is new here
                    axis.text(step + 0.06, slot - 0.3, f"text {text}", ha="left", va="center", color=ink, fontsize=6,
                              bbox=box)  # fmt: skip
        axis.set_yticks(range(slots), [f"slot {i}" for i in range(slots)])
        axis.xaxis.get_major_locator().set_params(integer=True)
        axis.set(xlabel="step (each is one target pass; numbers: tokens written)", xlim=(0, len(steps)))
        axis.set_ylim(slots - 0.4, -0.6)
        axis.tick_params(length=0)
