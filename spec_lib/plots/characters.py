"""Characters that would not be seen, or would do something, written out.

A model may write any control character: on a terminal they clear the screen or move the cursor, in HTML and in a
figure they are not seen at all.
"""

from __future__ import annotations

import unicodedata

# The characters that reorder what stands after them: embeddings, overrides and isolates of both directions.
REORDERING = frozenset("\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069")
HIDDEN = {"Cc", "Cf", "Zs", "Zl", "Zp"}  # Unicode's categories of what is drawn as nothing


def acts(character: str) -> bool:
    """Whether a character does something where it is shown: C0, DEL and C1, and what reorders text."""
    return unicodedata.category(character) == "Cc" or character in REORDERING


def code(character: str) -> str:
    """\\x1b, or \\t and \\r, as Python writes a control character; U+XXXX for any other character."""
    return repr(character)[1:-1] if unicodedata.category(character) == "Cc" else f"U+{ord(character):04X}"


def without_controls(text: str) -> str:
    """A text whose control characters are written out (`code`); line ends and tabs stay.

    Everything else, the joiners of emoji and of Persian among them, belongs to the text.
    """
    return "".join(code(c) if acts(c) and c not in "\n\t" else c for c in text)


def visible(text: str) -> str:
    """A token as it is shown in a figure or a log: nothing in it is invisible.

    A blank is a middle dot, a line end an arrow, an empty token the sign of the empty set; the other blanks, control
    characters (tabs too) and characters without width are written out (`code`).
    """
    marks = {"\n": "\u21b5", " ": "\u00b7"}
    return "".join(marks.get(c) or (code(c) if unicodedata.category(c) in HIDDEN else c) for c in text) or "\u2205"
