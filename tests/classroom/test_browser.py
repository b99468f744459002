"""Every widget of the course in a real browser, in JupyterLab and in Notebook 7, and on a teacher's screen.

Skipped where there is no Chromium; with COURSE_NEEDS_BROWSER set, as in CI, that is a failure.  One notebook is made
out of the course's own cells, those that the widgets need, and run in each application; the tests share it, and each
runs its widget's cell afresh.
"""

from __future__ import annotations

import base64
import io
import json
import os
import re
import time
from contextlib import ExitStack

import nbformat
import pytest
import torch
from nbformat.v4 import new_code_cell, new_notebook

from spec_lib import widgets
from tests.helpers.browser import APPS, ROOT, START, Page, Widget, browsing, missing, serving, widget_cells

CALLS = ("step_through", "overlap_explorer", "speed_explorer")
THEMES = ("JupyterLab Light", "JupyterLab Dark")
BOOKS = {file.name: nbformat.read(file, 4) for file in sorted((ROOT / "notebooks").glob("*.ipynb"))}
KERNEL = {"kernelspec": {"name": "python3", "display_name": "Python 3", "language": "python"}}
# What the kernel itself says the step-through has to show.
FRAMES = "import json\nimport pathlib\n\n"
FRAMES += 'pathlib.Path("frames.json").write_text(json.dumps(widgets.frames(pair, ids, g)), "utf-8")'


def code(book) -> list[str]:
    return [cell.source for cell in book.cells if cell.cell_type == "code"]


def made() -> tuple[nbformat.NotebookNode, dict[str, int]]:
    """A notebook with the cells of each widget, and where the widgets stand in it."""
    cells, at = [], {}
    for call in CALLS:
        book = next(book for book in BOOKS.values() if any(f"widgets.{call}(" in source for source in code(book)))
        cells += widget_cells(code(book), call)
        at[call] = len(cells) - 1
        cells += [FRAMES] if call == "step_through" else []
    at["show_text"] = next(i for i, source in enumerate(cells) if "show_text(" in source)
    return new_notebook(cells=[new_code_cell(source) for source in cells], metadata=KERNEL), at


@pytest.fixture(scope="module", params=APPS)
def page(request, tmp_path_factory):
    """The notebook, open and run."""
    app, folder = request.param, tmp_path_factory.mktemp(request.param)
    give_up = pytest.fail if os.environ.get("COURSE_NEEDS_BROWSER") else pytest.skip
    if lacking := missing(app):
        give_up(f"no browser test of {app}: {lacking}")
    from selenium.common import WebDriverException

    book, at = made()
    (folder / "work").mkdir()
    nbformat.write(book, folder / "work" / "widgets.ipynb")
    with ExitStack() as stack:
        try:
            driver = stack.enter_context(browsing(folder))
        except WebDriverException as error:
            give_up(f"no browser test of {app}: the browser does not start ({error.msg})")
        url = stack.enter_context(serving(app, folder)).format("widgets.ipynb")
        try:
            page = Page(driver, url)
        except (AssertionError, WebDriverException):  # a browser on a busy machine may hang: another one, once
            page = Page(stack.enter_context(browsing(folder)), url)
        page.app, page.at = app, at
        page.zoom(100)
        page.menu("Run", "Run All Cells")
        last = Widget(page, len(book.cells) - 1)
        page.until(lambda: last.all(".widget-html-content") or page.errors(), "the cells do not run", START)
        assert not page.errors()
        page.frames = json.loads((folder / "work" / "frames.json").read_text("utf-8"))
        yield page


def fresh(page: Page, call: str, runs: int = 1) -> Widget:
    for _ in range(runs):
        page.run_again(page.at[call])
    return Widget(page, page.at[call])


def alone(widget: Widget) -> bool:
    """One output and one view, whatever has been done to it, and no error anywhere."""
    outputs, views = widget.all(".jp-OutputArea-child"), widget.all(".jupyter-widgets.widget-vbox .widget-html-content")
    assert not widget.page.errors()
    return (len(outputs), len(views)) == (1, 1)


def shown(widget: Widget) -> dict[str, float]:
    return {label: float(number) for label, number in widget.numbers().items()}


# ---------------------------------------------------------------- without a browser


def test_no_widget_of_the_course_is_left_out():
    used = {call for book in BOOKS.values() for s in code(book) for call in re.findall(r"^widgets\.(\w+)\(", s, re.M)}
    assert used == set(CALLS)


def test_figures_have_a_ground_of_their_own():
    """A transparent one would leave black text on a dark theme's ground."""
    from PIL import Image

    outputs = [output for book in BOOKS.values() for cell in book.cells for output in cell.get("outputs", [])]
    images = [output.data["image/png"] for output in outputs if "image/png" in output.get("data", {})]
    assert len(images) > 10
    for image in images:
        picture = Image.open(io.BytesIO(base64.b64decode(image))).convert("RGBA")
        assert picture.getchannel("A").getextrema() == (255, 255)


def test_the_cells_of_a_widget_are_those_that_it_needs():
    cells = ["x = 1", "import a as x", "y = 2", "def f():\n    return x", "widgets.w(f())", "widgets.v(y)"]
    assert widget_cells(cells, "w") == ["import a as x", "def f():\n    return x", "widgets.w(f())"]


# ---------------------------------------------------------------- clicked through


