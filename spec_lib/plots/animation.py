"""A picture that moves: the rounds of one generation, draft token by draft token."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Sequence

import torch

from .characters import visible
from .glyphs import legible, make_legible, token_label
from .rounds import round_rows, some_rounds
from .style import LETTERS, PALETTE
from .text import origins, pieces

LEGEND = "? proposed   A accepted   R rejected   S resampled   B bonus   - not verified"
KEY = [(name, name) for name in ("accepted", "rejected", "resampled", "bonus", "unverified")]
WIDTH = 76  # of the picture, in units of ten pixels
MONOSPACE = {"family": "monospace", "va": "center", "parse_math": False}


def animation_frames(pair, rounds: Sequence) -> list[dict]:
    """What `animate_rounds` draws: the whole text with a key to the boxes, which is all that a viewer shows that cannot
    play it; then for each round a frame of proposals, one of verdicts, one with the target's token.

    A frame is {"said", "text": [(piece, origin)] so far, "boxes": [(token text, verdict)]}; verdicts are those of
    `LETTERS`, "draft" for a token that is not yet verified and "unverified" for one after a rejection.
    """
    frames, emitted, start = [], [], torch.empty(1, 0, dtype=torch.int64)
    rounds = some_rounds(rounds)

    def frame(said, boxes):
        text = list(pieces(pair, start, emitted))
        frames.append({"said": said, "text": text, "boxes": [(pair.decode([t]), verdict) for t, verdict in boxes]})

    whole = [(t, origin) for r in rounds for t, origin in zip(r.tokens, origins([r]), strict=True)]
    said = f"{_counted(whole, len(rounds))}; plain decoding takes one pass a token"
    frames.append({"said": said, "text": list(pieces(pair, start, whole)), "boxes": KEY})
    for number, r in enumerate(rounds, 1):
        drafted, n = r.drafted.tolist(), r.accepted
        if drafted:
            frame(f"round {number}: the draft model proposes {len(drafted)} tokens", [(t, "draft") for t in drafted])
            rest = len(drafted) - n - (r.rejected is not None)
            verdicts = ["accepted"] * n + ["rejected"] * (r.rejected is not None) + ["unverified"] * rest
            boxes = list(zip(drafted, verdicts, strict=True))
            frame(f"round {number}: one pass of the target verifies them, {n or 'none'} accepted", boxes)
        accepted = [(t, "accepted") for t in drafted[:n]]
        emitted += accepted
        if r.token is not None:
            emitted.append((r.token, r.origin))
            said = {"resampled": "a token resampled from the residual", "bonus": "the target adds a bonus token"}
            said = said.get(r.origin, "the target writes one token")
            frame(f"round {number}: {said}  ({_counted(emitted, number)})", [*accepted, (r.token, r.origin)])
        else:
            frame(f"round {number}: the text has ended", accepted)
    return frames


def _counted(tokens: Sequence, passes: int) -> str:
    return f"{len(tokens)} token{'s' * (len(tokens) != 1)} in {passes} target pass{'es' * (passes != 1)}"


def animation_words(pair, rounds: Sequence) -> str:
    """The animation for those who do not see it: what it counts, and a line a round with each token and its letter."""
    tokens, lines = [t for r in some_rounds(rounds) for t in r.tokens], []
    for number, row in enumerate(round_rows(pair, some_rounds(rounds)), 1):
        marked = [f"{visible(text)} {LETTERS.get(verdict, '-')}" for _, text, verdict in row]
        lines.append(f"round {number}:  {'   '.join(marked)}")
    return "\n".join([f"{_counted(tokens, len(lines))}  ({LEGEND})", *lines])


def animate_rounds(pair, rounds: Sequence, prompt: str = "", seconds: float = 1.2, save=None) -> None:
    """The rounds of one generation as a picture that moves: proposals, verdicts, the target's own token.

    prompt: shown before the text.  seconds: of each frame; the first stays twice and the last four times as long.
    save: a file that ends in .gif or .png; None shows an animated PNG in the notebook, with `animation_words` as its
    alternative text (a viewer that cannot play it shows the first frame).  ValueError for another ending, before
    anything is drawn.
    """
    import io
    from pathlib import Path

    if save is not None and Path(save).suffix.lower() not in (".gif", ".png"):
        raise ValueError(f"save must name a file that ends in .gif or .png, got {str(save)!r}")
    images = _few_colours([_draw_frame(frame, prompt) for frame in animation_frames(pair, rounds)])
    times = [int(1000 * seconds * n) for n in [2, *[1] * (len(images) - 2), 4]]
    file = io.BytesIO() if save is None else save
    options = {"save_all": True, "append_images": images[1:], "duration": times, "loop": 0}
    images[0].save(file, "GIF" if save is not None and Path(save).suffix.lower() == ".gif" else "PNG", **options)
    if save is None:
        from IPython.display import display

        words, image = animation_words(pair, rounds), b64encode(file.getvalue()).decode()
        display({"image/png": image, "text/plain": words}, raw=True, metadata={"image/png": {"alt": words}})


def _draw_frame(frame: dict, prompt: str):
    """One frame, as a PIL image."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure
    from PIL import Image

    figure = Figure(figsize=(WIDTH / 10, 2.8), dpi=100)
    canvas, axis = FigureCanvasAgg(figure), figure.add_axes((0, 0, 1, 1), xlim=(0, WIDTH), ylim=(28, 0))
    axis.axis("off")
    _draw_text(axis, [(prompt, "prompt"), *frame["text"]])
    axis.text(2, 15.5, frame["said"], fontsize=11, va="center")
    _draw_boxes(axis, frame["boxes"])
    axis.text(2, 26, LEGEND, fontsize=9, va="center", color="#444444")
    make_legible(figure)
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


