"""What was measured, raw: seconds and counts of every evaluation; and what a file must hold to be read as that."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from math import isfinite
from typing import NamedTuple

from ..numbers import as_int
from ..records import Round, summarize
from .settings import ALL, MORE, SPECULATIVE, Setting, own_setting


def had_room(r: Round, gamma: int) -> bool:
    """Whether a round belongs into fits: all but those that had no room for `gamma` draft tokens.

    A round that the budget or the context cut short saw the first positions of a draft only, and could not write as
    many tokens as the formula has it: it is left out, and nothing that the verdict decides comes into that.  An EOS
    among the accepted tokens also marks its round as cut, but that round had room, and it ended so *because* its tokens
    were accepted: to leave it out would throw away acceptances and no rejection, and bias alpha downwards.  Counted up
    to its EOS it biases nothing, since every token before the end was tested without regard to what came after.
    """
    return not r.cut or (r.token is None and len(r.drafted) == gamma)


class Counts(NamedTuple):
    """Of one speculative text: target passes, accepted and rejected draft tokens, in all and of its full rounds alone.

    Full rounds are those of `had_room`; full_tokens: what these emitted.
    """

    passes: int
    accepted: int
    rejected: int
    full_passes: int
    full_tokens: int
    full_accepted: int
    full_rejected: int

    @classmethod
    def of(cls, rounds: Sequence[Round], gamma: int) -> Counts:
        every, full = summarize(rounds), summarize(r for r in rounds if had_room(r, gamma))
        return cls(
            every.passes, every.accepted, every.rejected, full.passes, full.emitted, full.accepted, full.rejected
        )

    @classmethod
    def added(cls, counts: Iterable[Counts]) -> Counts:
        return cls(*(sum(column) for column in zip(*counts, strict=True)))


@dataclass
class Variant:
    """What was counted of one variant.  gamma: what it was measured at.  seconds: of each text.

    passes, accepted, rejected: over all texts, cut rounds too.  peak: bytes of GPU memory, the most in use at once.
    note: why there are no seconds.  counts: of each text, where the variant has rounds.  text: which text each
    evaluation wrote, numbered from 0 as they first came: equal numbers, equal texts.  Both are empty in older
    recordings.  token_by_token: as in `Round`; where it is False there is no alpha.
    """

    gamma: int
    seconds: list[float] = field(default_factory=list)
    passes: int = 0
    accepted: int = 0
    rejected: int = 0
    peak: int | None = None
    note: str | None = None
    counts: list[Counts] = field(default_factory=list)
    text: list[int] = field(default_factory=list)
    token_by_token: bool = True

    @property
    def texts(self) -> int | None:
        """How many different texts were written; None where it was not recorded."""
        return len(set(self.text)) or None

    @classmethod
    def from_json(cls, name: str, data: dict, setting: Setting, runs: int) -> Variant:
        """From what `json.load` gives; errors as in `Measurement.from_json`."""
        if name not in (*ALL, *MORE):
            raise ValueError(f"there is no variant {name!r}")
        found = cls(**data)
        for what in ("passes", "accepted", "rejected"):
            whole(f"{what} of {name}", getattr(found, what))
        whole(f"gamma of {name}", found.gamma, 1)
        if name in SPECULATIVE and found.gamma != (its := own_setting(setting, name)).gamma:
            raise ValueError(f"gamma of {name} is {found.gamma}, and that of its setting {its.gamma}")
        if found.peak is not None:
            whole(f"peak of {name}", found.peak)
        if not isinstance(found.note, str | None):
            raise ValueError(f"note of {name} is not a text")
        if not isinstance(found.token_by_token, bool):
            raise ValueError(f"token_by_token of {name} is neither true nor false")
        found.seconds = times(f"seconds of {name}", found.seconds) if found.seconds != [] else []
        for what in ("seconds", "counts", "text"):
            if len(getattr(found, what)) not in (0, runs):
                raise ValueError(f"{what} of {name} are {len(getattr(found, what))}, but runs are {runs}")
        found.counts = [Counts(*(whole(f"a count of {name}", x) for x in counts)) for counts in found.counts]
        found.text = [whole(f"a text's number of {name}", x) for x in found.text]
        return found


@dataclass
class Measurement:
    """What `compare` found at one setting.  v: n -> seconds of each target pass over n tokens, empty where not needed.

    value: of the factor, in a sweep.  own_v: v of our own forward pass.
    """

    pair: str
    setting: Setting
    runs: int
    v: dict[int, list[float]]
    variants: dict[str, Variant]
    value: object = None
    own_v: dict[int, list[float]] = field(default_factory=dict)

    @property
    def texts(self) -> int | None:
        """How many different texts a variant wrote (the most of any); None where it was not recorded.

        At temperature 0 the text depends on the prompt alone, so that `runs` evaluations hold only as many as prompts.
        """
        return max((variant.texts or 0 for variant in self.variants.values()), default=0) or None

    @classmethod
    def from_json(cls, data: dict) -> Measurement:
        """From what `json.load` gives (older files say "arms").

        ValueError in one sentence for a number out of range; TypeError, LookupError or AttributeError for another form.
        """
        setting, runs, vs = Setting(**data["setting"]), whole("runs", data["runs"], 1), []
        for name, given in (("v", data["v"]), ("own_v", data.get("own_v", {}))):
            vs.append(curve(name, given))
            if vs[-1] and not {1, setting.gamma + 1} <= set(vs[-1]):
                raise ValueError(f"{name} lacks the passes over 1 or over gamma + 1 = {setting.gamma + 1} tokens")
        variants = data["variants" if "variants" in data else "arms"]
        if not variants:
            raise ValueError("there are no variants")
        if not isinstance(data["pair"], str):
            raise ValueError("pair is not a text")
        read = {name: Variant.from_json(name, variant, setting, runs) for name, variant in variants.items()}
        return cls(data["pair"], setting, runs, vs[0], read, data.get("value"), vs[1])


def whole(what: str, x, least: int = 0) -> int:
    """x, if it is a whole number of at least `least`; ValueError otherwise."""
    if as_int(x) is None or x < least:
        raise ValueError(f"{what} must be a whole number of at least {least}, got {x!r}")
    return x


def number(what: str, x, positive: bool = False) -> float:
    """x, if it is a finite number of at least 0, and not 0 where it must be positive; ValueError otherwise."""
    right = not isinstance(x, bool) and isinstance(x, int | float) and isfinite(x) and x >= 0
    if not right or (positive and not x):
        raise ValueError(f"{what} must be a {'positive number' if positive else 'number of at least 0'}, got {x!r}")
    return x


def times(what: str, seconds) -> list[float]:
    """Seconds from a file; ValueError unless each is a positive number, and there is at least one."""
    if not isinstance(seconds, list) or not seconds:
        raise ValueError(f"{what} must be a list of times, got {seconds!r}")
    return [number(what, x, positive=True) for x in seconds]


def curve(what: str, data: dict) -> dict[int, list[float]]:
    """v from a file: n -> seconds; ValueError for an n that is not a whole number of at least 1."""
    for n in data:
        if not str(n).isdecimal() or int(n) < 1:
            raise ValueError(f"{what} holds passes over {n} tokens")
    return {int(n): times(f"{what} over {n} tokens", seconds) for n, seconds in data.items()}
