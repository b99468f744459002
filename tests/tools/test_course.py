"""The set-up script: stamping, what it refuses, and that a set-up cut short is not taken for a whole one."""

from __future__ import annotations

import ast
import contextlib
import errno
import importlib.util
import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import textwrap
import time
import tomllib
import zipfile
from importlib import metadata
from pathlib import Path
from types import SimpleNamespace

import pip
import pytest

from tools import ROOT, Stop, commands, environment, installed, lengths, stamp


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    """The files that stamping reads and writes."""
    shutil.copytree(ROOT / "notebooks", tmp_path / "notebooks", ignore=shutil.ignore_patterns(".*"))
    for name in ("pyproject.toml", "README.md"):
        shutil.copy(ROOT / name, tmp_path)
    return tmp_path


def texts(root: Path) -> dict[str, str]:
    files = [*stamp.notebooks(root), root / "README.md"]
    return {file.relative_to(root).as_posix(): file.read_text("utf-8") for file in files}


# ---------------------------------------------------------------- stamping


def test_nothing_has_drifted():
    assert stamp.stamp(ROOT, check=True) == [], "run: python3 course.py stamp"


def test_stamping_again_changes_nothing(copy):
    stamp.stamp(copy)
    once = texts(copy)
    assert stamp.stamp(copy) == []
    assert texts(copy) == once


@pytest.mark.parametrize("found", ["](../README.md)", "load_pair()", "**Time, as counted**"])
def test_drift_in_a_notebook_is_named_and_mended(copy, found):
    stamp.stamp(copy)
    before = texts(copy)
    file = stamp.notebooks(copy)[0]
    file.write_text(file.read_text("utf-8").replace(found, "elsewhere"), "utf-8")
    assert stamp.stamp(copy, check=True) == [f"notebooks/{file.name}"]
    assert texts(copy) != before, "a check must not write"
    stamp.stamp(copy)
    assert texts(copy) == before


def test_the_readmes_pictures_are_the_notebooks_own(copy):
    stamp.stamp(copy)
    images = sorted((copy / "notebooks" / "pictures").glob("*.png"))
    assert images and all(i.read_bytes().startswith(b"\x89PNG") for i in images)
    assert all(f"](notebooks/pictures/{image.name})" in (copy / "README.md").read_text("utf-8") for image in images)
    images[0].write_bytes(b"an older figure")
    assert stamp.stamp(copy, check=True) == [f"notebooks/pictures/{images[0].name}"]
    stamp.stamp(copy)
    assert images[0].read_bytes().startswith(b"\x89PNG")


def test_a_picture_that_was_never_drawn_is_refused(copy):
    file = stamp.notebooks(copy)[0]
    book = json.loads(file.read_text("utf-8"))
    for cell in book["cells"]:
        if "picture" in cell["metadata"]:
            cell["outputs"] = []
    file.write_text(json.dumps(book), "utf-8")
    with pytest.raises(Stop, match="run the notebook first"):
        stamp.stamp(copy)


def test_drift_in_the_readme_is_named(copy):
    readme = copy / "README.md"
    readme.write_text(readme.read_text("utf-8").replace("Core, minutes", "Minutes"), "utf-8")
    assert stamp.stamp(copy, check=True) == ["README.md"]


def test_another_repository_reaches_every_file_and_leaves_outputs_alone(copy):
    def outputs() -> list:
        cells = [cell for file in stamp.notebooks(copy) for cell in json.loads(file.read_text("utf-8"))["cells"]]
        return [(cell.get("outputs"), cell.get("execution_count"), cell["metadata"]) for cell in cells]

    before = outputs()
    stamp.set_repository(copy, "https://github.com/somebody/a-fork.git")
    assert stamp.address(copy) == ("somebody/a-fork", "main")
    assert stamp.stamp(copy) == list(texts(copy))
    for name, text in texts(copy).items():
        assert "github/somebody/a-fork/blob/main/notebooks/" in text, name
        assert name == "README.md" or "git clone --depth 1 -q -b main https://github.com/somebody/a-fork" in text, name
    assert outputs() == before


@pytest.mark.parametrize("step", ["write_bytes", "replace"])
def test_a_stamp_that_is_interrupted_leaves_whole_files(copy, monkeypatch, step):
    before = texts(copy)
    stamp.set_repository(copy, "somebody/a-fork")
    owner, name = (Path, "write_bytes") if step == "write_bytes" else (os, "replace")
    real, left = getattr(owner, name), [2]

    def cut(first, *more):
        left[0] -= 1
        if left[0] == 0:
            if step == "write_bytes":
                real(first, more[0][:100])
            raise KeyboardInterrupt
        return real(first, *more)

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(owner, name, cut)
        stamp.stamp(copy)
    now = texts(copy)
    assert sum(now[name] != before[name] for name in before) == 1 and not list(copy.rglob("*.part"))
    stamp.stamp(copy)
    whole = texts(copy)
    assert all(now[name] in (before[name], whole[name]) for name in whole)


def test_notebooks_are_written_as_nbformat_writes_them(copy):
    import nbformat

    stamp.set_repository(copy, "somebody/a-fork")
    stamp.stamp(copy)
    for file in stamp.notebooks(copy):
        text = file.read_text("utf-8")
        assert text == nbformat.writes(nbformat.reads(text, as_version=4)).rstrip("\n") + "\n", file.name


@pytest.mark.parametrize("lost", ["<!-- badge -->", "<!-- time -->", "<!-- /navigation -->", '"setup"', "# "])
def test_a_notebook_without_its_places_is_named(copy, lost):
    file = stamp.notebooks(copy)[-1]
    file.write_text(file.read_text("utf-8").replace(lost, '"x"' if lost.startswith('"') else ""), "utf-8")
    before = texts(copy)
    with pytest.raises(Stop, match=re.escape(file.name)):
        stamp.stamp(copy)
    assert texts(copy) == before, "a stamp that fails must write nothing"


# ---------------------------------------------------------------- the command line


@pytest.mark.parametrize(
    "arguments",
    [["frobnicate"], ["--fast"], ["stamp", "no-slash"], ["stamp", "a/b", "c/d"], ["stamp", "--fix"]]
    + [["stamp", name] for name in ("../..", "./x", "a/..", "https://github.com/a/.", "a b/c")],
)
def test_bad_arguments_get_one_sentence_and_code_2(arguments, tmp_path):
    done = subprocess.run(
        [sys.executable, ROOT / "course.py", *arguments], cwd=tmp_path, capture_output=True, text=True
    )
    assert done.returncode == 2
    assert done.stdout == "" and len(done.stderr.strip().splitlines()) == 1 and "Traceback" not in done.stderr


@pytest.mark.parametrize(
    "arguments, default",
    [
        ([], True),
        (["-k", "tests"], True),
        (["-x", "-k", "notebooks"], True),
        (["tests/method/test_theory.py"], False),
        (["notebooks", "-k", "tests"], False),
        (["-x", "tests/method/test_theory.py::test_x"], False),
        (["--maxfail", "1"], True),
    ],
)
def test_only_a_path_replaces_the_tests_that_run(arguments, default, monkeypatch):
    ran = []
    monkeypatch.setattr(commands, "set_up", lambda *_: "python")
    monkeypatch.setattr(commands, "with_figures", lambda _, given: given)
    monkeypatch.setattr(commands, "run", lambda command, **options: ran.append(command) or 0)
    assert commands.test(arguments) == 0
    assert ran[-1][-len(arguments) :] == arguments or not arguments
    assert (ran[-1][len(ran[-1]) - len(arguments) - 2 :][:2] == ["tests", "notebooks"]) == default


