"""The course's environment in `.venv`: made once, by one start at a time, and written down as finished when it is."""

from __future__ import annotations

import ast
import contextlib
import errno
import hashlib
import importlib.util
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from tools import ROOT, Stop

CPU_INDEX = "https://download.pytorch.org/whl/cpu"  # PyTorch's own builds without CUDA
PARTS = ("library", "notebooks", "tests")  # of the requirements, each set up with those before it
MORE = {  # said where the parts before it are there
    "notebooks": "Adding what the notebooks need, JupyterLab above all (about 70 MB to download) ...",
    "tests": "Adding what the tests need (at most 100 MB to download) ...",
}
NOTE, LOCK = "course-made-from.txt", "course-lock"  # both in .venv
PATH = "course-folder.pth"  # beside its packages
# `python -m venv`, without the traceback that it ends in at Ctrl-C.
MAKE = """import runpy, sys
try:
    runpy.run_module("venv", run_name="__main__", alter_sys=True)
except KeyboardInterrupt:
    sys.exit(130)
"""
FULL = (errno.ENOSPC, errno.EDQUOT)
# Of the variables that steer Python itself, children keep those that concern only how text and bytecode are written.
# (Names with an underscore after PYTHON are of other programs.)
HARMLESS = {"PYTHONIOENCODING", "PYTHONUTF8", "PYTHONUNBUFFERED", "PYTHONDONTWRITEBYTECODE", "PYTHONPYCACHEPREFIX"}
# pip's options that decide where, whether and what else it installs. Indexes, mirrors, proxies and caches stay as set.
MOVES = {"target", "prefix", "root", "user", "no-user", "python", "platform", "python-version", "implementation", "abi"}
MOVES |= {"dry-run", "no-deps", "no-dependencies", "requirement", "editable", "group", "report", "version", "help"}
MOVES |= {"ignore-installed", "force-reinstall", "upgrade"}
# What pip says on stderr when it fails, and the sentence for it.
REASONS = {
    r"\[(Errno (28|122)|WinError 112)\]|No space left|[Qq]uota exceeded": (
        "the disk is full: the environment takes 1.4 GB in {venv} and meanwhile about as much in {temporary} (TMPDIR "
        "names another folder for that); free some room, then start again"
    ),
    r"\[(Errno (13|30)|WinError 5)\]|Permission denied|Read-only": (
        "a folder cannot be written; pip's message above names it"
    ),
    r"[Pp]roxy|SSL|CERTIFICATE|[Tt]imed? ?out|[Cc]onnection|[Rr]etries|name resol|HTTP error|from versions: none": (
        "the index could not be reached or lacks a package (notebooks/RUNNING.md: behind a proxy)"
    ),
    r"No matching distribution": (
        "this version has no build for {system} with this Python: try another of 3.11 to 3.13, or open the notebooks "
        "in Colab"
    ),
}


def check_python(version: tuple[int, ...] = tuple(sys.version_info)) -> None:
    """A note on stderr where this Python is newer than those that the course is tested on."""
    if tuple(version[:2]) > (3, 13):
        name = f"{version[0]}.{version[1]}"
        print(f"Note: the course is tested on Python 3.11 to 3.13; this is Python {name}.", file=sys.stderr)


def venv_python(venv: Path) -> Path:
    return venv / ("Scripts/python.exe" if os.name == "nt" else "bin/python")


def fingerprint(requirements: Path) -> str:
    return hashlib.sha256(requirements.read_bytes()).hexdigest()


def pins(requirements: Path, part: str = PARTS[-1]) -> list[str]:
    """The packages of that part and of those before it; a file without headings ("# -- part") is all first part."""
    found, now = [], PARTS[0]
    for line in requirements.read_text("utf-8").splitlines():
        if heading := re.match(r"# -- (\w+)", line):
            now = heading[1]
        elif PARTS.index(now) <= PARTS.index(part) and not line.startswith("#") and line.strip():
            found.append(line.split(" #")[0].strip())
    return found


# ---------------------------------------------------------------- once, and by one start at a time


