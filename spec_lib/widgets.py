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
from .theory import best_gamma, expected_tokens, operations_factor, walltime_improvement

SHOWN = 6  # tokens with a bar of their own in the stacked overlap; the others share one
LONGEST = 12  # the longest bar, in em: fits beside its numbers at 150 % zoom
CELL = "text-align:left;padding:0 .5em 0 0"
BAR = "text-align:left;white-space:nowrap"


def step_through(pair, ids: torch.Tensor, generation):
    """A widget that walks over the rounds of a traced generation; display it, or leave it as a cell's last line.

    ids: the prompt (1, length).  Raises ValueError for a generation without rounds, or made without trace=True.
    """
    return player(frames(pair, ids, generation), "round")


def frames(pair, ids: torch.Tensor, generation) -> list[str]:
    """One HTML text a round: the judged tokens in numbers, the stacked overlap, both tapes, the text so far."""
    ids = plots.prompt_of(ids, generation)
    rounds = generation.rounds
    if not rounds:
        raise ValueError("there are no rounds to step through: give a generation of speculative(..., trace=True)")
    if any(r.p is None for r in rounds):
        raise ValueError("this generation kept no laws: make it with speculative(..., trace=True)")
    found, before = [], 0
    for i, r in enumerate(rounds):
        head = f"<b>Round {i + 1} of {len(rounds)}</b>: {_sentence(r)}"
        new = len(r.tokens)
        text = _text_so_far(pair, ids, generation, rounds[: i + 1], before)
        parts = [head, _judged(pair, r), _overlap(pair, r), _tapes(r), text]
        found.append(
            '<div style="line-height:1.5;max-width:60em">' + "".join(f"<div>{p}</div>" for p in parts) + "</div>"
        )
        before += new
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
    return w.VBox([_wrapped(w.HBox([back, forward, play, slider])), page])


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
    """Two rows of sliders, the reader's own p and q over a few tokens; each law is scaled to sum to 1.

    Raises ValueError for laws of different length.
    """
    if len(p) != len(q) or not len(p):
        raise ValueError(f"p and q must be laws over the same tokens, got {len(p)} and {len(q)} numbers")
    if (w := _ipywidgets()) is None:
        return _still(explorer_page(*(torch.tensor(law, dtype=torch.float64) for law in (p, q))))

    def sliders(law, letter):
        return [
            w.FloatSlider(v, min=0, max=1, step=0.05, description=f"{letter} {chr(97 + i)}") for i, v in enumerate(law)
        ]

    rows, page = {"p": sliders(p, "p"), "q": sliders(q, "q")}, w.HTML()

    def show(_=None):
        a, b = (torch.tensor([s.value for s in rows[n]], dtype=torch.float64) for n in "pq")
        page.value = explorer_page(a, b)

    for slider in rows["p"] + rows["q"]:
        slider.observe(show, names="value")
    show()
    return w.VBox([_wrapped(w.HBox([w.VBox(rows["p"]), w.VBox(rows["q"])])), page])


def explorer_page(a: torch.Tensor, b: torch.Tensor) -> str:
    """The stacked overlap of two rows of weights, as HTML, or one sentence where a row is all zeros."""
    if a.sum() == 0 or b.sum() == 0:
        return "Give each law at least one weight above 0."
    p, q = a / a.sum(), b / b.sum()
    accepted = float(torch.minimum(p, q).sum())
    said = f"accepted {accepted:.2f} = sum of min(p, q); total variation distance {1 - accepted:.2f}"
    return bars(p.tolist(), q.tolist(), [chr(97 + i) for i in range(len(p))]) + said


