"""A real browser on a real Jupyter server, for `test_browser`.

Everything that a server or the browser writes goes into a folder of the test; nothing is downloaded.
"""

from __future__ import annotations

import ast
import html
import importlib.metadata
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from unittest.mock import patch

from tests.helpers.paths import ROOT

BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
APPS = {"lab": ("jupyterlab", "4", "lab/tree"), "notebook": ("notebook", "7", "notebooks")}  # package, version, address
START, PATIENCE = 100, 60  # seconds until a wait gives up, for what starts a process and for a click: far too many


def missing(app: str | None = None) -> str | None:
    """What is lacking to click through a page, or a notebook in "lab" or "notebook", in words, or None."""
    if not any(map(shutil.which, BROWSERS)):
        return "no Chromium or Chrome on the PATH"
    if not shutil.which("chromedriver"):
        return "no chromedriver on the PATH"
    package, major, _ = APPS.get(app, (None, None, None))
    for name, version in (("selenium", "4"), *(((package, major), ("ipywidgets", "8")) if app else ())):
        try:
            found = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            return f"the package {name} is not installed"
        if found.split(".")[0] != version:
            return f"{name} is {found}, and the test knows {version}.x"
    return None


def said_by(runtime: Path) -> dict | None:
    """What a Jupyter server says of itself, or None as long as its file is not there, or there and not yet whole."""
    for file in runtime.glob("jpserver-*.json"):
        try:
            return json.loads(file.read_text("utf-8"))
        except ValueError:
            return None
    return None


@contextmanager
def serving(app: str, folder: Path) -> Iterator[str]:
    """A server of one application on a free port, with its files in `folder`; gives "http://.../{tree}?token=...".

    The user's own settings, extensions and kernels are not read, and none of them is changed.
    """
    package, _, address = APPS[app]
    places = {"JUPYTER_CONFIG_DIR": "config", "JUPYTER_DATA_DIR": "data", "JUPYTER_RUNTIME_DIR": "runtime"}
    places |= {"IPYTHONDIR": "ipython", "JUPYTERLAB_SETTINGS_DIR": "settings", "JUPYTERLAB_WORKSPACES_DIR": "spaces"}
    environment = {k: v for k, v in os.environ.items() if not k.startswith(("JUPYTER", "COLAB_", "MPLBACKEND"))}
    environment |= {name: str(folder / "jupyter" / place) for name, place in places.items()}
    environment |= {"PYTHONPATH": str(ROOT), "PYDEVD_DISABLE_FILE_VALIDATION": "1"}
    environment |= {"OMP_NUM_THREADS": "1", "SPEC_PAIR": "tiny", "HF_HUB_OFFLINE": "1"}
    quiet = folder / "jupyter" / "settings" / "@jupyterlab" / "apputils-extension" / "notification.jupyterlab-settings"
    quiet.parent.mkdir(parents=True)
    quiet.write_text('{"fetchNews": "false", "checkForUpdates": false}', "utf-8")  # no question about news
    (folder / "work").mkdir(exist_ok=True)
    options = ["--no-browser", "--ServerApp.open_browser=False", "--ip=127.0.0.1", "--ServerApp.port=0"]
    options += ["--allow-root", f"--ServerApp.root_dir={folder / 'work'}", "--LabApp.extension_manager=readonly"]
    log = folder / "server.txt"
    with log.open("w", encoding="utf-8") as lines:
        command = [sys.executable, "-m", package, *options]
        server = subprocess.Popen(command, cwd=folder / "work", env=environment, stdout=lines, stderr=lines)
    try:
        runtime = folder / "jupyter" / "runtime"
        said = until(lambda: said_by(runtime) or server.poll() is not None, lambda: log.read_text("utf-8"), START)
        assert server.poll() is None, log.read_text("utf-8")
        yield f"{said['url']}{address}/{{}}?token={said['token']}"
    finally:
        server.terminate()  # the server ends its kernels
        try:
            server.wait(30)
        except subprocess.TimeoutExpired:
            server.kill()
            server.wait()


