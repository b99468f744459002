"""Recordings: one machine's timings in one JSON file, written by `record`, which the notebooks replay."""

from __future__ import annotations

import datetime
import json
import re
from collections.abc import Callable
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path

import torch

from ..decoding import speculative
from ..devices import machine
from ..files import writable
from ..pairs import Pair
from .comparison import compare, sweep
from .lookup import is_of_another_kind
from .measured import Measurement
from .reading import READ, a_text, json_object
from .settings import ALL, FACTORS, RULES, TARGET, VARIANTS, Setting, can_be_fast
from .timing import cost_ratio, first_token, memory, pass_seconds, rounded, time_breakdown

FOLDER = Path(__file__).parents[2] / "notebooks" / "recordings"
VERSION = 2  # of the file's layout: 1 had no number, and said "bill" and "arms"


@dataclass
class Recording:
    """One run of all that the notebooks replay.  What a file lacks is empty.

    machine, device, torch, transformers, pair, date: what was measured, where and when.  v: "target" and "draft" -> n
    -> seconds of each pass over n tokens.  c: the cost ratio of each run.  own_v, own_c: the same on our own forward
    pass, where the pair is GPT-2; all else but some of the comparison's variants is on transformers'.
    breakdown: gamma -> `time_breakdown`.
    memory: bytes.  first_token: seconds.  rounds: of one text, for the figures.  comparison: at one setting.
    sweeps: factor -> a measurement at each value.  check: verdict and pairs of `python -m spec_lib check`.
    file: the name it was read from.
    """

    machine: str
    pair: str
    device: str = ""
    torch: str = ""
    transformers: str = ""
    date: str = ""
    v: dict[str, dict[int, list[float]]] = field(default_factory=dict)
    c: list[float] = field(default_factory=list)
    breakdown: dict[int, dict[str, float]] = field(default_factory=dict)
    own_v: dict[str, dict[int, list[float]]] = field(default_factory=dict)
    own_c: list[float] = field(default_factory=list)
    memory: dict[str, int] = field(default_factory=dict)
    first_token: dict[str, list[float]] = field(default_factory=dict)
    rounds: list[dict] = field(default_factory=list)
    comparison: Measurement | None = None
    sweeps: dict[str, list[Measurement]] = field(default_factory=dict)
    check: dict = field(default_factory=dict)
    file: str = ""

    @classmethod
    def here(cls, pair: str, device: torch.device, threads: int, **measured) -> Recording:
        """A recording made on this machine today.  threads: of the CPU, as the models of the pair used them."""
        import transformers

        return cls(
            machine=machine(device),
            pair=pair,
            device=f"{device.type}, {threads} CPU thread(s)",
            torch=torch.__version__,
            transformers=transformers.__version__,
            date=datetime.date.today().isoformat(),
            **measured,
        )

    @property
    def whole(self) -> bool:
        """Whether it has all that notebook 09 shows, from at least two evaluations: a check's, for one, has not."""
        ours = (TARGET, *RULES)
        measured = [(self.comparison, ours), *((m, ours[:2]) for sweep in self.sweeps.values() for m in sweep)]
        return bool(
            self.c
            and all(
                m and all(len(m.variants[x].seconds) > 1 for x in names if x in m.variants) for m, names in measured
            )
            and all(name in self.comparison.variants for name in ours)
            and all(m.value >= 1 and m.value + 1 in self.v.get("target", {}) for m in self.sweeps.get("gamma", []))
            and {0, 1}.issubset(self.breakdown)
            and 1 in self.v.get("target", {})
            and self.first_token
            and all(len(seconds) > 1 for seconds in self.first_token.values())
        )

    @classmethod
    def from_json(cls, text: str) -> Recording:
        """From the text of a file, of this version or an older one; ValueError in one sentence where it is none."""
        given = json_object(text)
        version = given.pop("version", 1)
        if version not in range(1, VERSION + 1):
            raise ValueError(f"its version {version!r} is not one of 1 to {VERSION}, which this release can read")
        if version == 1:
            given["breakdown"] = given.pop("bill", {})
        names = {f.name for f in fields(cls)} - {"file"}
        given = {name: part for name, part in given.items() if name in names}
        if missing := {"machine", "pair"} - set(given):
            raise ValueError(f"it does not say which {' and '.join(sorted(missing))} it is of")
        for name, part in given.items():
            try:
                given[name] = READ.get(name, a_text)(part)
            except (TypeError, LookupError, AttributeError, ArithmeticError) as error:
                what = f"{type(error).__name__}: {error}"
                raise ValueError(f"its {name} is not what record writes ({what})") from error
            except ValueError as error:
                raise ValueError(f"in its {name}, {error}") from error
        return cls(**given)

    def to_json(self) -> str:
        """The text of a file, of the newest version."""
        kept = {name: value for name, value in asdict(self).items() if name != "file"}
        return json.dumps({"version": VERSION, **kept}, ensure_ascii=False) + "\n"


