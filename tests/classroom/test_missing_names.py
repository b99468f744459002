"""A cell that was not run: where a later one needs it, the error says which cell, and where to find it."""

import ast
import builtins
import difflib
import functools
import sys
from types import SimpleNamespace

import nbformat
import pytest
from nbclient import NotebookClient

from spec_lib import missing_names
from spec_lib.missing_names import NOTEBOOKS, explain_missing_names, where

FILES = sorted(NOTEBOOKS.glob("[0-9]*.ipynb"))


def sources(file) -> list[str]:
    return [cell.source for cell in nbformat.read(file, 4).cells if cell.cell_type == "code"]


@pytest.mark.parametrize("mine", ["", "  # mine"], ids=["as it stands", "edited"])
@pytest.mark.parametrize("file", FILES, ids=lambda f: f.stem[:2])
def test_whatever_a_cell_needs_is_found_in_the_cell_that_made_it(file, mine, monkeypatch):
    # The same few questions are asked for every name: most of the time went into answering them anew.
    close = functools.cache(difflib.get_close_matches)
    once = SimpleNamespace(get_close_matches=lambda word, among, n: close(word, tuple(among), n))
    monkeypatch.setattr(missing_names, "difflib", once)
    monkeypatch.setattr(missing_names, "_made", functools.cache(missing_names._made))
    cells, made, asked = sources(file), {}, 0
    for i, source in enumerate(cells):
        read = {n.id for n in ast.walk(ast.parse(source)) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Load)}
        for name in read & set(made):
            run = [c for j, c in enumerate(cells[:i]) if j != made[name]]  # that cell was skipped
            if sum(c in run for c in cells[1:]) < 2:
                continue  # nothing says which notebook it is
            told = where(name, [*run, "", source + mine])
            first = cells[made[name]].splitlines()[0]
            assert f'begins with "{first}"' in told, name
            assert "\n" not in told
            asked += 1
        made |= {n: i for n in missing_names._made(source) if not hasattr(builtins, n)}
    assert asked > 25


def test_what_no_cell_makes_is_not_explained():
    cells = sources(FILES[4])
    assert where("residula", cells[:5]) is None
    assert where(None, cells[:5]) is None
    assert where("print", cells[:5]) is None
    assert where("target_table", ["1 + target_table"]) is None  # no cell of the course was run: some other notebook
    assert where("target_table", []) is None
    assert where("target_table", cells[:1]) is None  # the set-up cell is the same everywhere: which notebook is it?
    own = "target_table[0]  # a cell of one's own"
    assert "A chain of draft tokens" in where("target_table", [*cells[2:4], own])


def test_a_heading_in_code_is_no_heading(tmp_path, monkeypatch):
    book = nbformat.v4.new_notebook()
    book.cells = [
        nbformat.v4.new_code_cell("print(sl.setup_line(pair))"),
        nbformat.v4.new_markdown_cell("## The heading\n\n```python\n# a comment\n```"),
        nbformat.v4.new_code_cell("%timeit 1"),
        nbformat.v4.new_code_cell("x = 1"),
        nbformat.v4.new_markdown_cell("## Another"),
        nbformat.v4.new_code_cell("x + 1"),
    ]
    nbformat.write(book, tmp_path / "00_a.ipynb")
    monkeypatch.setattr(missing_names, "NOTEBOOKS", tmp_path)
    assert 'below "The heading" that begins with "x = 1"' in where("x", ["x + 1"])
    # What else may lie in the folder: an empty file, another's notebook, notes, and a copy.
    (tmp_path / "11_mine.ipynb").write_text("")
    (tmp_path / "12_mine.ipynb").write_text("[1]")
    nbformat.write(nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell("x + 1")]), tmp_path / "13_other.ipynb")
    nbformat.write(nbformat.v4.new_notebook(cells=[nbformat.v4.new_markdown_cell("notes")]), tmp_path / "00_0.ipynb")
    nbformat.write(book, tmp_path / "00_a-Copy1.ipynb")
    assert 'below "The heading" that begins with "x = 1"' in where("x", ["x + 1"])
    monkeypatch.setattr(missing_names, "NOTEBOOKS", tmp_path / "none")  # installed without the notebooks
    assert where("x", ["x + 1"]) is None


