"""What every committed notebook must be like, and that its set-up cell works where a reader opens it.

nbval compares the outputs. It does not notice a notebook whose outputs are missing, or whose cells are mostly exempt;
these rules do. Each is a function from a notebook to its complaints, and each is shown a notebook that breaks it.
"""

from __future__ import annotations

import ast
import copy
import math
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import nbformat
import pytest
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook, new_output

from tests.helpers.browser import names
from tests.helpers.notebooks import FILES, code
from tests.helpers.paths import ROOT
from tools import lengths, stamp

REASONS = {"reason-timing", "reason-widget", "reason-versions"}
# Digits that grow apart from machine to machine: of what was trained, and of means over many sampled texts, in one of
# which a draw may go the other way.
REASONS |= {"reason-training", "reason-rounding"}
EXEMPT = {"nbval-ignore-output", "nbval-skip", "nbval-raises-exception", "raises-exception"}
Book = nbformat.NotebookNode


# ---------------------------------------------------------------- the rules


def tags(cell: Book) -> set[str]:
    return set(cell.metadata.get("tags", []))


def where(cell: Book) -> str:
    return repr(cell.source.strip().splitlines()[0]) if cell.source.strip() else "an empty cell"


def output_texts(cell: Book) -> Iterator[str]:
    for output in cell.outputs:
        if "text" in output:
            yield output.text
        for kind, value in output.get("data", {}).items():
            if isinstance(value, str) and not kind.startswith("image/"):
                yield value


def executed_in_order(book: Book) -> list[str]:
    counts = [cell.execution_count for cell in code(book)]
    return [] if counts == list(range(1, len(counts) + 1)) else [f"execution counts are {counts}"]


def no_stderr(book: Book) -> list[str]:
    return [f"stderr below {where(c)}" for c in code(book) for o in c.outputs if o.get("name") == "stderr"]


def no_errors(book: Book) -> list[str]:
    cells = [c for c in code(book) if "raises-exception" not in tags(c)]
    return [f"an error below {where(c)}" for c in cells for o in c.outputs if o.output_type == "error"]


def plain_kernel(book: Book) -> list[str]:
    name = book.metadata.get("kernelspec", {}).get("name")
    return [] if name == "python3" else [f"the kernel is {name!r}, not 'python3'"]


def no_widget_state(book: Book) -> list[str]:
    return ["metadata.widgets is stored"] if "widgets" in book.metadata else []


def no_addresses(book: Book) -> list[str]:
    path = r"(?<![\w/:.<~-])/(?:[\w.-]+/)+[\w.-]+|\b[A-Z]:\\\w"  # /a/b, but not a URL's, nor </td>
    wrong = re.compile(rf"\b0x[0-9a-fA-F]{{6,}}|{path}")
    found = [(match[0], cell) for cell in code(book) for text in output_texts(cell) for match in wrong.finditer(text)]
    return [f"{address} in the output of {where(cell)}" for address, cell in found]


def no_svg(book: Book) -> list[str]:
    return [f"an svg below {where(c)}" for c in code(book) for o in c.outputs if "image/svg+xml" in o.get("data", {})]


def few_exempt(book: Book) -> list[str]:
    shown = [cell for cell in code(book) if cell.outputs]
    exempt = [cell for cell in shown if EXEMPT & tags(cell)]
    allowed = math.ceil(len(shown) / 5)
    return [] if len(exempt) <= allowed else [f"{len(exempt)} of {len(shown)} cells with output are exempt"]


def exempt_for_a_reason(book: Book) -> list[str]:
    silent = {"nbval-ignore-output", "nbval-skip"}
    cells = [cell for cell in code(book) if silent & tags(cell) and not REASONS & tags(cell)]
    return [f"no reason tag ({', '.join(sorted(REASONS))}) on {where(cell)}" for cell in cells]


def tags_not_comments(book: Book) -> list[str]:
    wrong = re.compile(r"^\s*#\s*(NBVAL_|PYTEST_VALIDATE)", re.MULTILINE)
    return [f"an nbval comment in {where(cell)}" for cell in code(book) if wrong.search(cell.source)]


def no_semicolon(book: Book) -> list[str]:
    return [f"{where(cell)} ends in a semicolon" for cell in code(book) if cell.source.rstrip().endswith(";")]