def test_the_step_through(page):
    from selenium.webdriver import Keys

    widget, frames = fresh(page, "step_through"), page.frames
    n = len(frames)
    assert n > 8  # otherwise the steps below say little
    widget.shows(frames[0])
    for click, to in [("next", 1), ("next", 2), ("previous", 1), ("previous", 0), ("previous", 0), ("next", 1)]:
        widget.click(f"button[title={click}]")
        widget.shows(frames[to])
    widget.click(".widget-play button")  # play
    widget.shows(*frames[3:])
    widget.click(".widget-play button")  # the same button: pause
    time.sleep(1)  # what was on its way has arrived
    there = widget.shows(*frames[3:]) + 3
    time.sleep(2)  # longer than a frame lasts
    assert widget.shows(*frames) == there
    moves = [("END", n - 1), ("HOME", 0), ("PAGE_UP", 5), ("PAGE_DOWN", 0)]
    if page.app == "lab":  # Notebook 7 keeps the arrow keys for itself (7.6)
        moves += [("ARROW_RIGHT", 1), ("ARROW_RIGHT", 2), ("ARROW_LEFT", 1)]
    for key, to in moves:
        widget.press("round", getattr(Keys, key))
        widget.shows(frames[to])
        assert widget.numbers()["round"] == str(to + 1)
    widget.type("round", str(n))
    widget.shows(frames[-1])
    widget.click("button[title=next]")  # there is no further round
    widget.click("button[title=previous]")
    widget.shows(frames[-2])
    widget.all("button[title=next]")[0].send_keys(Keys.ENTER)
    widget.shows(frames[-1])
    assert alone(widget)


def test_the_overlap_explorer(page):
    from selenium.webdriver import Keys

    widget = fresh(page, "overlap_explorer")
    weights = shown(widget)
    labels = list(weights)
    assert labels == ["p a", "p b", "p c", "q a", "q b", "q c"]

    def right():
        a, b = torch.tensor(list(weights.values()), dtype=torch.float64).reshape(2, 3)
        widget.shows(widgets.explorer_page(a, b))
        assert shown(widget) == weights

    assert "accepted 0.70" in widget.text()
    right()
    for label, number in zip(labels, (0.85, 0.0, 0.4, 0.65, 0.1, 1.0), strict=True):
        widget.type(label, str(number))
        weights[label] = number
        right()
    for label in labels if page.app == "lab" else []:
        keys, step = (Keys.ARROW_LEFT, -0.05) if weights[label] > 0.5 else (Keys.ARROW_RIGHT, 0.05)
        widget.press(label, keys, keys)
        weights[label] = round(weights[label] + 2 * step, 2)
        right()
    for label in labels[3:]:
        widget.press(label, Keys.HOME)
        weights[label] = 0.0
        right()
    assert "at least one weight" in widget.text()
    widget.press("q b", Keys.END)
    weights["q b"] = 1.0
    right()
    assert alone(widget)


def test_the_speed_explorer(page):
    from selenium.webdriver import Keys

    widget = fresh(page, "speed_explorer")
    numbers = shown(widget)
    assert list(numbers) == ["alpha", "c", "further token"]

    def right():
        widget.shows(widgets.speed_page(*numbers.values()))
        assert shown(widget) == numbers

    assert "best gamma 3: 1.51 times as fast" in widget.text()
    right()
    for label, number in [("alpha", 0.9), ("c", 0.05), ("further token", 0.0225)]:
        widget.type(label, str(number))
        numbers[label] = number
        right()
    for label, step in [("alpha", 0.01), ("c", 0.001), ("further token", 0.0025)] if page.app == "lab" else []:
        widget.press(label, *[Keys.ARROW_LEFT] * 3)
        numbers[label] = round(numbers[label] - 3 * step, 4)
        right()
    widget.press("c", Keys.END)
    numbers["c"] = 1.0
    right()
    assert "loses" in widget.text()
    assert alone(widget)


@pytest.mark.parametrize("call", CALLS)
def test_a_cell_run_three_times_has_one_live_view(page, call):
    from selenium.webdriver import Keys

    widget = fresh(page, call, runs=3)
    assert alone(widget)
    if call == "step_through":
        widget.click("button[title=next]")
        widget.shows(page.frames[1])  # one handler, one step
        assert widget.numbers()["round"] == "2"
    else:
        before = widget.text()
        widget.press({"overlap_explorer": "p a", "speed_explorer": "alpha"}[call], Keys.END)
        page.until(lambda: widget.text() != before, "the view is dead")
    assert alone(widget)


# ---------------------------------------------------------------- a teacher's screen


@pytest.mark.parametrize("percent", [100, 150])
@pytest.mark.parametrize("theme", THEMES)
def test_text_stands_out_and_nothing_is_cut(page, theme, percent):
    """The contrast of all text is at least 4.5, as WCAG 2 asks (AA), and a window of 1280 pixels holds it all."""
    page.theme(theme)
    page.zoom(percent)
    settings = [(0.7, 0.077, 0.1075), (1.0, 0.0, 0.0), (1.0, 0.0, 1.0), (0.9, 0.05, 0.02), (0.0, 1.0, 1.0)]
    every = {"step_through": page.frames, "speed_explorer": [widgets.speed_page(*s) for s in settings]}
    for name, index in page.at.items():
        pages, found = every.get(name), {}

        def fits(index=index, pages=pages, found=found):  # the layout follows the window a moment later
            found.update(page.measure(index, pages))
            return not found["wide"]

        page.until(fits, lambda name=name, found=found: f"{name} needs more room: {found['wide'][:5]}", 20)
        assert found["texts"] > 15
        assert not found["faint"], (name, found["faint"][:5])