def test_without_an_address_no_link_leads_into_the_void(copy):
    for name, links in (("OWNER/speculative-sampling", False), ("someone/course", True)):
        stamp.set_repository(copy, name)
        stamp.stamp(copy)
        for file, text in texts(copy).items():
            assert ("colab.research.google.com/github/" in text) == links, file
            assert "github.com/OWNER" not in text and "github/OWNER" not in text, file


def test_headers_and_parts_bear_the_minutes_that_were_counted(copy):
    file = stamp.notebooks(copy)[0]
    book = json.loads(file.read_text("utf-8"))
    book["cells"][-1]["source"] = [
        "## Going further (optional)\n",
        "### A part \u00b7 0 minutes\n",
        "word " * 600 + "\n",
        *book["cells"][-1]["source"],
    ]
    file.write_text(json.dumps(book), "utf-8")
    stamp.stamp(copy)
    book = json.loads(file.read_text("utf-8"))
    core, parts = lengths.measure(book)
    assert f"the core {core.minutes:.0f} minutes" in "".join(book["cells"][0]["source"])
    assert "### A part \u00b7 3 minutes\n" in book["cells"][-1]["source"] and round(parts["A part"].minutes) == 3
    assert f"| {core.minutes:.0f} | {lengths.total(core, parts):.0f} |" in (copy / "README.md").read_text("utf-8")


def test_help(capsys):
    assert commands.main(["--help"]) == 0
    assert "course.py test" in capsys.readouterr().out


def test_a_stamp_that_is_missing_or_spare_is_told(copy, monkeypatch, capsys):
    monkeypatch.setattr(commands, "ROOT", copy)
    monkeypatch.setattr(stamp.stamp, "__defaults__", (copy, False))
    assert commands.main(["stamp", "somebody/a-fork"]) == 0
    assert capsys.readouterr().out.startswith("Written: notebooks/00_")
    assert commands.main(["stamp", "--check"]) == 0
    assert capsys.readouterr().out == "Drifted: nothing\n"
    (copy / "README.md").write_text((copy / "README.md").read_text("utf-8").replace("somebody", "else"), "utf-8")
    assert commands.main(["stamp", "--check"]) == 1
    assert capsys.readouterr().out == "Drifted: README.md\n"


@pytest.mark.parametrize(
    "error, said",
    [
        (OSError(errno.ENOSPC, "No space left on device"), f"The disk with {ROOT} is full: free some room, then"),
        (OSError(errno.EDQUOT, "Quota exceeded", "/x/y"), "The disk with /x/y is full: free some room, then"),
        (PermissionError(errno.EACCES, "Permission denied", "/x/y"), "Permission denied: /x/y"),
        (BrokenPipeError(errno.EPIPE, "Broken pipe"), "Broken pipe"),
        (OSError("of no number"), "of no number"),
    ],
)
def test_the_systems_errors_get_one_sentence(error, said, monkeypatch, capsys):
    def fails():
        raise error

    monkeypatch.setattr(commands, "start", fails)
    assert commands.main([]) == 1
    shown = capsys.readouterr().err
    assert shown.startswith(said) and shown.count("\n") == 1 and "None" not in shown


# ---------------------------------------------------------------- any Python, any surroundings


def test_the_starter_is_written_in_what_old_pythons_read():
    """Python 2.7 knows each of these kinds of expression, and reads a file without further ado if it is ASCII."""
    old = "Module Expr Constant Import ImportFrom alias Name Attribute Subscript Slice Call Compare BinOp Mod Tuple "
    old += "List If Assign Load Store Lt Eq Try ExceptHandler"
    source = (ROOT / "course.py").read_bytes().decode("ascii")
    kinds = {type(node).__name__ for node in ast.walk(ast.parse(source, feature_version=(3, 4)))}
    assert kinds <= set(old.split()), kinds - set(old.split())
    assert "__future__" not in source and not re.search(r"\b[fF]['\"]", source)


OLD = [(2, 7), (3, 7), (3, 10)]


