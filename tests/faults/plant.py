"""Plant one fault at a time, run the tests, and print what caught it.

    python -m tests.faults.plant            # all of them, some of which take minutes
    python -m tests.faults.plant bonus eos  # those whose name or room holds one of these words

A fault that names promises is planted in this process and has to break each of them.  Any other is a fault of the text:
it is planted in a copy of the project, whose tests then run until one fails, those of the changed file first: nothing
can be planted past them.  The run ends with exit code 1 if a fault is caught by nothing.  The faults are listed in
`catalogue`.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest

from tests.faults.catalogue import FAULTS, Fault, Text
from tests.helpers import paths, promises

ROOT = Path(__file__).resolve().parents[2]
# In this order, but for what concerns the changed file; a run stops at the first failure.  Not this folder: it tells
# that text changed.
TESTS = (
    "tests/exact/test_promises.py",
    "tests/exact/test_rule.py",
    "tests/method",
    "tests/speed/test_work.py",
    "tests/speed/test_sim.py",
    "tests/exact/test_candidates.py",
    "tests/exact/test_trees.py",
    "tests/exact/test_loop.py",
    "tests/models",
    "tests/exact/test_properties.py",
    "tests/classroom/test_derived_*.py",
)
SERVER = ("tests/server",)  # the only ones that a fault of the server can be seen by


def broken_by(fault: Fault | Text) -> str | None:
    """The promises that a fault breaks, which are all that it names; None if one of them holds."""
    for name in fault.caught_by:
        hits = []
        with pytest.MonkeyPatch.context() as patch:
            fault.plant(patch, lambda hits=hits: hits.append(1))
            try:
                promises.CHECKS[name]()
            except (AssertionError, ValueError, IndexError, RuntimeError):
                if hits:
                    continue
            return None
    return ", ".join(fault.caught_by)


def _tests_in(path: Path) -> list[Path]:
    return sorted(path.glob("test_*.py")) if path.is_dir() else [path]


def in_order(files: list[Path], room: str) -> list[list[Path]]:
    """The test files in the parts that are run for a fault in spec_lib/`room`.py, each if no test before it fails:
    those that are named after it, those that mention it, and the others."""
    parts, room = ([], [], []), room.rpartition("/")[2]
    words = [word for word in room.split("_") if len(word) > 3]  # "plain_gpt2" by test_gpt2
    for file in files:
        if any(word[:5] in file.stem for word in words):  # "exporting" is tested by test_export
            parts[0].append(file)
        else:
            parts[1 if re.search(rf"\b{room}\b", file.read_text(encoding="utf-8")) else 2].append(file)
    return [part for part in parts if part]


def caught_by(fault: Text) -> str | None:
    """The first test that fails with the fault in the text, or None."""
    with tempfile.TemporaryDirectory() as folder:
        project = Path(folder)
        top = ("course.py", "pyproject.toml", "requirements.txt", "README.md")
        for name in ("spec_lib", "tests", "notebooks", "tools", *top):
            source = ROOT / name
            (shutil.copytree if source.is_dir() else shutil.copy)(source, project / name)
        (project / "spec_lib" / f"{fault.room}.py").write_text(fault.source(), encoding="utf-8")
        tests = SERVER if fault.room.startswith("server/") else TESTS
        files = [file for name in tests for path in sorted(project.glob(name)) for file in _tests_in(path)]
        for some in in_order(files, fault.room):
            if failed := _failing([str(file.relative_to(project)) for file in some], project, fault.name):
                return failed
        return None


def _failing(files: list[str], project: Path, name: str) -> str | None:
    """The first test of the files that fails in the project, or None.  SystemExit where pytest itself cannot run."""
    command = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", "--tb=no", *files]
    done = subprocess.run(command, cwd=project, capture_output=True, text=True)
    failed = re.search(r"^(?:FAILED|ERROR) (?:tests/)?(\S+)", done.stdout, re.M)
    if done.returncode not in (0, 1, 2) or (done.returncode and not failed):
        raise SystemExit(f"{name!r}: pytest itself went wrong\n{done.stdout[-2000:]}{done.stderr[-2000:]}")
    return failed[1] if failed else None


def main(words: list[str]) -> int:
    wanted = paths.chosen(words, [f"{f.room} {f.name}" for f in FAULTS], str.__contains__)
    chosen = [f for f in FAULTS if f"{f.room} {f.name}" in wanted]
    for fault in chosen:  # every snippet must be found before an hour is spent
        if isinstance(fault, Text):
            fault.source()
    missed, started = [], time.time()
    for number, fault in enumerate(chosen, 1):
        check = broken_by(fault) if fault.caught_by else caught_by(fault)
        missed += [] if check else [fault.name]
        print(f"{number:3}/{len(chosen)}  {fault.room:13}  {fault.name:62}  {check or 'CAUGHT BY NOTHING'}", flush=True)
    print(f"{len(chosen) - len(missed)} of {len(chosen)} caught, {time.time() - started:.0f} s")
    return 1 if missed else 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