def record(pair: Pair, runs: int = 10, say: Callable[[str], object] = lambda text: None) -> Recording:
    """One run of all that the notebooks replay.  It takes minutes.  say: is told about the progress."""
    ids = pair.encode(next(iter(pair.prompts.values())))
    long = torch.cat([ids] * (500 // ids.shape[1] + 1), 1)[:, :500]
    counts = (*range(1, 10), 12, 16, 24, 32, 48, 64)
    say("single passes")
    v = {name: pass_seconds(m, counts) for name, m in (("target", pair.target), ("draft", pair.draft))}
    fast, variants = can_be_fast(pair), VARIANTS
    own: dict = {}
    if fast:
        own = {name: pass_seconds(m, counts) for name, m in (("target", fast.target), ("draft", fast.draft))}
        own = {"own_v": {name: {n: rounded(x) for n, x in times.items()} for name, times in own.items()}}
        own["own_c"], variants = rounded(cost_ratio(fast)), ALL
    rounds = speculative(pair.target, pair.draft, ids, 60, generator=1).rounds
    say("the time breakdown of a round")
    parts = time_breakdown(pair, ids, (0, *FACTORS["gamma"][1]), Setting().new, runs)
    factors = [f for f in FACTORS if f != "draft" or pair.name.startswith("tiny")]
    return Recording.here(
        pair.name,
        pair.device,
        1 if pair.name.startswith("tiny") else torch.get_num_threads(),
        v={name: {n: rounded(seconds) for n, seconds in times.items()} for name, times in v.items()},
        c=rounded(cost_ratio(pair)),
        breakdown={g: dict(zip(found, rounded(found.values()), strict=True)) for g, found in parts.items()},
        memory=memory(pair),
        first_token={name: rounded(seconds) for name, seconds in first_token(pair, long).items()},
        rounds=[
            {"drafted": [pair.decode([t]) for t in r.drafted.tolist()], "accepted": r.accepted, "origin": r.origin}
            | {"added": pair.decode([r.token])}
            for r in rounds
        ],
        **own,
        comparison=compare(pair, Setting(), runs, variants, lambda text: say(f"all variants: {text}")),
        sweeps={factor: sweep(pair, factor, runs=runs, say=say) for factor in factors},
    )


def recordings(folder: str | Path | None = None, whole: bool = False) -> list[Recording]:
    """The recordings of a folder (None: the notebooks'), in the order of their file names, which they hold as `file`.

    A file that is no recording is left out, and one line names it and says what is wrong; those that say that
    they record something else are left out without a word.  whole: so is a recording that lacks what notebook 09 shows
    (`Recording.whole`).
    """
    found = []
    for file in sorted(Path(folder or FOLDER).glob("*.json")):
        try:
            text = file.read_text(encoding="utf-8")
            if is_of_another_kind(text):
                continue
            read = Recording.from_json(text)
            if whole and not read.whole:
                raise ValueError("it is no whole record of two evaluations or more, which this notebook needs")
            read.file = file.name
            found.append(read)
        except UnicodeDecodeError:
            print(f"{file.name} is left out: it is not a text in UTF-8.")
        except ValueError as error:
            print(f"{file.name} is left out: {' '.join(str(error).split())}.")
        except Exception as error:  # whatever was dropped into the folder must not end a lesson
            print(f"{file.name} is left out: it is no recording ({type(error).__name__}: {error}).")
    return found


def recording_file(device: torch.device, what: str) -> Path:
    """The usual file of a recording, named by the machine and what was recorded; ValueError if not writable."""
    folder = FOLDER if FOLDER.parent.is_dir() else Path.cwd()
    name = re.sub(r"[^a-z0-9]+", "-", f"{machine(device)} {what}".lower()).strip("-")
    return writable(folder / f"{name}.json")
