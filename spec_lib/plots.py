"""Figures and coloured text.  One palette with one meaning everywhere, and never colour alone.

matplotlib and IPython are imported only where they are used.
"""

from __future__ import annotations

import html
from collections.abc import Callable, Iterable, Iterator, Sequence

import torch

from .theory import walltime_improvement

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
HATCHES = ["", "//", "..", "xx", "++"]
LETTERS = {"accepted": "A", "rejected": "R", "resampled": "S", "bonus": "B", "plain": "P"}
# What each origin looks like in HTML and on a terminal: a colour, and a shape that stays without it.
CSS = {
    "prompt": "opacity:.7",  # of the theme's own ink: no fixed grey is legible on white and on black
    "accepted": "background:#009E7333;border-bottom:2px solid #009E73",
    "resampled": "background:#CC79A755;border-bottom:3px double #8a3f6a;font-weight:bold",
    "bonus": "background:#56B4E955;border-bottom:2px dotted #0a5c8f;font-style:italic",
    "plain": "border-bottom:1px solid #999",
}
ANSI = {"prompt": "2", "accepted": "4;32", "resampled": "1;35", "bonus": "3;36", "plain": "0"}
MEANING = {
    "accepted": "draft token that the target accepted",
    "resampled": "the target's replacement for a rejected draft token",
    "bonus": "the target's extra token after a whole accepted draft",
    "plain": "the target alone",
}
SHAPE = {"accepted": "underlined", "resampled": "bold", "bonus": "italic", "plain": "plain"}


BAD = "\ufffd"  # what bytes that are no character decode to


def origins(rounds: Sequence) -> list[str]:
    """The origin of each emitted token of some rounds, in order."""
    return [o for r in rounds for o in ["accepted"] * r.accepted + ([] if r.token is None else [r.origin])]


def pieces(pair, ids: torch.Tensor, emitted: Iterable[tuple[int, str]]) -> Iterator[tuple[str, str]]:
    """(text, origin) of each emitted (token, origin) behind the prompt ids (1, length), as they come.

    Joined, they are the decoded text.  A token may be a piece of a UTF-8 character: such tokens are held until the
    character is whole, and it is given to the token that completed it.  Bytes that are none come as U+FFFD.
    """
    known, held = _recent(pair, ids.flatten().tolist()), []  # held: the origins of tokens of which nothing is shown
    shown, text = len(pair.decode(known)), ""
    for token, name in emitted:
        known.append(int(token))
        held.append(name)
        text = pair.decode(known)
        # The beginning of a character decodes to U+FFFD, one in all or one a byte, and so may, as long as its bytes
        # last, a whole character before it: what stands at the end waits.  After nine tokens it is no character.
        whole = max(len(text.rstrip(BAD)), len(text) - 3 if len(held) > 8 else 0)
        if whole > shown:
            good = whole - len(text[shown:whole].lstrip(BAD))
            if shown < good:
                yield text[shown:good], held[0]
            if good < whole:
                yield text[good:whole], name
            shown = whole
        if shown == len(text):
            held = []
            if len(known) > 32:
                known = _recent(pair, known)
                shown = len(pair.decode(known))
        else:
            held = held[-8:]
    if held and len(text) > shown:
        yield text[shown:], held[-1]  # the text ends inside a character


def _recent(pair, known: list[int]) -> list[int]:
    """The last tokens, as few as decode on their own to the end of the text (some decode otherwise at a beginning)."""
    text = pair.decode(known)
    return next((known[-n:] for n in (8, 12, 16, 32) if text.endswith(pair.decode(known[-n:]))), known)


def html_text(pair, ids: torch.Tensor, generation, legend: bool = True) -> str:
    """A generation as HTML: prompt faint, each token marked by its origin, with a legend that needs no colour.

    Raises ValueError where ids are not the prompt of this generation.
    """
    ids = prompt_of(ids, generation)
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


def prompt_of(ids: torch.Tensor, generation) -> torch.Tensor:
    """The prompt of a generation, (1, length); ValueError if `ids` are not it (padding to its left is none of it)."""
    if not isinstance(ids, torch.Tensor) or not hasattr(generation, "tokens"):
        raise ValueError("give the prompt's ids, pair.encode(prompt), and then the generation that was made from them")
    prompt = generation.ids[:, : generation.ids.shape[1] - len(generation.tokens)]
    given = ids.reshape(1, -1)[:, -prompt.shape[1] :]
    if not torch.equal(given.to(prompt.device), prompt):
        raise ValueError(
            f"these {ids.numel()} ids are not the prompt of this generation, which begins with {prompt.shape[1]} "
            "others: give the ids that it was made from"
        )
    return prompt


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


def _label(text: str) -> str:
    """`visible` for matplotlib, where a dollar sign would start a formula."""
    return visible(text).replace("$", r"\$")


def plot_laws(laws: dict[str, Sequence[float]], labels: Sequence[str], title: str) -> None:
    """Bars of several laws over the same few tokens, side by side."""
    import matplotlib.pyplot as plt

    width = 0.8 / len(laws)
    _, axis = plt.subplots(figsize=(9, 3.4), layout="constrained")
    for i, (name, law) in enumerate(laws.items()):
        where = [x + (i - (len(laws) - 1) / 2) * width for x in range(len(labels))]
        colour, hatch = SHADES[i % len(SHADES)], HATCHES[i % len(HATCHES)]
        axis.bar(where, [float(v) for v in law], width, label=name, color=colour, hatch=hatch, edgecolor="white")
    axis.set_xticks(range(len(labels)), [_label(label) for label in labels], rotation=30, ha="right")
    axis.set(title=title, xlabel="next token", ylabel="probability")
    axis.legend(frameon=False)
    axis.spines[["top", "right"]].set_visible(False)
    plt.show()