def generators_of_their_own(book: Book) -> list[str]:
    """A cell that draws from another's generator prints other numbers when it alone is run again."""
    made, found = set(), []
    for cell in code(book):
        try:
            tree = ast.parse(cell.source)
        except SyntaxError:  # a magic
            continue
        names = [node for node in ast.walk(tree) if isinstance(node, ast.Name)]
        own = {node.id for node in names if isinstance(node.ctx, ast.Store)}
        own |= {node.arg for node in ast.walk(tree) if isinstance(node, ast.arg)}
        found += [f"{where(cell)} draws from {name} of another" for name in made & {n.id for n in names} - own]
        for node in tree.body:
            if isinstance(node, ast.Assign) and re.match(r"(torch\.Gen|sl\.Random)\w+\(", ast.unparse(node.value)):
                made |= {node.id for target in node.targets for node in ast.walk(target) if isinstance(node, ast.Name)}
    return found


def no_empty_cell(book: Book) -> list[str]:
    return ["an empty cell"] if any(not cell.source.strip() for cell in book.cells) else []


def short_cells(book: Book) -> list[str]:
    cells = [cell for cell in code(book) if len(cell.source.splitlines()) > 30]
    return [f"{where(cell)} has {len(cell.source.splitlines())} lines" for cell in cells]


def text_between(book: Book) -> list[str]:
    pairs = zip(book.cells, book.cells[1:], strict=False)
    return [f"no text before {where(b)}" for a, b in pairs if a.cell_type == b.cell_type == "code"]


def header(book: Book) -> list[str]:
    first = book.cells[0]
    if first.cell_type != "markdown" or not re.match(r"# \d\d · \S", first.source):
        return ["the first cell is not a title like '# 00 · Tour'"]
    missing = [word for word in ("<!-- badge -->", "<!-- time -->", "**You will**") if word not in first.source]
    return [f"the header has no {', no '.join(missing)}"] if missing else []


def one_setup_cell(book: Book) -> list[str]:
    cells = [cell for cell in code(book) if "setup" in tags(cell)]
    if len(cells) != 1 or cells[0] is not code(book)[0]:
        return ["the first code cell, and no other, carries the tag 'setup'"]
    lines = len([line for line in cells[0].source.splitlines() if line])
    return [] if lines <= 8 else [f"the set-up cell has {lines} lines"]


def core_fits_a_class(book: Book) -> list[str]:
    """As counted, exercises included: the tour takes a quarter of an hour, every other core at most forty minutes."""
    core, _ = lengths.measure(book)
    most = 15 if book.cells[0].source.startswith("# 00") else 40
    return [] if core.minutes <= most else [f"the core takes {core.minutes:.1f} minutes, more than {most}"]


def core_before_options(book: Book) -> list[str]:
    """The summary and the questions close the core; each optional part states its minutes."""
    text = "\n".join(cell.source for cell in book.cells if cell.cell_type == "markdown")
    headings = re.findall(r"(?m)^#{2,3} .+$", text)
    if lengths.OPTIONAL not in headings:
        return []
    after = headings[headings.index(lengths.OPTIONAL) + 1 :]
    found = [f"{name} comes after the optional parts" for name in ("## Summary", "## Questions") if name in after]
    return found + [f"{h!r} has no minutes" for h in after if h.startswith("### ") and not lengths.HEADING.match(h)]


def numbers_not_verdicts(book: Book) -> list[str]:
    """A printed line that ends in True or False hides what happened."""
    lines = [line for cell in code(book) for text in output_texts(cell) for line in text.splitlines()]
    return [f"a verdict without its number: {line}" for line in lines if re.search(r"\b(True|False)\.?$", line.strip())]


def widgets_have_a_picture(book: Book) -> list[str]:
    """Where no kernel runs, a widget shows nothing: a figure or a text of the same thing stands right before it."""
    found = []
    for i, cell in enumerate(book.cells):
        if cell.cell_type == "code" and any("widget-view" in kind for o in cell.outputs for kind in o.get("data", {})):
            near = [c for c in book.cells[max(0, i - 4) : i + 1] if c.cell_type == "code"]
            kinds = {kind for c in near for o in c.outputs for kind in o.get("data", {})}
            if not kinds & {"image/png", "text/html"}:
                found.append(f"no picture before the widget of {where(cell)}")
    return found