def set_up(part: str = PARTS[-1], venv: Path = ROOT / ".venv", requirements: Path = ROOT / "requirements.txt") -> Path:
    """Makes or updates the environment, with this part of the packages, if need be; returns its Python.

    Raises Stop where that fails. A note inside says which version file it was made from, and up to which part. It reads
    "unfinished" from the first step to the last, so that an interrupted set-up starts afresh the next time. A further
    word in it says that the folder was here before the course: such a one is used if it can be, and never emptied.
    """
    python, note = venv_python(venv), venv / NOTE
    if finished(part, venv, requirements):
        return python
    with alone(venv):
        if finished(part, venv, requirements):  # by the start that this one waited for
            return python
        state, before, found_here = read_note(venv)
        adding = state == fingerprint(requirements) and before in PARTS
        print(MORE[part] if adding else f"Setting up {venv} (a minute or a few the first time) ...", flush=True)
        fault = what_is_wrong(python)
        if fault and found_here:
            raise Stop(f"{venv} is not of the course's making and {fault}: rename or delete it, then start again.")
        if not found_here and (fault or not re.fullmatch("[0-9a-f]{64}", state)):
            empty(venv)
        mark = " found-here\n" if found_here else "\n"
        note.write_text("unfinished" + mark, "utf-8")
        if not found_here and what_is_wrong(python):
            make_venv(venv)
        try:
            install(python, requirements, part, adding)
        except Stop:
            if adding:  # pip ends by itself either before it changed anything or after it took it back
                note.write_text(f"{state} {before}{mark}", "utf-8")
            raise
        # Notebooks then find the library from any working folder.
        for folder in packages(venv):
            (folder / PATH).write_text(course_line(), "utf-8")
        note.write_text(f"{fingerprint(requirements)} {part}{mark}", "utf-8")
    return python


def finished(part: str, venv: Path, requirements: Path) -> bool:
    state, there, _ = read_note(venv)
    if (
        state != fingerprint(requirements)
        or there not in PARTS[PARTS.index(part) :]
        or what_is_wrong(venv_python(venv))
    ):
        return False
    return all(
        (folder / PATH).exists() and (folder / PATH).read_text("utf-8", errors="replace") == course_line()
        for folder in packages(venv)
    )


def packages(venv: Path) -> list[Path]:
    """The folder of the environment's packages (on Windows the second); none where it holds no whole Python."""
    return [folder for pattern in ("lib/python*", "Lib") for folder in venv.glob(f"{pattern}/site-packages")]


def course_line() -> str:
    """For Python's list of folders: code in plain letters, since older Pythons read that file in many encodings."""
    return f"import sys; sys.path.append({str(ROOT)!a})\n"


def read_note(venv: Path) -> tuple[str, str, bool]:
    """What the note says: made from what, up to which part ("" if nothing legible), and whether it was here before."""
    if not (venv / NOTE).exists():
        return "", "", venv.is_dir() and any(file.name != LOCK for file in venv.iterdir())
    words = (venv / NOTE).read_text("utf-8", errors="replace").split()
    state, part = [*words, "", ""][:2]
    return state, part, "found-here" in words


def what_is_wrong(python: Path) -> str | None:
    """Why this Python cannot serve, as the end of a sentence; None if it can.

    A link into a Python that was upgraded or removed leads nowhere, or to one that finds no pip beside it.
    """
    ask = "import sys, importlib.util as u; print(*sys.version_info[:2], u.find_spec('pip') is not None)"
    try:
        done = subprocess.run([python, "-I", "-c", ask], capture_output=True, text=True, timeout=60)
        major, minor, pip_there = done.stdout.split()
    except (OSError, ValueError, subprocess.TimeoutExpired):
        return "holds no Python that starts"
    if (int(major), int(minor)) < (3, 11):
        return f"holds Python {major}.{minor}, where the course needs 3.11 or newer"
    return None if pip_there == "True" else f"holds no pip for its Python {major}.{minor}"


def empty(venv: Path) -> None:
    """Removes what is in the folder, except the lock that is held on it."""
    if Path(sys.prefix).resolve() == venv.resolve():
        raise Stop(f"{venv} has to be made anew, and it is the one in use: run `deactivate`, then start again.")
    try:
        for entry in venv.iterdir():
            if entry.is_dir() and not entry.is_symlink():
                shutil.rmtree(entry)
            elif entry.name != LOCK:
                entry.unlink()
    except OSError as error:
        raise Stop(
            f"{venv} could not be emptied ({error.strerror}: {error.filename}): close what uses it (JupyterLab, "
            "terminals in which it is active), then start again."
        ) from None