def _font():
    from matplotlib.font_manager import FontProperties

    return FontProperties(family=MONOSPACE["family"])


def _box_width(label: str) -> float:
    return 0.84 * (len(label) + 2) + 1.6


def box_labels(tokens: Sequence[str]) -> list[str]:
    """The tokens as the boxes show them, the long ones cut where a row of boxes would leave the picture."""
    for most in range(40, 3, -1):
        labels = [token_label(token, most, _font()) for token in tokens]
        if sum(_box_width(label) + 0.8 for label in labels) <= WIDTH - 2:
            break
    return labels


def _draw_boxes(axis, boxes: Sequence[tuple[str, str]]) -> None:
    """One box a token, with its letter; what was not accepted is hatched."""
    from matplotlib.patches import Rectangle

    x = 2.0
    for label, (_, verdict) in zip(box_labels([text for text, _ in boxes]), boxes, strict=True):
        colour, width = PALETTE.get(verdict, "#AAAAAA"), _box_width(label)
        mark = {"draft": "?", "unverified": "-"}.get(verdict) or LETTERS[verdict]
        hatch = {"rejected": "xxx", "unverified": "//"}.get(verdict, "")
        axis.add_patch(Rectangle((x, 18), width, 4.6, facecolor=colour + "55", edgecolor=colour, hatch=hatch, lw=1.5))
        ground = {"facecolor": "white", "edgecolor": "none", "pad": 1} if hatch else None
        axis.text(x + width / 2, 20.3, f"{label} {mark}", bbox=ground, fontsize=10, ha="center", **MONOSPACE)
        x += width + 0.8


def text_rows(marked: Sequence[tuple[str, str]], width: int = WIDTH) -> list[list[tuple[int, str, str]]]:
    """Marked pieces (text, origin) in rows of at most `width` characters: (column, part, origin) of each part.

    A row breaks before a blank, and inside a word only where the word alone is too long for a row.
    """
    rows, column = [[]], 0
    for text, origin in marked:
        shown = legible(text.replace("\n", "\u21b5"), _font())
        words = shown.replace(" ", "\n ").split("\n")  # each keeps the blank before it
        for part in (word[i : i + width] for word in words for i in range(0, len(word), width)):
            if column and column + len(part) > width:
                rows, column = [*rows, []], 0
            rows[-1].append((column, part, origin))
            column += len(part)
    return rows


def _draw_text(axis, marked: Sequence[tuple[str, str]], lines: int = 4) -> None:
    """The last lines of a text in a face of fixed width: accepted tokens on colour, the target's own underlined."""
    step = 0.92
    for y, row in enumerate(text_rows(marked)[-lines:]):
        for start, part, origin in row:
            left, middle, width = 2 + step * start, 3 * y + 2.2, step * len(part)
            if origin != "prompt":
                axis.barh(middle, width, 2.4, left=left, color=PALETTE[origin] + "55")
            if origin in ("resampled", "bonus"):
                dash = "-" if origin == "resampled" else ":"
                axis.plot([left + 0.1, left + width - 0.1], [middle + 1.1] * 2, color=PALETTE[origin], lw=2, ls=dash)
            axis.text(left, middle, part, color="#666666" if origin == "prompt" else "black", fontsize=11, **MONOSPACE)
