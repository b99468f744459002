"""Where things lie, and which of them a command line means; for tests in any room."""

from collections.abc import Callable
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
NOTEBOOKS = ROOT / "notebooks"


def chosen(words: list[str], names: list[str], fits: Callable[[str, str], bool] = str.startswith) -> list[str]:
    """The names that begin with one of the words (or fit otherwise); all of them without words.

    SystemExit for a word that fits no name: a check of nothing would end without a complaint, as if all were well.
    """
    for word in words:
        if not any(fits(name, word) for name in names):
            raise SystemExit(f"Nothing to check is called {word!r}: the names are {', '.join(names[:3])} and so on.")
    return [name for name in names if not words or any(fits(name, word) for word in words)]
