"""Distributions over a few tokens: side by side, one over the other, and the frequencies of samples against them."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from .glyphs import token_label
from .style import BESIDE, GREYS, HATCHES, PALETTE, SHADES, beside_each_other, figure


def _name_tokens(axis, tokens: Sequence[str], slanted: bool = False) -> None:
    """The tokens under the bars at 0, 1, ...: slanted where asked for, or where a long one would touch the next."""
    labels = [token_label(token) for token in tokens]
    slanted = slanted or max(map(len, labels), default=0) > 12
    axis.set_xticks(range(len(labels)), labels, **({"rotation": 30, "ha": "right"} if slanted else {}))


def plot_distributions(distributions: dict[str, Sequence[float]], labels: Sequence[str], title: str) -> None:
    """Bars of several distributions over the same few tokens, side by side.

    distributions: name -> the probability of each token.  labels: the tokens' texts, as many.
    """
    with figure(9, 3.4, title=title) as axis:
        for i, ((name, values), (x, width)) in enumerate(
            zip(distributions.items(), beside_each_other(len(labels), len(distributions)), strict=True)
        ):
            look = {"color": SHADES[i % len(SHADES)], "hatch": HATCHES[i % len(HATCHES)], "edgecolor": "white"}
            axis.bar(x, [float(v) for v in values], width, label=name, **look)
        _name_tokens(axis, labels, slanted=max(map(len, labels), default=0) > 2)
        axis.set(xlabel="next token", ylabel="probability")
        axis.legend()


def overlap_parts(p: Sequence[float], q: Sequence[float]) -> dict[str, list[float]]:
    """The areas of the stacked overlap of target p and draft q, one number for each token.

    {"accepted": min(p, q), "resampled": max(0, p - q), "rejected": max(0, q - p)}: token by token, accepted + resampled
    is p and accepted + rejected is q.
    """
    p, q = (x.cpu() if isinstance(x, torch.Tensor) else x for x in (p, q))  # first: MPS has no float64
    a, b = (torch.as_tensor(x, dtype=torch.float64) for x in (p, q))
    parts = {"accepted": torch.minimum(a, b), "resampled": (a - b).clamp(min=0), "rejected": (b - a).clamp(min=0)}
    return {name: values.tolist() for name, values in parts.items()}


OVERLAP_LOOKS = {  # colour, hatch and name of each area; what is rejected is an empty, crossed box
    "accepted": (PALETTE["accepted"], "", "accepted: min(p, q)"),
    "resampled": (PALETTE["resampled"], "///", "resampled: max(0, p - q)"),
    "rejected": ("none", "xxx", "rejected: max(0, q - p)"),
}


def plot_overlap(
    p: Sequence[float],
    q: Sequence[float],
    labels: Sequence[str],
    title: str = "min(p, q) is accepted, max(0, p - q) fills up to p",
) -> None:
    """The stacked overlap of target p and draft q over a few tokens.

    Accepted and resampled reach p, a solid line over each token; accepted and rejected reach q, a dashed line.
    """
    parts, x = overlap_parts(p, q), list(range(len(labels)))
    with figure(max(6.8, 0.8 * len(labels) + 4.2), 3.4, suptitle=title) as axis:
        bottom = [0.0] * len(labels)
        for name, values in parts.items():
            colour, hatch, label = OVERLAP_LOOKS[name]
            edge = PALETTE["rejected"] if name == "rejected" else "white"
            total = f"{label}, sum {sum(values):.2f}"
            axis.bar(x, values, 0.7, bottom=bottom, color=colour, hatch=hatch, edgecolor=edge, label=total)
            bottom = [a + b for a, b in zip(bottom, values, strict=True)]
        for values, half, look, said in (
            (p, 0.44, {"color": "black", "lw": 2}, "p, the target: accepted + resampled"),
            (q, 0.44, {"color": PALETTE["draft"], "lw": 3, "ls": (0, (2, 1))}, "q, the draft: accepted + rejected"),
        ):
            axis.hlines([float(v) for v in values], [i - half for i in x], [i + half for i in x], **look)
            axis.plot([], [], label=said, **look)
        _name_tokens(axis, labels)
        axis.set(xlabel="token", ylabel="probability", ylim=(0, 1.1 * max(bottom)))
        axis.legend(**BESIDE)


def noise_band(p: Sequence[float], samples: int, sigmas: float = 2.0) -> list[tuple[float, float]]:
    """(low, high) for each token: where a right sampler's frequency lies, up to `sigmas` standard errors."""
    return [
        (max(0.0, x - sigmas * (x * (1 - x) / samples) ** 0.5), min(1.0, x + sigmas * (x * (1 - x) / samples) ** 0.5))
        for x in map(float, p)
    ]


def plot_empirical(
    frequencies: dict[str, Sequence[float]], p: Sequence[float], samples: int, labels: Sequence[str], title: str
) -> None:
    """Frequencies of one or more samplers against the target's distribution p, with two standard errors around it.

    frequencies: name -> the share of each token among `samples` draws; a name that begins with a word of `PALETTE`
    ("accepted alone") has its colour.  p: the probability of each token.  labels: the tokens' texts.
    """
    greys = GREYS * len(frequencies)
    colours = [PALETTE.get(name.split()[0], grey) for name, grey in zip(frequencies, greys, strict=False)]
    with figure(max(6.5, 1.1 * len(labels) + 3), 3.4, suptitle=title) as axis:
        for i, ((name, values), (x, width)) in enumerate(
            zip(frequencies.items(), beside_each_other(len(labels), len(frequencies)), strict=True)
        ):
            look = {"color": colours[i], "hatch": HATCHES[i % len(HATCHES)], "edgecolor": "white"}
            axis.bar(x, [float(v) for v in values], width, label=name, **look)
        for i, (value, (low, high)) in enumerate(zip(p, noise_band(p, samples), strict=True)):
            axis.fill_between([i - 0.45, i + 0.45], low, high, color="black", alpha=0.25, lw=0)
            axis.hlines(float(value), i - 0.45, i + 0.45, "black", lw=1.5)
        axis.plot([], [], "k-", lw=1.5, label="p, with two standard errors")
        _name_tokens(axis, labels)
        axis.set(xlabel="token", ylabel="share")
        axis.legend(**BESIDE)
