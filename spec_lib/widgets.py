"""The step-through: one generation, round by round, in a notebook.

Every frame is made beforehand as HTML, so that a move only puts another text into one widget.  The controls are those
that ipywidgets 7.7 (Colab) and 8 share; they are ordinary buttons and a slider, so the keyboard reaches them.  Where
ipywidgets is missing, the same pages are shown without controls.
"""

from __future__ import annotations

import html
from collections.abc import Callable, Sequence

import torch

from . import plots
from .plots.html import DASHED, LEFT, LONGEST, bar_table, bars, box, code, table
from .theory import best_gamma, expected_tokens, operations_factor, walltime_improvement

WITHOUT_KERNEL = "Sliders and buttons appear here when this cell is run; the picture above needs no kernel."
SHOWN = 6  # tokens with a bar of their own in the stacked overlap; the others share one


def step_through(pair, ids: torch.Tensor, generation):
    """A widget that walks over the rounds of a traced generation; display it, or leave it as a cell's last line.

    ids: the prompt (1, length).  Raises ValueError for a generation without rounds, or made without trace=True.
    """
    return player(frames(pair, ids, generation), "round")


def frames(pair, ids: torch.Tensor, generation) -> list[str]:
    """One HTML text a round: the draft tokens in numbers, the stacked overlap, both tapes, the text so far."""
    ids = plots.prompt_of(ids, generation)
    rounds = generation.rounds
    if not rounds:
        raise ValueError("there are no rounds to step through: give a generation of speculative(..., trace=True)")
    if any(r.p is None or r.overlap is None for r in rounds):
        raise ValueError("this generation lacks distributions or overlaps: make it with speculative(..., trace=True)")
    found = []
    for i, r in enumerate(rounds):
        head = f"<b>Round {i + 1} of {len(rounds)}</b>: {_sentence(r)}"
        text = _text_so_far(pair, ids, generation, rounds[: i + 1])
        parts = "".join(f"<div>{p}</div>" for p in (head, _verified(pair, r), _overlap(pair, r), _tapes(r), text))
        found.append(f'<div style="line-height:1.5;max-width:60em">{parts}</div>')
    return found


def player(pages: Sequence[str], name: str):
    """Previous, next, play and a slider over ready HTML pages, numbered from 1."""
    if (w := _ipywidgets()) is None:
        return _still("".join(_fold(f"{name} {i}", page, i == 1) for i, page in enumerate(pages, 1)))
    page = w.HTML(pages[0])
    slider = w.IntSlider(1, 1, max(len(pages), 2), description=name, continuous_update=True)
    slider.disabled = len(pages) == 1
    play = w.Play(value=1, min=1, max=max(len(pages), 2), interval=1500, description="play")
    back, forward = w.Button(description="previous"), w.Button(description="next")

    def show(change):
        page.value = pages[min(change["new"], len(pages)) - 1]

    def move(by: int) -> Callable:
        return lambda _: setattr(slider, "value", min(max(slider.value + by, 1), len(pages)))

    slider.observe(show, names="value")
    back.on_click(move(-1))
    forward.on_click(move(1))
    w.link((play, "value"), (slider, "value"))
    return _panel(w, [_wrapped(w.HBox([back, forward, play, slider])), page])


def _panel(w, parts: list):
    """The parts below each other; where no kernel runs (a saved notebook, GitHub's page), a sentence says so."""

    class Panel(w.VBox):
        def __repr__(self) -> str:  # both versions of ipywidgets keep it beside the widget
            return WITHOUT_KERNEL

    return Panel(parts)


def _wrapped(box):
    """A row of controls, in several lines where the window is narrow: in one, they shrink until none is legible."""
    box.layout.flex_flow = "row wrap"
    return box


def _ipywidgets():
    """The package of the controls, or None after one line that says what is missing."""
    try:
        import ipywidgets
    except ImportError:
        print("There are no controls: ipywidgets is not installed here (pip install ipywidgets, then restart).")
        return None
    return ipywidgets


def _still(page: str):
    """What is shown without controls."""
    from IPython.display import HTML

    return HTML(page)


def _fold(name: str, page: str, unfolded: bool) -> str:
    """A page that the browser itself folds and unfolds."""
    return f"<details{' open' * unfolded}><summary>{html.escape(name)}</summary>{page}</details>"


