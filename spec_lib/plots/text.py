"""Text in colour: the pieces of a generation as they come, for a notebook (HTML) and for a terminal (ANSI).

Control characters that a model may write (ESC, backspace, carriage return, ...) are shown, never passed on: on a
terminal they clear the screen or move the cursor, and in HTML they are not seen at all.
"""

from __future__ import annotations

import html
import re
from collections.abc import Iterable, Iterator, Sequence

import torch

from ..records import as_rounds
from . import style
from .characters import without_controls

BAD = "\ufffd"  # what bytes that are no character decode to


def origins(rounds: Sequence) -> list[str]:
    """The origin of each emitted token of some rounds, in order."""
    return [o for r in as_rounds(rounds) for o in ["accepted"] * r.accepted + ([] if r.token is None else [r.origin])]


class Pieces:
    """A text as it comes, token by token after the prompt ids (1, length): what of it can be shown, and its origin.

    A token may be a piece of a UTF-8 character: such tokens are held until the character is whole, and it is given to
    the token that completed it.  Bytes that are none come as U+FFFD.
    """

    def __init__(self, pair, ids: torch.Tensor):
        self.pair, self.held = pair, []  # held: the origins of tokens of which nothing is shown
        self.known = _recent(pair, ids.flatten().tolist())
        self.text = pair.decode(self.known)  # of what is known, the first `shown` characters are the prompt or given
        self.shown = len(self.text)

    def feed(self, token: int, origin: str) -> list[tuple[str, str]]:
        """The (text, origin) that can be shown now that this token is known too: none, one or two."""
        self.known.append(int(token))
        self.held.append(origin)
        found, shown, text = [], self.shown, self.pair.decode(self.known)
        # The beginning of a character decodes to U+FFFD, one in all or one a byte, and so may, as long as its bytes
        # last, a whole character before it: what is at the end waits.  After nine tokens it is no character.
        whole = max(len(text.rstrip(BAD)), len(text) - 3 if len(self.held) > 8 else 0)
        if whole > shown:
            good = whole - len(text[shown:whole].lstrip(BAD))
            if shown < good:
                found.append((text[shown:good], self.held[0]))
            if good < whole:
                found.append((text[good:whole], origin))
            shown = whole
        if shown == len(text):
            self.held = []
            if len(self.known) > 32:
                self.known = _recent(self.pair, self.known)
                text = self.pair.decode(self.known)
                shown = len(text)
        else:
            self.held = self.held[-8:]
            if len(self.held) == 8 and len(self.known) > 64 and self._hopeless():
                waits, self.known = len(text) - shown, self.known[-32:]
                text = self.pair.decode(self.known)
                shown = len(text) - waits
        self.shown, self.text = shown, text
        return found

    def _hopeless(self) -> bool:
        """Whether the last tokens are bytes that are no characters, whatever follows: those before can be forgotten.

        One of the shortened ends falls between two characters, if these are characters at all.
        """
        last = self.known[-32:]
        texts = [self.pair.decode(last[: len(last) - n]) for n in range(5)]
        return len(texts[0]) > 8 and not any(text.strip(BAD) for text in texts)

    def end(self) -> list[tuple[str, str]]:
        """What is still held where the text ends, be it inside a character: one (text, origin), or none."""
        return [(self.text[self.shown :], self.held[-1])] if self.held and len(self.text) > self.shown else []


def pieces(pair, ids: torch.Tensor, emitted: Iterable[tuple[int, str]]) -> Iterator[tuple[str, str]]:
    """(text, origin) of each emitted (token, origin) after the prompt ids (1, length), as they come.

    Joined, they are the decoded text; characters come whole, as `Pieces` gives them.
    """
    made = Pieces(pair, ids)
    for token, origin in emitted:
        yield from made.feed(token, origin)
    yield from made.end()


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
    parts = [f'<span style="{style.CSS["prompt"]}">{_escaped(pair.decode(ids))}</span>']
    for text, name in pieces(pair, ids, zip(generation.tokens.tolist(), names, strict=True)):
        parts.append(_marked(name, _escaped(text), f' title="{style.MEANING[name]}"'))
    body = "".join(parts)
    if legend:
        used = [n for n in style.MEANING if n in names]
        body += "<br><small>" + " &nbsp; ".join(
            f"{_marked(n, n)} ({style.SHAPE[n]}): {style.MEANING[n]}, {names.count(n)}" for n in used
        )
        body += "</small>"
    # Room at the right: the blank at the end of a full line hangs out of it.
    return f'<div style="white-space:pre-wrap;line-height:1.9;max-width:60em;padding-right:.5em">{body}</div>'


def _marked(name: str, text: str, more: str = "") -> str:
    return f'<{style.ELEMENT[name]} style="{style.CSS[name]}"{more}>{text}</{style.ELEMENT[name]}>'


def _escaped(text: str) -> str:
    """A text as HTML.  Notebooks typeset what stands between two dollar signs, or \\( and \\), as a formula, entities
    too, but no formula goes beyond an element: each such sign gets one of its own."""
    return re.sub(r"[$\\]", r"<span>\g<0></span>", html.escape(without_controls(text)))


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
    """A piece of text for a terminal, marked by its origin with a colour and a face (bold, italic, underlined).

    Its own control characters are spelled out, with and without colour.
    """
    text = without_controls(text)
    return f"\x1b[{style.ANSI[origin]}m{text}\x1b[0m" if colour else text
