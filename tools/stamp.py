"""What one place says in many: badges, minutes, set-up cells, navigation, the README's table and its pictures."""

from __future__ import annotations

import base64
import json
import os
import re
import tomllib
from pathlib import Path

from tools import ROOT, Stop, lengths

COLAB = "https://colab.research.google.com"

SETUP = """\
import os  # run this cell first: all others need what it makes
import sys

{fetch}sys.path[:0] = [os.path.abspath(folder) for folder in ("speculative-sampling", "..", ".")]  # it lies there
import spec_lib as sl  # not found? Open this notebook in {place}

pair = sl.load_pair()
print(sl.setup_line(pair))"""
FETCH = """\
if "google.colab" in sys.modules and not os.path.isdir("speculative-sampling"):  # on Colab: fetch the course, once
    os.system("git clone --depth 1 -q -b {branch} {url} speculative-sampling")
"""
UNNAMED = "OWNER/"  # of a copy that has no public address yet: no link leads anywhere


def setup(url: str, branch: str) -> str:
    """The set-up cell of a copy published at this address; "" for none, and then Colab cannot fetch it."""
    fetch = FETCH.format(url=url, branch=branch) if url else ""
    return SETUP.format(fetch=fetch, place=f"a clone of {url}" if url else "the folder of the course")


def notebooks(root: Path) -> list[Path]:
    return sorted((root / "notebooks").glob("[0-9][0-9]_*.ipynb"))


def address(root: Path) -> tuple[str, str]:
    """Repository (OWNER/REPO) and branch, from pyproject.toml."""
    place = tomllib.loads((root / "pyproject.toml").read_text("utf-8"))["tool"]["course"]
    return place["repository"], place["branch"]


def set_repository(root: Path, repository: str) -> None:
    name = r"(?!\.+(?:/|$))[\w.-]+"  # not . or ..
    match = re.fullmatch(rf"(?:https://github\.com/)?({name}/{name}?)(?:\.git)?/?", repository)
    if not match:
        raise Stop(f"A repository is written OWNER/REPO or https://github.com/OWNER/REPO, not {repository!r}.", 2)
    file = root / "pyproject.toml"
    text = file.read_text("utf-8")
    line = re.compile(r'(?<=\[tool\.course\]\nrepository = ")[^"\n]*')
    if not line.search(text):
        raise Stop("pyproject.toml has no line 'repository = \"...\"' right below [tool.course].")
    write(file, line.sub(match[1], text))


