"""Run each notebook twice in one kernel, and compare both runs with the saved outputs.

    python -m tests.classroom.run_twice            # all of them; ten minutes or more
    python -m tests.classroom.run_twice 03 05      # those whose name begins so

What a learner does who goes back and runs everything again: nothing may fail, and every cell that the strict
comparison holds to its output must print the same a second time.  Exit code 1 if one does not.
"""

from __future__ import annotations

import copy
import sys
import time
from pathlib import Path

import nbformat
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError

from tests.helpers.paths import NOTEBOOKS, chosen

FREE = {"nbval-ignore-output", "nbval-skip"}


def texts(cell) -> list[str]:
    """What a cell printed and showed, without pictures and widgets; pieces of one stream are put together."""
    found, stream = [], None
    for output in cell.outputs:
        if output.output_type == "stream" and stream == output.name:
            found[-1] += output.text
        elif output.output_type == "stream":
            found.append(output.text)
        else:
            data = output.get("data", {})
            found += [data[kind] for kind in ("text/html", "text/plain") if kind in data and "widget" not in str(data)]
        stream = output.get("name")
    return found


def complaints(file: Path) -> list[str]:
    book = nbformat.read(file, 4)
    saved = [cell for cell in book.cells if cell.cell_type == "code"]
    book.cells = [copy.deepcopy(cell) for _ in range(2) for cell in saved]
    for number, cell in enumerate(book.cells):
        cell.id = f"{cell.id}-{number}"
    try:
        NotebookClient(book, timeout=300, resources={"metadata": {"path": str(file.parent)}}).execute()
    except CellExecutionError as error:
        return [str(error)]
    found = []
    for number, cell in enumerate(book.cells):
        old = saved[number % len(saved)]
        if not FREE & set(cell.metadata.get("tags", [])) and texts(cell) != texts(old):
            run, first = number // len(saved) + 1, cell.source.splitlines()[0]
            found.append(f"run {run}, the cell that begins with {first!r}:\n{texts(cell)}\nsaved:\n{texts(old)}")
    return found


def main(words: list[str]) -> int:
    failed, files = 0, sorted(NOTEBOOKS.glob("[0-9]*.ipynb"))
    wanted = chosen(words, [file.name for file in files])
    for file in files:
        if file.name not in wanted:
            continue
        started = time.time()
        found = complaints(file)
        failed += bool(found)
        print(f"{file.stem:40} {'differs' if found else 'the same twice'}  ({time.time() - started:.0f} s)", flush=True)
        print(*found, sep="\n")
    return 1 if failed else 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
