#!/usr/bin/env python3
"""The course in one command. Needs Python 3.11 to 3.13 and nothing else.

python3 course.py                     set up .venv, write a text speculatively, open the notebooks
python3 course.py test [ARGUMENT...]  set up .venv, then lint and run every test, notebooks included
                                      (arguments go to pytest; a path among them replaces the default ones)
python3 course.py stamp [OWNER/REPO]  write Colab badges, set-up cells and navigation into the notebooks and the
                                      README, for the repository named here or in pyproject.toml, and the README's
                                      pictures out of the notebooks
python3 course.py stamp --check       only say which files have drifted (exit code 1 if any has)
"""

from __future__ import annotations

import base64
import hashlib
import importlib.util
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import webbrowser
from pathlib import Path

ROOT = Path(__file__).resolve().parent
CPU_INDEX = "https://download.pytorch.org/whl/cpu"  # PyTorch's own builds without CUDA
COLAB = "https://colab.research.google.com"
TAKE_A_VALUE = ("-k", "-m", "-n", "-p", "-c", "-o", "-W", "-r", "--maxfail", "--dist", "--durations", "--deselect")


class Stop(Exception):
    """Ends the program with one sentence and an exit code."""

    def __init__(self, sentence: str, code: int = 1):
        super().__init__(sentence)
        self.code = code


# ---------------------------------------------------------------- the environment


def check_python(version: tuple[int, ...] = tuple(sys.version_info)) -> None:
    name = f"{version[0]}.{version[1]}"
    if tuple(version[:2]) < (3, 11):
        raise Stop(f"The course needs Python 3.11 or newer, and this is Python {name}.")
    if tuple(version[:2]) > (3, 13):
        print(f"Note: the course is tested on Python 3.11 to 3.13; this is Python {name}.", file=sys.stderr)


def venv_python(venv: Path) -> Path:
    return venv / ("Scripts/python.exe" if os.name == "nt" else "bin/python")


def fingerprint(requirements: Path) -> str:
    return hashlib.sha256(requirements.read_bytes()).hexdigest()


def set_up(venv: Path = ROOT / ".venv", requirements: Path = ROOT / "requirements.txt") -> Path:
    """Makes or updates the environment if need be; returns its Python.

    A note inside says which version file it was made from. It reads "unfinished" from the first step to the last, so
    that an interrupted set-up starts afresh the next time.
    """
    python, note = venv_python(venv), venv / "course-made-from.txt"
    state = note.read_text().strip() if note.exists() else ""
    if state == fingerprint(requirements) and python.exists():
        return python
    print(f"Setting up {venv} (a few minutes the first time) ...", flush=True)
    if state == "unfinished":
        shutil.rmtree(venv)
    venv.mkdir(parents=True, exist_ok=True)
    note.write_text("unfinished\n")
    if not (python.exists() and succeeds([python, "-m", "pip", "--version"])):
        make_venv(venv)
    install(python, requirements)
    note.write_text(fingerprint(requirements) + "\n")
    return python


def make_venv(venv: Path) -> None:
    if not all(importlib.util.find_spec(module) for module in ("venv", "ensurepip")):
        raise Stop("This Python cannot make virtual environments: run `apt install python3-venv`, then try again.")
    if run([sys.executable, "-m", "venv", venv]):
        raise Stop(f"Python could not make a virtual environment in {venv}; its message is above.")


def install(python: Path, requirements: Path) -> None:
    """Installs the requirements, and PyTorch without CUDA where no NVIDIA GPU is at hand and that can be had."""
    torch = re.search(r"^torch==[\w.]+", requirements.read_text(), re.MULTILINE)
    if torch and sys.platform == "linux" and not has_gpu() and brings_cuda(python, torch[0]):
        print("No NVIDIA GPU here: asking pytorch.org for PyTorch without CUDA ...", flush=True)
        index = ["--extra-index-url", CPU_INDEX, "--timeout", "15", "--retries", "1"]
        if pip(python, "install", *index, torch[0] + "+cpu"):
            print("It could not be had, so pip now downloads PyTorch with CUDA (several GB).", flush=True)
    if pip(python, "install", "-r", requirements):
        raise Stop("The packages could not be installed; pip's message is above (README: behind a proxy).")


