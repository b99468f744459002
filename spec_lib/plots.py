"""Figures and coloured text.  One palette with one meaning everywhere, and never colour alone.

matplotlib and IPython are imported only where they are used.
"""

from __future__ import annotations

import html
from collections.abc import Iterable, Iterator, Sequence

import torch

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
LETTERS = {"accepted": "A", "rejected": "R", "resampled": "S", "bonus": "B", "plain": "P"}
# What each origin looks like in HTML and on a terminal: a colour, and a shape that stays without it.
CSS = {
    "prompt": "color:#666",
    "accepted": "background:#009E7333;border-bottom:2px solid #009E73",
    "resampled": "background:#CC79A755;border-bottom:3px double #8a3f6a;font-weight:bold",
    "bonus": "background:#56B4E955;border-bottom:2px dotted #0a5c8f;font-style:italic",
    "plain": "border-bottom:1px solid #999",
}
ANSI = {"prompt": "2", "accepted": "32", "resampled": "1;4;35", "bonus": "3;4;36", "plain": "0"}
MEANING = {
    "accepted": "draft token that the target accepted",
    "resampled": "the target's replacement for a rejected draft token",
    "bonus": "the target's extra token after a whole accepted draft",
    "plain": "the target alone",
}
SHAPE = {"accepted": "underlined", "resampled": "bold", "bonus": "italic", "plain": "plain"}


def origins(rounds: Sequence) -> list[str]:
    """The origin of each emitted token of some rounds, in order."""
    return [o for r in rounds for o in ["accepted"] * r.accepted + ([] if r.token is None else [r.origin])]


def pieces(pair, ids: torch.Tensor, emitted: Iterable[tuple[int, str]]) -> Iterator[tuple[str, str]]:
    """(text, origin) of each emitted (token, origin) behind the prompt ids (1, length), as they come.

    Joined, they are the decoded text.  A token may be a piece of a UTF-8 character: such tokens are held until the
    character is whole, and it is given to the token that completed it.
    """
    known = ids.flatten().tolist()[-8:]  # some tokenizers treat a text's first token differently
    shown, held, name = len(pair.decode(known)), 0, "plain"
    for token, name in emitted:
        known.append(int(token))
        text, held = pair.decode(known), held + 1
        if text.endswith("\ufffd") and held < 4:  # a character has at most four bytes
            continue
        if len(text) > shown:
            yield text[shown:], name
        known = known[-8:] if len(known) > 32 and not text.endswith("\ufffd") else known
        shown, held = len(pair.decode(known)), 0
    if held and len(text := pair.decode(known)) > shown:
        yield text[shown:], name  # the text ends inside a character


def html_text(pair, ids: torch.Tensor, generation, legend: bool = True) -> str:
    """A generation as HTML: prompt in grey, each token marked by its origin, with a legend that needs no colour."""
    names = origins(generation.rounds) or ["plain"] * len(generation.tokens)
    parts = [f'<span style="{CSS["prompt"]}">{html.escape(pair.decode(ids))}</span>']
    for text, name in pieces(pair, ids, zip(generation.tokens.tolist(), names, strict=True)):
        parts.append(f'<span style="{CSS[name]}" title="{MEANING[name]}">{html.escape(text)}</span>')
    body = "".join(parts)
    if legend:
        used = [n for n in MEANING if n in names]
        body += "<br><small>" + " &nbsp; ".join(
            f'<span style="{CSS[n]}">{n}</span> ({SHAPE[n]}): {MEANING[n]}, {names.count(n)}' for n in used
        )
        body += "</small>"
    return f'<div style="white-space:pre-wrap;line-height:1.9;max-width:60em">{body}</div>'


def show_text(pair, ids: torch.Tensor, generation) -> None:
    """Display `html_text` in a notebook."""
    from IPython.display import HTML, display

    display(HTML(html_text(pair, ids, generation)))


def ansi_text(text: str, origin: str, colour: bool = True) -> str:
    """A piece of text for a terminal, marked by its origin with a colour and a face (bold, italic, underlined)."""
    return f"\x1b[{ANSI[origin]}m{text}\x1b[0m" if colour else text


