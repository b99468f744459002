"""A name that is missing because a cell was not run: the error says which cell makes it."""

from __future__ import annotations

import difflib
import functools
import json
import re
import symtable
import sys
from pathlib import Path

NOTEBOOKS = Path(__file__).parent.parent / "notebooks"


def explain_missing_names() -> None:
    """In IPython, let each NameError from now on name the cell of the course that makes the name.  Elsewhere nothing.

    Only names that a cell of the running notebook makes are explained; a misspelt one is reported as ever.  A handler
    that was set with `set_custom_exc` before still gets its exceptions, a NameError with the explanation added.
    """
    shell = sys.modules["IPython"].get_ipython() if "IPython" in sys.modules else None
    if shell is None or hasattr(shell.CustomTB, "explains_missing_names"):  # the set-up cell may run again
        return
    kinds, handler = shell.custom_exceptions, shell.CustomTB

    def show(shell, kind, error, trace, tb_offset=None):
        if isinstance(error, NameError):
            _explain(shell, error, trace)
        if isinstance(error, kinds):
            return handler(kind, error, trace, tb_offset=tb_offset)
        return shell.showtraceback((kind, error, trace), tb_offset=tb_offset)

    shell.set_custom_exc((NameError, *kinds), show)
    shell.CustomTB.__func__.explains_missing_names = True


def _explain(shell, error: NameError, trace) -> None:
    """Add to the error which cell makes the name, where a cell of the running notebook does."""
    try:
        last = trace
        while last.tb_next:
            last = last.tb_next
        # Not for an error inside a library, nor for a local variable that is read too early.
        if last.tb_frame.f_globals is shell.user_ns and error.args == (f"name {error.name!r} is not defined",):
            hint = where(error.name, shell.user_ns["In"])
            error.args = (f"{error.args[0]}. {hint}",) if hint else error.args
    except Exception:  # whatever goes wrong here, the learner is shown the error itself
        pass


def where(name: str, run: list[str]) -> str | None:
    """Which cell makes `name`, in a sentence; None if none does.

    run: the sources of the cells that were run, the last one failed.  They tell which notebook it is.
    """
    files = [file for file in sorted(NOTEBOOKS.glob("*.ipynb")) if re.fullmatch(r"\d\d_\w+", file.stem)]  # no copies
    books = [cells for file in files if (cells := _cells(file))]
    setup = {source for cells in books for _, source in cells if "sl.setup_line(" in source}  # the same in all
    known = [len({source for _, source in cells} & set(run) - setup) for cells in books]
    if not any(known) or known.count(max(known)) > 1:
        return None
    cells = books[known.index(max(known))]
    here = _position(cells, run)
    makers = [i for i, (_, source) in enumerate(cells[:here]) if name in _made(source)]
    if not makers:
        return None
    heading, source = cells[makers[-1]]
    return (
        f'It is made in the cell below "{heading}" that begins with "{source.splitlines()[0]}": run that one first, or '
        "all above this one (Colab: Runtime > Run before; Jupyter: Run > Run All Above Selected Cell)."
    )


def _position(cells: list[tuple[str, str]], run: list[str]) -> int:
    """The index of the last cell that was run: its own, or that of the cell it was edited from, or one past the last
    known one."""
    sources = [source for _, source in cells]
    like = difflib.get_close_matches(run[-1], sources, n=1)
    if run[-1] in sources or like:
        return sources.index(run[-1] if run[-1] in sources else like[0])
    return 1 + max(sources.index(source) for source in run if source in sources)


@functools.cache
def _cells(file: Path) -> list[tuple[str, str]]:
    """(the heading above, source) of each code cell; none of a file that is not a notebook of the course."""
    try:
        cells = json.loads(file.read_text("utf-8"))["cells"]
    except (OSError, ValueError, KeyError, TypeError):
        return []
    heading, found = "", []
    for cell in cells:
        source = "".join(cell["source"])
        if cell["cell_type"] != "code":
            heading = (re.findall(r"^#{1,3} (.+)$", re.sub(r"```.*?```", "", source, flags=re.S), re.M) or [heading])[
                -1
            ]
        elif source.strip():
            found.append((heading, source))
    return found if any("sl.setup_line(" in source for _, source in found) else []


def _made(source: str) -> set[str]:
    """The names that a cell leaves behind."""
    try:
        symbols = symtable.symtable(source, "cell", "exec").get_symbols()
    except SyntaxError:
        return set()
    return {s.get_name() for s in symbols if s.is_assigned() or s.is_imported()}