def plot_lines(x: Sequence[float], series: dict[str, Sequence[float]], title: str, xlabel: str, ylabel: str) -> None:
    """Lines over one axis, told apart by marker and dash as well as by colour.

    A series that is named like a colour's meaning ("target", "draft", ...) has that colour.
    """
    import matplotlib.pyplot as plt

    colours, marks = ["#666666", PALETTE["target"], PALETTE["draft"], PALETTE["bonus"]], ["o--", "s-", "^:", "d-."]
    _, axis = plt.subplots(figsize=(7, 3.4), layout="constrained")
    for i, (name, values) in enumerate(series.items()):
        colour, mark = PALETTE.get(name, colours[i % 4]), marks[i % 4]
        axis.plot(x, [float(v) for v in values], mark, color=colour, label=name)
    axis.set(title=title, xlabel=xlabel, ylabel=ylabel)
    top = max((float(v) for values in series.values() for v in values), default=0)
    axis.set_ylim(0, 1.08 * top if top > 0 else 1)  # from 0, and with room for the highest mark
    axis.legend(frameon=False)
    axis.spines[["top", "right"]].set_visible(False)
    plt.show()


def _some(rounds: Sequence) -> Sequence:
    rounds = getattr(rounds, "rounds", rounds)  # a whole generation will do
    if not len(rounds):
        raise ValueError("there is no round to draw: pass the rounds of a speculative generation (g.rounds).")
    return rounds


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

    rows = round_rows(pair, _some(rounds))
    longest = max(len(row) for row in rows)
    _, axis = plt.subplots(figsize=(1.5 * longest + 1, 0.36 * len(rows) + 1), layout="constrained")
    for y, row in enumerate(rows):
        for x, (text, verdict) in enumerate(row):
            axis.barh(y, 0.96, left=x + 0.02, height=0.84, color=PALETTE[verdict] + "66", edgecolor=PALETTE[verdict])
            label = f"{_label(text)}  {LETTERS[verdict]}"
            axis.text(x + 0.5, y, label, ha="center", va="center", fontsize=9)
    axis.set(title=title, xlim=(0, longest), ylim=(len(rows) - 0.4, -0.6), ylabel="round")
    axis.set_yticks(range(len(rows)), [str(y + 1) for y in range(len(rows))])
    axis.set_xticks([x + 0.5 for x in range(longest)], [str(x + 1) for x in range(longest)])
    axis.set_xlabel("place in the round   (A accepted, R rejected, S resampled, B bonus, P no draft)")
    axis.spines[["top", "right", "left", "bottom"]].set_visible(False)
    axis.tick_params(length=0)
    plt.show()


# --- the stacked overlap: what is kept, what is drawn anew, what is refused ------------------------------------


def overlap_parts(p: Sequence[float], q: Sequence[float]) -> dict[str, list[float]]:
    """The parts of the stacked overlap, one number a token: kept min(p, q), redrawn (p - q)+, refused (q - p)+.

    kept + redrawn is p and kept + refused is q, token by token.
    """
    a, b = (torch.as_tensor(x, dtype=torch.float64).cpu() for x in (p, q))
    parts = {"kept": torch.minimum(a, b), "redrawn": (a - b).clamp(min=0), "refused": (b - a).clamp(min=0)}
    return {name: values.tolist() for name, values in parts.items()}


OVERLAP_LOOKS = {  # colour and hatch of each part; the refused part is an empty, crossed box
    "kept": (PALETTE["accepted"], "", "kept: min(p, q)"),
    "redrawn": (PALETTE["resampled"], "///", "redrawn: p - q where p is larger"),
    "refused": ("none", "xxx", "refused: q - p where q is larger"),
}


def plot_overlap(p: Sequence[float], q: Sequence[float], labels: Sequence[str], title: str) -> None:
    """The stacked overlap of target p and draft q over a few tokens: kept and redrawn add up to p."""
    import matplotlib.pyplot as plt

    parts = overlap_parts(p, q)
    figure, axis = plt.subplots(figsize=(max(6.5, 0.8 * len(labels) + 3.5), 3.4), layout="constrained")
    bottom = [0.0] * len(labels)
    for name, values in parts.items():
        colour, hatch, label = OVERLAP_LOOKS[name]
        edge = PALETTE["rejected"] if name == "refused" else "white"
        total = f"{label} ({sum(values):.2f})"
        axis.bar(range(len(labels)), values, 0.7, bottom=bottom, color=colour, hatch=hatch, edgecolor=edge, label=total)
        bottom = [a + b for a, b in zip(bottom, values, strict=True)]
    heights = [a + b for a, b in zip(parts["kept"], parts["redrawn"], strict=True)]
    axis.hlines(heights, [x - 0.42 for x in range(len(labels))], [x + 0.42 for x in range(len(labels))], "black", lw=2)
    axis.plot([], [], "k-", lw=2, label="p, the target's law")
    axis.set_xticks(range(len(labels)), [_label(label) for label in labels])
    figure.suptitle(title)
    axis.set(xlabel="token", ylabel="probability", ylim=(0, 1.1 * max(bottom)))
    axis.legend(frameon=False, loc="center left", bbox_to_anchor=(1.0, 0.5))
    axis.spines[["top", "right"]].set_visible(False)
    plt.show()


# --- where drafts are accepted -----------------------------------------------------------------------------------


def acceptance_positions(rounds: Sequence) -> list[tuple[int, int]]:
    """(reached, accepted) at each place in the draft: how often the target judged it, and how often it stood."""
    longest = max((len(r.drafted) for r in rounds), default=0)
    reached = [
        sum(r.accepted > i or (r.accepted == i and r.rejected is not None) for r in rounds) for i in range(longest)
    ]
    return [(n, sum(r.accepted > i for r in rounds)) for i, n in enumerate(reached)]


def text_positions(rounds: Sequence) -> list[tuple[int, str]]:
    """(place in the new text, what happened there): each emitted token's origin, and "rejected" where a draft fell."""
    found, place = [], 0
    for r in rounds:
        for origin in origins([r]):
            if origin == "resampled":
                found.append((place, "rejected"))
            found.append((place, origin))
            place += 1
    return found