def brings_cuda(python: Path, requirement: str) -> bool:
    """Whether the build that pip would take needs NVIDIA's libraries. Of a good index only metadata is downloaded."""
    pip(python, "install", "pip>=24")  # older ones download the whole build to answer
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.json"
        if pip(python, "install", "--dry-run", "--no-deps", "--report", report, requirement):
            return False  # the install itself will say what is wrong
        found = json.loads(report.read_text("utf-8"))["install"]  # empty where it is installed already
    needs = [need.lower() for item in found for need in item["metadata"].get("requires_dist", [])]
    return any(need.startswith(("nvidia", "cuda")) for need in needs)


def has_gpu() -> bool:
    tool = shutil.which("nvidia-smi")
    return bool(tool) and succeeds([tool, "-L"])


def pip(python: Path, *arguments: str | Path) -> int:
    quiet = [] if sys.stdout.isatty() else ["-qq"]  # errors only
    options = {"PIP_USER": "0", "PIP_DISABLE_PIP_VERSION_CHECK": "1", "PIP_ROOT_USER_ACTION": "ignore"}
    return run([python, "-m", "pip", *arguments, *quiet], env={**os.environ, **options})


def run(command: list, **options) -> int:
    return subprocess.run([str(word) for word in command], cwd=ROOT, **options).returncode


def succeeds(command: list) -> bool:
    try:
        return run(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, timeout=60) == 0
    except (OSError, subprocess.TimeoutExpired):
        return False


# ---------------------------------------------------------------- the main job and the tests


def start() -> int:
    python = set_up()
    words = ["generate", "Once upon a time", "--max-new-tokens", "150", "--seed", "1", "--compare", "-v"]
    if run([python, "-m", "spec_lib", *words], env={"SPEC_PAIR": "tiny", **os.environ}):
        raise Stop("The course's library failed; its message is above.")
    first = next(iter(notebooks(ROOT)), ROOT / "notebooks")
    command = [str(python), "-m", "jupyterlab", str(first)]
    if hasattr(os, "geteuid") and os.geteuid() == 0:
        command.append("--allow-root")  # JupyterLab refuses to run as root without it
    if sys.stdin.isatty() and sys.stdout.isatty() and has_browser():
        print("\nOpening the notebooks in JupyterLab; Ctrl-C here ends it.", flush=True)
        server = subprocess.Popen(command, cwd=ROOT)
        while True:  # Ctrl-C is the server's: it asks before it ends
            try:
                return server.wait()
            except KeyboardInterrupt:
                continue
    print("\nNo terminal with a browser here. To open the notebooks in JupyterLab:\n    " + shlex.join(command))
    return 0


