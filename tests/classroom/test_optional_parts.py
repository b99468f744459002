"""Each optional part can be read on its own after the core, in any order: none takes a name that another one reads."""

import dis
import itertools
import re
from types import CodeType

import nbformat
import pytest

from tests.helpers.paths import NOTEBOOKS
from tools import lengths

FILES = sorted(NOTEBOOKS.glob("[0-9]*.ipynb"))


def parts(book) -> dict[str, list[str]]:
    """{heading: the sources of its code cells} of the optional parts."""
    found, now = {}, None
    for cell in book.cells:
        if cell.cell_type == "code":
            if now:
                found.setdefault(now, []).append(cell.source)
            continue
        for heading in re.findall(r"(?m)^#{2,3} .+$", lengths.unfenced(cell.source)):
            if heading.startswith("### ") and (now or found) or heading == lengths.OPTIONAL:
                now = heading
    return found


def names(sources: list[str]) -> tuple[set[str], set[str]]:
    """What the cells make, and what they read before they have made it."""

    def inner(code: CodeType) -> set[str]:
        used = {step.argval for step in dis.get_instructions(code) if step.opname == "LOAD_GLOBAL"}
        return used.union(*(inner(c) for c in code.co_consts if isinstance(c, CodeType)))

    made, read = set(), set()
    for source in sources:
        code = compile(source, "a cell", "exec")
        for step in dis.get_instructions(code):
            if step.opname == "STORE_NAME":
                made.add(step.argval)
            elif step.opname == "LOAD_NAME" and step.argval not in made:
                read.add(step.argval)
        read |= set().union(*(inner(c) for c in code.co_consts if isinstance(c, CodeType))) - made
    return made, read


def taken(book) -> list[str]:
    found = {heading: names(sources) for heading, sources in parts(book).items()}
    return [
        f"{', '.join(sorted(found[one][0] & found[other][1]))}: made in {one!r}, read in {other!r}"
        for one, other in itertools.permutations(found, 2)
        if found[one][0] & found[other][1]
    ]


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem[:2])
def test_no_optional_part_takes_a_name_that_another_reads(file):
    assert taken(nbformat.read(file, 4)) == []


def test_a_name_that_is_taken_is_found():
    cell, text = nbformat.v4.new_code_cell, nbformat.v4.new_markdown_cell
    first = [text("# 99"), cell("a, b = 1, 2"), text(f"{lengths.OPTIONAL}\n\n### One · 1 minute"), cell("print(a + b)")]
    for taking in ("for a in 'text':\n    pass", "import os as b", "def a():\n    return b"):
        book = nbformat.v4.new_notebook(cells=[*first, text("### Two · 1 minute"), cell(taking)])
        assert len(taken(book)) == 1, taking
    for own in ("def f(a):\n    b = a\n    return b", "c = [a for a in range(3)]", "a == b"):
        book = nbformat.v4.new_notebook(cells=[*first, text("### Two · 1 minute"), cell(own)])
        assert taken(book) == [], own
    assert len(parts(nbformat.read(FILES[11], 4))) > 2