@pytest.mark.parametrize("version", OLD, ids=map(str, OLD))
def test_an_old_python_gets_one_sentence(version):
    pretend = f"import runpy, sys; sys.version_info = ({version[0]}, {version[1]}, 1); sys.modules['tools'] = None; "
    command = [sys.executable, "-c", pretend + "runpy.run_path('course.py', run_name='__main__')"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (1, "") and done.stderr.count("\n") == 1
    assert f"needs Python 3.11, 3.12 or 3.13, and this is Python {version[0]}.{version[1]}:" in done.stderr


def found(version: tuple[int, int]) -> str | None:
    """An old Python that starts, if this machine has one."""
    path = shutil.which(f"python{version[0]}.{version[1]}")
    asked = path and subprocess.run([path, "-c", "import sys; print(sys.version)"], capture_output=True, text=True)
    return path if asked and asked.stdout.startswith(f"{version[0]}.{version[1]}.") else None


@pytest.mark.parametrize("version", OLD, ids=map(str, OLD))
def test_a_real_old_python_gets_it_too(version):
    if not (path := found(version)):
        pytest.skip("no such Python here")
    done = subprocess.run([path, "-B", "course.py"], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 1 and done.stderr.count("\n") == 1 and "needs Python 3.11" in done.stderr


def test_a_newer_python_gets_a_note(capsys):
    for minor in (11, 12, 13):
        environment.check_python((3, minor, 0))
    assert capsys.readouterr().err == ""
    environment.check_python((3, 14, 0))
    assert "3.14" in capsys.readouterr().err


@pytest.fixture
def shadows(tmp_path) -> Path:
    """A folder of another Python's packages, none of which may be taken."""
    for name in ("tools", "json", "ast", "shlex"):
        (tmp_path / "other").mkdir(exist_ok=True)
        (tmp_path / "other" / f"{name}.py").write_text(f"raise SystemExit('{name} of another Python')\n")
    return tmp_path / "other"


@pytest.mark.parametrize("name, value", [("PYTHONPATH", None), ("PYTHONSAFEPATH", "1"), ("PYTHONOPTIMIZE", "2")])
def test_course_py_starts_whatever_is_said_to_python(shadows, tmp_path, name, value):
    surroundings = {**os.environ, name: value or str(shadows)}
    command = [sys.executable, ROOT / "course.py", "--help"]
    done = subprocess.run(command, cwd=tmp_path, env=surroundings, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "") and "course.py test" in done.stdout


def test_children_are_told_nothing_that_is_meant_for_another_python(shadows, monkeypatch, capfd):
    monkeypatch.setenv("PYTHONPATH", str(shadows))
    monkeypatch.setenv("PYTHONSAFEPATH", "1")
    monkeypatch.setenv("PYTHONOPTIMIZE", "1")
    monkeypatch.setenv("PYTHONSTARTUP", str(shadows / "json.py"))
    monkeypatch.setenv("PYTHONIOENCODING", "utf-8")
    monkeypatch.setenv("PYTHON_KEYRING_BACKEND", "x")  # not Python's own: pip's way to a company's password
    assert environment.run([sys.executable, "-c", "import json, tools.stamp; assert False, 'checked'"]) == 1
    assert "AssertionError: checked" in capfd.readouterr().err
    kept = {name for name in environment.surroundings() if name.startswith("PYTHON")}
    assert {"PYTHONIOENCODING", "PYTHON_KEYRING_BACKEND"} <= kept
    assert kept - {"PYTHON_KEYRING_BACKEND"} <= environment.HARMLESS


@pytest.mark.parametrize("way", ["start", "test"])
def test_every_child_gets_these_surroundings(monkeypatch, way):
    """The library, JupyterLab, ruff and pytest."""
    monkeypatch.setenv("PYTHONPATH", "elsewhere")
    monkeypatch.setenv("MPLBACKEND", "pdf")
    monkeypatch.setattr(commands, "set_up", lambda *_: Path(sys.executable))
    monkeypatch.setattr(commands, "with_figures", lambda _, given: {**given, "MPLCONFIGDIR": "fonts"})
    monkeypatch.setattr(commands, "has_browser", lambda: True)
    for stream in ("stdin", "stdout"):
        monkeypatch.setattr(getattr(sys, stream), "isatty", lambda: True, raising=False)
    ran = []

    def child(command, **options):
        ran.append((" ".join(map(str, command[1:3])), options["env"]))
        return SimpleNamespace(returncode=0, wait=lambda: 0)

    monkeypatch.setattr(subprocess, "run", child)
    monkeypatch.setattr(subprocess, "Popen", child)
    assert (commands.start() if way == "start" else commands.test([])) == 0
    names = {"start": ["-m spec_lib", "-m jupyterlab"], "test": ["-m ruff", "-m ruff", "-m pytest"]}[way]
    assert [name for name, _ in ran] == names
    assert all("PYTHONPATH" not in given for _, given in ran)
    assert ran[-1][1]["MPLCONFIGDIR"] == "fonts"
    if way == "test":
        last = ran[-1][1]
        assert (last["OMP_NUM_THREADS"], last["SPEC_PAIR"], last["HF_HUB_OFFLINE"]) == ("1", "tiny", "1")
        assert "MPLBACKEND" not in last


def test_links_of_the_notebooks_lead_somewhere_in_the_jupyterlab_that_is_started(capsys, monkeypatch):
    """*Contents*, in every notebook, did nothing: JupyterLab's root was the folder of the notebook that it opened.

    Right: its root holds whatever a notebook or a page beside it links to. So does it without a browser, where the
    command is printed, and for conda.
    """
    monkeypatch.setattr(commands, "set_up", lambda *_: Path(sys.executable))
    monkeypatch.setattr(commands, "with_figures", lambda _, given: given)
    monkeypatch.setattr(commands, "run", lambda *_, **__: 0)
    monkeypatch.setattr(commands, "has_browser", lambda: False)
    assert commands.start() == 0
    words = shlex.split(capsys.readouterr().out.splitlines()[-1])
    (root,) = [Path(word.removeprefix("--ServerApp.root_dir=")) for word in words if "root_dir" in word]
    assert any(Path(word).parent == ROOT / "notebooks" for word in words)
    pages = {file: [cell["source"] for cell in stamp.read(file)["cells"]] for file in stamp.notebooks(ROOT)}
    pages |= {file: [file.read_text("utf-8")] for file in (ROOT / "notebooks").glob("*.md")}
    links = {
        (file.parent / link).resolve()
        for file, parts in pages.items()
        for part in parts
        for link in re.findall(r"\]\((?!http|#)([^)#]+)", "".join(part))
    }
    assert ROOT / "README.md" in links and [link for link in links if not link.is_relative_to(root)] == []
    running = " ".join((ROOT / "notebooks" / "RUNNING.md").read_text("utf-8").split())
    assert "`jupyter lab`, in the course's folder" in running and "jupyter lab notebooks" not in running


def test_cis_second_pass_uses_what_there_is():
    """It calls the install and the tests of the first pass, and with them the list of fonts."""
    text = (ROOT / ".ci" / "run").read_text("utf-8")
    called = re.findall(r"\b(commands|environment)\.(\w+)\(", text)
    assert set(called) == {("commands", "run_tests"), ("environment", "install")}
    assert all(hasattr(globals()[module], name) for module, name in called)


@pytest.fixture
def elsewhere(tmp_path) -> Path:
    """A copy of what starts the course, in a folder whose name few encodings hold; its long steps do nothing."""
    folder = tmp_path / "é 日本"
    folder.mkdir()
    shutil.copy(ROOT / "course.py", folder)
    shutil.copytree(ROOT / "tools", folder / "tools", ignore=shutil.ignore_patterns("__pycache__"))
    (folder / "requirements.txt").write_text("tinypkg==1.0\n")
    (folder / "pretend.py").write_text(
        "import sys\nfrom tools import commands, environment\n"
        "environment.make_venv = environment.install = lambda *_: None\n"
        "commands.run = lambda *_, **__: 0\n"
        "commands.with_figures = lambda _, given: given\n"
        "sys.exit(commands.main(sys.argv[1:]))\n"
    )
    return folder


@pytest.mark.parametrize("encoding", ["cp1252", "ascii", "cp932", "utf-8"])
def test_an_output_without_the_folders_letters(elsewhere, encoding):
    for words, code in (([], 0), (["日本"], 2)):
        done = subprocess.run(
            [sys.executable, elsewhere / "pretend.py", *words],
            env={**os.environ, "PYTHONIOENCODING": encoding, "PYTHONUTF8": "1"},
            stdin=subprocess.DEVNULL,
            capture_output=True,
        )
        shown, said = (text.decode(encoding) for text in (done.stdout, done.stderr))
        assert done.returncode == code, said
        assert "Traceback" not in said
        if not words:
            assert "Setting up" in shown and "-m jupyterlab" in shown
        letters = elsewhere.name if not words else words[0]
        assert letters.encode(encoding, "replace").decode(encoding) in (said if words else shown)


@pytest.mark.skipif(sys.platform != "linux", reason="only there a folder's name may be bytes that are no text")
def test_a_folder_whose_name_is_no_text(elsewhere):
    other = os.fsdecode(os.fsencode(elsewhere.parent) + b"/caf\xe9")
    os.rename(elsewhere, other)
    command = [sys.executable, other + "/pretend.py"]
    done = subprocess.run(
        command, env={**os.environ, "PYTHONIOENCODING": "utf-8"}, stdin=subprocess.DEVNULL, capture_output=True
    )
    assert done.returncode == 0 and b"-m jupyterlab" in done.stdout


# ---------------------------------------------------------------- the environment


def set_up(venv: Path, requirements: Path, part: str = "tests") -> Path:
    return environment.set_up(part, venv, requirements)


def finished(venv: Path, requirements: Path, part: str = "tests") -> bool:
    return environment.finished(part, venv, requirements)


@pytest.fixture
def pretend(tmp_path, monkeypatch):
    """A set-up in a temporary folder whose two long steps only leave a trace."""
    requirements = tmp_path / "requirements.txt"
    requirements.write_text("torch==1.0\n")
    venv, steps = tmp_path / ".venv", []

    def make(folder):
        steps.append("make")
        python = environment.venv_python(folder)
        python.parent.mkdir(parents=True)
        python.write_text("sound")
        (folder / "lib" / "python3" / "site-packages").mkdir(parents=True)

    def wrong(python):
        told = python.read_text() if python.exists() else "holds nothing"
        return None if told == "sound" else told

    monkeypatch.setattr(environment, "make_venv", make)
    monkeypatch.setattr(environment, "install", lambda *_: steps.append("install"))
    monkeypatch.setattr(environment, "what_is_wrong", wrong)
    return venv, requirements, steps


def test_set_up_once_and_again_when_the_versions_change(pretend):
    venv, requirements, steps = pretend
    assert set_up(venv, requirements) == environment.venv_python(venv)
    assert steps == ["make", "install"]
    set_up(venv, requirements)
    assert steps == ["make", "install"]
    requirements.write_text("torch==2.0\n")
    set_up(venv, requirements)
    assert steps == ["make", "install", "install"]


PART = {"library": "torch==1.0", "notebooks": "jupyterlab==1.0", "tests": "pytest==1.0"}


def test_each_command_sets_up_what_it_needs_and_no_more(pretend, monkeypatch, capsys):
    """And what is there is not done again, in whatever order the commands come."""
    venv, requirements, steps = pretend
    requirements.write_text("# versions\n" + "".join(f"# -- {part}, and more\n{pin}\n" for part, pin in PART.items()))
    monkeypatch.setattr(environment, "install", lambda *given: steps.append(environment.pins(*given[1:3])))
    for count, part in enumerate(PART, 1):
        set_up(venv, requirements, part)
        assert [finished(venv, requirements, other) for other in PART] == [n < count for n in range(3)]
        said = capsys.readouterr().out
        assert said.startswith(environment.MORE[part] if count > 1 else "Setting up")
    pins = list(PART.values())
    assert steps == ["make", pins[:1], pins[:2], pins]
    for part in PART:
        set_up(venv, requirements, part)
    assert len(steps) == 4 and not capsys.readouterr().out
    requirements.write_text(requirements.read_text().replace("pytest==1", "pytest==2"))
    set_up(venv, requirements, "library")
    assert steps[4:] == [pins[:1]] and not finished(venv, requirements, "tests")


@pytest.mark.parametrize(
    "cut, steps_after", [(Stop("no network"), ["install"]), (KeyboardInterrupt, ["make", "install"])]
)
def test_packages_that_could_not_be_added_cost_nothing_of_what_is_there(pretend, monkeypatch, cut, steps_after):
    """pip that says no leaves the first parts whole; one that was killed may not."""
    venv, requirements, steps = pretend
    set_up(venv, requirements, "library")

    def fails(*_):
        raise cut

    with monkeypatch.context() as patch, pytest.raises((Stop, KeyboardInterrupt)):
        patch.setattr(environment, "install", fails)
        set_up(venv, requirements, "notebooks")
    assert finished(venv, requirements, "library") == isinstance(cut, Stop)
    steps.clear()
    set_up(venv, requirements, "notebooks")
    assert steps == steps_after


def needed(part: str) -> set[str]:
    """The distributions that an environment of that part holds, as far as this one has them."""
    waiting, found = environment.pins(ROOT / "requirements.txt", part), set()
    while waiting:
        need = installed.Requirement(waiting.pop())
        name = re.sub(r"[-_.]+", "-", need.name).lower()
        if name in found or (need.marker and not need.marker.evaluate({"extra": ""})):
            continue
        with contextlib.suppress(metadata.PackageNotFoundError):
            waiting += metadata.distribution(name).requires or []
            found.add(name)
    return found


def modules_beyond(part: str) -> set[str]:
    """What can be imported here and could not be with that part alone."""
    there = needed(part) | {"pip", "setuptools"}
    names = metadata.packages_distributions().items()
    return {name for name, of in names if not {re.sub(r"[-_.]+", "-", one).lower() for one in of} & there}


def test_the_first_text_needs_the_first_part_alone(tmp_path):
    beyond = modules_beyond("library")
    assert {"matplotlib", "jupyterlab", "IPython", "pytest", "openai"} <= beyond and not {"torch", "yaml"} & beyond
    (tmp_path / "sitecustomize.py").write_text(
        "from importlib.machinery import PathFinder\n"
        f"beyond, find = {beyond!r}, PathFinder.find_spec\n"
        "def find_spec(name, *more):\n"
        "    return None if name.partition('.')[0] in beyond else find(name, *more)\n"
        "PathFinder.find_spec = find_spec\n"
    )
    words = ["generate", "Once upon a time", "--max-new-tokens", "8", "--seed", "1", "--compare", "-v"]
    given = {**os.environ, "SPEC_PAIR": "tiny", "PYTHONPATH": os.pathsep.join([str(tmp_path), str(ROOT)])}
    done = subprocess.run([sys.executable, "-m", "spec_lib", *words], env=given, capture_output=True, text=True)
    assert done.returncode == 0 and "forward pass" in done.stdout + done.stderr, done.stderr


def test_notebooks_and_library_import_nothing_that_comes_with_the_tests():
    beyond, found = modules_beyond("notebooks"), set()
    assert {"pytest", "openai", "hypothesis"} <= beyond
    texts = [file.read_text("utf-8") for file in (ROOT / "spec_lib").rglob("*.py")]
    for file in stamp.notebooks(ROOT):
        cells = json.loads(file.read_text("utf-8"))["cells"]
        texts += ["".join(cell["source"]) for cell in cells if cell["cell_type"] == "code"]
    for text in texts:
        for node in ast.walk(ast.parse(re.sub(r"^\s*[%!].*", "", text, flags=re.M))):
            found |= {alias.name.partition(".")[0] for alias in node.names} if isinstance(node, ast.Import) else set()
            if isinstance(node, ast.ImportFrom) and node.module and not node.level:
                found.add(node.module.partition(".")[0])
    assert "matplotlib" in found and not found & beyond


def test_an_environment_whose_course_has_moved_is_told_where_it_is(pretend, monkeypatch, tmp_path):
    venv, requirements, steps = pretend
    set_up(venv, requirements)
    steps.clear()
    monkeypatch.setattr(environment, "ROOT", tmp_path / "caf\u00e9 's")
    set_up(venv, requirements)
    assert steps == ["install"] and finished(venv, requirements)
    line = (venv / "lib" / "python3" / "site-packages" / environment.PATH).read_bytes().decode("ascii")
    names: dict = {}
    exec(line.replace("sys.path.append", "found = str"), names)  # what Python's start would add
    assert names["found"] == str(environment.ROOT)


@pytest.mark.parametrize("step", ["make_venv", "install"])
@pytest.mark.parametrize("cut", [KeyboardInterrupt, Stop("no network")])
def test_an_interrupted_set_up_starts_afresh(pretend, monkeypatch, step, cut):
    venv, requirements, steps = pretend

    def interrupted(*_):
        (venv / "half").touch()
        raise cut

    with monkeypatch.context() as patch, pytest.raises((KeyboardInterrupt, Stop)):
        patch.setattr(environment, step, interrupted)
        set_up(venv, requirements)
    steps.clear()
    set_up(venv, requirements)
    assert steps == ["make", "install"] and not (venv / "half").exists()


@pytest.mark.parametrize("note", [b"", b"\0\0\0\0", b"\xff\xfe", b"unfin", b"unfinished\n"])
def test_a_note_that_was_cut_off_is_no_finished_one(pretend, note):
    venv, requirements, steps = pretend
    set_up(venv, requirements)
    (venv / environment.NOTE).write_bytes(note)
    (venv / "half").mkdir()
    steps.clear()
    set_up(venv, requirements)
    assert steps == ["make", "install"] and not (venv / "half").exists()


@pytest.mark.parametrize("fault", ["holds no Python that starts", None])
def test_an_environment_of_ours_whose_python_is_gone_is_made_anew(pretend, fault):
    """Its Python is a link into one that was upgraded; on Windows it is there, and does not start."""
    venv, requirements, steps = pretend
    python = set_up(venv, requirements)
    python.unlink()
    if fault:
        python.write_text(fault)
    steps.clear()
    set_up(venv, requirements)
    assert steps == ["make", "install"]


def test_an_environment_made_by_hand_is_used_and_never_emptied(pretend, monkeypatch):
    venv, requirements, steps = pretend
    environment.make_venv(venv)
    (venv / "mine").touch()
    steps.clear()

    def fails(*_):
        raise Stop("no network")

    with monkeypatch.context() as patch, pytest.raises(Stop, match="no network"):
        patch.setattr(environment, "install", fails)
        set_up(venv, requirements)
    for text in ("torch==1.0\n", "torch==2.0\n"):
        requirements.write_text(text)
        set_up(venv, requirements)
        set_up(venv, requirements)
    assert steps == ["install", "install"] and (venv / "mine").exists()


def test_an_environment_made_by_hand_that_cannot_serve_gets_one_sentence(pretend):
    venv, requirements, steps = pretend
    environment.make_venv(venv)
    environment.venv_python(venv).write_text("holds Python 3.10, where the course needs 3.11 or newer")
    steps.clear()
    for _ in range(2):  # at every start, and nothing is done to it
        with pytest.raises(Stop, match="not of the course's making and holds Python 3.10, .* rename or delete it"):
            set_up(venv, requirements)
        assert steps == [] and environment.venv_python(venv).exists()
    assert not (venv / environment.NOTE).exists()


def test_the_environment_in_use_is_not_taken_away(pretend, monkeypatch):
    venv, requirements, steps = pretend
    set_up(venv, requirements)
    (venv / environment.NOTE).write_text("unfinished")
    monkeypatch.setattr(sys, "prefix", str(venv))
    with pytest.raises(Stop, match="deactivate"):
        set_up(venv, requirements)
    assert environment.venv_python(venv).exists()


def test_what_cannot_be_removed_is_named(pretend, monkeypatch):
    venv, requirements, _ = pretend
    set_up(venv, requirements)
    (venv / environment.NOTE).write_text("unfinished")

    def busy(folder):
        raise PermissionError(errno.EACCES, "Access is denied", "python.exe")

    monkeypatch.setattr(shutil, "rmtree", busy)
    with pytest.raises(Stop, match=r"could not be emptied \(Access is denied: python.exe\): close what uses it"):
        set_up(venv, requirements)


def script(file: Path, text: str) -> Path:
    """A program in place of a Python."""
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(f"#!/bin/sh\n{text}\n")
    file.chmod(0o755)
    return file


@pytest.mark.skipif(os.name == "nt", reason="the stand-ins are shell scripts")
@pytest.mark.parametrize(
    "text, fault",
    [
        (f'exec "{sys.executable}" "$@"', None),
        ("echo 3 10 True", "holds Python 3.10, where the course needs 3.11 or newer"),
        ("echo 3 9 False", "holds Python 3.9, where the course needs 3.11 or newer"),
        ("echo 3 13 False", "holds no pip for its Python 3.13"),
        ("echo No Python at that place >&2; exit 103", "holds no Python that starts"),
        ("", "holds no Python that starts"),
        (None, "holds no Python that starts"),
    ],
)
def test_what_is_wrong_with_a_python(tmp_path, text, fault):
    python = tmp_path / "bin" / "python"
    if text is None:
        python.parent.mkdir()
        python.symlink_to(tmp_path / "nowhere")
    else:
        script(python, text)
    assert environment.what_is_wrong(python) == fault


def test_ctrl_c_while_the_environment_is_made_is_no_traceback(tmp_path, monkeypatch):
    """`python -m venv` itself ends in one."""
    ran = []
    monkeypatch.setattr(environment, "run", lambda command: ran.extend(command))
    environment.make_venv(tmp_path / "venv")
    (tmp_path / "venv.py").write_text("import sys\nassert len(sys.argv) == 2\nraise KeyboardInterrupt\n")
    given = {**os.environ, "PYTHONPATH": str(tmp_path)}
    done = subprocess.run([str(word) for word in ran], env=given, capture_output=True, text=True)
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "")


def test_ctrl_c_before_the_first_line_is_no_traceback(elsewhere):
    (elsewhere / "tools" / "commands.py").write_text("raise KeyboardInterrupt\n")
    done = subprocess.run([sys.executable, elsewhere / "course.py"], capture_output=True, text=True)
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "")


