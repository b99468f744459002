"""A name that is missing because a cell was not run: the error says which cell makes it."""

from __future__ import annotations

import builtins
import functools
import json
import re
import symtable
import sys
from pathlib import Path

NOTEBOOKS = Path(__file__).parent.parent / "notebooks"


def explain_missing_names() -> None:
    """In IPython, let each NameError from now on name the cell of the course that makes the name.  Elsewhere nothing.

    Only names that a cell of the running notebook makes are explained; a misspelt one is reported as ever.
    """
    shell = sys.modules["IPython"].get_ipython() if "IPython" in sys.modules else None
    if shell is not None:
        shell.set_custom_exc((NameError,), _show)


def _show(shell, kind, error, trace, tb_offset=None) -> None:
    last = trace
    while last.tb_next:
        last = last.tb_next
    if kind is NameError and last.tb_frame.f_globals is shell.user_ns:  # not an error inside a library
        hint = where(error.name, shell.user_ns.get("In", []))
        error.args = (f"{error.args[0]}. {hint}",) if hint else error.args
    shell.showtraceback((kind, error, trace), tb_offset=tb_offset)


def where(name: str | None, run: list[str]) -> str | None:
    """Which cell makes `name`, in a sentence; None if none does.

    run: the sources of the cells that were run, the last one failed.  They tell which notebook it is.
    """
    books = [_cells(file) for file in sorted(NOTEBOOKS.glob("[0-9]*.ipynb"))]
    setup = {books[0][0][1]} if books else set()  # the first cell of all notebooks is the same
    known = [len({source for _, source in cells} & set(run) - setup) for cells in books]
    if not any(known) or hasattr(builtins, str(name)):
        return None
    cells = books[known.index(max(known))]
    here = next((i for i, (_, source) in enumerate(cells) if source == run[-1]), len(cells))
    makers = [i for i, (_, source) in enumerate(cells) if name in _made(source)]
    if not makers:
        return None
    heading, source = cells[max((i for i in makers if i < here), default=makers[0])]
    return (
        f'It is made in the cell below "{heading}" that begins with "{source.splitlines()[0]}": run that one first, or '
        "all above this one (Colab: Runtime > Run before; Jupyter: Run > Run All Above Selected Cell)."
    )


@functools.cache
def _cells(file: Path) -> list[tuple[str, str]]:
    """(the heading above, source) of each code cell."""
    heading, found = "", []
    for cell in json.loads(file.read_text("utf-8"))["cells"]:
        source = "".join(cell["source"])
        if cell["cell_type"] == "code":
            found.append((heading, source))
        else:
            heading = (re.findall(r"^#{1,3} (.+)$", re.sub(r"```.*?```", "", source, flags=re.S), re.M) or [heading])[
                -1
            ]
    return found


def _made(source: str) -> set[str]:
    """The names that a cell leaves behind."""
    try:
        symbols = symtable.symtable(source, "cell", "exec").get_symbols()
    except SyntaxError:
        return set()
    return {s.get_name() for s in symbols if s.is_assigned() or s.is_imported()}