def test_a_name_made_by_the_failing_cell_itself_or_below_is_not_explained():
    cells = sources(FILES[3])
    at = next(i for i, c in enumerate(cells) if "def residual(" in c)
    for edited in (cells[at], cells[at].replace("def residual(", "def my_residual(")):
        assert where("residual", [*cells[:at], edited]) is None


def test_outside_a_notebook_nothing_happens():
    explain_missing_names()
    with pytest.raises(NameError, match=r"^name 'x_' is not defined$"):
        x_  # noqa: F821, B018


def test_in_a_kernel():
    """Notebook 04 with its second cell skipped: each cell that fails says which one it needs, and others still run."""
    book = nbformat.read(FILES[4], 4)
    code = [cell for cell in book.cells if cell.cell_type == "code"]
    own = [
        "misspelt",
        "def f():\n    n_ += 1\nf()",
        "def f():\n    g = lambda: draft_table\n    g()\n    draft_table = 1\nf()",
    ]
    own += ["draft_table", "(lambda: draft_table)()", "In = None\ndraft_table"]
    book.cells = [code[0], *code[2:8], *map(nbformat.v4.new_code_cell, own)]
    NotebookClient(book, timeout=120, allow_errors=True, resources={"metadata": {"path": str(NOTEBOOKS)}}).execute()
    errors = [next((o for o in cell.outputs if o.output_type == "error"), None) for cell in book.cells]
    assert errors[0] is None
    for cell, error in zip(book.cells[1:7], errors[1:7], strict=True):
        if error is not None:
            assert error.ename == "NameError", cell.source
            assert "It is made in the cell below" in error.evalue
            assert error.evalue in "\n".join(error.traceback)
    assert errors[1] is not None
    assert [error.ename for error in errors[7:]] == ["NameError", "UnboundLocalError", *["NameError"] * 4]
    for error in (*errors[7:10], errors[12]):
        assert "made in" not in error.evalue
    for error in errors[10:12]:
        said = "name 'draft_table' is not defined. It is made in the cell below \"A chain of draft tokens\""
        assert error.evalue.startswith(said)
    assert not any("unregistering" in o.get("text", "") for cell in book.cells for o in cell.outputs)


class Handled(Exception):
    """An exception that the user's own handler is for."""


@pytest.fixture
def shell():
    from IPython.testing.globalipapp import start_ipython

    found = start_ipython() or sys.modules["IPython"].get_ipython()
    before = found.custom_exceptions, found.CustomTB
    yield found
    found.custom_exceptions, found.CustomTB = before


@pytest.mark.parametrize("kinds", [(Handled,), (NameError,), (Exception,), (Handled, KeyError)])
def test_a_handler_that_was_there_before_still_gets_its_exceptions(shell, kinds, monkeypatch):
    """Right: its kinds reach it, also after the set-up cell ran twice, and a NameError arrives with the explanation."""
    got, shown = [], []
    shell.set_custom_exc(kinds, lambda self, kind, error, trace, tb_offset=None: got.append(error))
    monkeypatch.setattr(shell, "showtraceback", lambda *a, **k: shown.append(a[0][1] if a else sys.exc_info()[1]))
    monkeypatch.setattr(missing_names, "where", lambda name, run: f"{name} is made elsewhere.")
    explain_missing_names()
    explain_missing_names()
    shell.user_ns["Handled"] = Handled
    for source, kind in (
        ("raise Handled", Handled),
        ("p_", NameError),
        ("{}[0]", KeyError),
        ("1 / 0", ArithmeticError),
    ):
        shell.run_cell(source)
        (error,) = got + shown
        assert isinstance(error, kind) and (error in got) == isinstance(error, kinds), source
        if kind is NameError:
            assert str(error) == "name 'p_' is not defined. p_ is made elsewhere."
        got.clear(), shown.clear()


def test_a_second_set_up_sets_no_second_handler(shell):
    explain_missing_names()
    first = shell.CustomTB
    explain_missing_names()
    assert shell.CustomTB is first