def plot_acceptance(rounds: Sequence, title: str) -> None:
    """Acceptance over the draft's places (how often reached, what share stood) and over the text."""
    import matplotlib.pyplot as plt

    _, (left, right) = plt.subplots(2, 1, figsize=(8, 4.8), layout="constrained", height_ratios=(2, 1))
    places = acceptance_positions(rounds)
    x = list(range(1, len(places) + 1))
    left.bar(
        x,
        [n for n, _ in places],
        0.7,
        color="none",
        edgecolor=PALETTE["rejected"],
        hatch="xxx",
        label="rejected (whole box: reached)",
    )
    left.bar(x, [a for _, a in places], 0.7, color=PALETTE["accepted"], edgecolor="white", label="accepted")
    for i, (n, a) in zip(x, places, strict=True):
        left.annotate(f"{a / n:.0%}" if n else "never", (i, n), ha="center", va="bottom", fontsize=9)
    left.set(title=title, ylabel="rounds", xlabel="place in the draft (share accepted of those reached)")
    left.set_xticks(x)
    left.set_ylim(0, 1.15 * max((n for n, _ in places), default=1))
    left.legend(frameon=False)
    lanes = {"rejected": 0, "resampled": 1, "bonus": 2, "accepted": 3, "plain": 4}
    for place, what in text_positions(rounds):
        right.barh(lanes[what], 0.9, left=place + 0.05, height=0.8, color=PALETTE[what])
    shown = [name for name in lanes if name != "plain" or "plain" in origins(rounds)]
    right.set_yticks([lanes[name] for name in shown], shown)
    right.set(xlabel="token of the new text", xlim=(0, None))
    for axis in (left, right):
        axis.spines[["top", "right"]].set_visible(False)
    plt.show()


# --- is it the right law? ----------------------------------------------------------------------------------------


FREQUENCIES = ["#666666", "#BBBBBB", "#333333", "#DDDDDD"]  # of samplers whose name says no colour


def noise_band(p: Sequence[float], samples: int, sigmas: float = 2.0) -> list[tuple[float, float]]:
    """(low, high) for each token: where a right sampler's frequency lies, up to `sigmas` standard errors."""
    return [
        (max(0.0, x - sigmas * (x * (1 - x) / samples) ** 0.5), min(1.0, x + sigmas * (x * (1 - x) / samples) ** 0.5))
        for x in map(float, p)
    ]


def plot_empirical(
    frequencies: dict[str, Sequence[float]], p: Sequence[float], samples: int, labels: Sequence[str], title: str
) -> None:
    """Frequencies of one or more samplers against the target's law p, with the band of two standard errors."""
    import matplotlib.pyplot as plt

    colours = [  # "accepted alone" has the colour of "accepted"
        PALETTE.get(name.split()[0], c) for name, c in zip(frequencies, FREQUENCIES * len(frequencies), strict=False)
    ]
    width = 0.8 / len(frequencies)
    figure, axis = plt.subplots(figsize=(max(6.5, 1.1 * len(labels) + 3), 3.4), layout="constrained")
    for i, (name, values) in enumerate(frequencies.items()):
        where = [x + (i - (len(frequencies) - 1) / 2) * width for x in range(len(labels))]
        axis.bar(
            where,
            [float(v) for v in values],
            width,
            color=colours[i],
            hatch=HATCHES[i % len(HATCHES)],
            edgecolor="white",
            label=name,
        )
    for x, (value, (low, high)) in enumerate(zip(p, noise_band(p, samples), strict=True)):
        axis.fill_between([x - 0.45, x + 0.45], low, high, color="black", alpha=0.25, lw=0)
        axis.hlines(float(value), x - 0.45, x + 0.45, "black", lw=1.5)
    axis.plot([], [], "k-", lw=1.5, label="p, with two standard errors")
    axis.set_xticks(range(len(labels)), [_label(label) for label in labels])
    figure.suptitle(title)
    axis.set(xlabel="token", ylabel="share")
    axis.legend(frameon=False, loc="center left", bbox_to_anchor=(1.0, 0.5))
    axis.spines[["top", "right"]].set_visible(False)
    plt.show()


def statistic_bins(values: dict[str, Sequence[float]], bins: int = 40) -> tuple[list[float], dict[str, list[float]]]:
    """(bins + 1 edges, the share of each series in each bin); what lies beyond 99 % of all is put into the last bin."""
    series = {name: torch.as_tensor(x, dtype=torch.float64).flatten() for name, x in values.items()}
    end = float(torch.cat(list(series.values())).quantile(0.99)) or 1.0
    found = {}
    for name, x in series.items():
        place = (x / end * bins).long().clamp(0, bins - 1)
        found[name] = (place.bincount(minlength=bins) / max(len(x), 1)).tolist()
    return [end * i / bins for i in range(bins + 1)], found


def plot_statistics(values: dict[str, Sequence[float]], threshold: float, title: str) -> None:
    """How a test's statistic is spread for two kinds of samplers (or more), and the threshold of its alarm."""
    import matplotlib.pyplot as plt

    edges, shares = statistic_bins(values)
    width = edges[1] - edges[0]
    _, axis = plt.subplots(figsize=(8, 3.4), layout="constrained")
    for i, (name, heights) in enumerate(shares.items()):
        above = float((torch.as_tensor(values[name], dtype=torch.float64) > threshold).double().mean())
        axis.bar(
            edges[:-1],
            heights,
            width,
            align="edge",
            color=FREQUENCIES[0] if i == 0 else "none",
            alpha=0.6 if i == 0 else 1.0,
            hatch=["", "///", "xxx"][i % 3],
            edgecolor="white" if i == 0 else "black",
            lw=0.5,
            label=f"{name}: {above:.1%} beyond the threshold",
        )
    axis.axvline(threshold, color="black", ls="--", lw=1.5)
    axis.annotate("alarm \u2192", (threshold, axis.get_ylim()[1]), (4, -10), textcoords="offset points", fontsize=10)
    axis.set(
        title=title,
        xlabel="statistic (the last bar holds all larger ones)",
        ylabel="share of the samplers",
        xlim=(0, None),
    )
    axis.legend(frameon=False)
    axis.spines[["top", "right"]].set_visible(False)
    plt.show()