def test_a_python_without_ensurepip_gets_one_sentence(tmp_path, monkeypatch):
    there = importlib.util.find_spec("json")
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "ensurepip" else there)
    with pytest.raises(Stop, match="apt install python3-venv"):
        environment.make_venv(tmp_path / "venv")


@pytest.mark.parametrize("free, sentence", [(10e6, "is full: free some room"), (10e9, "its message is above")])
def test_an_environment_that_cannot_be_made(tmp_path, monkeypatch, free, sentence):
    ran = []
    monkeypatch.setattr(environment, "run", lambda command: ran.append(command) or 1)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=free))
    monkeypatch.setattr(sys, "_base_executable", "the Python below", raising=False)
    with pytest.raises(Stop, match=sentence):
        environment.make_venv(tmp_path)
    assert ran[0][0] == "the Python below", "not that of an active environment"


# ---------------------------------------------------------------- two starts at a time

TRACE = """\
import subprocess, sys, time
from pathlib import Path
from tools import environment

venv, trace, name, slow = Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3], sys.argv[4]

def step(what):
    # in a child, as the real steps are
    text = f"import time; f = open({str(trace)!r}, 'a'); print({name!r}, {what!r}, file=f, flush=True); "
    text += f"time.sleep({1.5 if slow == what else 0}); print({name!r}, 'end', {what!r}, file=f)"
    environment.run([sys.executable, "-c", text])

def make(folder):
    step("make")
    (folder / "python").touch()

environment.make_venv, environment.install = make, lambda *_: step("install")
environment.venv_python = lambda venv: venv / "python"
environment.what_is_wrong = lambda python: None if python.exists() else "holds nothing"
print(environment.set_up("tests", venv, Path(sys.argv[5])), flush=True)
"""


