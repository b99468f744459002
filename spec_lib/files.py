"""Files that a command writes: all of them or none; and the line that says how far it is."""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path


def writable(path: Path) -> Path:
    """The path, if a file can be written there; ValueError otherwise.

    It is tried out: a folder may look writable and not be (mounted read-only, full, owned by another system).
    """
    above = next(p for p in path.absolute().parents if p.exists())
    if os.path.isdir(path) or not above.is_dir() or not os.access(above, os.W_OK):
        raise ValueError(f"cannot write {path}: name a file in a folder that is yours")
    try:
        _part(path).exists()
    except OSError:
        raise ValueError(
            f"cannot write {path.name[:30]}...: the name is too long, {len(path.name)} characters"
        ) from None
    try:
        with tempfile.NamedTemporaryFile(dir=above, prefix=".spec_lib-") as trial:
            trial.write(b"a line of measurements")
    except OSError as error:
        raise ValueError(f"cannot write {path}: {error.strerror or error}") from None
    return path


def save(files: dict[Path, str | bytes]) -> None:
    """Write all files or none: each is complete under another name before any gets its own."""
    parts: list[tuple[Path, Path]] = []
    try:
        for path, content in files.items():
            path.parent.mkdir(parents=True, exist_ok=True)
            parts.append((_part(path), path))
            parts[-1][0].write_bytes(content.encode("utf-8") if isinstance(content, str) else content)
        for unfinished, path in parts:
            os.replace(unfinished, path)
    finally:
        for unfinished, _ in parts:
            unfinished.unlink(missing_ok=True)


def progress(text: str) -> None:
    """One line on a terminal, written over the last one; nothing elsewhere."""
    if sys.stderr.isatty():
        print(f"\r\x1b[K{text}", end="", file=sys.stderr, flush=True)


def _part(path: Path) -> Path:
    """Where a file is written before it gets its own name."""
    return path.with_name(f".{path.name}.part")
