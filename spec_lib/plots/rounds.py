"""The rounds of a generation: what was proposed and what became of it, where drafts are accepted, what caches hold."""

from __future__ import annotations

from collections.abc import Sequence

from ..records import as_rounds
from .distributions import plot_overlap
from .glyphs import token_label
from .style import BESIDE, CROSSED, LETTERS, PALETTE, figure


def some_rounds(rounds: Sequence) -> Sequence:
    """The rounds of a generation, or rounds as they are; ValueError where there is none."""
    rounds = as_rounds(rounds)  # a whole generation will do
    if not rounds:
        raise ValueError("there is no round to draw: pass the rounds of a speculative generation (g.rounds).")
    return rounds


def round_rows(pair, rounds: Sequence) -> list[list[tuple[int, str, str]]]:
    """What `plot_rounds` draws: for each round (position, token text, verdict), positions counted from 1.

    A rejected draft token and the token resampled for it have one position.  Draft tokens after a rejection, or after
    the end of the text, are "unverified".
    """
    rows = []
    for r in as_rounds(rounds):
        drafted = [pair.decode([t]) for t in r.drafted.tolist()]
        tested = r.accepted + (r.rejected is not None)
        row = [(i, text, "accepted") for i, text in enumerate(drafted[: r.accepted], 1)]
        row += [(tested, text, "rejected") for text in drafted[r.accepted : tested]]
        if r.token is not None:
            row.append((r.accepted + 1, pair.decode([r.token]), r.origin))
        row += [(i, text, "unverified") for i, text in enumerate(drafted[tested:], tested + 1)]
        rows.append(row)
    return rows


ROUND_KEY = {  # what the legend of `plot_rounds` calls each verdict
    "accepted": "A accepted",
    "rejected": "R rejected",
    "resampled": "S resampled in its position",
    "bonus": "B bonus",
    "plain": "P nothing was drafted",
    "unverified": "draft token that was never verified",
}
PALE = {"color": "none", "edgecolor": "#AAAAAA", "ls": "--"}


def plot_rounds(pair, rounds: Sequence, title: str) -> None:
    """One line a round, one column a position in it: what became of each draft token, and the target's own token.

    Accepted draft tokens (A); the rejected one (R, crossed) over the token resampled in its position (S); draft tokens
    that were never verified, pale; after a fully accepted draft the bonus (B).  On the right: tokens written.
    """
    rows, columns = round_rows(pair, some_rounds(rounds)), 1 + max(len(r.drafted) for r in some_rounds(rounds))
    looks = {"rejected": CROSSED, "unverified": PALE}
    looks |= {
        name: {"color": PALETTE[name] + "66", "edgecolor": PALETTE[name]} for name in LETTERS if name not in looks
    }
    halves = {"rejected": (-0.21, 0.4), "resampled": (0.21, 0.4)}  # of a cell: its middle and its height
    size = (max(7.2, 1.4 * columns + 1.8), 0.5 * len(rows) + 1.3)  # wide enough for the letters
    drawn = {}
    with figure(*size, suptitle=title) as axis:
        for y, row in enumerate(rows):
            for position, text, verdict in row:
                middle, height = halves.get(verdict, (0, 0.82))
                drawn[verdict] = axis.barh(y + middle, 0.96, left=position - 0.98, height=height, **looks[verdict])
                label = f"{token_label(text, 16)}  {LETTERS.get(verdict, '')}".rstrip()
                ground = {"facecolor": "white", "edgecolor": "none", "pad": 0.8} if verdict == "rejected" else None
                ink = "#707070" if verdict == "unverified" else "black"
                look = {"fontsize": 8 if verdict in halves else 9, "color": ink, "bbox": ground}
                axis.text(position - 0.5, y + middle, label, ha="center", va="center_baseline", **look)
            written = sum(verdict not in ("rejected", "unverified") for _, _, verdict in row)
            axis.text(columns + 0.12, y, f"{written} token{'s' * (written != 1)}", va="center", fontsize=9)
        axis.set(xlim=(0, columns + 0.7), ylim=(len(rows) - 0.4, -0.6), ylabel="round")
        axis.set_yticks(range(len(rows)), [str(y + 1) for y in range(len(rows))])
        axis.set_xticks([x + 0.5 for x in range(columns)], [str(x + 1) for x in range(columns)])
        axis.set_xlabel("position in the round")
        axis.spines[:].set_visible(False)
        axis.tick_params(length=0)
        key = [name for name in ROUND_KEY if name in drawn]
        handles, words = [drawn[name] for name in key], [ROUND_KEY[name] for name in key]
        axis.figure.legend(handles, words, loc="outside lower center", ncols=len(key), fontsize=9, columnspacing=1.2)


def plot_ending(pair, r, title: str, most: int = 8) -> None:
    """The stacked overlap (`plot_overlap`) at the position where a traced round ended, over its most probable tokens.

    Where the whole draft was accepted: at the draft's last position.  most: tokens shown, those of probability 0 never.
    """
    if r.p is None or not len(r.drafted):
        raise ValueError("the overlap needs a draft and its distributions: a round of speculative(..., trace=True)")
    t = min(r.accepted, len(r.drafted) - 1)
    p, q = r.p[t], r.q[t]
    highest, tokens = p.maximum(q).topk(min(most, len(p)))
    tokens = tokens[highest > 0].tolist()  # top-k or top-p may leave fewer
    plot_overlap(p[tokens].tolist(), q[tokens].tolist(), [pair.decode([x]) for x in tokens], title)


def acceptance_positions(rounds: Sequence) -> list[tuple[int, int]]:
    """(reached, accepted) at each position in the draft: how often the target tested it, and how often it accepted."""
    rounds = as_rounds(rounds)
    longest = max((len(r.drafted) for r in rounds), default=0)
    reached = [
        sum(r.accepted > i or (r.accepted == i and r.rejected is not None) for r in rounds) for i in range(longest)
    ]
    return [(n, sum(r.accepted > i for r in rounds)) for i, n in enumerate(reached)]


def plot_acceptance(rounds: Sequence, title: str) -> None:
    """Acceptance over the draft's positions: how often each is reached, and the share accepted of those."""
    counts = acceptance_positions(some_rounds(rounds))
    x = list(range(1, len(counts) + 1))
    with figure(7, 3.6, suptitle=title) as axis:
        axis.bar(x, [n for n, _ in counts], 0.7, label="reached, rejected", **CROSSED)
        look = {"color": PALETTE["accepted"], "edgecolor": "white"}
        axis.bar(x, [a for _, a in counts], 0.7, label="reached, accepted", **look)
        for i, (n, a) in zip(x, counts, strict=True):
            axis.annotate(f"{a / n:.0%}" if n else "never", (i, n), ha="center", va="bottom")
        axis.set(
            ylabel="rounds", xlabel="position in the draft", ylim=(0, 1.15 * max((n for n, _ in counts), default=1))
        )
        axis.set_xticks(x)
        axis.legend(**BESIDE)


def tape_rows(rounds: Sequence) -> list[dict[str, tuple[int, int, int]]]:
    """Each traced round's caches, {"target": (before, filled, after), "draft": ...}, in tokens."""
    return [
        {name: tuple(c) for name, c in (("target", r.target_cache), ("draft", r.draft_cache)) if c is not None}
        for r in as_rounds(rounds)
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
        shown = f"tokens in the cache{f', from number {start} on' if start else ''}"
        axis.set(xlabel=f"{shown} (pale: before, full: added, crossed: cut off)", xlim=(start, end + 4))