@pytest.fixture
def begin(tmp_path):
    """Starts set-ups in processes of their own: begin(name, the slow step)."""
    (tmp_path / "start.py").write_text(TRACE)
    (tmp_path / "requirements.txt").write_text("torch==1.0\n")
    (tmp_path / "trace").touch()
    started = []

    def make(name: str, slow: str = "") -> subprocess.Popen:
        words = [tmp_path / ".venv", tmp_path / "trace", name, slow, tmp_path / "requirements.txt"]
        command = [sys.executable, tmp_path / "start.py", *words]
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
        started.append(subprocess.Popen(command, env={**os.environ, "PYTHONPATH": str(ROOT)}, **pipes))
        return started[-1]

    yield make
    for process in started:
        with contextlib.suppress(OSError):
            process.kill()
        process.communicate()


def wait_for(file: Path, text: str) -> None:
    end = time.monotonic() + 30
    while text not in file.read_text():
        assert time.monotonic() < end, f"{text!r} never came"
        time.sleep(0.01)


@pytest.mark.parametrize("phase", ["make", "install"])
def test_a_second_start_waits_for_the_first(tmp_path, begin, phase):
    first = begin("first", slow=phase)
    wait_for(tmp_path / "trace", f"first {phase}")
    others = [begin("second"), begin("third")]
    done = [process.communicate(timeout=60)[0] for process in (first, *others)]
    assert [process.returncode for process in (first, *others)] == [0, 0, 0], done
    steps = ["first make", "first end make", "first install", "first end install"]
    assert (tmp_path / "trace").read_text().splitlines() == steps, "the environment is made once"
    assert "waiting for it" not in done[0]
    for text in done[1:]:
        assert text.count("waiting for it") == 1 and "Setting up" not in text


