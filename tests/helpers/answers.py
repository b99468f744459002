"""The exercises as the notebooks show them: the stub that a reader fills in, and the solution below it."""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Callable
from functools import cache

import torch

import spec_lib as sl
from tests.helpers.paths import NOTEBOOKS


def _cells(kind: str) -> list[str]:
    books = [json.loads(file.read_text(encoding="utf-8")) for file in sorted(NOTEBOOKS.glob("*.ipynb"))]
    return ["".join(cell["source"]) for book in books for cell in book["cells"] if cell["cell_type"] == kind]


@cache
def solutions() -> dict[str, str]:
    """The code of every solution in <details>, by the name of its function."""
    shown = re.findall(r"<summary>Solution</summary>\s*```python\n(.*?)```", "\n".join(_cells("markdown")), re.S)
    return {re.match(r"def (\w+)", code).group(1): code for code in shown}


@cache
def stubs() -> dict[str, str]:
    """The code of every stub, by the name of the check that its cell hands it to, without `check_`."""
    found = {}
    for source in _cells("code"):
        for check, name in re.findall(r"checks\.check_(\w+)\((\w+)\)", source):
            body = ast.parse(source).body
            stub = next(n for n in body if isinstance(n, ast.FunctionDef) and n.name == name)
            found[check] = ast.get_source_segment(source, stub)
    return found


def function(code: str) -> Callable:
    """The function that the code defines first."""
    names: dict = {"sl": sl, "torch": torch, "Callable": Callable}
    exec(code, names)
    return names[re.match(r"def (\w+)", code).group(1)]


def stub(check: str) -> Callable:
    """The function that a reader begins with."""
    return function(stubs()[check])


def solution(check: str) -> Callable:
    """The function that the notebook shows as the answer to `check_<check>`."""
    return function(solutions()[re.match(r"def (\w+)", stubs()[check]).group(1)])
