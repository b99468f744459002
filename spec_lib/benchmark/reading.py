"""What a recording's file must hold: each part is checked as it is read, and what is wrong is said in a sentence."""

from __future__ import annotations

import json
from math import isfinite

from .measured import Measurement, curve, number, times, whole
from .settings import TARGET
from .tables import rows

PARTS = ("prompt", "target", "draft", "rest", "rounds")  # of a time breakdown


def json_object(text: str) -> dict:
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


def a_text(part) -> str:
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
        number(f"rounds at gamma {g}", x["rounds"], positive=True)
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
    "own_v": _v,
    "own_c": lambda part: times("own_c", part) if part != [] else [],
    "breakdown": _breakdown,
    "memory": lambda part: {name: whole(name, size) for name, size in part.items()},
    "first_token": lambda part: {name: times(name, seconds) for name, seconds in part.items()},
    "rounds": _rounds,
    "comparison": lambda part: _measurement(part) if part else None,
    "sweeps": _sweeps,
    "check": _check,
}
