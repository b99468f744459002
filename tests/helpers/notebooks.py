"""What the notebooks derive and show, taken out of their cells."""

import json
import re

import torch

import spec_lib as sl
from tests.helpers.paths import NOTEBOOKS

FILES = sorted(NOTEBOOKS.glob("*.ipynb"))


def code(book) -> list:
    """The code cells of a notebook that was read with nbformat."""
    return [cell for cell in book.cells if cell.cell_type == "code"]


def derived(notebook: str, *names: str) -> dict:
    """The named functions, from the code cells that define them."""
    space: dict = {"sl": sl, "torch": torch, "benchmark": sl.benchmark}
    for cell in json.loads((NOTEBOOKS / f"{notebook}.ipynb").read_text())["cells"]:
        code = "".join(cell["source"])
        if cell["cell_type"] == "code" and any(f"def {n}(" in code or f"class {n}(" in code for n in names):
            # the definition only: what follows it in the cell needs the pair
            lines = code.split("\n")
            ends = [i for i, line in enumerate(lines) if line and not line.startswith((" ", "def ", "@")) and i > 0]
            exec("\n".join(lines[: ends[0]] if ends else lines), space)
    return space


def solutions() -> dict[str, str]:
    """Every solution that a notebook shows in <details>, by the name of its function."""
    found = {}
    for file in NOTEBOOKS.glob("*.ipynb"):
        text = "\n".join(
            "".join(c["source"]) for c in json.loads(file.read_text())["cells"] if c["cell_type"] == "markdown"
        )
        for code in re.findall(r"<summary>Solution</summary>\s*```python\n(.*?)```", text, re.S):
            found[re.match(r"def (\w+)", code).group(1)] = code
    return found


def function(code: str):
    names: dict = {"sl": sl, "torch": torch}
    exec(code, names)
    return names[re.match(r"def (\w+)", code).group(1)]