@pytest.mark.skipif(os.name == "nt", reason="there a child does not hold its parent's lock")
def test_a_start_that_was_killed_is_followed_when_its_child_has_ended(tmp_path, begin):
    first = begin("first", slow="install")
    wait_for(tmp_path / "trace", "first install")
    os.kill(first.pid, signal.SIGKILL)  # and its child, which stands for pip, goes on
    said = begin("second").communicate(timeout=60)[0]
    lines = (tmp_path / "trace").read_text().splitlines()
    assert lines.index("first end install") < lines.index("second make"), "not emptied under a pip at work"
    assert lines[-1] == "second end install" and said.index("waiting for it") < said.index("Setting up")


def test_a_lock_left_by_a_power_cut_holds_nobody_up(tmp_path, begin):
    (tmp_path / ".venv").mkdir()
    (tmp_path / ".venv" / environment.LOCK).write_text("what a process left behind")
    said = begin("first").communicate(timeout=60)[0]
    assert "waiting" not in said and "Setting up" in said
    assert (tmp_path / "trace").read_text().endswith("first end install\n")


class Msvcrt:
    """Windows' locks, as far as they are used, on a file that one of several holders has."""

    LK_NBLCK = 2

    def __init__(self):
        self.held = set()

    def locking(self, file: int, mode: int, length: int) -> None:
        assert (mode, length, os.lseek(file, 0, os.SEEK_CUR)) == (self.LK_NBLCK, 1, 0)
        if self.held:
            raise PermissionError(errno.EACCES, "Permission denied")
        self.held.add(file)


def test_windows_has_its_own_locks(tmp_path, monkeypatch):
    windows = Msvcrt()
    monkeypatch.setitem(sys.modules, "msvcrt", windows)
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    (tmp_path / "a").write_text("so that the end, where it opens, is not the beginning")
    with open(tmp_path / "a", "a+b") as one, open(tmp_path / "a", "a+b") as two:
        assert environment.lock(one.fileno()) and not environment.lock(two.fileno())
        windows.held.clear()
        assert environment.lock(two.fileno())


def test_a_file_system_without_locks_does_without(tmp_path, monkeypatch):
    fcntl = pytest.importorskip("fcntl")

    def none(*_):
        raise OSError(errno.ENOLCK, "No locks available")

    def waits(_):
        raise AssertionError("for a lock that cannot be had")

    monkeypatch.setattr(fcntl, "flock", none)
    monkeypatch.setattr(time, "sleep", waits)
    with environment.alone(tmp_path / "venv"):
        pass


# ---------------------------------------------------------------- the packages


def installs(monkeypatch, tmp_path, gpu: bool, cuda: bool, index: bool) -> list[str]:
    """What is installed, in order, on a machine as described (index: whether PyTorch's is in reach)."""
    calls = []

    def fake(_, *words):
        calls.append(" ".join(str(word) for word in words))
        return 0 if index or environment.CPU_INDEX not in words else 1, ""

    monkeypatch.setattr(sys, "platform", "linux")
    monkeypatch.setattr(environment, "has_gpu", lambda: gpu)
    monkeypatch.setattr(environment, "brings_cuda", lambda *_: cuda)
    monkeypatch.setattr(environment, "pip", fake)
    monkeypatch.setattr(subprocess, "run", lambda *_, **__: SimpleNamespace(returncode=0, stdout="\n"))
    environment.install(tmp_path, ROOT / "requirements.txt")
    return calls


def test_cuda_is_avoided_where_there_is_no_gpu(tmp_path, monkeypatch, capsys):
    plain = [" ".join(["install", *environment.pins(ROOT / "requirements.txt")])]
    assert installs(monkeypatch, tmp_path, gpu=True, cuda=True, index=True) == plain
    assert installs(monkeypatch, tmp_path, gpu=False, cuda=False, index=True) == plain
    first, *rest = installs(monkeypatch, tmp_path, gpu=False, cuda=True, index=True)
    assert re.search(r" torch==[\d.]+\+cpu$", first) and rest == plain
    assert "several GB" not in capsys.readouterr().out
    assert installs(monkeypatch, tmp_path, gpu=False, cuda=True, index=False)[1:] == plain
    assert "several GB" in capsys.readouterr().out


@pytest.mark.parametrize("need, cuda", [("nvidia-nccl-cu13==2", True), ("cuda-toolkit[nvtx]", True), ("sympy", False)])
def test_cuda_is_seen_in_pips_report(tmp_path, monkeypatch, need, cuda):
    def fake(_, *words):
        if "--report" in words:
            report = {"install": [{"metadata": {"name": "torch", "requires_dist": ["jinja2", need]}}]}
            words[words.index("--report") + 1].write_text(json.dumps(report))
        return 0, ""

    monkeypatch.setattr(environment, "pip", fake)
    assert environment.brings_cuda(tmp_path, "torch==1.0") is cuda


@pytest.fixture(scope="module")
def small(tmp_path_factory) -> SimpleNamespace:
    """A real environment with nothing but pip in it, and two packages of a few bytes, one of which needs the other."""
    folder = tmp_path_factory.mktemp("small")
    for name, need in (("tinypkg", "Requires-Dist: tinydep\n"), ("tinydep", "")):
        info = f"{name}-1.0.dist-info"
        files = {f"{name}.py": "", f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n{need}"}
        files[f"{info}/WHEEL"] = "Wheel-Version: 1.0\nGenerator: x\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        files[f"{info}/RECORD"] = "".join(f"{file},,\n" for file in (*files, f"{info}/RECORD"))
        with zipfile.ZipFile(folder / f"{name}-1.0-py3-none-any.whl", "w") as wheel:
            for file, text in files.items():
                wheel.writestr(file, text)
    (folder / "requirements.txt").write_text("# one\ntinypkg==1.0  # and what it needs\n")
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder / "venv"], check=True)
    python = environment.venv_python(folder / "venv")
    place = subprocess.run([python, "-c", "import site; print(site.getsitepackages()[-1])"], stdout=subprocess.PIPE)
    shutil.copytree(Path(pip.__file__).parent, Path(place.stdout.decode().strip(), "pip"))  # faster than ensurepip
    return SimpleNamespace(folder=folder, python=python, requirements=folder / "requirements.txt")


