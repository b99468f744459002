"""What one causal forward pass reads and returns, and what a KV cache holds.  Drawn in notebook 01."""

from __future__ import annotations

from collections.abc import Sequence

from .glyphs import token_label
from .style import PALETTE, figure

READ, HIDDEN = PALETTE["target"] + "40", "#F0F0F0"  # a token that a row may look at; one that it may not
STORED = {"color": PALETTE["target"] + "30", "edgecolor": PALETTE["target"], "lw": 0.8}
COMPUTED = {"color": PALETTE["target"], "edgecolor": "black", "lw": 0.8}


def seen_by(rows: int) -> list[list[bool]]:
    """The causal mask: row t of a pass over `rows` tokens sees the tokens 0 to t."""
    return [[column <= row for column in range(rows)] for row in range(rows)]


def plot_prefixes(tokens: Sequence[str], predictions: Sequence[str], title: str) -> None:
    """One pass over a text as a staircase: which tokens each row sees, and an arrow to what it predicts.

    tokens: the texts of the tokens in the pass.  predictions: what is to be written at the end of each row's arrow.
    """
    n = len(tokens)
    with figure(9, 0.42 * n + 1.3, title=title) as axis:
        for row, seen in enumerate(seen_by(n)):
            for column, visible in enumerate(seen):
                look = {"color": READ, "edgecolor": "white"} if visible else {"color": HIDDEN, "edgecolor": "white"}
                axis.barh(row, 1, 0.86, left=column - 0.5, lw=2, **look)
                if visible:
                    axis.text(column, row, token_label(tokens[column]), ha="center", va="center", fontsize=9)
            arrow = {"arrowstyle": "-|>", "color": "black", "lw": 1.2}
            axis.annotate("", (n + 0.55, row), (n - 0.4, row), arrowprops=arrow)
            axis.text(n + 0.65, row, predictions[row], va="center", fontsize=9)
        axis.set_yticks(range(n), [f"row {t}" for t in range(n)])
        axis.set_xticks(range(n), [str(t) for t in range(n)])
        axis.set(xlabel="token of the text (blue: this row sees it; grey: hidden from it)", xlim=(-0.6, n + 2.7))
        axis.set_ylim(n - 0.4, -0.6)
        axis.tick_params(length=0)
        axis.spines[:].set_visible(False)


def plot_kv_cache(tokens: Sequence[str], layers: int, title: str, new: int = 1) -> None:
    """Keys and values of a text, a row for each layer and a column for each token: computed, or read from the cache.

    tokens: the texts of the tokens.  layers: how many rows are drawn.  new: how many tokens, the last ones, the pass
    with a cache is fed.
    """
    n = len(tokens)
    panels = {"without a cache": 0, "with a KV cache": n - new}
    with figure(9, 0.42 * layers + 1.9, suptitle=title, ncols=2, sharey=True) as axes:
        for axis, (name, stored) in zip(axes, panels.items(), strict=True):
            for layer in range(layers):
                for column in range(n):
                    computed = column >= stored
                    axis.bar(column, 0.8, 0.9, layer - 0.4, **(COMPUTED if computed else STORED))
                    ink = "white" if computed else "black"
                    axis.text(column, layer, "K V", ha="center", va="center", fontsize=8, color=ink)
            axis.annotate("", (n - 1, layers + 0.25), (n - 1, layers - 0.55), arrowprops={"arrowstyle": "-|>"})
            axis.text(n - 1, layers + 0.3, "logits", ha="center", va="bottom", fontsize=9)
            axis.set_title(f"{name}: {n - stored} computed, {stored} read", fontsize=10)
            axis.set_xticks(range(n), [token_label(token) for token in tokens], rotation=30, ha="right")
            axis.set_yticks(range(layers), [f"layer {i + 1}" for i in range(layers)])
            axis.set(xlim=(-0.6, n - 0.4), ylim=(-0.6, layers + 0.9))
            axis.tick_params(length=0)
            axis.spines[:].set_visible(False)