def no_bare_widget(book: Book) -> list[str]:
    """GitHub shows a saved widget's text, which by itself is a list of its parts."""
    texts = [(cell, str(o.get("data", {}).get("text/plain", ""))) for cell in code(book) for o in cell.outputs]
    return [f"a bare widget below {where(cell)}" for cell, text in texts if re.match(r"\w+\((children|value)=", text)]


def words_of_the_field(book: Book) -> list[str]:
    """The first edition had words of its own, which a reader could not search for."""
    wrong = re.compile(
        r"(?i)\b(laws?(?! of large numbers)|judged?|redrawn|textbook's|guess(es)? (stands?|falls?|fell|stood)|"
        r"tokens a pass|thrown out)\b"
    )
    cells = [cell for cell in book.cells if cell.cell_type == "markdown"]
    return [f"{match[0]!r} in {where(cell)}" for cell in cells for match in wrong.finditer(cell.source)]


def timings_decide_nothing(book: Book) -> list[str]:
    """An assertion about a timing may ask whether there is one (> 0), never which is larger: some machine differs."""
    found = []
    for cell in code(book):
        if "reason-timing" not in tags(cell):
            continue
        for check in (n for n in ast.walk(ast.parse(cell.source)) if isinstance(n, ast.Assert)):
            for compared in (n for n in ast.walk(check.test) if isinstance(n, ast.Compare)):
                positive = isinstance(compared.ops[0], ast.Gt) and ast.unparse(compared.comparators[0]) == "0"
                if not positive and not isinstance(compared.ops[0], (ast.Eq, ast.In)):
                    found.append(f"a timing decides: {ast.unparse(compared)}")
    return found


def no_install(book: Book) -> list[str]:
    wrong = re.compile(r"\b(pip3?|conda|mamba|uv)\s+(\S+\s+)*?(install|add)\b")
    return [f"an install in {where(cell)}" for cell in code(book) if wrong.search(cell.source)]


def exports_to_html(book: Book) -> list[str]:
    from nbconvert import HTMLExporter

    try:
        page, _ = HTMLExporter().from_notebook_node(book)
    except Exception as error:
        return [f"nbconvert fails: {error}"]
    return [] if all(line in page for line in ("<html", "</html>")) else ["nbconvert writes no page"]


def same_setup(books: list[Book]) -> list[str]:
    sources = {cell.source for book in books for cell in code(book) if "setup" in tags(cell)}
    return [] if len(sources) == 1 else [f"there are {len(sources)} different set-up cells"]


RULES = [
    executed_in_order,
    no_stderr,
    no_errors,
    plain_kernel,
    no_widget_state,
    no_addresses,
    no_svg,
    few_exempt,
    exempt_for_a_reason,
    tags_not_comments,
    no_semicolon,
    generators_of_their_own,
    no_empty_cell,
    short_cells,
    text_between,
    header,
    one_setup_cell,
    core_fits_a_class,
    core_before_options,
    numbers_not_verdicts,
    widgets_have_a_picture,
    no_bare_widget,
    words_of_the_field,
    timings_decide_nothing,
    no_install,
    exports_to_html,
]


# ---------------------------------------------------------------- the notebooks keep them


def test_there_are_notebooks():
    assert FILES and all(re.match(r"\d\d_\w+\.ipynb", file.name) for file in FILES)


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.__name__)
@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_notebook(file: Path, rule: Callable):
    assert rule(nbformat.read(file, as_version=4)) == []


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_notebook_is_valid_and_bears_its_number(file: Path):
    book = nbformat.read(file, as_version=4)
    nbformat.validate(book)
    assert book.cells[0].source.startswith(f"# {file.name[:2]} · ")


def test_set_up_cells_are_the_same():
    assert same_setup([nbformat.read(file, as_version=4) for file in FILES]) == []


# ---------------------------------------------------------------- each rule can fail


def good() -> Book:
    """A notebook that keeps all the rules: a set-up cell and five more, each with an output."""
    head = "# 00 · Tour\n\n<!-- badge -->\n\n<!-- /badge -->\n\n**You will** look.\n\n<!-- time -->\n\n<!-- /time -->"
    cells = [new_markdown_cell(head)]
    for count in range(1, 7):
        text = "https://a.org/b/c/d <td>1/2</td> and/or/not 3 / 4\n"
        cell = new_code_cell(f"print({count})", execution_count=count, outputs=[new_output("stream", text=text)])
        cells += [cell, new_markdown_cell("This output says it.")]
    cells[1].metadata.tags = ["setup", "nbval-ignore-output", "reason-versions"]
    kernel = {"name": "python3", "display_name": "Python 3", "language": "python"}
    return new_notebook(cells=cells, metadata={"kernelspec": kernel})