@pytest.fixture
def pips_surroundings(monkeypatch, small, tmp_path) -> None:
    """Only what a test says: no variables for pip and no configuration file, and the small packages in reach."""
    for name in [name for name in os.environ if name.startswith("PIP_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("PIP_CONFIG_FILE", str(tmp_path / "pip.conf"))
    (tmp_path / "pip.conf").write_text(f"[global]\nquiet = 2\nno-index = true\nfind-links =\n    {small.folder}\n")
    yield
    packages = ["tinypkg", "tinydep"]
    subprocess.run([small.python, "-m", "pip", "uninstall", "-qqy", *packages], env=environment.surroundings())


@pytest.mark.parametrize("where", ["variables", "configuration"])
def test_packages_come_here_wherever_pip_is_told_to_put_them(pips_surroundings, small, tmp_path, monkeypatch, where):
    options = {"target": tmp_path / "elsewhere", "no-deps": "true", "dry-run": "true"}
    if where == "variables":
        for name, value in options.items():
            monkeypatch.setenv("PIP_" + name.upper().replace("-", "_"), str(value))
    else:
        lines = "".join(f"{name} = {value}\n" for name, value in options.items())
        (tmp_path / "pip.conf").write_text((tmp_path / "pip.conf").read_text() + f"[install]\n{lines}")
    environment.install(small.python, small.requirements)
    assert not (tmp_path / "elsewhere").exists()
    done = subprocess.run([small.python, "-I", "-c", "import tinypkg, tinydep"], capture_output=True, text=True)
    assert done.stderr == ""


MOVING = ["TARGET", "PREFIX", "ROOT", "USER", "DRY_RUN", "NO_DEPS", "NO_DEPENDENCIES", "REQUIREMENT", "EDITABLE"]
MOVING += ["PYTHON", "PLATFORM", "VERSION", "no_deps", "FORCE_REINSTALL"]


def test_of_pips_options_only_those_that_move_the_packages_are_left_out(monkeypatch, tmp_path, small):
    kept = {"PIP_INDEX_URL": "https://mirror", "PIP_CERT": "c", "PIP_PROXY": "p", "PIP_NO_CACHE_DIR": "1"}
    for name, value in {**kept, **{f"PIP_{name}": "23.0" for name in MOVING}}.items():
        monkeypatch.setenv(name, value)
    (tmp_path / "pip.conf").write_text(
        "[global]\ntimeout = 7\nindex-url = https://less\nretries = 1\n[install]\nretries = 2\nprefix = /x\n"
        "[download]\nretries = 3\n"
    )
    monkeypatch.setenv("PIP_CONFIG_FILE", str(tmp_path / "pip.conf"))
    given = environment.for_pip(small.python)
    assert kept.items() <= given.items(), "a variable counts before a file"
    assert (given["PIP_TIMEOUT"], given["PIP_RETRIES"]) == ("7", "2"), "[install] counts before [global]"
    assert given["PIP_USER"] == "0" and not {f"PIP_{name}" for name in MOVING if name != "USER"} & set(given)
    assert given["PIP_CONFIG_FILE"] == os.devnull


def test_an_install_that_left_nothing_is_not_finished(tmp_path, monkeypatch, small):
    """Whatever it was that led pip astray."""
    (tmp_path / "requirements.txt").write_text("tinypkg==1.0\n")
    venv = small.folder / "venv"
    monkeypatch.setattr(environment, "pip", lambda *_: (0, ""))
    with pytest.raises(Stop, match=r"lacks what it should hold \(tinypkg\): .* `pip config list`"):
        set_up(venv, tmp_path / "requirements.txt")
    assert not finished(venv, tmp_path / "requirements.txt")


@pytest.mark.parametrize("writes", [True, False])
def test_pip_leaves_compiling_to_the_first_import_unless_python_may_not_write_it(tmp_path, monkeypatch, writes):
    monkeypatch.delenv("PYTHONDONTWRITEBYTECODE", raising=False)
    if not writes:
        monkeypatch.setenv("PYTHONDONTWRITEBYTECODE", "1")
    python = script(tmp_path / "bin" / "python", 'echo "$@" >&2')
    assert ("--no-compile" in environment.pip(python, "install", "x")[1].split("\n")[0]) == writes
    assert "--no-compile" not in environment.pip(python, "config", "list")[1]


def test_what_is_lacking_is_told(monkeypatch):
    there = {"one": ("1.0+cpu", ["two>=1", "five; extra == 'more'", "six; python_version < '3'"]), "two": ("3", None)}
    there["three"] = ("2.0", ["four", "one==9"])

    def distribution(name):
        if name not in there:
            raise installed.PackageNotFoundError(name)
        return SimpleNamespace(version=there[name][0], requires=there[name][1])

    monkeypatch.setattr(installed, "distribution", distribution)
    assert installed.lacking(["one==1.0"]) == []
    assert installed.lacking(["one[more]==1.0"]) == ["five"]
    assert installed.lacking(["one==2.0", "three==2.0"]) == ["one==2.0 (there is 1.0+cpu)", "four"]
    assert installed.lacking(["seven==1"]) == ["seven"]


FAILURES = [
    ("OSError: [Errno 28] No space left on device: '/x'", "the disk is full"),
    ("OSError: [Errno 122] Disk quota exceeded", "the disk is full"),
    ("OSError: [WinError 112] There is not enough space on the disk", "the disk is full"),
    ("OSError: [Errno 13] Permission denied: '/root/x'", "cannot be written"),
    ("OSError: [Errno 30] Read-only file system", "cannot be written"),
    ("ProxyError('Cannot connect to proxy.')", "behind a proxy"),
    ("SSLError(SSLCertVerificationError(1, '[SSL: CERTIFICATE_VERIFY_FAILED]", "behind a proxy"),
    ("ReadTimeoutError: Read timed out.", "behind a proxy"),
    ("No matching distribution found for torch==2.13.0 (from versions: none)", "behind a proxy"),
    ("(from versions: 2.1, 2.2)\nERROR: No matching distribution found for torch==2.13.0", "has no build for"),
    ("ERROR: ResolutionImpossible: see topics/dependency-resolution", "pip's message is above"),
    ("", "pip's message is above"),
]


@pytest.mark.skipif(os.name == "nt", reason="the stand-ins are shell scripts")
@pytest.mark.parametrize("words, sentence", FAILURES)
def test_pips_failure_gets_the_hint_that_helps(tmp_path, words, sentence, capsys):
    python = script(tmp_path / "bin" / "python", f"cat >&2 <<'END'\n{words}\nEND\nexit 1")
    (tmp_path / "requirements.txt").write_text("torch_==1\n")
    with pytest.raises(Stop, match=re.escape(sentence)) as caught:
        environment.install(python, tmp_path / "requirements.txt")
    assert words in capsys.readouterr().err, "pip's own message is shown too"
    assert ("RUNNING.md: behind a proxy" in str(caught.value)) == (sentence == "behind a proxy")
    assert ("1.4 GB" in str(caught.value)) == (sentence == "the disk is full")


# ---------------------------------------------------------------- the first figure says nothing


@pytest.mark.skipif(os.name == "nt", reason="the stand-ins are shell scripts")
@pytest.mark.parametrize("home", ["home", "/dev/null"], ids=["can be written", "cannot"])
def test_matplotlib_is_ready_before_the_first_figure(tmp_path, home):
    """Its list of fonts is made, and where the home folder cannot be written it has another place."""
    python = script(tmp_path / "venv" / "bin" / "python", f'exec "{sys.executable}" "$@"')
    given = {n: v for n, v in os.environ.items() if not n.startswith(("XDG_", "MPL"))} | {"HOME": str(tmp_path / home)}
    ready = environment.with_figures(python, given)
    assert ready == given if home == "home" else ready["MPLCONFIGDIR"] == str(tmp_path / "venv" / "matplotlib")
    assert len(list(tmp_path.rglob("fontlist*.json"))) == 1
    done = subprocess.run([python, "-c", "import matplotlib.pyplot"], env=ready, capture_output=True, text=True)
    assert done.stderr == ""


def test_without_matplotlib_there_is_nothing_to_prepare(tmp_path, monkeypatch):
    given = {"A": "b"}
    monkeypatch.setattr(subprocess, "run", lambda *_, **__: SimpleNamespace(returncode=1, stdout=""))
    assert environment.with_figures(tmp_path / "bin" / "python", given) == given


@pytest.mark.skipif(os.name == "nt", reason="/dev/null stands for a home that cannot be written")
@pytest.mark.parametrize(
    "variables",
    [{}, {"HOME": "/dev/null"}, {"XDG_CACHE_HOME": "/dev/null"}, {"MPLCONFIGDIR": "/dev/null"}],
    ids=lambda variables: "".join(variables) or "none",
)
def test_a_notebook_of_ones_own_start_copes_too(tmp_path, variables):
    """The set-up cell's last line calls this; matplotlib would speak on stderr in every notebook."""
    text = """
        import importlib.util, os, sys
        spec = importlib.util.spec_from_file_location("folder", sys.argv[1])
        folder = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(folder)
        folder.choose_folder()
        import matplotlib.pyplot
        print(os.environ.get("MPLCONFIGDIR"))
    """
    file = ROOT / "spec_lib" / "matplotlib_folder.py"
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("XDG_", "MPL"))}
    command = [sys.executable, "-c", textwrap.dedent(text), file]
    done = subprocess.run(command, env={**kept, "HOME": str(tmp_path), **variables}, capture_output=True, text=True)
    assert done.stderr == ""
    folder = done.stdout.strip()
    assert (folder == "None") == (not variables) and not Path(folder).is_dir(), "a folder that was made is removed"