def plot_power(table: dict[str, Sequence[float]], tests: Sequence[str], title: str) -> None:
    """Power of each test (columns) against each fault (rows): dark and with its number where the fault is caught."""
    import matplotlib.pyplot as plt

    rows = [[float(x) for x in row] for row in table.values()]
    _, axis = plt.subplots(figsize=(1.05 * len(tests) + 2.6, 0.5 * len(rows) + 1.2), layout="constrained")
    axis.imshow(rows, cmap="Greys", vmin=0, vmax=1.15, aspect="auto")
    for y, row in enumerate(rows):
        for x, value in enumerate(row):
            said = "none" if value < 0.01 else f"{value:.2f}"
            axis.text(x, y, said, ha="center", va="center", fontsize=9, color="white" if value > 0.55 else "black")
    axis.set_xticks(range(len(tests)), tests)
    axis.set_yticks(range(len(rows)), list(table))
    axis.xaxis.tick_top()
    for edge in range(1, len(rows)):
        axis.axhline(edge - 0.5, color="white", lw=2)
    for edge in range(1, len(tests)):
        axis.axvline(edge - 0.5, color="white", lw=2)
    axis.set_title(title)
    axis.tick_params(length=0)
    for side in axis.spines.values():
        side.set_visible(False)
    plt.show()


# --- how fast? ---------------------------------------------------------------------------------------------------


def speedups(measurements: Sequence[dict]) -> list[tuple[str, float, float, float | None]]:
    """(name, speed-up, standard deviation of the ratios, prediction or None) of each measurement.

    A measurement is {"name", "seconds": [...], "baseline": [...], "predicted": x or None}: paired runs in seconds.
    The speed-up is a ratio of mean times, as everywhere in the course: ratios that are averaged lean upwards.
    """
    rows = []
    for m in measurements:
        ratios = torch.tensor([b / s for s, b in zip(m["seconds"], m["baseline"], strict=True)], dtype=torch.float64)
        spread = float(ratios.std()) if len(ratios) > 1 else 0.0
        rows.append((m["name"], sum(m["baseline"]) / sum(m["seconds"]), spread, m.get("predicted")))
    return rows


def plot_speedups(measurements: Sequence[dict], title: str) -> None:
    """Speed-up over the baseline with its spread, beside the prediction; below the line at 1 it is a loss."""
    import matplotlib.pyplot as plt

    rows = speedups(measurements)
    _, axis = plt.subplots(figsize=(max(5.0, 1.2 * len(rows) + 2.5), 3.4), layout="constrained")
    for x, (_, mean, spread, predicted) in enumerate(rows):
        axis.bar(
            x,
            mean,
            0.6,
            yerr=spread,
            capsize=5,
            color=PALETTE["target"],
            hatch="" if mean >= 1 else "xx",
            edgecolor="white",
        )
        if predicted is not None:
            axis.plot(x, predicted, "D", color=PALETTE["draft"], markeredgecolor="black", ms=8)
    axis.axhline(1, color="black", lw=1, ls="--")
    axis.plot([], [], "D", color=PALETTE["draft"], markeredgecolor="black", label="predicted")
    axis.plot([], [], "k--", lw=1, label="the target alone")
    axis.set_xticks(range(len(rows)), [name for name, *_ in rows])
    axis.set(title=title, ylabel="times as fast")
    axis.legend(frameon=False)
    axis.spines[["top", "right"]].set_visible(False)
    plt.show()


# --- what the caches hold ----------------------------------------------------------------------------------------


def tape_rows(rounds: Sequence) -> list[dict[str, tuple[int, int, int]]]:
    """Each traced round's caches, {"target": (before, filled, after), "draft": ...}, in tokens."""
    return [
        {name: tuple(c) for name, c in (("target", r.target_cache), ("draft", r.draft_cache)) if c is not None}
        for r in rounds
    ]


def plot_tapes(rounds: Sequence, title: str, first: int = 1) -> None:
    """Two tapes a round: what each cache held before, what the round added and kept, and what was cut off again.

    first: the number of the first of these rounds.
    """
    import matplotlib.pyplot as plt

    rows = tape_rows(_some(rounds))
    if not all(rows):
        raise ValueError("the tapes need cache lengths: write the text with trace=True.")
    _, axis = plt.subplots(figsize=(9, 0.62 * len(rows) + 1.1), layout="constrained")
    lines = [(i, name, lengths) for i, row in enumerate(rows) for name, lengths in row.items()]
    start = max(0, min(before for _, _, (before, _, _) in lines) - 2)
    for y, (_, name, (before, filled, after)) in enumerate(lines):
        colour = PALETTE[name]
        axis.barh(y, before - start, 0.8, left=start, color=colour + "55", edgecolor=colour)
        axis.barh(y, after - before, 0.8, left=before, color=colour, edgecolor="black")
        axis.barh(y, filled - after, 0.8, left=after, color="none", edgecolor=PALETTE["rejected"], hatch="xxx")
        axis.text(filled + 0.15, y, f"{before} +{filled - before} -{filled - after} = {after}", va="center", fontsize=8)
    axis.set_yticks(range(len(lines)), [f"round {i + first}  {name}" for i, name, _ in lines])
    axis.invert_yaxis()
    end = max(filled for _, _, (_, filled, _) in lines)
    axis.xaxis.get_major_locator().set_params(integer=True)
    axis.set(
        title=title, xlabel="tokens in the cache (pale: before, full: added, crossed: cut off)", xlim=(start, end + 4)
    )
    axis.spines[["top", "right"]].set_visible(False)
    plt.show()


