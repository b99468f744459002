"""Ctrl-C while a command is still importing: the command has not begun, and can catch nothing itself."""

import os
import subprocess
import sys

import pytest

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


def test_other_errors_are_shown(tmp_path):
    done = run(tmp_path, "RuntimeError('of another kind')", "-m", "spec_lib", "generate", "Once")
    assert done.returncode == 1 and "Traceback" in done.stderr and "of another kind" in done.stderr


@pytest.mark.parametrize("command", [["-c", "import spec_lib"], ["-m", "mine", "spec_lib"]], ids=" ".join)
def test_programs_that_use_the_library_keep_their_own_end(tmp_path, command):
    (tmp_path / "mine.py").write_text("import spec_lib\n")
    done = run(tmp_path, "KeyboardInterrupt", *command)
    assert done.returncode not in (0, 130) and "Traceback" in done.stderr
