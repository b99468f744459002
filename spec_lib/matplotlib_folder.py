"""A folder for matplotlib's files where the home folder cannot be written."""

from __future__ import annotations

import atexit
import os
import shutil
import sys
import tempfile
from pathlib import Path


def choose_folder() -> None:
    """Before matplotlib is imported: where it could not keep its files, a temporary folder, removed at the end.

    It would do the same by itself, and say so on stderr in the first figure's cell of every notebook.
    """
    if "matplotlib" in sys.modules or all(map(_can_be_written, _usual())):
        return
    folder = tempfile.mkdtemp(prefix="matplotlib-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    os.environ["MPLCONFIGDIR"] = folder


def _usual() -> list[Path]:
    """Where matplotlib keeps its settings and its list of fonts."""
    if named := os.environ.get("MPLCONFIGDIR"):
        return [Path(named)]
    home = Path(os.path.expanduser("~"))
    if not sys.platform.startswith(("linux", "freebsd")):
        return [home / ".matplotlib"]
    bases = (("XDG_CONFIG_HOME", ".config"), ("XDG_CACHE_HOME", ".cache"))
    return [Path(os.environ.get(variable) or home / name) / "matplotlib" for variable, name in bases]


def _can_be_written(folder: Path) -> bool:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError:
        return False
    return os.access(folder, os.W_OK)
