"""Recordings: one machine's timings in one JSON file, written by `record`, which the notebooks replay."""

from __future__ import annotations

import datetime
import json
import re
from collections.abc import Callable
from dataclasses import asdict, dataclass, field, fields
from math import isfinite
from pathlib import Path

import torch

from ..decoding import speculative
from ..devices import machine
from ..files import writable
from ..pairs import Pair
from .comparison import compare, sweep
from .measured import Measurement, curve, number, times, whole
from .settings import FACTORS, TARGET, Setting
from .tables import rows
from .timing import cost_ratio, first_token, memory, pass_seconds, rounded, time_breakdown

FOLDER = Path(__file__).parents[2] / "notebooks" / "recordings"
VERSION = 2  # of the file's layout: 1 had no number, and said "bill" and "arms"
PARTS = ("prompt", "target", "draft", "rest", "rounds")  # of a time breakdown


@dataclass
class Recording:
    """One run of all that the notebooks replay.  What a file lacks is empty.

    machine, device, torch, transformers, pair, date: what was measured, where and when.  v: "target" and "draft" -> n
    -> seconds of each pass over n tokens.  c: the cost ratio of each run.  breakdown: gamma -> `time_breakdown`.
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

    @classmethod
    def from_json(cls, text: str) -> Recording:
        """From the text of a file, of this version or an older one; ValueError in one sentence where it is none."""
        given = _object(text)
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
                given[name] = READ.get(name, _text)(part)
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


def _object(text: str) -> dict:
    """What a file holds; ValueError unless it is a JSON object of finite numbers."""

    def finite(x: str) -> float:
        if not isfinite(float(x)):
            raise ValueError(f"it holds {x}, which is no measurement")
        return float(x)

    try:
        given = json.loads(text, parse_constant=finite, parse_float=finite)
    except json.JSONDecodeError as error:
        raise ValueError(f"it is not JSON ({error})") from error
    if not isinstance(given, dict):
        raise ValueError("it is not a JSON object with named parts")
    return given


def _text(part) -> str:
    if not isinstance(part, str):
        raise ValueError(f"{part!r} is not a text")
    return part


def _v(part: dict) -> dict[str, dict[int, list[float]]]:
    found = {name: curve(f"v of the {name}", data) for name, data in part.items()}
    for name, data in found.items():
        if 1 not in data:
            raise ValueError(f"v of the {name} lacks the passes over one token, the unit of all others")
    return found


def _breakdown(part: dict) -> dict[int, dict[str, float]]:
    found = {whole("gamma", int(g)): {p: number(f"{p} at gamma {g}", x[p]) for p in PARTS} for g, x in part.items()}
    for g, x in found.items():
        number(f"rounds at gamma {g}", x["rounds"], above=0.0)
    return found


def _rounds(part: list) -> list[dict]:
    if not isinstance(part, list):
        raise ValueError("there is no list of rounds")
    for r in part:
        if not all(isinstance(t, str) for t in [*r["drafted"], r["origin"], r["added"]]):
            raise ValueError(f"this round is not what record writes: {r!r}"[:200])
        if whole("accepted", r["accepted"]) > len(r["drafted"]):
            raise ValueError(f"{r['accepted']} of {len(r['drafted'])} draft tokens are accepted")
    return part


def _measurement(data: dict) -> Measurement:
    found = Measurement.from_json(data)
    if not (TARGET in found.variants and found.variants[TARGET].seconds):
        raise ValueError(f"there are no times of {TARGET}, with which all others are compared")
    rows(found), rows(found, held_out=True)  # whoever shows it derives these
    return found


def _sweeps(part: dict) -> dict[str, list[Measurement]]:
    found = {}
    for factor, measured in part.items():
        if not isinstance(measured, list) or not measured:
            raise ValueError(f"the sweep of {factor} holds no measurement")
        found[factor] = [_measurement(m) for m in measured]
        for m in found[factor]:
            if not isinstance(m.value, str | int | float | None):
                raise ValueError(f"the sweep of {factor} has a value {m.value!r}")
    return found


def _check(part: dict) -> dict:
    if not isinstance(part, dict):
        raise ValueError("there are no named parts")
    return part


READ = {  # how each part of a file is read; a part that is not named here is a text
    "v": _v,
    "c": lambda part: times("c", part) if part != [] else [],
    "breakdown": _breakdown,
    "memory": lambda part: {name: whole(name, size) for name, size in part.items()},
    "first_token": lambda part: {name: times(name, seconds) for name, seconds in part.items()},
    "rounds": _rounds,
    "comparison": lambda part: _measurement(part) if part else None,
    "sweeps": _sweeps,
    "check": _check,
}


def record(pair: Pair, runs: int = 10, say: Callable[[str], object] = lambda text: None) -> Recording:
    """One run of all that the notebooks replay.  It takes minutes.  say: is told about the progress."""
    ids = pair.encode(next(iter(pair.prompts.values())))
    long = torch.cat([ids] * (500 // ids.shape[1] + 1), 1)[:, :500]
    counts = (*range(1, 10), 12, 16, 24, 32, 48, 64)
    say("single passes")
    v = {name: pass_seconds(m, counts) for name, m in (("target", pair.target), ("draft", pair.draft))}
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
        comparison=compare(pair, Setting(), runs, say=lambda text: say(f"all variants: {text}")),
        sweeps={factor: sweep(pair, factor, runs=runs, say=say) for factor in factors},
    )


def recordings(folder: str | Path | None = None) -> list[Recording]:
    """The recordings of a folder (None: the notebooks'), in the order of their file names, which they hold as `file`.

    A file that is no recording is left out, and one line names it and says what is wrong.
    """
    found = []
    for file in sorted(Path(folder or FOLDER).glob("*.json")):
        try:
            found.append(Recording.from_json(file.read_text(encoding="utf-8")))
            found[-1].file = file.name
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