# --- what a pass costs -------------------------------------------------------------------------------------------


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
    """v(n) of one or more models over a doubling axis of n, with the spread of the runs, and one token a pass.

    A series whose name begins with a colour's meaning ("target", "draft") has that colour.
    """
    import matplotlib.pyplot as plt

    marks, others = ["s-", "^:", "o--", "d-.", "v-", "P--"], ["#666666", "#BBBBBB", "#333333", PALETTE["bonus"]]
    figure, axis = plt.subplots(figsize=(8.5, 3.8), layout="constrained")
    top, reach = 0.0, 1
    for i, (name, times) in enumerate(series.items()):
        rows = pass_curve(times, relative)
        n, low, middle, high = zip(*rows, strict=True)
        colour = PALETTE.get(name.split()[0], others[i % len(others)])
        axis.plot(n, middle, marks[i % len(marks)], color=colour, label=name, ms=5)
        axis.fill_between(n, low, high, color=colour, alpha=0.2, lw=0)
        if i == 0:
            line = (n, [x * middle[0] / n[0] for x in n])
        top, reach = max(top, *high), max(reach, *n)
    axis.plot(*line, color="black", lw=1, ls=(0, (1, 3)), label="one token a pass, n passes")
    axis.set_xscale("log", base=2)
    ticks = [2**i for i in range(reach.bit_length()) if 2**i <= reach]
    axis.set_xticks(ticks, [str(t) for t in ticks])
    axis.minorticks_off()
    ylabel = "passes over one token" if relative else "milliseconds"
    axis.set(xlabel="tokens in the pass, n", ylabel=ylabel, ylim=(0, 1.15 * top))
    figure.suptitle(title)
    axis.legend(frameon=False, loc="center left", bbox_to_anchor=(1.0, 0.5))
    axis.spines[["top", "right"]].set_visible(False)
    plt.show()


COST_LOOKS = [("#BBBBBB", "//"), ("#FFFFFF", "xxx"), ("#EEEEEE", ".."), ("#999999", "++")]  # of the parts, from below


def stacked(parts: dict[str, Sequence[float]]) -> dict[str, list[tuple[float, float]]]:
    """(bottom, top) of each part in each bar, stacked in the order given."""
    found: dict[str, list[tuple[float, float]]] = {}
    bottom = [0.0] * max((len(values) for values in parts.values()), default=0)
    for name, values in parts.items():
        found[name] = [(b, b + float(v)) for b, v in zip(bottom, values, strict=True)]
        bottom = [top for _, top in found[name]]
    return found


def plot_cost_parts(
    counts: Sequence[int], parts: dict[str, Sequence[float]], measured: Sequence[float], title: str
) -> None:
    """Estimated parts of a pass, stacked, beside the measured pass, in milliseconds; one pair of bars for each n."""
    import matplotlib.pyplot as plt

    figure, axis = plt.subplots(figsize=(8.5, 3.8), layout="constrained")
    for (name, spans), (colour, hatch) in zip(stacked(parts).items(), COST_LOOKS, strict=False):
        for x, (bottom, top) in enumerate(spans):
            label = name if x == 0 else None
            axis.bar(x - 0.2, top - bottom, 0.36, bottom, color=colour, hatch=hatch, edgecolor="black", label=label)
    axis.bar(
        [x + 0.2 for x in range(len(counts))],
        [float(v) for v in measured],
        0.36,
        color=PALETTE["target"],
        label="the pass, measured",
    )
    axis.set_xticks(range(len(counts)), [str(n) for n in counts])
    axis.set(xlabel="tokens in the pass, n", ylabel="milliseconds")
    figure.suptitle(title)
    axis.legend(frameon=False, loc="center left", bbox_to_anchor=(1.0, 0.5))
    axis.spines[["top", "right"]].set_visible(False)
    plt.show()


# --- what theory promises ----------------------------------------------------------------------------------------


def gain_grid(
    alphas: Sequence[float], cs: Sequence[float], score_cost: Callable[[int], float] | None = None, max_gamma: int = 16
) -> list[list[float]]:
    """The walltime improvement at the best gamma of at least 1: one row for each c, one number for each alpha."""
    return [
        [max(walltime_improvement(a, g, c, score_cost) for g in range(1, max_gamma + 1)) for a in alphas] for c in cs
    ]


_WHITE = {"facecolor": "white", "edgecolor": "none", "pad": 1.5}


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
    _, axis = plt.subplots(figsize=(7, 4), layout="constrained")
    if min(min(row) for row in gains) < 1:
        with plt.rc_context({"hatch.color": "#bbbbbb"}):
            axis.contourf(alphas, cs, gains, levels=[0, 1], colors=["#f2f2f2"], hatches=["xx"])
        axis.contour(alphas, cs, gains, levels=[1], colors=["black"], linewidths=[2])
    levels = [x for x in (1.25, 1.5, 2, 3, 4) if x < most]
    if levels:
        lines = axis.contour(alphas, cs, gains, levels=levels, colors=[PALETTE["target"]], linewidths=[1])
        axis.clabel(lines, fmt=lambda x: f"{x:g} x", fontsize=8)
    axis.plot([0, min(1, c_max)], [0, min(1, c_max)], "k:", lw=2, label="alpha = c, the textbook's line")
    axis.fill_between([], [], [], facecolor="#f2f2f2", hatch="xx", edgecolor="#bbbbbb", label="speculation loses")
    for i, (name, (alpha, c)) in enumerate((points or {}).items()):
        axis.plot(alpha, c, "os^Dv"[i % 5], color=PALETTE["draft"], markeredgecolor="black", ms=9)
        axis.annotate(name, (alpha, c), (9, -3), textcoords="offset points", fontsize=9, bbox=_WHITE, zorder=6)
    axis.set(title=title, xlabel="acceptance rate alpha", ylabel="cost ratio c", xlim=(0, 1), ylim=(0, c_max))
    axis.legend(loc="upper left", fontsize=8)
    axis.spines[["top", "right"]].set_visible(False)
    plt.show()


_BOX = {"color": "none", "edgecolor": PALETTE["rejected"], "hatch": "xxx"}


