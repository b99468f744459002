"""The rounds of a generation: what was proposed and what became of it, where drafts are accepted, what caches hold."""

from __future__ import annotations

from collections.abc import Sequence

from .glyphs import token_label
from .style import CROSSED, LETTERS, PALETTE, figure
from .text import origins


def some_rounds(rounds: Sequence) -> Sequence:
    """The rounds of a generation, or rounds as they are; ValueError where there is none."""
    rounds = getattr(rounds, "rounds", rounds)  # a whole generation will do
    if not len(rounds):
        raise ValueError("there is no round to draw: pass the rounds of a speculative generation (g.rounds).")
    return rounds


def round_rows(pair, rounds: Sequence) -> list[list[tuple[str, str]]]:
    """What `plot_rounds` draws: for each round its (token text, verdict), the rejected draft token included."""
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
    """One line a round: accepted drafts (A), the rejected one (R) and the resampled token (S), or the bonus (B)."""
    rows = round_rows(pair, some_rounds(rounds))
    longest = max(len(row) for row in rows)
    with figure(max(6.8, 1.5 * longest + 1), 0.36 * len(rows) + 1, title=title) as axis:  # wide enough for the letters
        for y, row in enumerate(rows):
            for x, (text, verdict) in enumerate(row):
                colour = PALETTE[verdict]
                axis.barh(y, 0.96, left=x + 0.02, height=0.84, color=colour + "66", edgecolor=colour)
                label = f"{token_label(text, 16)}  {LETTERS[verdict]}"
                axis.text(x + 0.5, y, label, ha="center", va="center", fontsize=9)
        axis.set(xlim=(0, longest), ylim=(len(rows) - 0.4, -0.6), ylabel="round")
        axis.set_yticks(range(len(rows)), [str(y + 1) for y in range(len(rows))])
        axis.set_xticks([x + 0.5 for x in range(longest)], [str(x + 1) for x in range(longest)])
        axis.set_xlabel("position in the round   (A accepted, R rejected, S resampled, B bonus, P no draft)")
        axis.spines[:].set_visible(False)
        axis.tick_params(length=0)


def acceptance_positions(rounds: Sequence) -> list[tuple[int, int]]:
    """(reached, accepted) at each position in the draft: how often the target tested it, and how often it accepted."""
    longest = max((len(r.drafted) for r in rounds), default=0)
    reached = [
        sum(r.accepted > i or (r.accepted == i and r.rejected is not None) for r in rounds) for i in range(longest)
    ]
    return [(n, sum(r.accepted > i for r in rounds)) for i, n in enumerate(reached)]


def text_positions(rounds: Sequence) -> list[tuple[int, str]]:
    """(position in the new text, what happened there): each token's origin, and "rejected" where a draft token was."""
    found, position = [], 0
    for r in rounds:
        for origin in origins([r]):
            if origin == "resampled":
                found.append((position, "rejected"))
            found.append((position, origin))
            position += 1
    return found


def plot_acceptance(rounds: Sequence, title: str) -> None:
    """Acceptance over the draft's positions (how often reached, what share accepted) and over the text."""
    counts = acceptance_positions(rounds)
    x = list(range(1, len(counts) + 1))
    with figure(8, 4.8, title=title, nrows=2, height_ratios=(2, 1)) as (upper, lower):
        upper.bar(x, [n for n, _ in counts], 0.7, label="rejected (whole box: reached)", **CROSSED)
        upper.bar(x, [a for _, a in counts], 0.7, color=PALETTE["accepted"], edgecolor="white", label="accepted")
        for i, (n, a) in zip(x, counts, strict=True):
            upper.annotate(f"{a / n:.0%}" if n else "never", (i, n), ha="center", va="bottom", fontsize=9)
        upper.set(ylabel="rounds", xlabel="position in the draft (share accepted of those reached)")
        upper.set_xticks(x)
        upper.set_ylim(0, 1.15 * max((n for n, _ in counts), default=1))
        upper.legend()
        lanes = {"rejected": 0, "resampled": 1, "bonus": 2, "accepted": 3, "plain": 4}
        for position, what in text_positions(rounds):
            lower.barh(lanes[what], 0.9, left=position + 0.05, height=0.8, color=PALETTE[what])
        shown = [name for name in lanes if name != "plain" or "plain" in origins(rounds)]
        lower.set_yticks([lanes[name] for name in shown], shown)
        lower.set(xlabel="token of the new text", xlim=(0, None))


def tape_rows(rounds: Sequence) -> list[dict[str, tuple[int, int, int]]]:
    """Each traced round's caches, {"target": (before, filled, after), "draft": ...}, in tokens."""
    return [
        {name: tuple(c) for name, c in (("target", r.target_cache), ("draft", r.draft_cache)) if c is not None}
        for r in rounds
    ]


def plot_tapes(rounds: Sequence, title: str, first: int = 1) -> None:
    """Two tapes a round: what each cache held before, what the round added and left there, and what was cut off again.

    first: the number of the first of these rounds.  ValueError for rounds that were not traced.
    """
    rows = tape_rows(some_rounds(rounds))
    if not all(rows):
        raise ValueError("the tapes need cache lengths: write the text with trace=True.")
    lines = [(i, name, lengths) for i, row in enumerate(rows) for name, lengths in row.items()]
    start = max(0, min(before for _, _, (before, _, _) in lines) - 2)
    end = max(filled for _, _, (_, filled, _) in lines)
    with figure(9, 0.62 * len(rows) + 1.1, title=title) as axis:
        for y, (_, name, (before, filled, after)) in enumerate(lines):
            colour, cut = PALETTE[name], filled - after
            axis.barh(y, before - start, 0.8, left=start, color=colour + "55", edgecolor=colour)
            axis.barh(y, after - before, 0.8, left=before, color=colour, edgecolor="black")
            axis.barh(y, cut, 0.8, left=after, **CROSSED)
            axis.text(filled + 0.15, y, f"{before} +{filled - before} -{cut} = {after}", va="center", fontsize=8)
        axis.set_yticks(range(len(lines)), [f"round {i + first}  {name}" for i, name, _ in lines])
        axis.invert_yaxis()
        axis.xaxis.get_major_locator().set_params(integer=True)
        axis.set(xlabel="tokens in the cache (pale: before, full: added, crossed: cut off)", xlim=(start, end + 4))