def overlap_explorer(p: Sequence[float], q: Sequence[float]):
    """Two rows of sliders, the reader's own p and q over a few tokens; either is scaled to sum to 1.

    Raises ValueError for distributions of different length.
    """
    if len(p) != len(q) or not len(p):
        raise ValueError(f"p and q must be distributions over the same tokens, got {len(p)} and {len(q)} numbers")
    if (w := _ipywidgets()) is None:
        return _still(explorer_page(*(torch.tensor(weights, dtype=torch.float64) for weights in (p, q))))

    def sliders(weights, letter):
        names = [f"{letter} {chr(97 + i)}" for i in range(len(weights))]
        looks = {"min": 0, "max": 1, "step": 0.05}
        return [w.FloatSlider(v, description=name, **looks) for v, name in zip(weights, names, strict=True)]

    def render(*weights):
        return explorer_page(*torch.tensor(weights, dtype=torch.float64).reshape(2, -1))

    left, right = sliders(p, "p"), sliders(q, "q")
    return _panel(w, [_wrapped(w.HBox([w.VBox(left), w.VBox(right)])), _live(w, [*left, *right], render)])


def _live(w, sliders: Sequence, render: Callable[..., str]):
    """A page that is rendered anew from the sliders' values whenever one moves."""
    page = w.HTML()

    def show(_=None):
        page.value = render(*(slider.value for slider in sliders))

    for slider in sliders:
        slider.observe(show, names="value")
    show()
    return page


def explorer_page(a: torch.Tensor, b: torch.Tensor) -> str:
    """The stacked overlap of two rows of weights, as HTML, or one sentence where a row is all zeros."""
    if a.sum() == 0 or b.sum() == 0:
        return "Give each distribution at least one weight above 0."
    p, q = a / a.sum(), b / b.sum()
    accepted = float(torch.minimum(p, q).sum())
    said = f"accepted {accepted:.2f} = sum of min(p, q); total variation distance {1 - accepted:.2f}"
    return bars(p.tolist(), q.tolist(), [chr(97 + i) for i in range(len(p))]) + said


def _sentence(r) -> str:
    k = len(r.drafted)
    if r.origin == "bonus":
        return f"all {k} draft tokens were accepted, and the pass had one more distribution to spare: a bonus token."
    if r.origin == "resampled":
        which = "the next" if r.accepted else "the first"
        return f"{r.accepted} of {k} draft tokens were accepted; {which} was rejected and its position resampled."
    if r.origin == "plain":
        return "nothing was drafted; the target wrote one token."
    return f"an accepted token, number {r.accepted} of {k}, ended the text."


def _verified(pair, r) -> str:
    """The table of one round: each draft token with p, q, uniform, result and overlap, and the target's own token in
    its position, which is the rejected one's where there is one."""
    looks = {
        "accepted": plots.CSS["accepted"],
        "rejected": f"background:{plots.PALETTE['rejected']}44;text-decoration:line-through",
        "not verified": "opacity:.7;border-bottom:1px dashed",
    }
    tested, rows = r.accepted + (r.rejected is not None), []
    for i, x in enumerate(r.drafted.tolist()):
        p, q = float(r.p[i, x]), float(r.q[i, x])
        verdict = "accepted" if i < r.accepted else "rejected" if i < tested else "not verified"
        chance = f"{min(1.0, p / q):.3f}" if q > 0 else ""
        uniform = f"{float(r.uniforms[i]):.3f}" if i < tested else ""
        overlap = f"{float(r.overlap[i]):.3f}"
        token = code(pair.decode([x]), looks[verdict])
        rows.append((str(i + 1), token, f"{p:.3f}", f"{q:.3f}", chance, uniform, verdict, overlap))
    if r.token is not None:
        token = code(pair.decode([r.token]), plots.CSS[r.origin])
        p = f"{float(r.p[r.accepted, r.token]):.3f}"
        rows.insert(tested, (str(r.accepted + 1), token, p, "", "", "", r.origin, ""))
    heads = ("position", "token", "p", "q", "min(1, p/q)", "uniform", "result", "overlap")
    return table(rows, [LEFT] * len(heads), heads, "border-collapse:collapse;margin:.4em 0;font-size:88%")