def prints(text: str, name: str = "stdout") -> Callable[[Book], object]:
    return lambda book: book.cells[3].outputs.append(new_output("stream", name=name, text=text))


def shows(kind: str, value: str) -> Callable[[Book], object]:
    return lambda book: book.cells[3].outputs.append(new_output("display_data", {kind: value}))


def says(source: str, cell: int = 3) -> Callable[[Book], object]:
    return lambda book: book.cells[cell].update(source=source)


def tagged(*names: str, cells: tuple[int, ...] = (3,)) -> Callable[[Book], object]:
    return lambda book: [book.cells[i].metadata.update(tags=list(names)) for i in cells]


def timed(source: str) -> Callable[[Book], object]:
    return lambda book: book.cells[3].update(source=source) or book.cells[3].metadata.update(tags=["reason-timing"])


BREAKS = [
    (executed_in_order, lambda book: book.cells[3].update(execution_count=None)),
    (executed_in_order, lambda book: book.cells[3].update(execution_count=9)),
    (no_stderr, prints("UserWarning: beware", name="stderr")),
    (no_errors, lambda book: book.cells[3].outputs.append(new_output("error", ename="E", evalue="", traceback=[]))),
    (plain_kernel, lambda book: book.metadata.kernelspec.update(name="my-venv")),
    (no_widget_state, lambda book: book.metadata.update(widgets={})),
    (no_addresses, prints("<Thing at 0x7f3a5c0d1e80>")),
    (no_addresses, prints("saved to /home/ada/course/figure.png")),
    (no_addresses, prints("'C:\\Users'")),
    (no_addresses, shows("text/html", '<img src="/usr/share/a.png">')),
    (no_svg, shows("image/svg+xml", "<svg></svg>")),
    (few_exempt, tagged("nbval-ignore-output", "reason-timing", cells=(3, 5))),
    (few_exempt, tagged("nbval-skip", "reason-timing", cells=(3, 5))),
    (exempt_for_a_reason, tagged("nbval-ignore-output")),
    (tags_not_comments, says("# NBVAL_IGNORE_OUTPUT\nprint(2)")),
    (no_semicolon, says("plt.plot(x);\n")),
    (
        generators_of_their_own,
        lambda book: [
            book.cells[3].update(source="g = torch.Generator().manual_seed(0)"),
            book.cells[5].update(source="x = torch.rand(3, generator=g)"),
        ],
    ),
    (no_empty_cell, says("\n", cell=4)),
    (short_cells, says("x = 1\n" * 31)),
    (text_between, lambda book: book.cells.pop(4)),
    (header, says("# The tour", cell=0)),
    (header, says("# 00 · Tour\n\nNo badge.", cell=0)),
    (header, lambda book: book.cells[0].update(source=book.cells[0].source.replace("<!-- time -->", ""))),
    (core_fits_a_class, says("word " * 3001, cell=2)),
    (core_before_options, says("## Going further (optional)\n\n## Summary", cell=2)),
    (core_before_options, says("## Going further (optional)\n\n### A part", cell=2)),
    (numbers_not_verdicts, prints("the two are equal: True\n")),
    (widgets_have_a_picture, shows("application/vnd.jupyter.widget-view+json", "{}")),
    (no_bare_widget, shows("text/plain", "VBox(children=(HBox(),))")),
    (words_of_the_field, says("The law of the text.", cell=2)),
    (words_of_the_field, says("It writes three tokens a pass.", cell=2)),
    (header, lambda book: book.cells.pop(0)),
    (one_setup_cell, tagged("setup")),
    (timings_decide_nothing, timed("assert slow > fast")),
    (timings_decide_nothing, timed("assert ratio >= 1")),
    (timings_decide_nothing, timed("x = 1\nassert len(x) == 3 and all(a < b for a in x)")),
    (one_setup_cell, tagged(cells=(1,))),
    (one_setup_cell, says("x = 1\n" * 9, cell=1)),
    (no_install, says("!pip install -q torch")),
    (no_install, says("%pip --quiet install torch")),
    (exports_to_html, lambda book: book.cells[3].update(outputs=[nbformat.from_dict({"output_type": "stream"})])),
]


