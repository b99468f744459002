"""The set-up script: stamping, what it refuses, and that a set-up cut short is not taken for a whole one."""

from __future__ import annotations

import importlib.util
import json
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from tests.helpers.paths import ROOT

spec = importlib.util.spec_from_file_location("course", ROOT / "course.py")
course = importlib.util.module_from_spec(spec)
spec.loader.exec_module(course)


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    """The files that stamping reads and writes."""
    shutil.copytree(ROOT / "notebooks", tmp_path / "notebooks", ignore=shutil.ignore_patterns(".*"))
    for name in ("pyproject.toml", "README.md"):
        shutil.copy(ROOT / name, tmp_path)
    return tmp_path


def texts(root: Path) -> dict[str, str]:
    files = [*course.notebooks(root), root / "README.md"]
    return {file.relative_to(root).as_posix(): file.read_text("utf-8") for file in files}


# ---------------------------------------------------------------- stamping


def test_nothing_has_drifted():
    assert course.stamp(ROOT, check=True) == [], "run: python3 course.py stamp"


def test_stamping_again_changes_nothing(copy):
    course.stamp(copy)
    once = texts(copy)
    assert course.stamp(copy) == []
    assert texts(copy) == once


@pytest.mark.parametrize("found", ["colab-badge.svg", "](../README.md)", "git clone"])
def test_drift_in_a_notebook_is_named_and_mended(copy, found):
    course.stamp(copy)
    before = texts(copy)
    file = course.notebooks(copy)[0]
    file.write_text(file.read_text("utf-8").replace(found, "elsewhere"), "utf-8")
    assert course.stamp(copy, check=True) == [f"notebooks/{file.name}"]
    assert texts(copy) != before, "a check must not write"
    course.stamp(copy)
    assert texts(copy) == before


def test_the_readmes_pictures_are_the_notebooks_own(copy):
    course.stamp(copy)
    images = sorted((copy / "notebooks" / "pictures").glob("*.png"))
    assert len(images) >= 2 and all(i.read_bytes().startswith(b"\x89PNG") for i in images)
    assert all(f"](notebooks/pictures/{image.name})" in (copy / "README.md").read_text("utf-8") for image in images)
    images[0].write_bytes(b"an older figure")
    assert course.stamp(copy, check=True) == [f"notebooks/pictures/{images[0].name}"]
    course.stamp(copy)
    assert images[0].read_bytes().startswith(b"\x89PNG")


def test_a_picture_that_was_never_drawn_is_refused(copy):
    file = course.notebooks(copy)[0]
    book = json.loads(file.read_text("utf-8"))
    for cell in book["cells"]:
        if "picture" in cell["metadata"]:
            cell["outputs"] = []
    file.write_text(json.dumps(book), "utf-8")
    with pytest.raises(course.Stop, match="run the notebook first"):
        course.stamp(copy)


def test_drift_in_the_readme_is_named(copy):
    readme = copy / "README.md"
    readme.write_text(readme.read_text("utf-8").replace("colab-badge.svg", "old.svg"), "utf-8")
    assert course.stamp(copy, check=True) == ["README.md"]


def test_another_repository_reaches_every_file_and_leaves_outputs_alone(copy):
    def outputs() -> list:
        cells = [cell for file in course.notebooks(copy) for cell in json.loads(file.read_text("utf-8"))["cells"]]
        return [(cell.get("outputs"), cell.get("execution_count"), cell["metadata"]) for cell in cells]

    before = outputs()
    course.set_repository(copy, "https://github.com/somebody/a-fork.git")
    assert course.address(copy) == ("somebody/a-fork", "main")
    assert course.stamp(copy) == list(texts(copy))
    for name, text in texts(copy).items():
        assert "github/somebody/a-fork/blob/main/notebooks/" in text, name
        assert name == "README.md" or "https://github.com/somebody/a-fork" in text, name
    assert outputs() == before


def test_notebooks_are_written_as_nbformat_writes_them(copy):
    import nbformat

    course.set_repository(copy, "somebody/a-fork")
    course.stamp(copy)
    for file in course.notebooks(copy):
        text = file.read_text("utf-8")
        assert text == nbformat.writes(nbformat.reads(text, as_version=4)).rstrip("\n") + "\n", file.name


@pytest.mark.parametrize("lost", ["<!-- badge -->", "<!-- /navigation -->", '"setup"', "# "])
def test_a_notebook_without_its_places_is_named(copy, lost):
    file = course.notebooks(copy)[-1]
    file.write_text(file.read_text("utf-8").replace(lost, '"x"' if lost.startswith('"') else ""), "utf-8")
    before = texts(copy)
    with pytest.raises(course.Stop, match=re.escape(file.name)):
        course.stamp(copy)
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
    monkeypatch.setattr(course, "set_up", lambda: "python")
    monkeypatch.setattr(course, "run", lambda command, **options: ran.append(command) or 0)
    assert course.test(arguments) == 0
    assert ran[-1][-len(arguments) :] == arguments or not arguments
    assert (ran[-1][len(ran[-1]) - len(arguments) - 2 :][:2] == ["tests", "notebooks"]) == default


