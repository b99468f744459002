"""Files that a command writes: all of them or none; and the line that says how far it is."""

from __future__ import annotations

import contextlib
import os
import shutil
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
    _try_out(above, path)
    return path


def unused(folder: Path) -> Path:
    """The folder, if it is empty or can be made, and files can be written there; ValueError otherwise.  Tried out."""
    try:
        os.lstat(folder)
    except (FileNotFoundError, NotADirectoryError):
        above = next(p for p in folder.absolute().parents if os.path.lexists(p))
    except OSError as error:
        raise ValueError(f"cannot write {str(folder)[:80]}: {error.strerror or error}") from None
    else:
        above = folder
    if not os.path.isdir(above):
        raise ValueError(f"cannot write {folder}: {above} is in the way and is no folder, so name another")
    try:
        there = sorted(os.listdir(above)) if above == folder else []
    except OSError as error:
        raise ValueError(f"cannot write {folder}: {error.strerror or error}") from None
    if there:
        raise ValueError(f"{folder} is not empty (it holds {there[0]}): name a new folder, or delete what is in it")
    _try_out(above, folder)
    return folder


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


def save_folders(folder: Path, files: dict[str, str | bytes]) -> None:
    """Write files, named by their way from `folder` ("target/config.json"), with their folders: all of them or none.

    They are complete in a folder beside their own before any of these gets its name, which a new `folder` gets in one
    step, so that not even a power cut leaves a part of it; what was made is taken away again where that fails.
    OSError where it does, and where something of that name has come meanwhile.
    """
    made = [p for p in (folder.absolute(), *folder.absolute().parents) if not p.exists()]
    above = folder.absolute().parent if folder.absolute() in made else folder
    moved: list[Path] = []
    try:
        above.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=above, prefix=".spec_lib-", ignore_cleanup_errors=True) as unfinished:
            whole = Path(unfinished, folder.absolute().name)
            save({whole / name: content for name, content in files.items()})
            for part in [whole] if above != folder else sorted(whole.iterdir()):
                os.rename(part, above / part.name)
                moved.append(above / part.name)
    except BaseException:
        for path in moved:
            shutil.rmtree(path, ignore_errors=True)
        for path in made:
            with contextlib.suppress(OSError):  # somebody else's by now
                path.rmdir()
        raise


def progress(text: str) -> None:
    """One line on a terminal, written over the last one; nothing elsewhere."""
    if sys.stderr.isatty():
        print(f"\r\x1b[K{text}", end="", file=sys.stderr, flush=True)


def _try_out(folder: Path, path: Path) -> None:
    """ValueError, in the name of `path`, where no file can be written in the folder."""
    try:
        with tempfile.NamedTemporaryFile(dir=folder, prefix=".spec_lib-") as trial:
            trial.write(b"a line of measurements")
    except OSError as error:
        raise ValueError(f"cannot write {path}: {error.strerror or error}") from None


def _part(path: Path) -> Path:
    """Where a file is written before it gets its own name."""
    return path.with_name(f".{path.name}.part")