def test_the_good_notebook_keeps_every_rule():
    assert [complaint for rule in RULES for complaint in rule(good())] == []
    assert same_setup([good(), good()]) == []


def test_every_rule_is_shown_to_fail():
    assert {rule for rule, _ in BREAKS} == set(RULES)


@pytest.mark.parametrize("rule, spoil", BREAKS, ids=[f"{rule.__name__}-{i}" for i, (rule, _) in enumerate(BREAKS)])
def test_rule_can_fail(rule: Callable, spoil: Callable):
    book = good()
    spoil(book)
    assert rule(book)


def test_a_set_up_cell_of_its_own_is_noticed():
    other = good()
    other.cells[1].source += "\n"
    assert same_setup([good(), other])


# ---------------------------------------------------------------- the set-up cell, where readers open it


@pytest.fixture
def publish(tmp_path: Path) -> Callable[[], str]:
    """A local repository with what a reader would fetch; returns its address."""

    def make() -> str:
        work = tmp_path / "published"
        ignored = shutil.ignore_patterns("__pycache__", ".*")
        for folder in ("spec_lib", "notebooks"):
            shutil.copytree(ROOT / folder, work / folder, ignore=ignored)
        git = ["git", "-C", str(work), "-c", "user.name=a", "-c", "user.email=a@b.c", "-c", "commit.gpgsign=false"]
        for words in (["init", "-q"], ["checkout", "-q", "-b", "main"], ["add", "."], ["commit", "-q", "-m", "course"]):
            subprocess.run([*git, *words], check=True)
        return work.as_uri()

    return make


@pytest.fixture
def colab(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder and an environment whose kernels look like Colab's; git writes down what it is asked."""
    package = tmp_path / "standin" / "google" / "colab"
    package.mkdir(parents=True)
    for folder in (package, package.parent):
        (folder / "__init__.py").touch()
    (tmp_path / "standin" / "sitecustomize.py").write_text("import google.colab\n")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "standin"))
    monkeypatch.setenv("GIT_TRACE", str(tmp_path / "git.log"))
    for name, value in {"OMP_NUM_THREADS": "1", "SPEC_PAIR": "tiny", "HF_HUB_OFFLINE": "1"}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.delenv("MPLBACKEND", raising=False)
    content = tmp_path / "content"
    content.mkdir()
    return content


def clones(folder: Path) -> int:
    log = folder.parent / "git.log"
    return log.read_text().count("built-in: git clone") if log.exists() else 0


def opened(file: Path, address: str, code_cells: int) -> Book:
    """The notebook's first cells, as if the course were published at this address."""
    book = nbformat.read(file, as_version=4)
    setup = code(book)[0]
    setup.source = stamp.setup(address, "main")
    last = code(book)[:code_cells][-1]
    book.cells = book.cells[: book.cells.index(last) + 1]
    return book


def execute(book: Book, folder: Path) -> Book:
    from nbclient import NotebookClient

    client = NotebookClient(book, timeout=300, kernel_name="python3", resources={"metadata": {"path": str(folder)}})
    return client.execute()


def printed(cell: Book) -> str:
    return "".join(output.get("text", "") for output in cell.outputs)


@pytest.mark.skipif(os.name == "nt", reason="stands in for Colab, which is Linux")
def test_a_notebook_runs_alone_on_colab(publish, colab):
    book = opened(FILES[-1], publish(), code_cells=5)
    again = copy.deepcopy(code(book)[0])
    again.id = "again"
    book.cells.insert(book.cells.index(code(book)[0]) + 1, again)
    check = "print(os.path.relpath(os.path.dirname(sl.__file__)))"
    book.cells.append(new_code_cell(check))
    execute(book, colab)
    assert clones(colab) == 1
    assert [path.name for path in colab.iterdir()] == ["speculative-sampling"]
    first, second, *rest = code(book)
    assert printed(first) == printed(second) and len(printed(first).splitlines()) == 1
    assert printed(rest[-1]).strip() == "speculative-sampling/spec_lib", "the library is the fetched one"
    assert [o for cell in code(book) for o in cell.outputs if o.get("name") == "stderr"] == []