def test_badges_without_an_address_say_so(copy):
    for name, said in (("OWNER/speculative-sampling", True), ("someone/course", False)):
        course.set_repository(copy, name)
        course.stamp(copy)
        assert ("lead nowhere yet" in (copy / "README.md").read_text("utf-8")) == said


def test_help(capsys):
    assert course.main(["--help"]) == 0
    assert "course.py test" in capsys.readouterr().out


def test_python_versions(capsys):
    with pytest.raises(course.Stop, match="3.11 or newer"):
        course.check_python((3, 10, 14))
    for minor in (11, 12, 13):
        course.check_python((3, minor, 0))
    assert capsys.readouterr().err == ""
    course.check_python((3, 14, 0))
    assert "3.14" in capsys.readouterr().err


# ---------------------------------------------------------------- the environment


@pytest.fixture
def pretend(tmp_path, monkeypatch):
    """A set-up in a temporary folder whose two long steps only leave a trace."""
    requirements = tmp_path / "requirements.txt"
    requirements.write_text("torch==1.0\n")
    venv, steps = tmp_path / ".venv", []

    def make(folder):
        steps.append("make")
        python = course.venv_python(folder)
        python.parent.mkdir(parents=True)
        python.touch()

    monkeypatch.setattr(course, "make_venv", make)
    monkeypatch.setattr(course, "install", lambda *_: steps.append("install"))
    monkeypatch.setattr(course, "succeeds", lambda command: True)
    return venv, requirements, steps


def test_set_up_once_and_again_when_the_versions_change(pretend):
    venv, requirements, steps = pretend
    assert course.set_up(venv, requirements) == course.venv_python(venv)
    assert steps == ["make", "install"]
    course.set_up(venv, requirements)
    assert steps == ["make", "install"]
    requirements.write_text("torch==2.0\n")
    course.set_up(venv, requirements)
    assert steps == ["make", "install", "install"]


@pytest.mark.parametrize("step", ["make_venv", "install"])
@pytest.mark.parametrize("cut", [KeyboardInterrupt, course.Stop("no network")])
def test_an_interrupted_set_up_starts_afresh(pretend, monkeypatch, step, cut):
    venv, requirements, steps = pretend

    def interrupted(*_):
        (venv / "half").touch()
        raise cut

    with monkeypatch.context() as patch, pytest.raises((KeyboardInterrupt, course.Stop)):
        patch.setattr(course, step, interrupted)
        course.set_up(venv, requirements)
    steps.clear()
    course.set_up(venv, requirements)
    assert steps == ["make", "install"] and not (venv / "half").exists()


def test_a_python_without_ensurepip_gets_one_sentence(tmp_path, monkeypatch):
    monkeypatch.setattr(course.importlib.util, "find_spec", lambda name: None if name == "ensurepip" else spec)
    with pytest.raises(course.Stop, match="apt install python3-venv"):
        course.make_venv(tmp_path / "venv")


def installs(monkeypatch, tmp_path, gpu: bool, cuda: bool, index: bool) -> list[str]:
    """What is installed, in order, on a machine as described (index: whether PyTorch's is in reach)."""
    calls = []

    def pip(_, *words):
        calls.append(" ".join(str(word) for word in words))
        return 0 if index or course.CPU_INDEX not in words else 1

    monkeypatch.setattr(course.sys, "platform", "linux")
    monkeypatch.setattr(course, "has_gpu", lambda: gpu)
    monkeypatch.setattr(course, "brings_cuda", lambda *_: cuda)
    monkeypatch.setattr(course, "pip", pip)
    course.install(tmp_path, ROOT / "requirements.txt")
    return calls


def test_cuda_is_avoided_where_there_is_no_gpu(tmp_path, monkeypatch, capsys):
    plain = [f"install -r {ROOT / 'requirements.txt'}"]
    assert installs(monkeypatch, tmp_path, gpu=True, cuda=True, index=True) == plain
    assert installs(monkeypatch, tmp_path, gpu=False, cuda=False, index=True) == plain
    first, *rest = installs(monkeypatch, tmp_path, gpu=False, cuda=True, index=True)
    assert re.search(r" torch==[\d.]+\+cpu$", first) and rest == plain
    assert "several GB" not in capsys.readouterr().out
    assert installs(monkeypatch, tmp_path, gpu=False, cuda=True, index=False)[1:] == plain
    assert "several GB" in capsys.readouterr().out


@pytest.mark.parametrize("need, cuda", [("nvidia-nccl-cu13==2", True), ("cuda-toolkit[nvtx]", True), ("sympy", False)])
def test_cuda_is_seen_in_pips_report(tmp_path, monkeypatch, need, cuda):
    def pip(_, *words):
        if "--report" in words:
            report = {"install": [{"metadata": {"name": "torch", "requires_dist": ["jinja2", need]}}]}
            words[words.index("--report") + 1].write_text(json.dumps(report))
        return 0

    monkeypatch.setattr(course, "pip", pip)
    assert course.brings_cuda(tmp_path, "torch==1.0") is cuda


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
    conda = (ROOT / "environment.yml").read_text("utf-8")
    assert "- -r requirements.txt" in conda and "==" not in conda
    package = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]["dependencies"]
    missing = {one.split(">=")[0] for one in package} - {pin.split("==")[0] for pin in pins}
    assert not missing, missing