def plot_places(
    reach: Sequence[tuple[float, float]], stands: Sequence[tuple[float, float]], alpha: float, title: str
) -> None:
    """Acceptance by place in the draft, (value, standard error) each: how often a place is reached, and how often a
    guess stands there once it is.  The dashed lines: one alpha at every place."""
    import matplotlib.pyplot as plt

    x = list(range(1, len(reach) + 1))
    looks = {"capsize": 5, "ecolor": "black"}
    _, axis = plt.subplots(figsize=(8.5, 3.6), layout="constrained")
    axis.bar(x, [v for v, _ in reach], 0.6, yerr=[e for _, e in reach], label="reached", **_BOX, **looks)
    axis.errorbar(
        x,
        [v for v, _ in stands],
        [e for _, e in stands],
        fmt="o",
        ms=6,
        color=PALETTE["accepted"],
        markeredgecolor="black",
        label="stands, once reached",
        **looks,
    )
    axis.axhline(alpha, color="black", ls="--", lw=1, label=f"alpha = {alpha:.2f} at every place")
    axis.plot(x, [alpha ** (i - 1) for i in x], "k--", marker="_", ms=14, lw=0.8)
    axis.set(title=title, xlabel="place in the draft", ylabel="probability", ylim=(0, 1.08))
    axis.set_xticks(x)
    axis.legend(frameon=False, loc="center left", bbox_to_anchor=(1.0, 0.5))
    axis.spines[["top", "right"]].set_visible(False)
    plt.show()


def plot_reported(rows: Sequence[tuple[str, float, float, float]], title: str) -> None:
    """(name, predicted, measured, tokens a pass) of each reported setting, a line each: nothing that has this many
    tokens a pass can be faster than the bar's end."""
    import matplotlib.pyplot as plt

    y = list(range(len(rows)))
    _, axis = plt.subplots(figsize=(7.5, 0.36 * len(rows) + 1.2), layout="constrained")
    axis.barh(y, [t for *_, t in rows], 0.7, color="#e6e6e6", edgecolor="#999999", label="tokens a pass, a free draft")
    axis.plot([r[1] for r in rows], y, "D", color=PALETTE["draft"], markeredgecolor="black", ms=7, label="predicted")
    axis.plot([r[2] for r in rows], y, "o", color=PALETTE["target"], markeredgecolor="black", ms=8, label="measured")
    axis.set_yticks(y, [name for name, *_ in rows])
    axis.invert_yaxis()
    axis.axvline(1, color="black", lw=1, ls="--")
    axis.set(title=title, xlabel="times as fast as plain decoding")
    axis.legend(frameon=False, loc="center left", bbox_to_anchor=(1.0, 0.5))
    axis.spines[["top", "right"]].set_visible(False)
    plt.show()


# --- the benchmark -----------------------------------------------------------------------------------------------

ARM_LOOKS = {  # colour and hatch of each arm; what writes the target's law has the target's colour
    "target alone": (PALETTE["target"], ""),
    "draft alone": (PALETTE["draft"], "xx"),
    "speculative, google": (PALETTE["target"], "//"),
    "speculative, deepmind": (PALETTE["target"], ".."),
    "transformers": ("#666666", ""),
    "transformers, assisted": ("#666666", "//"),
}


def _finish(figure, save) -> None:
    """Show the figure, or write it as PNG where `save`, a path or an open binary file, is given."""
    import matplotlib.pyplot as plt

    if save is None:
        plt.show()
    else:
        figure.savefig(save, format="png", dpi=110)
        plt.close(figure)


def plot_arms(rows: Sequence[dict], title: str, save=None) -> None:
    """Tokens per second of each arm (`benchmark.rows`), with the standard deviation, the speed-up and a prediction."""
    import matplotlib.pyplot as plt

    figure, axis = plt.subplots(figsize=(8.5, 3.4), layout="constrained")
    base = next((r["tokens_per_second"] for r in rows if r["arm"] == "target alone"), None)
    most = max([r["tokens_per_second"] or 0 for r in rows if r["arm"] != "draft alone"], default=0) or 1
    for y, r in enumerate(rows):
        rate = r["tokens_per_second"]
        if rate is None:
            axis.annotate(f" {r['note'] or 'nothing measured'}", (0, y), va="center", fontsize=9)
            continue
        shown, (colour, hatch) = min(rate, 1.5 * most), ARM_LOOKS[r["arm"]]
        spread = rate * r["sd"] / r["seconds"] if shown == rate else 0  # a bar that is cut off shows no end
        axis.barh(y, shown, 0.7, xerr=spread, capsize=4, color=colour, hatch=hatch, edgecolor="white")
        words = f" {rate:.0f} tokens/s" + (" (bar cut off)" if shown < rate else "")
        words += f", {r['speedup']:.2f} x" if r["speedup"] else ""
        guess = base * r["predicted"] if base and r["predicted"] else 0
        if guess:
            axis.plot(guess, y, "D", color="white", markeredgecolor="black", ms=7, zorder=3)
        axis.annotate(f"  {words}", (max(shown + spread, guess), y), va="center", fontsize=9)
    if any(r["predicted"] for r in rows):
        axis.plot([], [], "D", color="white", markeredgecolor="black", label="predicted")
    if base:
        axis.axvline(base, color="black", lw=1, ls="--", label="the target alone")
        axis.legend(frameon=False, loc="upper center", bbox_to_anchor=(0.5, -0.2), ncols=2)
    axis.set_yticks(range(len(rows)), [r["arm"] for r in rows])
    axis.invert_yaxis()
    figure.suptitle(title)
    axis.set(xlabel="tokens per second (whisker: standard deviation)", xlim=(0, 2.3 * most))
    axis.spines[["top", "right"]].set_visible(False)
    _finish(figure, save)