def test_the_set_up_cells_line_chooses_the_folder(monkeypatch):
    from spec_lib import classroom

    called = []
    monkeypatch.setattr(classroom, "choose_folder", lambda: called.append(1))
    monkeypatch.setattr(classroom, "explain_missing_names", lambda: None)
    import torch

    classroom.setup_line(SimpleNamespace(device=torch.device("cpu"), name="a pair"))
    assert called == [1]


# ---------------------------------------------------------------- the set-up cell, wherever it is run


def in_a_cell(cell: str, folder: Path, first: str = "") -> subprocess.CompletedProcess:
    bare = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    command = [sys.executable, "-S", "-c", f"{first}\n{cell}\nprint(sl.__file__)"]  # -S: not the course's own folder
    return subprocess.run(command, cwd=folder, env=bare, capture_output=True, text=True)


@pytest.fixture
def course(tmp_path):
    """A course of which only the library's name is there."""
    (tmp_path / "course" / "spec_lib").mkdir(parents=True)
    (tmp_path / "course" / "notebooks").mkdir()
    library = tmp_path / "course" / "spec_lib" / "__init__.py"
    library.write_text("def load_pair(): ...\ndef setup_line(pair): return 'found'\n")
    return tmp_path / "course"


@pytest.mark.parametrize("place", ["course", "course/notebooks", ".", "elsewhere"])
def test_the_library_is_found_from_the_folders_that_notebooks_run_in(tmp_path, course, monkeypatch, place):
    (tmp_path / "elsewhere").mkdir()
    first = ""
    if place == ".":
        course.rename(tmp_path / "speculative-sampling")  # as Colab's clone
    if place == "elsewhere":  # what the course's environment does when its Python starts
        monkeypatch.setattr(environment, "ROOT", course)
        first = environment.course_line()
    done = in_a_cell(stamp.setup("https://github.com/a/b", "main"), tmp_path / place, first)
    assert done.stdout.splitlines()[:1] == ["found"] and done.stderr == ""


@pytest.mark.parametrize(
    "url, said", [("https://github.com/a/b", "a clone of https://github.com/a/b"), ("", "the folder of the")]
)
def test_outside_the_course_the_line_that_fails_says_where_to_go(tmp_path, url, said):
    cell = tmp_path / "cell.py"
    cell.write_text(stamp.setup(url, "main"), "utf-8")
    (tmp_path / "elsewhere").mkdir()
    command = [sys.executable, "-S", cell]
    done = subprocess.run(command, cwd=tmp_path / "elsewhere", capture_output=True, text=True)
    assert done.returncode == 1 and f"not found? Open this notebook in {said}" in done.stderr


def test_the_set_up_cell_is_short_and_without_an_address_asks_nobody():
    with_address, without = stamp.setup("https://github.com/a/b", "main"), stamp.setup("", "main")
    assert len([line for line in with_address.splitlines() if line]) <= 8
    assert "http" not in without and "git" not in without and "OWNER" not in without


# ---------------------------------------------------------------- what the README says

SHELLS = {  # in a POSIX shell, PowerShell and Windows' command prompt
    "a pair": (
        "SPEC_PAIR=tiny python3 course.py",
        '$env:SPEC_PAIR = "tiny"; py',
        'set "SPEC_PAIR=tiny" & py course.py',
    ),
    "the environment": ("source .venv/bin/activate", r".venv\Scripts\Activate.ps1", r".venv\Scripts\activate.bat"),
}


@pytest.mark.parametrize("ways", SHELLS.values(), ids=SHELLS)
def test_windows_finds_its_own_way_of_writing_it(ways):
    page = (ROOT / "notebooks" / "RUNNING.md").read_text("utf-8")
    assert [way for way in ways if way not in page] == []


def test_every_variable_of_the_hub_that_the_pages_name_is_one():
    from huggingface_hub import constants

    named = set(re.findall(r"\bHF_[A-Z_]+\b", (ROOT / "notebooks" / "RUNNING.md").read_text("utf-8"))) - {"HF_TOKEN"}
    assert "HF_HUB_DISABLE_XET" in named, "the way out of a download that stands still"
    assert [name for name in named if not hasattr(constants, name)] == []


# ---------------------------------------------------------------- where versions stand


def test_the_package_has_floors_only():
    data = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
    wanted = [*data["project"]["dependencies"], *data["build-system"]["requires"]]
    wanted += [one for extra in data["project"].get("optional-dependencies", {}).values() for one in extra]
    for requirement in [*wanted, "python" + data["project"]["requires-python"]]:
        assert re.fullmatch(r"[\w-]+>=[\d.]+", requirement), requirement


def test_reference_versions_have_one_place():
    lines = (ROOT / "requirements.txt").read_text("utf-8").splitlines()
    pins = [line for line in lines if line and not line.startswith("#")]
    assert all(re.fullmatch(r"[\w-]+==[\w.]+", pin) for pin in pins), pins
    parts = [environment.pins(ROOT / "requirements.txt", part) for part in environment.PARTS]
    assert 1 < len(parts[0]) < len(parts[1]) < len(parts[2]) and parts[2] == pins
    conda = (ROOT / "environment.yml").read_text("utf-8")
    assert "- -r requirements.txt" in conda and "==" not in conda
    package = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]["dependencies"]
    missing = {one.split(">=")[0] for one in package} - {pin.split("==")[0] for pin in pins}
    assert not missing, missing