@pytest.mark.skipif(os.name == "nt", reason="stands in for Colab, which is Linux")
def test_a_repository_out_of_reach_gets_one_sentence(colab):
    from nbclient.exceptions import CellExecutionError

    address = (colab.parent / "nowhere").as_uri()
    with pytest.raises(CellExecutionError) as caught:
        book = opened(FILES[0], address, code_cells=1)
        forget = (
            "import sys\nsys.path[:] = [p for p in sys.path if not os.path.isdir(p + '/spec_lib')]  # of the .venv\n"
        )
        code(book)[0].source = f"import os\n{forget}{code(book)[0].source}"
        execute(book, colab)
    assert caught.value.ename == "ModuleNotFoundError"
    assert f"not found? Open this notebook in a clone of {address}" in str(caught.value)
    assert clones(colab) == 1 and list(colab.iterdir()) == []


@pytest.mark.parametrize("place", ["notebooks", "."])
def test_at_home_the_library_is_found_without_git(tmp_path, monkeypatch, place):
    """Only the search, with a stand-in for the library: from the notebooks' folder and above it."""
    (tmp_path / "spec_lib").mkdir()
    (tmp_path / "spec_lib" / "__init__.py").write_text("def load_pair(): ...\ndef setup_line(pair): return 'found'\n")
    (tmp_path / place).mkdir(parents=True, exist_ok=True)
    source = code(nbformat.read(FILES[0], as_version=4))[0].source
    monkeypatch.setenv("PATH", str(tmp_path))  # no git to be found
    monkeypatch.delenv("PYTHONPATH", raising=False)

    command = [sys.executable, "-c", f"{source}\nprint(sl.__file__)"]
    done = subprocess.run(command, cwd=tmp_path / place, capture_output=True, text=True)
    assert done.stderr == ""
    assert done.stdout.splitlines() == ["found", str(tmp_path / "spec_lib" / "__init__.py")]


# --- the pages beside the notebooks ----------------------------------------------------------------------------------


def rows_of(page: str, columns: int) -> list[list[str]]:
    """The cells of every table row of a page that has so many columns."""
    lines = [line for line in page.splitlines() if line.startswith("|")]
    return [cells for line in lines if len(cells := [cell.strip() for cell in line.strip("|").split("|")]) == columns]


def sections_of(book: Book) -> dict[str, tuple[lengths.Length, list[int]]]:
    """Per heading of a notebook: what was counted below it, and the numbers of its code cells."""
    found, now = {}, None
    for index, cell in enumerate(book.cells):
        if cell.cell_type == "code":
            if now and "setup" not in cell.metadata.get("tags", []):
                found[now][0].add_code(cell.source)
                found[now][1].append(index)
            continue
        for piece in re.split(r"(?m)^(?=#{2,3} )", lengths.unfenced(cell.source)):
            if heading := re.match(r"#{2,3} (.+)", piece):
                now = heading[1].split(" · ")[0]
                found[now] = (lengths.Length(), [])
            if now:
                found[now][0].add(piece)
    return found


def named(words: str, sections: dict) -> list[str]:
    """The sections whose names stand in italics in a teacher's plan."""
    return [name for name in re.findall(r"\*([^*]+)\*", " ".join(words.split())) if name in sections]


def missing_sections(book: Book, shown: list[str]) -> set[str]:
    """The sections that make a name which a code cell of the shown ones reads, and which are not shown."""
    sections = sections_of(book)
    home = {index: name for name, (_, cells) in sections.items() for index in cells}
    run, missing = [index for name in shown for index in sections[name][1]], set()
    uses = {index: names(book.cells[index].source) for index in home}
    for index in run:
        for name in uses[index][0] - uses[index][1]:
            makers = [i for i in home if i < index and name in uses[i][1]]
            missing |= {home[makers[-1]]} if makers and not set(makers) & set(run) else set()
    return missing