def bars(p: Sequence[float], q: Sequence[float], labels: Sequence[str]) -> str:
    """The stacked overlap as HTML: a line a token, kept (=), redrawn (/) and refused (x) laid end to end."""
    parts = plots.overlap_parts(p, q)
    em = LONGEST / max(max(map(float, p)), max(map(float, q)), 1e-9)
    looks = {
        "kept": f"background:{plots.PALETTE['accepted']}",
        "redrawn": f"background:repeating-linear-gradient(45deg,{plots.PALETTE['resampled']} 0 4px,#fff 4px 6px)",
        "refused": f"box-sizing:border-box;border:2px dashed {plots.PALETTE['rejected']}",
    }
    rows = []
    for i, label in enumerate(labels):
        boxes = "".join(
            f'<span style="display:inline-block;height:1em;width:{em * parts[n][i]:.3f}em;{look}"></span>'
            for n, look in looks.items()
            if parts[n][i] > 0
        )
        numbers = " ".join(f"{n} {parts[n][i]:.3f}" for n in looks if parts[n][i] >= 0.0005)
        rows.append(
            f'<tr><td style="text-align:right;padding-right:.6em">{_code(label)}</td>'
            f'<td style="{BAR}">{boxes}</td>'
            f'<td style="text-align:left;padding-left:.6em">{numbers}</td></tr>'
        )
    legend = "kept (solid): min(p, q) &nbsp; redrawn (striped): p above q &nbsp; refused (dashed): q above p"
    return f'<table style="border-collapse:collapse">{"".join(rows)}</table><small>{legend}</small><br>'


def _code(token: str, look: str = "") -> str:
    """A token's text; a long one may break, or it would push the numbers out of a narrow window."""
    return f'<code style="overflow-wrap:anywhere;{look}">{html.escape(plots.visible(token))}</code>'


def _sentence(r) -> str:
    k = len(r.drafted)
    if r.origin == "bonus":
        return f"all {k} drafted tokens stood, and the pass had one more law to spare: a bonus token."
    if r.origin == "resampled":
        return f"{r.accepted} of {k} drafted tokens stood; the next was rejected and replaced."
    if r.origin == "plain":
        return "nothing was drafted; the target wrote one token."
    return f"an accepted token, number {r.accepted} of {k}, ended the text."


def _judged(pair, r) -> str:
    """The table of one round: each drafted token with p, q, overlap, uniform and verdict."""
    rows = []
    for i, x in enumerate(r.drafted.tolist()):
        p, q = float(r.p[i, x]), float(r.q[i, x])
        judged = i < r.accepted or (i == r.accepted and r.rejected is not None)
        verdict = "accepted" if i < r.accepted else "rejected" if judged else "not judged"
        look = plots.CSS["accepted"] if verdict == "accepted" else ""
        look = (
            f"background:{plots.PALETTE['rejected']}44;text-decoration:line-through" if verdict == "rejected" else look
        )
        cells = [
            _code(pair.decode([x]), look),
            f"{p:.3f}",
            f"{q:.3f}",
            f"{min(1.0, p / q):.3f}" if q > 0 else "",
            f"{float(r.uniforms[i]):.3f}" if judged else "",
            verdict,
            f"{float(r.overlap[i]):.3f}",
        ]
        rows.append("<tr>" + "".join(f'<td style="{CELL}">{c}</td>' for c in cells) + "</tr>")
    if r.token is not None:
        p = float(r.p[r.accepted, r.token])
        cells = [_code(pair.decode([r.token]), plots.CSS[r.origin]), f"{p:.3f}", "", "", "", r.origin, ""]
        rows.append("<tr>" + "".join(f'<td style="{CELL}">{c}</td>' for c in cells) + "</tr>")
    heads = ["token", "p", "q", "min(1, p/q)", "uniform", "verdict", "overlap"]
    top = "".join(f'<th style="{CELL}">{h}</th>' for h in heads)
    return f'<table style="border-collapse:collapse;margin:.4em 0"><tr>{top}</tr>{"".join(rows)}</table>'


