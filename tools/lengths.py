"""How long a notebook takes, as counted: words of text and of code, predictions, and the exercises' own minutes."""

from __future__ import annotations

import re
from dataclasses import dataclass

OPTIONAL = "## Going further (optional)"  # the core ends here; each part below has a heading of its own, ###
TEXT, CODE, PREDICTION = 200, 100, 0.5  # words a minute of text and of code; minutes for a prediction
HEADING = re.compile(r"(?m)^(### .+?) · (\d+) minutes?$")  # of an optional part
ASIDE = re.compile(r"(?s)<details>\s*<summary>(?:Hint|Solution|Answer|What to expect)\b.*?</details>")


@dataclass
class Length:
    """What was counted, in one notebook or in one part of it."""

    words: int = 0
    cells: int = 0
    code_words: int = 0
    predictions: int = 0
    exercises: int = 0  # minutes, as each states its own: "(easy, 3 minutes, ...)"

    @property
    def minutes(self) -> float:
        reading = self.words / TEXT + self.code_words / CODE + self.predictions * PREDICTION
        return reading + self.exercises

    def add(self, text: str) -> None:
        """A text cell.  Hints and solutions cost what their exercise says; questions and answers are read."""
        self.exercises += sum(int(m) for m in re.findall(r"\((?:easy|medium|hard), (\d+) minutes?\b", text))
        self.predictions += text.count("**Predict")
        text = ASIDE.sub(" ", text)
        text = re.sub(r"(?s)<!-- (badge|time|navigation) -->.*?<!-- /\1 -->", " ", text)
        text = re.sub(
            r"(?s)\$\$.+?\$\$", " formula " * 5, text
        )  # read as slowly as five words, and one in a line as one
        text = re.sub(r"\$[^$\n]+\$", " formula ", text)
        text = re.sub(r"<[^>]+>|\]\([^)]*\)", " ", text)  # tags, and where links lead
        self.words += len(re.findall(r"\w[\w'’.-]*", text))

    def add_code(self, source: str) -> None:
        self.cells += 1
        self.code_words += len(re.findall(r"\w+", re.sub(r"\b\w+\.(?=\w)", "", source)))  # pair.target is one word


def unfenced(text: str) -> str:
    """The text, with what looks like a heading inside a fenced block made none."""
    return re.sub(r"(?ms)^```.*?^```", lambda block: re.sub(r"(?m)^#", " #", block[0]), text)


def measure(book: dict) -> tuple[Length, dict[str, Length]]:
    """The core, and the optional parts by their headings.  What closes the notebook (links) belongs to no part."""
    core, parts = Length(), {}
    now: Length | None = core
    for cell in book["cells"]:
        source = unfenced("".join(cell["source"])) if cell["cell_type"] == "markdown" else "".join(cell["source"])
        if cell["cell_type"] == "code":
            if now is not None and "setup" not in cell["metadata"].get("tags", []):
                now.add_code(source)
            continue
        for piece in re.split(r"(?m)^(?=#{2,3} )", source):  # a cell may hold several headings
            if piece.startswith(OPTIONAL):
                now = Length()  # a sentence of its own before the first part: read with the core
                core.add(piece)
            elif now is not core and piece.startswith("### "):
                now = parts.setdefault(piece.split("\n")[0].split(" · ")[0].removeprefix("### "), Length())
                now.add(piece)
            elif now is not core and piece.startswith("## "):
                now = None
            elif now is not None:
                now.add(piece)
    return core, parts


def total(core: Length, parts: dict[str, Length]) -> float:
    return core.minutes + sum(part.minutes for part in parts.values())


def sentence(core: Length, parts: dict[str, Length]) -> str:
    """What the header says about it."""
    text = f"**Time, as counted**: the core {core.minutes:.0f} minutes"
    text += f", {core.exercises} of them for its exercises" if core.exercises else ""
    return f"{text}; with every optional part {total(core, parts):.0f}." if parts else f"{text}."


def with_minutes(text: str, parts: dict[str, Length]) -> str:
    """The text, with each optional part's minutes in its heading."""

    def heading(found: re.Match) -> str:
        part = parts.get(found[1].removeprefix("### "))
        return f"{found[1]} · {max(1, round(part.minutes))} minutes" if part else found[0]

    pieces = re.split(r"(?ms)(^```.*?^```$)", text)  # every second one is a fenced block
    pieces[::2] = [HEADING.sub(heading, piece) for piece in pieces[::2]]
    return "".join(pieces).replace(" · 1 minutes", " · 1 minute")


def table(books: dict[str, dict]) -> str:
    """One line for each notebook: minutes of the core (exercises in it) and of everything; words; code cells."""
    lines = ["notebook  core (exercises)  all   core: words  code cells   all: words  code cells"]
    for name, book in books.items():
        core, parts = measure(book)
        every = [core, *parts.values()]
        lines.append(
            f"{name:9} {core.minutes:4.0f} {f'({core.exercises})':>11} {total(core, parts):6.0f} "
            f"{core.words:12} {core.cells:11} {sum(x.words for x in every):12} {sum(x.cells for x in every):11}"
        )
    return "\n".join(lines)


if __name__ == "__main__":
    from tools import ROOT, stamp

    print(table({file.name[:2]: stamp.read(file) for file in stamp.notebooks(ROOT)}))