def test_the_teachers_plans_name_sections_that_exist_and_keep_to_their_minutes():
    page = (ROOT / "notebooks" / "TEACHING.md").read_text(encoding="utf-8")
    books = {file.name[:2]: nbformat.read(file, 4) for file in FILES}
    texts = {number: " ".join(c.source for c in book.cells) for number, book in books.items()}
    plan = [row for row in rows_of(page, 4) if row[0].isdigit()]
    minutes = [int(row[0]) for row in plan]
    assert minutes == sorted(minutes) and minutes[0] == 0 and minutes[-1] < 90 and len(plan) > 5
    for _, number, *what in plan:
        for name in re.findall(r"\*([^*]+)\*", " ".join(what)):
            assert name.lower() in texts[number].lower(), f"{number}: there is no {name!r}"
    afternoon = rows_of(page, 5)[2:]
    spent = [sum(int(x) for x in re.findall(r"\d+", row[2])) for row in afternoon]
    assert sum(spent) == 240
    planned = {n for row in afternoon for n in re.findall(r"\b\d\d\b", row[1])}
    assert planned | set(re.findall(r"\d\d", re.search(r"\((Notebooks .*) are not in it", page)[1])) == set(texts)


def test_the_cells_of_the_teachers_short_plan_have_what_they_need():
    """A row named *Five ways to break it*, and nobody had run the cells that make its rules."""
    page = (ROOT / "notebooks" / "TEACHING.md").read_text(encoding="utf-8")
    rows, shown = [row for row in rows_of(page, 4) if row[0].isdigit()], {}
    for row in rows:
        book = next(nbformat.read(file, 4) for file in FILES if file.name[:2] == row[1])
        before = shown.setdefault(row[1], [])
        before += [name for name in named(row[2], sections_of(book)) if name not in before]
        assert missing_sections(book, before) == set(), row
    assert {number: len(sections) for number, sections in shown.items()} == {"00": 5, "03": 6, "04": 5, "08": 4}
    assert "KV cache (notebook 01)" in FILES[6].read_text(encoding="utf-8") and "## The KV cache" in FILES[1].read_text(
        "utf-8"
    )
    assert re.search(r"Homework: \*The KV cache\* in 01, then the core of 06", page), (
        "06 begins with what 01 says of it"
    )
    needs = nbformat.read(FILES[4], 4)
    assert missing_sections(needs, ["Five ways to break it"]) >= {"Every way it can go"}


def test_what_the_afternoon_shows_fits_its_minutes():
    """Counted as in the headers: the sections that are named, without their exercises, and what is done in class."""
    page = (ROOT / "notebooks" / "TEACHING.md").read_text(encoding="utf-8")
    minutes, books = {}, {file.name[:2]: nbformat.read(file, 4) for file in FILES}
    for row in rows_of(page, 5)[2:]:
        minutes |= dict(zip(re.findall(r"\b\d\d\b", row[1]), map(int, re.findall(r"\d+", row[2])), strict=False))
    lists = dict(re.findall(r"(?m)^- (\d\d): ((?:.|\n  )+)$", page[page.index("show these sections") :]))
    # the minutes that the exercises of the fourth column state; for the ten claims of 00 and of 09, our own
    in_class = {"00": 3, "01": 5, "02": 6, "03": 5, "04": 3, "05": 0, "06": 4, "07": 10, "08": 7, "09": 3}
    for number, words in lists.items():
        sections = sections_of(books[number])
        shown = named(words, sections)
        assert len(shown) == words.count("*") / 2, f"{number}: a section of another name"
        reading = sum(sections[name][0].minutes - sections[name][0].exercises for name in shown)
        counted = reading + in_class[number]
        print(number, minutes[number], round(counted, 1))
        assert counted <= minutes[number], f"{number}: {counted:.1f} minutes in {minutes[number]}"
    for number in set(minutes) - set(lists):  # the whole core, without the exercises that are left for home
        core = lengths.measure(books[number])[0]
        assert core.minutes - core.exercises + in_class[number] <= minutes[number] + 0.5, number  # all but rounding


