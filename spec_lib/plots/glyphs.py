"""Text that a font cannot draw, written out: U+6F22 for a character that it lacks, \\x1b for a control character.

What a font can draw is read from the font itself (its character map), so this holds for whatever font is in use.
"""

from __future__ import annotations

from functools import cache

from .characters import acts, code, visible


@cache
def _characters(*files: str) -> frozenset[int]:
    """The code points for which one of these fonts has a glyph."""
    from matplotlib.font_manager import get_font

    return frozenset(point for file in files for point in get_font(file).get_charmap())


def drawable(font=None) -> frozenset[int]:
    """The code points that matplotlib can draw in a font (FontProperties; the font of the settings if None).

    A font may be a list of families: matplotlib takes a glyph from the first that has it.
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
    return _characters(*(files or [findfont(font)]))


def legible(text: str, font=None) -> str:
    """The text with everything written out that the font cannot draw or that would act; line ends stay."""
    known = drawable(font)
    return "".join(_written(c, known) for c in text)


def _written(character: str, known: frozenset[int]) -> str:
    if character == "\n" or (ord(character) in known and not acts(character)):
        return character
    return code(character)


def token_label(token: str, most: int = 20, font=None) -> str:
    """A token as a figure shows it, in at most `most` characters: a longer one is cut, but never inside a code."""
    known = drawable(font)
    parts = [_written(c, known) for c in visible(token)]
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