def sweep_points(sweep: Sequence[dict], arm: str = "speculative, google") -> list[dict]:
    """{"value", "speedup", "error", "predicted", "alpha"} at each value of a sweep (`benchmark.sweep`).

    error: the standard error of the speed-up; values where the arm was not measured are left out.
    """
    from .benchmark import rows

    found = []
    for m in sweep:
        row = next((r for r in rows(m) if r["arm"] == arm), None)
        if row and row["speedup"]:
            error = row["speedup_sd"] / len(m["arms"][arm]["seconds"]) ** 0.5
            kept = {k: row[k] for k in ("speedup", "predicted", "alpha")}
            found.append({"value": m["value"], "error": error, **kept})
    return found


def plot_sweep(sweeps: dict[str, Sequence[dict]], title: str, xlabel: str, save=None) -> None:
    """Speed-up against one factor, measured (lines) and predicted (open marks), for each machine by name."""
    import matplotlib.pyplot as plt

    figure, axis = plt.subplots(figsize=(8, 3.8), layout="constrained")
    drawn = {name: found for name, sweep in sweeps.items() if (found := sweep_points(sweep))}
    values = list(dict.fromkeys(str(p["value"]) for found in drawn.values() for p in found))
    marks, looks = ["o", "s", "^", "v"], ["-", "--", "-.", ":"]
    for i, (name, found) in enumerate(drawn.items()):
        x, colour = [values.index(str(p["value"])) for p in found], SHADES[i % len(SHADES)]
        y, errors = [p["speedup"] for p in found], [2 * p["error"] for p in found]
        style = {"color": colour, "marker": marks[i % 4], "ls": looks[i % 4]}
        axis.errorbar(x, y, errors, **style, capsize=4, label=name)
        guess = [(a, p["predicted"]) for a, p in zip(x, found, strict=True) if p["predicted"] is not None]
        axis.plot(*zip(*guess, strict=True), "D", color="white", markeredgecolor=colour, ms=8) if guess else None
    if drawn:
        axis.plot([], [], "D", color="white", markeredgecolor="black", ms=8, label="predicted")
        axis.legend(frameon=False, loc="upper center", bbox_to_anchor=(0.5, -0.2), ncols=2)
        tops = [max(p["speedup"] + 2 * p["error"], p["predicted"] or 0) for found in drawn.values() for p in found]
        top = max(1.1, *tops)
        axis.set_ylim(0, 1.15 * top)
    else:
        axis.text(0.5, 0.5, "no recording of this yet", ha="center", transform=axis.transAxes)
    axis.axhspan(0, 1, color="#DDDDDD", alpha=0.5, lw=0)
    axis.axhline(1, color="black", lw=1, ls="--")
    axis.text(-0.45, 0.05, "slower than the target alone", fontsize=9)
    axis.set_xticks(range(len(values)), [_label(v) if len(v) < 24 else _label(v[:21]) + "..." for v in values])
    figure.suptitle(title)
    axis.set(
        xlabel=xlabel, ylabel="times as fast (bars: two standard errors)", xlim=(-0.5, max(0, len(values) - 1) + 0.5)
    )
    axis.spines[["top", "right"]].set_visible(False)
    _finish(figure, save)


def bill_rows(bills: dict, new: int) -> dict[int, dict[str, float]]:
    """Milliseconds for each of `new` tokens, by gamma and part, from `benchmark.bill` (or a recording's "bill")."""
    parts = ("target", "draft", "rest", "prompt")
    return {int(gamma): {part: 1000 * bill[part] / new for part in parts} for gamma, bill in bills.items()}


def plot_bill(bills: dict, new: int, title: str) -> None:
    """Where the time of a token goes, at each gamma: the target's passes, the draft's, the rest, the prompt."""
    import matplotlib.pyplot as plt

    rows = bill_rows(bills, new)
    _, axis = plt.subplots(figsize=(8, 0.5 * len(rows) + 1.3), layout="constrained")
    looks = {"target": (PALETTE["target"], ""), "draft": (PALETTE["draft"], "xx")}
    looks |= {"rest": ("#777777", "//"), "prompt": ("#CCCCCC", "")}
    ends = [0.0] * len(rows)
    for part, (colour, hatch) in looks.items():
        values = [row[part] for row in rows.values()]
        axis.barh(range(len(rows)), values, 0.7, left=ends, label=part, color=colour, hatch=hatch, edgecolor="white")
        ends = [end + value for end, value in zip(ends, values, strict=True)]
    for y, end in enumerate(ends):
        axis.annotate(f" {end:.1f} ms, {ends[0] / end:.2f} x" if y else f" {end:.1f} ms", (end, y), va="center")
    axis.set_yticks(range(len(rows)), [f"gamma {gamma}" if gamma else "plain" for gamma in rows])
    axis.invert_yaxis()
    axis.set(title=title, xlabel="milliseconds for each token of the text", xlim=(0, 1.25 * max(ends)))
    axis.legend(frameon=False, loc="upper center", bbox_to_anchor=(0.5, -0.28), ncols=4)
    axis.spines[["top", "right"]].set_visible(False)
    plt.show()


# --- a picture that moves ----------------------------------------------------------------------------------------


def animation_frames(pair, rounds: Sequence) -> list[dict]:
    """What `animate_rounds` draws: for each round a frame of guesses, one of verdicts, one with the target's token.

    A frame is {"said", "text": [(piece, origin)] so far, "boxes": [(token text, verdict)]}; verdicts are those of
    `LETTERS`, "draft" for a guess that is not yet judged and "unjudged" for one behind a rejection.
    """
    frames, emitted, start = [], [], torch.empty(1, 0, dtype=torch.int64)

    def frame(said, boxes):
        text = list(pieces(pair, start, emitted))
        frames.append({"said": said, "text": text, "boxes": [(pair.decode([t]), verdict) for t, verdict in boxes]})

    for number, r in enumerate(_some(rounds), 1):
        drafted, n = r.drafted.tolist(), r.accepted
        if drafted:
            frame(f"round {number}: the draft guesses {len(drafted)} tokens", [(t, "draft") for t in drafted])
            rest = len(drafted) - n - (r.rejected is not None)
            verdicts = ["accepted"] * n + ["rejected"] * (r.rejected is not None) + ["unjudged"] * rest
            boxes = list(zip(drafted, verdicts, strict=True))
            frame(f"round {number}: one pass of the target judges them, {n or 'none'} accepted", boxes)
        kept = [(t, "accepted") for t in drafted[:n]]
        emitted += kept
        if r.token is not None:
            emitted.append((r.token, r.origin))
            said = {"resampled": "the target replaces the one that fell", "bonus": "the target adds a bonus token"}
            said = said.get(r.origin, "the target writes one token")
            count = f"{len(emitted)} tokens in {number} pass{'es' if number > 1 else ''} of the target"
            frame(f"round {number}: {said}  ({count})", [*kept, (r.token, r.origin)])
        else:
            frame(f"round {number}: the text has ended", kept)
    return frames


