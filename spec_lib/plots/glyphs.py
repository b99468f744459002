"""Text that a font cannot draw, written out: U+6F22 for a character that it lacks, \\x1b for a control character.

What a font can draw is read from the font itself (its character map), so this holds for whatever font is in use.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Iterator
from functools import cache

from .characters import acts, code, visible


@cache
def _characters(file: str) -> frozenset[int]:
    """The code points for which a font has a glyph."""
    from matplotlib.font_manager import get_font

    return frozenset(get_font(file).get_charmap())


def drawable(font=None) -> list[frozenset[int]]:
    """The code points that matplotlib can draw in a font (FontProperties; the font of the settings if None).

    One set for each font file: a font may be a list of families, of which the first that has a glyph draws it.
    """
    from matplotlib.font_manager import FontProperties, findfont

    font, files = FontProperties() if font is None else font, []
    for family in font.get_family():
        one = font.copy()
        one.set_family(family)
        try:
            files.append(findfont(one, fallback_to_default=False))
        except ValueError:  # not installed here: matplotlib goes on to the next, and in the end to its own
            continue
    return [_characters(file) for file in files or [findfont(font)]]


def legible(text: str, font=None) -> str:
    """The text with everything written out that the font cannot draw or that would act; line ends stay."""
    return "".join(_written(text, font))


def _written(text: str, font) -> Iterator[str]:
    """Each character of a text as it is drawn.  One font draws a letter with all of its marks, or the mark is drawn
    as a code."""
    fonts = able = drawable(font)
    for character in text:
        among = able if unicodedata.category(character).startswith("M") else fonts
        having = [points for points in among if ord(character) in points]
        if character == "\n" or (having and not acts(character)):
            yield character
            able = having or fonts
        else:
            yield code(character)
            able = fonts


def token_label(token: str, most: int = 20, font=None) -> str:
    """A token as a figure shows it, in at most `most` characters: a longer one is cut, but never inside a code."""
    parts = list(_written(visible(token), font))
    if len("".join(parts)) <= most:
        return "".join(parts)
    while parts and len("".join(parts)) > most - 3:
        parts.pop()
    return "".join(parts) + "..."


def make_legible(figure) -> None:
    """Write out, in each text of a matplotlib figure, what that text's own font cannot draw."""
    from matplotlib.text import Text
    from matplotlib.ticker import FixedLocator

    for text in figure.findobj(Text):
        text.set_text(legible(text.get_text(), text.get_fontproperties()))
    for axes in figure.axes:  # the labels of ticks are written anew when the figure is drawn, so they are set anew
        for axis in (axes.xaxis, axes.yaxis):
            if isinstance(axis.get_major_locator(), FixedLocator):
                labels = axis.get_ticklabels()
                said = [label.get_text() for label in labels]
                shown = [legible(label.get_text(), label.get_fontproperties()) for label in labels]
                if shown != said:
                    axis.set_ticklabels(shown)