def has_browser() -> bool:
    if sys.platform == "linux" and not (os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY")):
        return False
    try:
        return bool(webbrowser.get())
    except webbrowser.Error:
        return False


def test(arguments: list[str]) -> int:
    python = set_up()
    environment = {**os.environ, **{"OMP_NUM_THREADS": "1", "SPEC_PAIR": "tiny", "HF_HUB_OFFLINE": "1"}}
    environment.pop("MPLBACKEND", None)  # notebooks would draw elsewhere
    for command in (["check", "."], ["format", "--check", "."]):
        code = run([python, "-m", "ruff", *command], env=environment)
        if code:
            return code
    # A word behind an option that takes a value (-k tests) is that value, not a path.
    words = [w for before, w in zip(["", *arguments], arguments, strict=False) if before not in TAKE_A_VALUE]
    given = [w for w in words if not w.startswith("-") and Path(ROOT, w.split("::")[0]).exists()]
    targets = [] if given else ["tests", "notebooks"]
    options = ["--nbval", "--nbval-current-env", "-n", "2", "--dist", "loadfile"]
    return run([python, "-m", "pytest", *options, *targets, *arguments], env=environment)


# ---------------------------------------------------------------- stamping

SETUP = """\
import os  # run this cell first: all others need what it makes
import sys

url = "{url}"
places = [os.path.abspath(p) for p in ("speculative-sampling", ".", "..", "../..", *sys.path)]
if "google.colab" in sys.modules and not os.path.isdir("speculative-sampling"):  # on Colab: fetch the course, once
    os.system(f"git clone --depth 1 -q -b {branch} {{url}} speculative-sampling")
sys.path[:0] = [p for p in places if os.path.isdir(p + "/spec_lib")][:1] or sys.exit(f"Clone the course first: {{url}}")
import spec_lib as sl

pair = sl.load_pair()
print(sl.setup_line(pair))"""


def notebooks(root: Path) -> list[Path]:
    return sorted((root / "notebooks").glob("[0-9][0-9]_*.ipynb"))


def address(root: Path) -> tuple[str, str]:
    """Repository (OWNER/REPO) and branch, from pyproject.toml."""
    import tomllib

    place = tomllib.loads((root / "pyproject.toml").read_text("utf-8"))["tool"]["course"]
    return place["repository"], place["branch"]


def set_repository(root: Path, repository: str) -> None:
    name = r"(?!\.+(?:/|$))[\w.-]+"  # not . or ..
    match = re.fullmatch(rf"(?:https://github\.com/)?({name}/{name}?)(?:\.git)?/?", repository)
    if not match:
        raise Stop(f"A repository is written OWNER/REPO or https://github.com/OWNER/REPO, not {repository!r}.", 2)
    file = root / "pyproject.toml"
    text = file.read_text("utf-8")
    line = re.compile(r'(?<=\[tool\.course\]\nrepository = ")[^"\n]*')
    if not line.search(text):
        raise Stop("pyproject.toml has no line 'repository = \"...\"' right below [tool.course].")
    write(file, line.sub(match[1], text))


def stamp(root: Path = ROOT, check: bool = False) -> list[str]:
    """Brings badges, set-up cells and navigation up to date; returns the files that had drifted."""
    repository, branch = address(root)
    files = notebooks(root)
    books = [read(file) for file in files]
    titles = [title(file, book) for file, book in zip(files, books, strict=True)]
    setup = SETUP.format(url=f"https://github.com/{repository}", branch=branch)

    def in_colab(file: Path) -> str:
        return f"{COLAB}/github/{repository}/blob/{branch}/notebooks/{file.name}"

    def badge(file: Path) -> str:
        return f"[![Open in Colab]({COLAB}/assets/colab-badge.svg)]({in_colab(file)})"

    new_texts, rows, shown = {}, [], []
    for i, (file, book) in enumerate(zip(files, books, strict=True)):
        before = json.dumps(book)
        fill(book["cells"][0], "badge", badge(file), file.name)
        last = [cell for cell in book["cells"] if cell["cell_type"] == "markdown"][-1]
        links = ["[Contents](../README.md)"]
        for word, j in (("Previous", i - 1), ("Next", i + 1)):
            if 0 <= j < len(files):
                links.append(f"{word}: [{titles[j]}]({files[j].name}) ([in Colab]({in_colab(files[j])}))")
        fill(last, "navigation", " | ".join(links), file.name)
        cells = [c for c in book["cells"] if c["cell_type"] == "code" and "setup" in c["metadata"].get("tags", [])]
        if len(cells) != 1:
            raise Stop(f'{file.name} needs exactly one code cell with the tag "setup".')
        put(cells[0], setup)
        if json.dumps(book) != before:  # written the way nbformat does it
            text = json.dumps(book, ensure_ascii=False, indent=1, sort_keys=True, separators=(",", ": "))
            new_texts[file] = text + "\n"
        rows.append(f"| [{titles[i]}](notebooks/{file.name}) | {badge(file)} |\n")
        for path, alternative, png in pictures(file, book):
            shown.append(f"![{alternative}]({path})")
            if not (root / path).exists() or (root / path).read_bytes() != png:
                new_texts[root / path] = png

    readme = root / "README.md"
    old = readme.read_text("utf-8")
    table = "| Notebook | In the browser |\n|---|---|\n" + "".join(rows).rstrip()
    if repository.startswith("OWNER/"):
        table += "\n\n(The badges lead nowhere yet, since this copy names no public address:\n"
        table += "`python3 course.py stamp OWNER/REPO` gives it one.)"
    new = between(old, "badges", table, "README.md")
    new = between(new, "pictures", "\n\n".join(shown), "README.md")
    if new != old:
        new_texts[readme] = new
    for file, text in new_texts.items():  # only now, when nothing is left to complain about
        if not check:
            write(file, text)
    return [file.relative_to(root).as_posix() for file in new_texts]


def pictures(file: Path, book: dict) -> list[tuple[str, str, bytes]]:
    """The figures that the README shows, as (path, alternative text, PNG), from the notebook's own stored outputs.

    A code cell asks for it with the metadata "picture": "what is to be seen in it".
    """
    found = []
    for cell in book["cells"]:
        if alternative := cell["metadata"].get("picture"):
            images = [o["data"]["image/png"] for o in cell["outputs"] if "image/png" in o.get("data", {})]
            if not images:
                raise Stop(f"{file.name} has a cell for the README without a stored figure: run the notebook first.")
            number = f"_{len(found) + 1}" if found else ""
            found.append((f"notebooks/pictures/{file.stem}{number}.png", alternative, base64.b64decode(images[0])))
    return found


def read(file: Path) -> dict:
    try:
        return json.loads(file.read_text("utf-8"))
    except ValueError:
        raise Stop(f"{file.name} is not a notebook (its JSON cannot be read).") from None


def write(file: Path, content: str | bytes) -> None:
    file.parent.mkdir(exist_ok=True)
    file.write_bytes(content.encode("utf-8") if isinstance(content, str) else content)


def title(file: Path, book: dict) -> str:
    found = re.match(r"# (.+)", "".join(book["cells"][0]["source"])) if book["cells"] else None
    if not found:
        raise Stop(f"{file.name} does not begin with a title (# NN · Title).")
    return found[1].strip()


def between(text: str, name: str, new: str, where: str) -> str:
    opening, closing = f"<!-- {name} -->", f"<!-- /{name} -->"
    if text.count(opening) != 1 or text.count(closing) != 1 or text.index(opening) > text.index(closing):
        raise Stop(f"{where} needs the markers {opening} and {closing}, once each, in its first or last text cell.")
    return f"{text.split(opening)[0]}{opening}\n\n{new}\n\n{closing}{text.split(closing)[1]}"


def fill(cell: dict, name: str, new: str, where: str) -> None:
    put(cell, between("".join(cell["source"]), name, new, where))


def put(cell: dict, text: str) -> None:
    if text != "".join(cell["source"]):
        cell["source"] = text.splitlines(keepends=True)


# ---------------------------------------------------------------- the command line


def main(arguments: list[str]) -> int:
    try:
        if {"-h", "--help"} & set(arguments):
            print(__doc__.strip())
            return 0
        check_python()
        if not arguments:
            return start()
        command, *rest = arguments
        if command == "test":
            return test(rest)
        if command == "stamp":
            check = "--check" in rest
            names = [word for word in rest if word != "--check"]
            if len(names) > 1 or any(word.startswith("-") for word in names):
                raise Stop(f"Not understood: {' '.join(rest)} (see python3 course.py --help).", 2)
            if names and check:
                raise Stop("Give stamp a repository or --check, not both.", 2)
            if names:
                set_repository(ROOT, names[0])
            drifted = stamp(check=check)
            print(("Drifted: " if check else "Written: ") + (", ".join(drifted) or "nothing"))
            return int(check and bool(drifted))
        raise Stop(f"Not understood: {command} (see python3 course.py --help).", 2)
    except Stop as stop:
        print(stop, file=sys.stderr)
        return stop.code
    except OSError as error:
        print(f"{error.strerror}: {error.filename}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("\nStopped.", file=sys.stderr)
        return 130


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