@contextmanager
def browsing(folder: Path) -> Iterator:
    """A selenium driver of a headless Chromium.  Nothing is looked for on the network: both programs are named."""
    from selenium import webdriver

    options = webdriver.ChromeOptions()
    options.binary_location = next(filter(None, map(shutil.which, BROWSERS)))
    for word in ("headless=new", "no-sandbox", "disable-dev-shm-usage", "disable-gpu", "disable-background-networking"):
        options.add_argument(f"--{word}")
    for word in ("background-timer-throttling", "backgrounding-occluded-windows", "renderer-backgrounding"):
        options.add_argument(f"--disable-{word}")  # nobody looks at the window; it must not fall asleep
    options.add_argument(f"--user-data-dir={tempfile.mkdtemp(dir=folder)}")
    options.page_load_strategy = "eager"  # the pages here know themselves when they are ready
    with patch.dict(os.environ, {"no_proxy": "localhost,127.0.0.1"}):  # a company's proxy is not for these
        driver = webdriver.Chrome(options, webdriver.ChromeService(executable_path=shutil.which("chromedriver")))
        try:
            driver.set_page_load_timeout(START)
            yield driver
        finally:
            driver.quit()


def until(holds: Callable, said: Callable[[], str] = str, patience: float = PATIENCE):
    """Waits for a condition and returns its value; AssertionError with what `said` returns when it never holds."""
    end = time.monotonic() + patience
    while not (value := holds()):
        assert time.monotonic() < end, f"waited {patience} s in vain: {said()}"
        time.sleep(0.05)
    return value


# ---------------------------------------------------------------- a notebook out of the course's own cells


def names(source: str) -> tuple[set[str], set[str]]:
    """The names that some code reads, and those that it binds."""
    reads, binds = set(), set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Name):
            (reads if isinstance(node.ctx, ast.Load) else binds).add(node.id)
        elif isinstance(node, ast.FunctionDef | ast.ClassDef):
            binds.add(node.name)
        elif isinstance(node, ast.Import | ast.ImportFrom):
            binds |= {(alias.asname or alias.name).split(".")[0] for alias in node.names}
    return reads, binds


def widget_cells(sources: list[str], call: str) -> list[str]:
    """The cell that calls a widget, last, and before it those that it needs: a notebook's code cells, in order."""
    last = next(i for i, source in enumerate(sources) if f"widgets.{call}(" in source)
    found = [sources[last]]
    reads, binds = names(sources[last])
    needed = reads - binds
    for source in reversed(sources[:last]):
        reads, binds = names(source)
        if binds & needed:
            found.insert(0, source)
            needed = needed - binds | reads
    return found


# ---------------------------------------------------------------- what a reader sees and does

# Two measures of an element.  faint: the text whose contrast with what is behind it (WCAG 2, from 1 to 21) is too low.
# wide: what sticks out to the right, has to be scrolled sideways to be seen whole, or is a bar broken in two.
MEASURES = """
const canvas = new OffscreenCanvas(1, 1).getContext("2d", {willReadFrequently: true});
const rgba = css => {  // any CSS colour as four numbers
  canvas.clearRect(0, 0, 1, 1); canvas.fillStyle = css; canvas.fillRect(0, 0, 1, 1);
  const [r, g, b, a] = canvas.getImageData(0, 0, 1, 1).data; return [r, g, b, a / 255];
};
const over = (top, below) => [0, 1, 2].map(i => top[i] * top[3] + below[i] * (1 - top[3]));
const light = colour => colour.map(v => v / 255).map(v => v <= .04045 ? v / 12.92 : ((v + .055) / 1.055) ** 2.4)
  .reduce((sum, v, i) => sum + v * [.2126, .7152, .0722][i], 0);
const ground = element => {
  if (!element) return [255, 255, 255];
  const own = rgba(getComputedStyle(element).backgroundColor);
  return own[3] === 1 ? own.slice(0, 3) : over(own, ground(element.parentElement));
};
const contrasts = box => {
  const found = [], walk = document.createTreeWalker(box, NodeFilter.SHOW_TEXT);
  while (walk.nextNode()) {
    const element = walk.currentNode.parentElement, text = walk.currentNode.data.trim();
    if (!text || !element.checkVisibility()) continue;
    const ink = rgba(getComputedStyle(element).color), behind = ground(element);
    for (let e = element; e; e = e.parentElement) ink[3] *= getComputedStyle(e).opacity;
    const [a, b] = [light(over(ink, behind)), light(behind)].sort((x, y) => y - x);
    found.push([text, (a + .05) / (b + .05)]);
  }
  return found;
};
const wide = box => {
  const edge = box.getBoundingClientRect().right + 1;
  return [box, ...box.querySelectorAll("*")].filter(e => {
    if (!e.checkVisibility() || e.parentElement.closest(".slider-container")) return false;  // a knob may stand out
    const cut = getComputedStyle(e).overflowX !== "visible" && e.scrollWidth > e.clientWidth + 1;
    const parts = e.tagName === "TD" && !e.textContent.trim() ? [...e.children] : [];  // of a bar, side by side
    const broken = parts.some(part => part.getBoundingClientRect().top > parts[0].getBoundingClientRect().top + 1);
    return cut || broken || e.getBoundingClientRect().right > edge;
  }).map(e => `${e.tagName} ${e.className}: ${e.textContent.slice(0, 40)}`);
};
"""


