"""Ctrl-C and a missing package while a command is still importing: it has not begun, and can catch nothing itself."""

import os
import subprocess
import sys
import tomllib

import pytest

from spec_lib.interrupts import NEEDED
from tests.helpers.paths import ROOT


def run(tmp_path, raised: str, *command: str) -> subprocess.CompletedProcess:
    """The command, in whose import of PyTorch this is raised."""
    (tmp_path / "torch.py").write_text(f"raise {raised}\n")
    path = os.pathsep.join([str(tmp_path), str(ROOT)])
    environment = {**os.environ, "PYTHONPATH": path}
    return subprocess.run([sys.executable, *command], env=environment, cwd=tmp_path, capture_output=True, text=True)


@pytest.mark.parametrize("command", [["generate", "Once"], ["serve"], ["export", "x"], ["--help"]], ids=" ".join)
def test_a_command_ends_as_it_does_later(tmp_path, command):
    done = run(tmp_path, "KeyboardInterrupt", "-m", "spec_lib", *command)
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "")


@pytest.mark.parametrize("name", NEEDED)
def test_a_python_without_the_courses_packages_says_where_they_are(tmp_path, name):
    """The README's commands, typed outside of the environment, ended in a traceback: No module named 'torch'."""
    done = run(tmp_path, f"ModuleNotFoundError(name={name!r})", "-m", "spec_lib", "generate", "Once")
    assert (done.returncode, done.stdout) == (2, "")
    (sentence,) = done.stderr.splitlines()
    assert f"({sys.executable}) has no {name}: " in sentence
    assert "`python3 course.py`" in sentence and "activate`" in sentence


def test_the_packages_are_those_of_the_package():
    """And no others: a module that a library of theirs misses is shown as it is."""
    wanted = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]["dependencies"]
    assert sorted(NEEDED) == sorted(one.split(">=")[0] for one in wanted)


@pytest.mark.parametrize(
    "error", ["RuntimeError('of another kind')", "ModuleNotFoundError('of another kind', name='x')"]
)
def test_other_errors_are_shown(tmp_path, error):
    done = run(tmp_path, error, "-m", "spec_lib", "generate", "Once")
    assert done.returncode == 1 and "Traceback" in done.stderr and "of another kind" in done.stderr


@pytest.mark.parametrize("command", [["-c", "import spec_lib"], ["-m", "mine", "spec_lib"]], ids=" ".join)
@pytest.mark.parametrize("raised", ["KeyboardInterrupt", "ModuleNotFoundError(name='torch')"])
def test_programs_that_use_the_library_keep_their_own_end(tmp_path, command, raised):
    (tmp_path / "mine.py").write_text("import spec_lib\n")
    done = run(tmp_path, raised, *command)
    assert done.returncode not in (0, 2, 130) and "Traceback" in done.stderr