def visible(text: str) -> str:
    """A token as it is shown in a figure or a log: blanks and line ends made visible."""
    return text.replace("\n", "\u21b5").replace(" ", "\u00b7") or "\u2205"


def plot_laws(laws: dict[str, Sequence[float]], labels: Sequence[str], title: str) -> None:
    """Bars of several laws over the same few tokens, side by side."""
    import matplotlib.pyplot as plt

    hatches = ["", "//", "..", "xx"]
    width = 0.8 / len(laws)
    _, axis = plt.subplots(figsize=(9, 3.4), layout="constrained")
    for i, (name, law) in enumerate(laws.items()):
        where = [x + (i - (len(laws) - 1) / 2) * width for x in range(len(labels))]
        axis.bar(
            where, [float(v) for v in law], width, label=name, color=SHADES[i], hatch=hatches[i], edgecolor="white"
        )
    axis.set_xticks(range(len(labels)), [visible(label) for label in labels], rotation=30, ha="right")
    axis.set(title=title, xlabel="next token", ylabel="probability")
    axis.legend(frameon=False)
    axis.spines[["top", "right"]].set_visible(False)
    plt.show()


def plot_lines(x: Sequence[float], series: dict[str, Sequence[float]], title: str, xlabel: str, ylabel: str) -> None:
    """Lines over one axis, told apart by marker and dash as well as by colour."""
    import matplotlib.pyplot as plt

    colours, marks = ["#666666", PALETTE["target"], PALETTE["draft"]], ["o--", "s-", "^:"]
    _, axis = plt.subplots(figsize=(7, 3.4), layout="constrained")
    for (name, values), colour, mark in zip(series.items(), colours, marks, strict=False):
        axis.plot(x, [float(v) for v in values], mark, color=colour, label=name)
    axis.set(title=title, xlabel=xlabel, ylabel=ylabel)
    axis.set_ylim(bottom=0)
    axis.legend(frameon=False)
    axis.spines[["top", "right"]].set_visible(False)
    plt.show()


def round_rows(pair, rounds: Sequence) -> list[list[tuple[str, str]]]:
    """What `plot_rounds` draws: for each round its (token text, verdict), rejected drafts included."""
    rows = []
    for r in rounds:
        row = [(pair.decode([t]), "accepted") for t in r.drafted[: r.accepted].tolist()]
        if r.rejected is not None:
            row.append((pair.decode([r.rejected]), "rejected"))
        if r.token is not None:
            row.append((pair.decode([r.token]), r.origin))
        rows.append(row)
    return rows


def plot_rounds(pair, rounds: Sequence, title: str) -> None:
    """One line a round: accepted drafts (A), the rejected one (R) and its replacement (S), or the bonus (B)."""
    import matplotlib.pyplot as plt

    rows = round_rows(pair, rounds)
    longest = max(len(row) for row in rows)
    _, axis = plt.subplots(figsize=(1.5 * longest + 1, 0.36 * len(rows) + 1), layout="constrained")
    for y, row in enumerate(rows):
        for x, (text, verdict) in enumerate(row):
            axis.barh(y, 0.96, left=x + 0.02, height=0.84, color=PALETTE[verdict] + "66", edgecolor=PALETTE[verdict])
            # Story text is ASCII; a dollar sign would start a formula.
            label = f"{visible(text)}  {LETTERS[verdict]}".replace("$", r"\$")
            axis.text(x + 0.5, y, label, ha="center", va="center", fontsize=9)
    axis.set(title=title, xlim=(0, longest), ylim=(len(rows) - 0.4, -0.6), ylabel="round")
    axis.set_yticks(range(len(rows)), [str(y + 1) for y in range(len(rows))])
    axis.set_xticks([x + 0.5 for x in range(longest)], [str(x + 1) for x in range(longest)])
    axis.set_xlabel("place in the round   (A accepted, R rejected, S resampled, B bonus, P plain)")
    axis.spines[["top", "right", "left", "bottom"]].set_visible(False)
    axis.tick_params(length=0)
    plt.show()