class Page:
    """One notebook, open in JupyterLab or Notebook 7, and what a reader does with mouse and keyboard."""

    def __init__(self, driver, url: str):
        self.driver = driver
        driver.get(url)
        self.until(self.connected, "the page has no kernel", START)

    def connected(self) -> bool:
        """Whether the page has its kernel; one that is told to run earlier asks the reader for a kernel."""
        ask = "const done = arguments[0]; fetch('/api/sessions').then(r => r.json()).then(done, () => done([]))"
        sessions = self.driver.execute_async_script(ask)
        return any(session["kernel"]["connections"] for session in sessions) and self.idle()

    def all(self, css: str) -> list:
        return self.driver.find_elements("css selector", css)

    def idle(self) -> bool:
        return bool(self.all(".jp-Notebook-ExecutionIndicator[data-status=idle]"))

    def until(self, holds: Callable, said: str | Callable, patience: float = PATIENCE):
        from selenium.common import StaleElementReferenceException

        def settled():
            try:
                return holds()
            except StaleElementReferenceException:  # the page was being redrawn
                return None

        words = said if callable(said) else lambda: f"{said}; on the screen: {self.screen()!r}"
        return until(settled, words, patience)

    def screen(self) -> str:
        return self.driver.execute_script("return document.body.innerText")[-3000:]

    def menu(self, *words: str) -> None:
        """Clicks through a menu by what its entries are called."""
        from selenium.webdriver import ActionChains

        for depth, word in enumerate(words):
            css = ".lm-Menu-itemLabel" if depth else ".lm-MenuBar-itemLabel"
            entry = self.until(
                lambda css=css, word=word: next((e for e in self.all(css) if e.text == word), None),
                f"no {word!r} in the menu",
            )
            if depth in (0, len(words) - 1):
                entry.click()
            else:  # a submenu opens below the mouse
                ActionChains(self.driver).move_to_element(entry).perform()

    def cell(self, index: int):
        """A cell by its number from 0, scrolled into view."""
        css = f'.jp-Notebook .jp-Cell[data-windowed-list-index="{index}"]'
        cell = self.until(lambda: next(iter(self.all(css)), None), f"cell {index} is not there")
        self.driver.execute_script("arguments[0].scrollIntoView({block: 'nearest'})", cell)
        return cell

    def run_again(self, index: int) -> None:
        """Ctrl-Enter in a cell, as a reader does, and waits until it has run."""
        from selenium.webdriver import ActionChains, Keys

        def prompt():
            return self.cell(index).find_element("css selector", ".jp-InputPrompt").text

        before = prompt()
        self.cell(index).find_element("css selector", ".cm-content").click()
        ActionChains(self.driver).key_down(Keys.CONTROL).send_keys(Keys.ENTER).key_up(Keys.CONTROL).perform()
        self.until(
            lambda: re.fullmatch(r"\[\d+\]:", prompt()) and prompt() != before and self.idle(), "it does not run"
        )

    def output(self, index: int):
        return self.cell(index).find_element("css selector", ".jp-Cell-outputArea")

    def errors(self) -> list[str]:
        """What is red below the cells: tracebacks and stderr."""
        return [
            e.text
            for e in self.all('.jp-OutputArea [data-mime-type$="error"], .jp-OutputArea [data-mime-type$="stderr"]')
        ]

    def measure(self, index: int, pages: list[str] | None = None) -> dict:
        """Of a cell's output: "texts" (how many), "faint" [(text, contrast below 4.5)], "wide" [element].

        pages: instead of the page that the widget shows, each of these in its place.
        """
        script = """
        const [box, pages] = arguments, place = box.querySelector(".widget-html-content"), found = {texts: 0};
        const shown = place?.innerHTML; found.faint = []; found.wide = []; found.ground = light(ground(box));
        for (const page of pages ?? [shown]) {
          if (pages) place.innerHTML = page;
          const all = contrasts(box); found.texts += all.length;
          found.faint.push(...all.filter(([text, ratio]) => ratio < 4.5)); found.wide.push(...wide(box));
        }
        if (pages) place.innerHTML = shown;
        return found;
        """
        outputs = self.output(index).find_elements("css selector", ".jp-OutputArea-output")
        assert len(outputs) == 1, f"{len(outputs)} outputs below cell {index}"
        return self.driver.execute_script(MEASURES + script, outputs[0], pages)

    def theme(self, name: str) -> None:
        """Chooses a theme in the menu, unless it is in use."""
        if self.driver.execute_script("return document.body.dataset.jpThemeName") != name:
            self.menu("Settings", "Theme", name)
        dark = "Dark" in name
        self.until(lambda: (self.measure(self.at["step_through"])["ground"] < 0.2) == dark, f"no {name}")

    def zoom(self, percent: int) -> None:
        """The browser's zoom, in a window of 1280 x 900: fewer CSS pixels, each larger on the screen."""
        size = {"width": 128000 // percent, "height": 90000 // percent, "deviceScaleFactor": percent / 100}
        self.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", {**size, "mobile": False})
        self.until(lambda: self.driver.execute_script("return innerWidth") == size["width"], "no zoom")


class Widget:
    """The widget below a cell: its buttons by name, its sliders by label, the text that it shows."""

    def __init__(self, page: Page, index: int):
        self.page, self.index = page, index

    def all(self, css: str) -> list:
        return self.page.output(self.index).find_elements("css selector", css)

    def click(self, css: str) -> None:
        self.page.until(lambda: self.all(css), f"no {css} in the widget")[0].click()

    def slider(self, label: str):
        rows = self.all(".widget-slider")
        return rows[list(self.numbers()).index(label)]

    def numbers(self) -> dict[str, str]:
        """What stands beside each slider, by label."""
        script = """
        const read = (row, css) => row.querySelector(css).textContent;
        return [...arguments[0].querySelectorAll(".widget-slider")].map(
          row => [read(row, ".widget-label"), read(row, ".widget-readout")]);
        """
        return dict(self.page.driver.execute_script(script, self.page.output(self.index)))

    def press(self, label: str, *keys: str) -> None:
        """Keys on the slider's knob."""
        self.slider(label).find_element("css selector", ".noUi-handle").send_keys(*keys)

    def type(self, label: str, number: str) -> None:
        """Writes over the number beside a slider."""
        from selenium.webdriver import ActionChains, Keys

        self.slider(label).find_element("css selector", ".widget-readout").click()
        chain = ActionChains(self.page.driver).key_down(Keys.CONTROL).send_keys("a").key_up(Keys.CONTROL)
        chain.send_keys(number, Keys.ENTER).perform()

    def text(self) -> str:
        pages = self.all(".widget-html-content")
        assert len(pages) == 1, f"{len(pages)} views below one cell"
        return " ".join(pages[0].get_attribute("textContent").split())

    def shows(self, *pages: str) -> int:
        """Waits until the text is that of one of these HTML pages; returns which."""
        texts = [bare(page) for page in pages]
        said = lambda: f"the widget shows {self.text()!r}, not {texts[0]!r}"  # noqa: E731
        self.page.until(lambda: self.text() in texts, said)
        return texts.index(self.text())


def bare(page: str) -> str:
    """An HTML page as the browser's textContent has it, with single blanks."""
    return " ".join(html.unescape(re.sub("<[^>]+>", "", page)).split())
