"""What the notebooks derive, taken out of their cells."""

import ast
import json

import torch

import spec_lib as sl
from tests.helpers.paths import NOTEBOOKS

FILES = sorted(NOTEBOOKS.glob("*.ipynb"))


def code(book) -> list:
    """The code cells of a notebook that was read with nbformat."""
    return [cell for cell in book.cells if cell.cell_type == "code"]


def cells(notebook: str, kind: str) -> list[str]:
    """The sources of a notebook's cells of one kind, "code" or "markdown"."""
    book = json.loads((NOTEBOOKS / f"{notebook}.ipynb").read_text(encoding="utf-8"))
    return ["".join(cell["source"]) for cell in book["cells"] if cell["cell_type"] == kind]


def prose(notebook: str) -> str:
    """All text of a notebook."""
    return "\n\n".join(cells(notebook, "markdown"))


def derived(notebook: str, *names: str, **space) -> dict:
    """The named functions, from the code cells that define them.  space: what else they use."""
    space |= {"sl": sl, "torch": torch, "benchmark": sl.benchmark}
    for cell in json.loads((NOTEBOOKS / f"{notebook}.ipynb").read_text())["cells"]:
        code = "".join(cell["source"])
        if cell["cell_type"] == "code" and any(f"def {n}(" in code or f"class {n}(" in code for n in names):
            # the definition only: what follows it in the cell needs the pair
            lines = code.split("\n")
            ends = [i for i, line in enumerate(lines) if line and not line.startswith((" ", "def ", "@")) and i > 0]
            exec("\n".join(lines[: ends[0]] if ends else lines), space)
    return space


def definitions(notebook: str, **space) -> dict:
    """All functions and classes of a notebook and what it imports, without the cells' other lines."""
    for cell in json.loads((NOTEBOOKS / f"{notebook}.ipynb").read_text(encoding="utf-8"))["cells"]:
        if cell["cell_type"] == "code" and "setup" not in cell["metadata"].get("tags", []):
            kinds = (ast.FunctionDef, ast.ClassDef, ast.ImportFrom, ast.Import)
            nodes = [node for node in ast.parse("".join(cell["source"])).body if isinstance(node, kinds)]
            exec(compile(ast.Module(nodes, []), f"notebook {notebook[:2]}", "exec"), space)
    return space
