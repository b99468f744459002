"""What a sweep of batch sizes measured, raw, and its file: written by `bench --sweep batch`.  Notebook 12."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import NamedTuple

from ..sampling import Sampling
from .measured import Counts, curve, number, times, whole
from .reading import a_text, json_object
from .recording import FOLDER

RECORDS = "batches"  # how a file says that it is one: other recordings lie in the same folder
FILE = FOLDER / "amd-epyc-tiny-batches.json"
CPU, WALL = "process CPU seconds", "seconds of the wall clock"


class Parts(NamedTuple):
    """Seconds of one batch spent in passes: over the prompts (of both models), of the target, of the draft."""

    prompts: float
    target: float
    draft: float


@dataclass
class BatchTimes:
    """One batch size written at one gamma (0: plain decoding); each list has an entry for each batch.

    seconds: from the prompts to the last token.  counts: of its texts, added up.  steps: rounds until its slowest text
    was done.  text: equal numbers, equal batches of texts, as at temperature 0.  parts: of the seconds; none on a GPU,
    where to wait for each pass would slow the batch down.
    """

    seconds: list[float] = field(default_factory=list)
    counts: list[Counts] = field(default_factory=list)
    steps: list[int] = field(default_factory=list)
    text: list[int] = field(default_factory=list)
    parts: list[Parts] = field(default_factory=list)

    @classmethod
    def from_json(cls, what: str, data: dict, runs: int) -> BatchTimes:
        found = cls(
            times(f"seconds of {what}", data["seconds"]),
            [Counts(*(whole(f"a count of {what}", x) for x in counts)) for counts in data["counts"]],
            [whole(f"steps of {what}", x, 1) for x in data["steps"]],
            [whole(f"a text's number of {what}", x) for x in data["text"]],
            [Parts(*(number(f"a part of {what}", x) for x in parts)) for parts in data["parts"]],
        )
        for name, values in vars(found).items():
            if len(values) != runs and (values or name != "parts"):
                raise ValueError(f"{name} of {what} are {len(values)}, but runs are {runs}")
        if any(c.passes < 1 or c.full_tokens > c.passes + c.accepted for c in found.counts):
            raise ValueError(f"the counts of {what} do not add up")
        return found


@dataclass
class BatchPoint:
    """All of one batch size.  variants: gamma (0: plain decoding) -> `BatchTimes`.

    v: n -> seconds of each target pass over n tokens of each of its texts, for n = 1 and each gamma + 1.  draft_v:
    seconds of each draft pass over one token of each.
    """

    size: int
    variants: dict[int, BatchTimes]
    v: dict[int, list[float]]
    draft_v: list[float]

    @classmethod
    def from_json(cls, data: dict, runs: int) -> BatchPoint:
        size = whole("size", data["size"], 1)
        each = {int(g): BatchTimes.from_json(f"batch {size}, gamma {g}", x, runs) for g, x in data["variants"].items()}
        if 0 not in each or len(each) < 2 or min(each) < 0:
            raise ValueError(f"batch {size} needs plain decoding (gamma 0) and a gamma of at least 1, it has {[*each]}")
        v = curve(f"v at batch {size}", data["v"])
        if missing := {1, *(gamma + 1 for gamma in each)} - set(v):
            raise ValueError(f"v at batch {size} lacks the passes over {sorted(missing)} tokens of each text")
        return cls(size, each, v, times(f"v of the draft at batch {size}", data["draft_v"]))


@dataclass
class BatchSweep:
    """What `batch_sweep` measured: `batch_rows`, `batch_table` and `plots.plot_batches` derive every figure from it.

    machine, device, torch, transformers, date: what was measured, where and when.  pair: its name.  forward: "own" |
    "transformers", whose forward pass.  new: tokens of each text.  prompt: as in `Setting`.  runs: batches at each size
    and gamma.  timed: `CPU` or `WALL`.  load: the machine's load average before and after, empty where it has none.
    points: one for each batch size, which grow.
    """

    machine: str
    device: str
    torch: str
    transformers: str
    date: str
    pair: str
    forward: str
    new: int
    sampling: Sampling
    prompt: str | None
    runs: int
    timed: str
    load: list[float]
    points: list[BatchPoint]

    @property
    def sizes(self) -> list[int]:
        return [point.size for point in self.points]

    @property
    def gammas(self) -> list[int]:
        return [gamma for gamma in self.points[0].variants if gamma]

    def to_json(self) -> str:
        """The text of a file."""
        return json.dumps({"records": RECORDS, "version": 1, **asdict(self)}, ensure_ascii=False) + "\n"

    @classmethod
    def from_json(cls, text: str) -> BatchSweep:
        """From the text of a file; ValueError in one sentence where it is none."""
        given = json_object(text)
        if given.pop("records", None) != RECORDS or given.pop("version", None) != 1:
            raise ValueError("it is no recording of batch sizes that this release can read")
        try:
            return cls._read(given)
        except (TypeError, LookupError, AttributeError) as error:
            raise ValueError(f"it is not what bench --sweep batch writes ({type(error).__name__}: {error})") from error

    @classmethod
    def _read(cls, given: dict) -> BatchSweep:
        runs, points = whole("runs", given["runs"], 1), given["points"]
        found = cls(
            **{n: a_text(given[n]) for n in ("machine", "device", "torch", "transformers", "date", "pair")},
            forward=a_text(given["forward"]),
            new=whole("new", given["new"], 1),
            sampling=Sampling(**given["sampling"]),
            prompt=None if given["prompt"] is None else a_text(given["prompt"]),
            runs=runs,
            timed=given["timed"],
            load=[number("load", x) for x in given["load"]],
            points=[BatchPoint.from_json(point, runs) for point in points],
        )
        if found.timed not in (CPU, WALL):
            raise ValueError(f"timed must be {CPU!r} or {WALL!r}, got {found.timed!r}")
        if not found.points or found.sizes != sorted(set(found.sizes)):
            raise ValueError(f"the batch sizes must grow, and there must be one, got {found.sizes}")
        if any(point.variants.keys() != found.points[0].variants.keys() for point in found.points):
            raise ValueError("the batch sizes were not measured at the same gammas")
        return found


def batch_recording(file: str | Path | None = None) -> BatchSweep:
    """A recorded sweep of batch sizes; file None: the one that the course brings.  ValueError where it is none."""
    file = Path(file or FILE)
    try:
        return BatchSweep.from_json(file.read_text(encoding="utf-8"))
    except ValueError as error:
        raise ValueError(f"{file.name} cannot be shown: {error}") from None