@contextlib.contextmanager
def alone(venv: Path, pause: float = 0.5) -> Iterator[None]:
    """One start at a time: a second one waits here, until the first has ended in whatever way.

    The system's own lock on an open file, which none can leave behind. Where the file system has no locks, nothing.
    """
    venv.mkdir(parents=True, exist_ok=True)
    with open(venv / LOCK, "a+b") as file:
        os.set_inheritable(file.fileno(), True)  # a pip whose course.py was killed holds the lock until it ends
        waiting = False
        while not lock(file.fileno()):
            if not waiting:
                print(f"Another start of the course is setting up {venv}: waiting for it ...", flush=True)
            waiting = True
            time.sleep(pause)
        yield


def lock(file: int) -> bool:
    """False if another process holds it; it is given back when the file is closed."""
    try:
        if importlib.util.find_spec("fcntl"):
            import fcntl

            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        else:
            import msvcrt

            os.lseek(file, 0, os.SEEK_SET)
            msvcrt.locking(file, msvcrt.LK_NBLCK, 1)
    except OSError as error:
        return error.errno not in (errno.EAGAIN, errno.EACCES, errno.EDEADLK)
    return True


def make_venv(venv: Path) -> None:
    if not all(importlib.util.find_spec(module) for module in ("venv", "ensurepip")):
        raise Stop("This Python cannot make virtual environments: run `apt install python3-venv`, then try again.")
    base = getattr(sys, "_base_executable", None) or sys.executable  # not of an environment that may be left or deleted
    if run([base, "-c", MAKE, venv]):
        if min(shutil.disk_usage(folder).free for folder in (venv, tempfile.gettempdir())) < 50e6:
            raise Stop(f"The disk with {venv} or {tempfile.gettempdir()} is full: free some room, then start again.")
        raise Stop(f"Python could not make a virtual environment in {venv}; its message is above.")


# ---------------------------------------------------------------- the packages


def install(python: Path, requirements: Path, part: str = PARTS[-1], adding: bool = False) -> None:
    """Installs the packages up to this part, PyTorch without CUDA where no NVIDIA GPU is at hand and that can be had.

    adding: the parts before are there, so that pip is to leave the terminal to what stands there.
    Raises Stop where pip fails, and where it ends well and the packages are not there.
    """
    wanted = pins(requirements, part)
    torch = [pin for pin in wanted if pin.startswith("torch==")]
    if torch and sys.platform == "linux" and not has_gpu() and brings_cuda(python, torch[0]):
        print("No NVIDIA GPU here: asking pytorch.org for PyTorch without CUDA ...", flush=True)
        index = ["--extra-index-url", CPU_INDEX, "--timeout", "15", "--retries", "1"]
        if pip(python, "install", *index, torch[0] + "+cpu")[0]:
            print("It could not be had, so pip now downloads PyTorch with CUDA (several GB).", flush=True)
    code, said = pip(python, "install", *wanted, *(["-q"] if adding and sys.stdout.isatty() else []))
    if code:
        raise Stop(f"The packages could not be installed: {reason(said, python.parent.parent)}.")
    venv = python.parent.parent
    ask = [python, "-I", ROOT / "tools" / "installed.py", *wanted]
    found = subprocess.run(ask, capture_output=True, text=True)
    if found.returncode or found.stdout.strip():
        names = ", ".join(found.stdout.split("\n")[:-1]) or found.stderr.strip().split("\n")[-1]
        raise Stop(
            f"pip ended well, and yet {venv} lacks what it should hold ({names}): look for options that make pip "
            "install elsewhere or less, in `pip config list` and in variables PIP_..., then start again."
        )


def reason(said: str, venv: Path) -> str:
    """Why pip failed, and what to do, out of what it said."""
    for pattern, sentence in REASONS.items():
        if re.search(pattern, said):
            return sentence.format(venv=venv, temporary=tempfile.gettempdir(), system=sys.platform)
    return "pip's message is above"


def brings_cuda(python: Path, requirement: str) -> bool:
    """Whether the build that pip would take needs NVIDIA's libraries. Of a good index only metadata is downloaded."""
    pip(python, "install", "pip>=24")  # older ones download the whole build to answer
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.json"
        if pip(python, "install", "--dry-run", "--no-deps", "--report", report, requirement)[0]:
            return False  # the install itself will say what is wrong
        found = json.loads(report.read_text("utf-8"))["install"]  # empty where it is installed already
    needs = [need.lower() for item in found for need in item["metadata"].get("requires_dist", [])]
    return any(need.startswith(("nvidia", "cuda")) for need in needs)