def _overlap(pair, r) -> str:
    """The stacked overlap at the position where the round ended, over the tokens with the most probability there."""
    n = r.accepted
    if r.origin == "resampled":
        p, q = r.p[n].double(), r.q[n].double()
        rest = 1 - float(r.overlap[n])
        said = f"Where a draft token was rejected: resampled from the residual, the striped part ({rest:.2f} of p)."
    elif r.origin in ("bonus", "plain"):
        p, q = r.p[n].double(), None
        said = "The last token comes from p itself: nothing was drafted at its position."
    else:
        return ""
    most, chosen = (p if q is None else torch.maximum(p, q)).topk(min(SHOWN, len(p)))
    chosen = chosen[most >= 0.0005].tolist()  # a filter or a low temperature may leave fewer
    chosen += [t for t in (r.rejected, r.token) if t is not None and t not in chosen]
    labels = [pair.decode([x]) for x in chosen]
    return f"{said}<br>{bars(p[chosen].tolist(), None if q is None else q[chosen].tolist(), labels)}"


def _tapes(r) -> str:
    """What each cache held: before, added and left there, cut off."""
    lines = []
    for name, lengths in (("target", r.target_cache), ("draft", r.draft_cache)):
        if lengths is None:
            continue
        before, filled, after = lengths
        colour = plots.PALETTE[name]
        added, cut = (box(1.1, look) + " " for look in (f"background:{colour}", DASHED))
        start = f'<span style="background:{colour}55;padding:0 .4em">{before}</span> '
        gone = f"-{filled - after} cut (dashed)" if filled > after else "nothing cut"
        said = f"+{filled - before} fed, {gone}, {after} left"
        lines.append((f"{name} cache", start + added * (after - before) + cut * (filled - after), said))
    return table(lines, ("", "padding:0 .6em", ""), look="margin:.4em 0")


def _text_so_far(pair, ids: torch.Tensor, generation, rounds) -> str:
    new = sum(len(r.tokens) for r in rounds)
    part = type(generation)(generation.tokens[:new], generation.ids[:, : ids.shape[1] + new], list(rounds))
    return plots.html_text(pair, ids, part, legend=False)


# --- what theory promises ----------------------------------------------------------------------------------------


def speed_explorer(alpha: float, c: float, extra: float):
    """Three sliders: acceptance rate, cost ratio, and what each further token adds to a target pass."""
    if (w := _ipywidgets()) is None:
        return _still(speed_page(alpha, c, extra))

    looks = {"min": 0, "max": 1, "readout_format": ".3f", "style": {"description_width": "7em"}}
    alphas = w.FloatSlider(alpha, step=0.01, description="alpha", **looks)
    costs = w.FloatSlider(c, step=0.001, description="c", **looks)
    extras = w.FloatSlider(extra, step=0.0025, description="further token", **{**looks, "readout_format": ".4f"})
    sliders = [alphas, costs, extras]
    return _panel(w, [*sliders, _live(w, sliders, speed_page)])


def speed_page(alpha: float, c: float, extra: float, most: int = 10) -> str:
    """The walltime improvement at each gamma as HTML: where a pass costs 1 (the idealised formula, Leviathan et al.,
    Theorem 3.8), and where one over n tokens costs 1 + extra (n - 1)."""

    def cost(n: int) -> float:
        return 1 + extra * (n - 1)

    best, ideal = best_gamma(alpha, c, cost, most), best_gamma(alpha, c, None, most)
    gains = [[walltime_improvement(alpha, gamma, c, v) for v in (None, cost)] for gamma in range(1, most + 1)]
    em = min(3, LONGEST / max(plain for plain, _ in gains))
    rows, solid = [], f"background:{plots.PALETTE['target']}"
    for gamma, (plain, real) in enumerate(gains, 1):
        best_of = ["best idealised"] * (gamma == ideal) + ["best with the cost"] * (gamma == best)
        said = f" <b>{', '.join(best_of)}</b>" if best_of else ""
        bar = box(em * real, solid) + box(em * (plain - real), "border:1px dashed")
        rows.append((str(gamma), bar, f"idealised {plain:.2f}, with the cost {real:.2f}{said}"))
    if best:
        said = f"best gamma {best}: {walltime_improvement(alpha, best, c, cost):.2f} times as fast, "
        said += f"{expected_tokens(alpha, best):.2f} tokens per target pass, "
        said += f"{operations_factor(alpha, best, c):.2f} times the arithmetic"
        said += " (where a draft token costs c in operations too)."
    else:
        said = "speculation loses at every gamma: decode plainly."
    legend = "times as fast as plain decoding, for each gamma; solid: with the cost of the verification pass; "
    legend += "solid and dashed: by the idealised formula"
    return f"{bar_table(rows)}{said}<br><small>{legend}</small>"
