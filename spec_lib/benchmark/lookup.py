"""Prompt lookup on a model that copies, as `tools/record_copying.py` recorded it.  Notebook 10."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

RECORDS = "prompt lookup"  # how a file says that it is one: other recordings lie in the same folder
FILE = Path(__file__).parents[2] / "notebooks" / "recordings" / "smollm2-prompt-lookup.json"


class LookupRound(NamedTuple):
    """One target pass: how many tokens were drafted, how many of them accepted, and the origin of the one added."""

    drafted: int
    accepted: int
    origin: str  # as in `Round`


@dataclass(frozen=True)
class LookupRun:
    """One text that a model wrote with `NGram` as its drafter.

    model: its name, weights and the releases that ran it.  kind: "copy" | "edit" | "summary" | "open".
    prompt, written: the text of each token, in order.  equals_plain: whether plain greedy decoding writes the same
    tokens; None where they were sampled.
    """

    model: str
    kind: str
    temperature: float
    gamma: int
    seed: int
    prompt: tuple[str, ...]
    written: tuple[str, ...]
    rounds: tuple[LookupRound, ...]
    equals_plain: bool | None

    @property
    def text(self) -> str:
        """What was written."""
        return "".join(self.written)

    @property
    def tokens_per_pass(self) -> float:
        """Written tokens per target pass."""
        return len(self.written) / len(self.rounds)

    @property
    def without_draft(self) -> float:
        """The share of rounds in which no match was found, so that nothing was drafted."""
        return sum(not r.drafted for r in self.rounds) / len(self.rounds)


def copying(file: str | Path | None = None) -> list[LookupRun]:
    """The runs of a recording of prompt lookup (None: the one that the course brings), in the order of the file.

    ValueError where the file is no such recording.
    """
    file = Path(file or FILE)
    given = _object(file.read_text(encoding="utf-8"))
    if given.get("records") != RECORDS or given.get("version") != 1:
        raise ValueError(f"{file.name} is no recording of prompt lookup that this release can read")
    about = "{model} ({weights}), torch {torch}, transformers {transformers}, {date}".format(**given)
    prompts = {kind: tuple(pieces) for kind, pieces in given["prompts"].items()}
    found = []
    for run in given["runs"]:
        rounds, written = tuple(LookupRound(*r) for r in run.pop("rounds")), tuple(run.pop("written"))
        if sum(r.accepted + 1 for r in rounds) != len(written):
            raise ValueError(f"{file.name} has a run whose rounds do not add up to its {len(written)} tokens")
        found.append(LookupRun(model=about, prompt=prompts[run["kind"]], written=written, rounds=rounds, **run))
    return found


def is_of_another_kind(text: str) -> bool:
    """Whether a file with this text says that it records something other than a machine's timings: which have no
    `records`, where prompt lookup's have `RECORDS`, and so on."""
    return isinstance(_object(text).get("records"), str)


def _object(text: str) -> dict:
    try:
        given = json.loads(text)
    except ValueError:
        return {}
    return given if isinstance(given, dict) else {}