def has_gpu() -> bool:
    tool = shutil.which("nvidia-smi")
    return bool(tool) and succeeds([tool, "-L"])


def pip(python: Path, *arguments: str | Path) -> tuple[int, str]:
    """Runs pip; its exit code, and what it said on stderr, which is shown as it comes."""
    quiet = [] if sys.stdout.isatty() else ["-qq"]  # errors only
    # Python compiles what is imported when it first is. pip would compile everything, which takes twice as long as the
    # rest of the set-up; where Python may write nothing of the kind, that is still better than compiling at each start.
    lazy = ["--no-compile"] if arguments[0] == "install" and "PYTHONDONTWRITEBYTECODE" not in surroundings() else []
    command = [str(word) for word in (python, "-m", "pip", *arguments, *lazy, *quiet)]
    said = []
    options = {"cwd": ROOT, "env": for_pip(python), "close_fds": False}
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, errors="replace", **options) as process:
        for line in process.stderr:
            print(line, end="", file=sys.stderr, flush=True)
            said.append(line)
    return process.returncode, "".join(said)


def for_pip(python: Path) -> dict[str, str]:
    """The variables for pip: what the user's own and pip's configuration files say, without the options in `MOVES`."""

    def kept(option: str) -> bool:
        return option.lower().replace("_", "-") not in MOVES

    own = {name: value for name, value in surroundings().items() if name[:4] != "PIP_" or kept(name[4:])}
    own |= {"PIP_USER": "0", "PIP_DISABLE_PIP_VERSION_CHECK": "1", "PIP_ROOT_USER_ACTION": "ignore"}
    command, aloud = [python, "-m", "pip", "config", "list"], {**own, "PIP_QUIET": "0"}
    listed = subprocess.run(command, capture_output=True, text=True, errors="replace", cwd=ROOT, env=aloud)
    if listed.returncode:  # the check after the installation will tell
        return own
    # SECTION.OPTION='VALUE'; what [install] says counts before [global], and a variable before both.
    lines = [re.fullmatch(r"(global|install)\.([\w-]+)=(.*)", line) for line in listed.stdout.splitlines()]
    found = [match.groups() for match in lines if match and kept(match[2])]  # in pip's order, [global] first
    files = {"PIP_" + option.upper().replace("-", "_"): str(ast.literal_eval(value)) for _, option, value in found}
    return {**files, **own, "PIP_CONFIG_FILE": os.devnull}


# ---------------------------------------------------------------- children


def surroundings() -> dict[str, str]:
    """This process's variables without those that would lead another Python, or change what it does.

    PYTHONPATH puts another Python's packages before the course's, PYTHONSAFEPATH hides the library, PYTHONOPTIMIZE
    leaves assertions out, PYTHONINSPECT never ends, and so on.
    """
    return {n: v for n, v in os.environ.items() if n in HARMLESS or not re.fullmatch("PYTHON[A-Z0-9]+", n)}


def run(command: list, **options) -> int:
    options = {"cwd": ROOT, "env": surroundings(), "close_fds": False, **options}
    return subprocess.run([str(word) for word in command], **options).returncode


def succeeds(command: list) -> bool:
    try:
        return run(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, timeout=60) == 0
    except (OSError, subprocess.TimeoutExpired):
        return False


def with_figures(python: Path, environment: dict[str, str]) -> dict[str, str]:
    """The variables, such that matplotlib has its list of fonts and says nothing about it in the first figure's cell.

    The list is made here, once. Where matplotlib's own folders cannot be kept (a home that cannot be written), it gets
    one in the environment: it uses temporary ones then, which are gone when its process ends.
    """
    ask = "import matplotlib as m, matplotlib.font_manager; print(m.get_configdir(), m.get_cachedir(), sep='\\n')"
    for more in ({}, {"MPLCONFIGDIR": str(python.parent.parent / "matplotlib")}):
        tried = {**environment, **more}
        done = subprocess.run([python, "-c", ask], capture_output=True, text=True, cwd=ROOT, env=tried)
        folders = done.stdout.splitlines()
        if done.returncode == 0 and all(map(os.path.isdir, folders)):
            return tried
    return environment