def animate_rounds(pair, rounds: Sequence, prompt: str = "", seconds: float = 1.2, save=None) -> None:
    """The rounds of one generation as a picture that moves: guesses, verdicts, the target's own token.

    prompt: shown in front of the text.  seconds: of each frame; the last one stays four times as long.  save: a file
    that ends in .gif or .png; None shows an animated PNG in the notebook (a viewer that cannot play it shows the first
    frame).  ValueError for another ending, before anything is drawn.
    """
    import io
    from pathlib import Path

    if save is not None and Path(save).suffix.lower() not in (".gif", ".png"):
        raise ValueError(f"save must name a file that ends in .gif or .png, got {str(save)!r}")
    images = _few_colours([_draw_frame(frame, prompt) for frame in animation_frames(pair, rounds)])
    times = [int(1000 * seconds)] * (len(images) - 1) + [int(4000 * seconds)]
    file = io.BytesIO() if save is None else save
    options = {"save_all": True, "append_images": images[1:], "duration": times, "loop": 0}
    images[0].save(file, "GIF" if save is not None and Path(save).suffix.lower() == ".gif" else "PNG", **options)
    if save is None:
        from IPython.display import Image, display

        display(Image(data=file.getvalue(), format="png"))


def _draw_frame(frame: dict, prompt: str):
    """One frame, as a PIL image."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure
    from PIL import Image

    figure = Figure(figsize=(7.6, 2.8), dpi=100)  # 10 pixels are one unit of the axes
    canvas, axis = FigureCanvasAgg(figure), figure.add_axes((0, 0, 1, 1), xlim=(0, 76), ylim=(28, 0))
    axis.axis("off")
    _draw_text(axis, [(prompt, "prompt"), *frame["text"]])
    axis.text(2, 15.5, frame["said"], fontsize=11, va="center")
    _draw_boxes(axis, frame["boxes"])
    legend = "? guessed   A accepted   R rejected   S replacement   B bonus   - not judged"
    axis.text(2, 26, legend, fontsize=9, va="center", color="#444444")
    canvas.draw()
    return Image.frombytes("RGBA", canvas.get_width_height(), bytes(canvas.buffer_rgba())).convert("RGB")


def _few_colours(images: list) -> list:
    """The images in 64 colours, the same for all, so that what does not move from frame to frame costs nothing."""
    from PIL import Image

    some = images[:: max(1, len(images) // 12)]
    sheet = Image.new("RGB", (images[0].width, images[0].height * len(some)))
    for i, image in enumerate(some):
        sheet.paste(image, (0, i * image.height))
    palette = sheet.quantize(64)
    return [image.quantize(palette=palette, dither=Image.Dither.NONE) for image in images]


def _draw_boxes(axis, boxes: Sequence[tuple[str, str]]) -> None:
    """One box a token, with its letter; what does not stand is hatched."""
    from matplotlib.patches import Rectangle

    x = 2.0
    for text, verdict in boxes:
        colour, label = PALETTE.get(verdict, "#AAAAAA"), visible(text)
        mark = {"draft": "?", "unjudged": "-"}.get(verdict) or LETTERS[verdict]
        width, hatch = 0.84 * (len(label) + 2) + 1.6, {"rejected": "xxx", "unjudged": "//"}.get(verdict, "")
        axis.add_patch(Rectangle((x, 18), width, 4.6, facecolor=colour + "55", edgecolor=colour, hatch=hatch, lw=1.5))
        ground = {"facecolor": "white", "edgecolor": "none", "pad": 1} if hatch else None
        style = {"family": "monospace", "fontsize": 10, "ha": "center", "va": "center", "parse_math": False}
        axis.text(x + width / 2, 20.3, f"{label} {mark}", bbox=ground, **style)
        x += width + 0.8


def _draw_text(axis, marked: Sequence[tuple[str, str]], width: int = 76, lines: int = 4) -> None:
    """The last lines of a text in a face of fixed width: accepted tokens on colour, the target's own underlined."""
    rows, column, step = [[]], 0, 0.92
    for text, origin in marked:
        for part in text.replace("\n", "\u21b5").replace(" ", "\n ").split("\n"):  # words keep the blank before them
            if column and column + len(part) > width:
                rows, column = [*rows, []], 0
            rows[-1] += [(column, part, origin)] if part else []
            column += len(part)
    for y, row in enumerate(rows[-lines:]):
        for start, part, origin in row:
            left, middle = 2 + step * start, 3 * y + 2.2
            if origin != "prompt":
                axis.barh(middle, step * len(part), 2.4, left=left, color=PALETTE[origin] + "55")
            if origin in ("resampled", "bonus"):
                ends = [left + 0.1, left + step * len(part) - 0.1]
                axis.plot(
                    ends, [middle + 1.1] * 2, color=PALETTE[origin], lw=2, ls="-" if origin == "resampled" else ":"
                )
            colour = "#666666" if origin == "prompt" else "black"
            style = {"family": "monospace", "fontsize": 11, "va": "center", "parse_math": False}
            axis.text(left, middle, part, color=colour, **style)
