"""The clinic of notebook 07: six samplers in an order to be found out, and a check that does not give it away."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from .engine import PLACEHOLDER, Case, Exercise, ask

_WARD = (4, 6, 3, 1, 5, 2)  # which of the six samplers patient A is, patient B, ...
_DIGITS = "one digit for each of the patients A to F, in their order; none is left out, none appears twice"
_Diagnosis = dict[int, int]  # which sampler a patient is -> which one the reader says it is


def ward(samplers: Sequence) -> dict[str, object]:
    """Six samplers as patients A to F, in an order that the reader is to find out."""
    return {name: samplers[i - 1] for name, i in zip("ABCDEF", _WARD, strict=True)}


def _swapped(*which: int) -> Callable[[], str]:
    """The right diagnosis, with these samplers taken for one another in a ring."""
    taken = dict(zip(which, (*which[1:], which[0]), strict=True))
    return lambda: "".join(str(taken.get(i, i)) for i in _WARD)


@dataclass(frozen=True)
class Diagnosis(Exercise):
    """An exercise whose expected value stays hidden: the check says how many are right, not which.

    found: {hint: what has to be true of a diagnosis for the hint to be given}, the first that is.
    """

    found: Mapping[str, Callable[[_Diagnosis], bool]] = field(default_factory=dict)

    def check(self, function: Callable) -> bool:
        def in_letters() -> str | None:
            got = function()
            return None if got is None or got is Ellipsis else str(got)

        answer = ask(in_letters, ())
        if answer.error:
            print(f"Not yet: the diagnosis raised {answer.error}")
            return False
        if answer.nothing:
            print(PLACEHOLDER)
            return False
        digits = [int(c) for c in answer.shown if c in "123456"]
        if sorted(digits) != [1, 2, 3, 4, 5, 6]:
            print(f"Not yet:\n  yours     {answer.shown}\n  expected  the digits 1 to 6, each once, one a patient")
            print(f"  Hint: {_DIGITS}.")
            return False
        if tuple(digits) == _WARD:
            print("Right, in all 6 cases.")
            return True
        said = dict(zip(_WARD, digits, strict=True))
        right = sum(a == b for a, b in said.items())
        shown = "".join(map(str, digits))
        print(f"Not yet:\n  yours     {shown}\n  expected  another order: {right} of yours are right")
        print(f"  Hint: {next(hint for hint, holds in self.found.items() if holds(said))}.")
        return False


_KIND = "a patient whose draft tokens raise an alarm, or none of whose do, was taken for the other kind"
_ARGMAX = "the two whose draft tokens raise an alarm are swapped: an argmax gives one kind of token only"
_HEALTHY = "a faulty sampler was declared right: the right one raises no alarm and writes nothing forbidden"
_BONUS = "the wrong bonus was sought in a text that is wrong at once: it is right for gamma tokens"
_RESAMPLING = "3 and 5 are swapped: what is drawn after a rejection does not change how often first tokens are accepted"

DIAGNOSIS = Diagnosis(
    cases=(Case("the six patients", (), "".join(map(str, _WARD))),),
    mistakes={
        _DIGITS: lambda: "111111",
        _KIND: _swapped(1, 4),
        _ARGMAX: _swapped(1, 2),
        _HEALTHY: _swapped(3, 6),
        _BONUS: _swapped(3, 4),
        _RESAMPLING: _swapped(3, 5),
    },
    found={
        _KIND: lambda said: {said[1], said[2]} != {1, 2},
        _ARGMAX: lambda said: said[1] == 2,
        _HEALTHY: lambda said: said[6] != 6,
        _BONUS: lambda said: said[4] != 4,
        _RESAMPLING: lambda said: True,
    },
)


def check_diagnosis(function: Callable[[], str]) -> bool:
    """function() -> six digits: which of the six samplers patients A to F are.  Says how many are right, not which."""
    return DIAGNOSIS.check(function)