def stamp(root: Path = ROOT, check: bool = False) -> list[str]:
    """Brings badges, set-up cells and navigation up to date; returns the files that had drifted."""
    repository, branch = address(root)
    files = notebooks(root)
    books = [read(file) for file in files]
    titles = [title(file, book) for file, book in zip(files, books, strict=True)]
    named = not repository.startswith(UNNAMED)
    first_cell = setup(f"https://github.com/{repository}" if named else "", branch)

    def in_colab(file: Path) -> str:
        return f"{COLAB}/github/{repository}/blob/{branch}/notebooks/{file.name}"

    def badge(file: Path) -> str:
        return f"[![Open in Colab]({COLAB}/assets/colab-badge.svg)]({in_colab(file)})"

    new_texts, rows, shown = {}, [], []
    minutes = [lengths.measure(book) for book in books]
    for i, (file, book) in enumerate(zip(files, books, strict=True)):
        before = json.dumps(book)
        fill(book["cells"][0], "badge", badge(file) if named else "", file.name)
        core, parts = minutes[i]
        fill(book["cells"][0], "time", lengths.sentence(core, parts), file.name)
        for cell in book["cells"]:
            if cell["cell_type"] == "markdown":
                put(cell, lengths.with_minutes("".join(cell["source"]), parts))
        last = [cell for cell in book["cells"] if cell["cell_type"] == "markdown"][-1]
        links = ["[Contents](../README.md)"]
        for word, j in (("Previous", i - 1), ("Next", i + 1)):
            if 0 <= j < len(files):
                elsewhere = f" ([in Colab]({in_colab(files[j])}))" if named else ""
                links.append(f"{word}: [{titles[j]}]({files[j].name}){elsewhere}")
        fill(last, "navigation", " | ".join(links), file.name)
        cells = [c for c in book["cells"] if c["cell_type"] == "code" and "setup" in c["metadata"].get("tags", [])]
        if len(cells) != 1:
            raise Stop(f'{file.name} needs exactly one code cell with the tag "setup".')
        put(cells[0], first_cell)
        if json.dumps(book) != before:  # written the way nbformat does it
            text = json.dumps(book, ensure_ascii=False, indent=1, sort_keys=True, separators=(",", ": "))
            new_texts[file] = text + "\n"
        whole = lengths.total(core, parts)
        rows.append(f"| [{titles[i]}](notebooks/{file.name}) | {core.minutes:.0f} | {whole:.0f} |\n")
        for path, alternative, png in pictures(file, book):
            shown.append(f"![{alternative}]({path})")
            if not (root / path).exists() or (root / path).read_bytes() != png:
                new_texts[root / path] = png

    readme = root / "README.md"
    old = readme.read_text("utf-8")
    table = "| Notebook | Core, minutes | With all options |\n|---|---:|---:|\n" + "".join(rows).rstrip()
    new = between(old, "notebooks", table, "README.md")
    new = between(new, "button", badge(files[0]) if named else "", "README.md")
    new = between(new, "pictures", "\n\n".join(shown), "README.md")
    if new != old:
        new_texts[readme] = new
    for file, text in new_texts.items():  # only now, when nothing is left to complain about
        if not check:
            write(file, text)
    return [file.relative_to(root).as_posix() for file in new_texts]


def pictures(file: Path, book: dict) -> list[tuple[str, str, bytes]]:
    """The figures that the README shows, as (path, alternative text, PNG), from the notebook's own stored outputs.

    A code cell asks for it with the metadata "picture": "what is to be seen in it".
    """
    found = []
    for cell in book["cells"]:
        if alternative := cell["metadata"].get("picture"):
            images = [o["data"]["image/png"] for o in cell["outputs"] if "image/png" in o.get("data", {})]
            if not images:
                raise Stop(f"{file.name} has a cell for the README without a stored figure: run the notebook first.")
            number = f"_{len(found) + 1}" if found else ""
            found.append((f"notebooks/pictures/{file.stem}{number}.png", alternative, base64.b64decode(images[0])))
    return found


def read(file: Path) -> dict:
    try:
        return json.loads(file.read_text("utf-8"))
    except ValueError:
        raise Stop(f"{file.name} is not a notebook (its JSON cannot be read).") from None


def write(file: Path, content: str | bytes) -> None:
    """The whole file or, where that fails or is interrupted, the one that was there."""
    file.parent.mkdir(exist_ok=True)
    part = file.with_name(f".{file.name}.part")
    try:
        part.write_bytes(content.encode("utf-8") if isinstance(content, str) else content)
        os.replace(part, file)
    finally:
        part.unlink(missing_ok=True)


def title(file: Path, book: dict) -> str:
    found = re.match(r"# (.+)", "".join(book["cells"][0]["source"])) if book["cells"] else None
    if not found:
        raise Stop(f"{file.name} does not begin with a title (# NN · Title).")
    return found[1].strip()


def between(text: str, name: str, new: str, where: str) -> str:
    opening, closing = f"<!-- {name} -->", f"<!-- /{name} -->"
    if text.count(opening) != 1 or text.count(closing) != 1 or text.index(opening) > text.index(closing):
        raise Stop(f"{where} needs the markers {opening} and {closing}, once each, in its first or last text cell.")
    middle = f"\n\n{new}\n\n" if new else "\n\n"
    return f"{text.split(opening)[0]}{opening}{middle}{closing}{text.split(closing)[1]}"


def fill(cell: dict, name: str, new: str, where: str) -> None:
    put(cell, between("".join(cell["source"]), name, new, where))


def put(cell: dict, text: str) -> None:
    if text != "".join(cell["source"]):
        cell["source"] = text.splitlines(keepends=True)
