"""The command line of `course.py`."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
import webbrowser
from pathlib import Path

from tools import ROOT, Stop, stamp
from tools.environment import FULL, check_python, run, set_up, surroundings, with_figures

HELP = """\
The course in one command. Needs Python 3.11 to 3.13 and nothing else.

python3 course.py                     set up .venv, write a text speculatively, open the notebooks
python3 course.py test [ARGUMENT...]  set up .venv, then lint and run every test, notebooks included
                                      (arguments go to pytest; a path among them replaces the default ones)
python3 course.py stamp [OWNER/REPO]  write Colab badges, set-up cells and navigation into the notebooks and the
                                      README, for the repository named here or in pyproject.toml, and the README's
                                      pictures out of the notebooks
python3 course.py stamp --check       only say which files have drifted (exit code 1 if any has)"""
TAKE_A_VALUE = ("-k", "-m", "-n", "-p", "-c", "-o", "-W", "-r", "--maxfail", "--dist", "--durations", "--deselect")


def start() -> int:
    """Sets up, writes a text in the terminal, and opens the notebooks or says how."""
    python = set_up("library")
    words = ["generate", "Once upon a time", "--max-new-tokens", "150", "--seed", "1", "--compare", "-v"]
    if run([python, "-m", "spec_lib", *words], env={"SPEC_PAIR": "tiny", "OMP_NUM_THREADS": "1", **surroundings()}):
        raise Stop("The course's library failed; its message is above.")
    print(flush=True)
    set_up("notebooks")
    first = next(iter(stamp.notebooks(ROOT)), ROOT / "notebooks")
    # Its root is else the notebook's folder, and links to what lies above (the README) lead nowhere.
    command = [str(python), "-m", "jupyterlab", str(first), f"--ServerApp.root_dir={ROOT}"]
    if hasattr(os, "geteuid") and os.geteuid() == 0:
        command.append("--allow-root")  # JupyterLab refuses to run as root without it
    environment = with_figures(python, surroundings())
    if sys.stdin.isatty() and sys.stdout.isatty() and has_browser():
        print("\nOpening the notebooks in JupyterLab; Ctrl-C here ends it.", flush=True)
        server = subprocess.Popen(command, cwd=ROOT, env=environment)
        while True:  # Ctrl-C is the server's: it asks before it ends
            try:
                return server.wait()
            except KeyboardInterrupt:
                continue
    line = subprocess.list2cmdline(command) if os.name == "nt" else shlex.join(command)
    print(f"\nNo terminal with a browser here. To open the notebooks in JupyterLab:\n    {line}")
    return 0


def has_browser() -> bool:
    if sys.platform == "linux" and not (os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY")):
        return False
    try:
        return bool(webbrowser.get())
    except webbrowser.Error:
        return False


def test(arguments: list[str]) -> int:
    """Lints, then runs the tests; the first exit code that is not 0."""
    python = set_up()
    for command in (["check", "."], ["format", "--check", "."]):
        code = run([python, "-m", "ruff", *command])
        if code:
            return code
    # A word after an option that takes a value (-k tests) is that value, not a path.
    words = [w for before, w in zip(["", *arguments], arguments, strict=False) if before not in TAKE_A_VALUE]
    given = [w for w in words if not w.startswith("-") and Path(ROOT, w.split("::")[0]).exists()]
    return run_tests(python, [*([] if given else ["tests", "notebooks"]), *arguments])


def run_tests(python: Path, arguments: list[str]) -> int:
    """pytest with the notebooks' cells, as the README's command and CI's second pass both run it."""
    environment = {**surroundings(), "OMP_NUM_THREADS": "1", "SPEC_PAIR": "tiny", "HF_HUB_OFFLINE": "1"}
    environment.pop("MPLBACKEND", None)  # notebooks would draw elsewhere
    options = ["--nbval", "--nbval-current-env", "-n", "2", "--dist", "loadfile"]
    return run([python, "-m", "pytest", *options, *arguments], env=with_figures(python, environment))


def write_stamps(words: list[str]) -> int:
    check = "--check" in words
    names = [word for word in words if word != "--check"]
    if len(names) > 1 or any(word.startswith("-") for word in names):
        raise Stop(f"Not understood: {' '.join(words)} (see python3 course.py --help).", 2)
    if names and check:
        raise Stop("Give stamp a repository or --check, not both.", 2)
    if names:
        stamp.set_repository(ROOT, names[0])
    drifted = stamp.stamp(check=check)
    print(("Drifted: " if check else "Written: ") + (", ".join(drifted) or "nothing"))
    return int(check and bool(drifted))


def main(arguments: list[str]) -> int:
    """Exit code: 0, or that of what failed; 2 for words that are not understood."""
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="replace")  # the encoding may lack a letter of the folder's name
    try:
        if {"-h", "--help"} & set(arguments):
            print(HELP)
            return 0
        check_python()
        command, *rest = arguments or [""]
        if command in ("", "test", "stamp"):
            return {"": lambda _: start(), "test": test, "stamp": write_stamps}[command](rest)
        raise Stop(f"Not understood: {command} (see python3 course.py --help).", 2)
    except Stop as stop:
        print(stop, file=sys.stderr)
        return stop.code
    except OSError as error:
        print(sentence(error), file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("\nStopped.", file=sys.stderr)
        return 130


def sentence(error: OSError) -> str:
    if error.errno in FULL:
        return f"The disk with {error.filename or ROOT} is full: free some room, then start again."
    return ": ".join(str(part) for part in (error.strerror or error, error.filename) if part)