def test_the_handout_has_the_numbers_of_the_notebooks():
    page = (ROOT / "notebooks" / "HANDOUT.md").read_text(encoding="utf-8")
    sources = {file.name[:2]: "\n".join(c.source for c in code(nbformat.read(file, 4))) for file in FILES}
    answers = " ".join(page.split("## Answers")[1].split())
    row = {cells[0]: cells[1:] for cells in rows_of(page, 4)}
    p, q = ([float(x) for x in row[name]] for name in "pq")
    assert f"p = torch.tensor({p}" in sources["03"] and f"q = torch.tensor({q}" in sources["03"]
    ratios = [a / b for a, b in zip(p, q, strict=True)]
    both = [min(a, b) for a, b in zip(p, q, strict=True)]
    said = lambda numbers: " ".join(f"{round(x, 3):g}".lstrip("0") or "0" for x in numbers)  # noqa: E731
    assert f"ratios {said(ratios).replace(' ', ', ')}; M {max(ratios):g}, one try {said([1 / max(ratios)])};" in answers
    assert f"accepted {said(both)}, in all {said([sum(both)])}; missing" in answers
    assert f"missing {said(round(a - b, 9) for a, b in zip(p, both, strict=True))}," in answers
    assert f"accepted alone {said(x / sum(both) for x in both)};" in answers
    four = {cells[0]: cells[1:] for cells in rows_of(page, 5) if cells[0] in ("p", "q") or "sampler" in cells[0]}
    for name in "pq":
        assert f"{name}4 = torch.tensor({[float(x) for x in four[name]]}" in sources["03"]
    for name in "ABC":
        assert f'"{name}": {[int(x) for x in four[f"sampler {name}"]]}' in sources["03"]
    tables = [cells for cells in rows_of(page, 9) if cells[0] in ("**a**", "**b**", "**c**")]
    for start, name in ((1, "target_table"), (6, "draft_table")):
        assert (
            f"{name} = torch.tensor({[[float(x) for x in cells[start : start + 3]] for cells in tables]}"
            in sources["04"]
        )
    clinic = next(c for c in code(nbformat.read(FILES[7], 4)) if "clinic.report(examined)" in c.source)
    examined = [line.replace(" (0.92)", "").replace("0.", ".").split() for line in printed(clinic).splitlines()[1:7]]
    head, _, *tests = rows_of(page, 7)
    assert [list(column) for column in zip(head[1:], *(cells[1:] for cells in tests), strict=True)] == examined
    assert tests[-1][0] == "share (the rule says .92)" and printed(clinic).count("(0.92)") == 6
    diagnosis = dict(re.findall(r"([A-F]) (\d)", answers.split("4:")[1]))
    book = "\n".join(c.source for c in nbformat.read(FILES[7], 4).cells)
    assert f'return "{"".join(diagnosis[name] for name in "ABCDEF")}"' in book


@pytest.mark.parametrize(
    "name",
    ["TEACHING.md", "READING.md", "RUNNING.md", "ENGINES.md", "../README.md", "../CONTRIBUTING.md",
     "../spec_lib/README.md"],
)  # fmt: skip
def test_local_links_lead_somewhere(name):
    page = (ROOT / "notebooks" / name).read_text(encoding="utf-8")
    links = [link for link in re.findall(r"\]\(([^)]+)\)", page) if not link.startswith("http")]
    assert links or name in ("HANDOUT.md", "../CONTRIBUTING.md")
    for link in links:
        assert ((ROOT / "notebooks" / name).parent / link).exists(), link


# --- every notebook, unattended -------------------------------------------------------------------------------------


@pytest.mark.reported
def test_every_notebook_is_looked_at():
    """Widget metadata without its state made a notebook unreadable on one site and in nbconvert.

    Right: the rules above see every notebook of the repository, and complain of each broken form, though
    the format's own validation passes it.
    """
    here = {f for f in ROOT.rglob("*.ipynb") if not any(p.startswith(".") for p in f.relative_to(ROOT).parts)}
    assert here == set(FILES)
    kind = "application/vnd.jupyter.widget-state+json"
    for broken in ({}, {kind: {}}, {kind: {"version_major": 2, "version_minor": 0}}):
        book = good()
        book.metadata.widgets = nbformat.from_dict(broken)
        nbformat.validate(book)
        assert no_widget_state(book)


@pytest.mark.reported
@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_no_cell_waits_for_anybody_or_knows_one_computer(file):
    """Cells that wait for a key or a click never end unattended; absolute paths work on one computer only."""
    waits = re.compile(r"(?<![\w.])(?:input|getpass|breakpoint)\(|\bsleep\(|set_trace|ipdb")
    place = re.compile(r"""["'](?:/(?!\.\./)[\w.-]+/|~/|[A-Z]:\\)""")  # "/../.." behind a name is no address
    for cell in code(nbformat.read(file, as_version=4)):
        assert not waits.search(cell.source) and not place.search(cell.source), where(cell)
    assert waits.search("name = input('?')") and place.search("open('/content/drive')")
    assert not place.search('name + "/../.."')