def _overlap(pair, r) -> str:
    """The stacked overlap at the place where the round ended, over the tokens with the most probability there."""
    n = r.accepted
    if r.origin == "resampled":
        p, q = r.p[n].double(), r.q[n].double()
        rest = 1 - float(r.overlap[n])
        said = f"Where the guess fell: the replacement was drawn from the striped part ({rest:.2f} of p)."
    elif r.origin in ("bonus", "plain"):
        p, q = r.p[n].double(), r.p[n].double()
        said = "The last token comes from p itself: nothing was guessed at its place, so all of p is kept."
    else:
        return ""
    most, chosen = torch.maximum(p, q).topk(min(SHOWN, len(p)))
    chosen = chosen[most >= 0.0005].tolist()  # a filter or a low temperature may leave fewer
    chosen += [t for t in (r.rejected, r.token) if t is not None and t not in chosen]
    labels = [pair.decode([x]) for x in chosen]
    return f"{said}<br>{bars(p[chosen].tolist(), q[chosen].tolist(), labels)}"


def _tapes(r) -> str:
    """What each cache held: before, added and kept, cut off."""
    lines = []
    for name, lengths in (("target", r.target_cache), ("draft", r.draft_cache)):
        if lengths is None:
            continue
        before, filled, after = lengths
        colour = plots.PALETTE[name]
        kept = f"display:inline-block;min-width:1.1em;height:1em;background:{colour}"
        cut = "display:inline-block;width:1.1em;height:1em;box-sizing:border-box;border:2px dashed "
        cut += plots.PALETTE["rejected"]
        boxes = f'<span style="{kept}"></span> ' * (after - before) + f'<span style="{cut}"></span> ' * (filled - after)
        lines.append(
            f"<tr><td>{name} cache</td>"
            f'<td style="padding:0 .6em"><span style="background:{colour}55;padding:0 .4em">{before}</span> '
            f"{boxes}</td>"
            f"<td>+{filled - before} fed, -{filled - after} cut (dashed), {after} kept</td></tr>"
        )
    return f'<table style="margin:.4em 0">{"".join(lines)}</table>'


def _text_so_far(pair, ids: torch.Tensor, generation, rounds, before: int) -> str:
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
    page = w.HTML()

    def show(_=None):
        page.value = speed_page(alphas.value, costs.value, extras.value)

    for slider in (alphas, costs, extras):
        slider.observe(show, names="value")
    show()
    return w.VBox([alphas, costs, extras, page])


def speed_page(alpha: float, c: float, extra: float, most: int = 10) -> str:
    """The walltime improvement at each gamma as HTML: where a pass costs 1 (the textbook), and where one over n tokens
    costs 1 + extra (n - 1)."""

    def cost(n: int) -> float:
        return 1 + extra * (n - 1)

    best, textbook = best_gamma(alpha, c, cost, most), best_gamma(alpha, c, None, most)
    gains = [[walltime_improvement(alpha, gamma, c, v) for v in (None, cost)] for gamma in range(1, most + 1)]
    em = min(3, LONGEST / max(plain for plain, _ in gains))
    rows, box = [], "display:inline-block;height:1em;width"
    for gamma, (plain, real) in enumerate(gains, 1):
        bar = f'<span style="{box}:{em * real:.3f}em;background:{plots.PALETTE["target"]}"></span>'
        bar += f'<span style="{box}:{em * (plain - real):.3f}em;box-sizing:border-box;border:1px dashed"></span>'
        said = ["textbook best"] * (gamma == textbook) + ["best with the cost"] * (gamma == best)
        rows.append(
            f'<tr><td style="text-align:right;padding-right:.6em">{gamma}</td><td style="{BAR}">{bar}</td>'
            f'<td style="text-align:left;padding-left:.6em">textbook {plain:.2f}, with the cost {real:.2f}'
            f" {'<b>' if said else ''}{', '.join(said)}{'</b>' if said else ''}</td></tr>"
        )
    if best:
        said = f"best gamma {best}: {walltime_improvement(alpha, best, c, cost):.2f} times as fast, "
        said += f"{expected_tokens(alpha, best):.2f} tokens a pass, "
        said += f"{operations_factor(alpha, best, c):.2f} times the arithmetic"
        said += " (where a draft token costs c in operations too)."
    else:
        said = "speculation loses at every gamma: decode plainly."
    return f'<table style="border-collapse:collapse">{"".join(rows)}</table>{said}<br>' + (
        "<small>times as fast as plain decoding, for each gamma; solid: with the cost of scoring; "
        "solid and dashed: the textbook's promise</small>"
    )
