"""The clinic of notebook 07: six samplers, examined, and a check of the diagnosis that does not give it away."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from .chi_squared import LEVEL, Result, alarm_rate, goodness_of_fit, pooled
from .engine import Case, Exercise, ask, nothing_returned
from .faulty import Sampler
from .laboratory import LENGTH, TESTS, Table

_WARD = (4, 6, 3, 1, 5, 2)  # which of the six samplers patient A is, patient B, ...
_DIGITS = "one digit for each of the patients A to F, in their order; none is left out, none appears twice"


class Examination(NamedTuple):
    """Of one sampler.  tests: each of `TESTS` -> its result.  forbidden: texts that the target never writes.  kinds: of
    first draft tokens.  accepted, expected: the share of first draft tokens, and sum min(p, q)."""

    tests: dict[str, Result]
    forbidden: int
    kinds: int
    accepted: float
    expected: float


def examine(table: Table, sampler: Sampler, samples: int, seed: int) -> Examination:
    """Run the sampler on the table and make the six tests."""
    counts, null = table.sample(sampler, samples, seed), table.null(sampler)
    tests = {name: goodness_of_fit(counts[name], null[name]) for name in TESTS}
    whole = f"text {LENGTH}"
    forbidden = sum(count for text, count in counts[whole].items() if text not in null[whole])
    kinds = sum(count > 0 for count in counts["drafted"].values())
    return Examination(tests, forbidden, kinds, counts["accepted"]["accepted"] / samples, null["accepted"]["accepted"])


def report(found: Mapping[str, Examination], level: float = LEVEL) -> str:
    """A line for each sampler: the p-values of its tests, and what needs no test."""
    width = max(map(len, found)) + 2
    lines = [
        f"{'p-values':{width}}" + "".join(f"{name:>10}" for name in TESTS) + "   forbidden  kinds  accepted (rule)"
    ]
    for name, x in found.items():
        shown = (
            ("one" if r.d == 0 else f"<{level:g}" if r.p_value < level else f"{r.p_value:.3f}")
            for r in x.tests.values()
        )
        line = f"{name:{width}}" + "".join(f"{p:>10}" for p in shown)
        lines.append(f"{line}   {x.forbidden:9}  {x.kinds:5}      {x.accepted:.2f} ({x.expected:.2f})")
    if any(r.d == 0 for x in found.values() for r in x.tests.values()):
        lines.append("one: all counts share one category, so nothing can be tested")
    return "\n".join(lines)


def power_table(table: Table, samplers: Mapping[str, Sampler], samples: int, experiments: int = 4000) -> dict:
    """{name: the power of each of `TESTS` against this sampler}, simulated from its exact distributions.

    None where the test is blind: the exact distance between what it looks at and what it compares with is 0.
    """
    found = {}
    for name, sampler in samplers.items():
        null, exact, row = table.null(sampler), table.exact(sampler), []
        for i, test in enumerate(TESTS):
            a, b = pooled(null[test], samples, exact[test])
            seen = float((a - b).abs().sum() / 2) > 1e-9
            row.append(alarm_rate(null[test], exact[test], samples, experiments, seed=i) if seen else None)
        found[name] = row
    return found


def ward(samplers: Sequence) -> dict[str, object]:
    """Six samplers as patients A to F, in an order that the reader is to find out."""
    return {name: samplers[i - 1] for name, i in zip("ABCDEF", _WARD, strict=True)}


def _swapped(*which: int) -> Callable[[], str]:
    """The right diagnosis, with these samplers taken for one another in a ring."""
    taken = dict(zip(which, (*which[1:], which[0]), strict=True))
    return lambda: "".join(str(taken.get(i, i)) for i in _WARD)


@dataclass(frozen=True)
class Diagnosis(Exercise):
    """An exercise whose answer is a row of digits that stays hidden: the check says how many are right, not which.

    cases: one, with the right digits as text.  digits: those that count as such in an answer.  form: what an answer
    looks like; fits: whether these digits do; malformed: the hint where they do not.  found: {hint: what has to be true
    of the digits for the hint to be given}, the first that is.
    """

    digits: str = "0123456789"
    form: str = ""
    fits: Callable[[list[int]], bool] = lambda digits: True
    malformed: str = ""
    found: Mapping[str, Callable[[list[int]], bool]] = field(default_factory=dict)
    otherwise: str = "others"  # what is expected in place of wrong digits

    def check(self, function: Callable) -> bool:
        def in_letters() -> str | None:
            got = function()
            return None if got is None or got is Ellipsis else str(got)

        answer, right = ask(in_letters, ()), [int(c) for c in str(self.cases[0].expected)]
        if answer.error:
            print(f"Not yet: the diagnosis raised {answer.error}")
            return False
        if answer.nothing:
            print(nothing_returned(function))
            return False
        digits = [int(c) for c in answer.shown if c in self.digits]
        if len(digits) != len(right) or not self.fits(digits):
            print(f"Not yet:\n  yours     {answer.shown}\n  expected  {self.form}\n  Hint: {self.malformed}.")
            return False
        if digits == right:
            print(f"Right, in all {len(right)} cases.")
            return True
        agreeing, shown = sum(map(int.__eq__, digits, right)), "".join(map(str, digits))
        print(f"Not yet:\n  yours     {shown}\n  expected  {self.otherwise}: {agreeing} of yours are right")
        print(f"  Hint: {next(hint for hint, holds in self.found.items() if holds(digits))}.")
        return False


_KIND = "patients that raise an alarm under `drafted` were mixed up with patients that do not"
_ARGMAX = "the two that raise an alarm under `drafted` are swapped: an argmax drafts one kind of token only"
_HEALTHY = "a faulty sampler was declared right: the right one raises no alarm and writes nothing forbidden"
_BONUS = (
    "fault 4 leaves the first two tokens right (the first bonus is token 3); who was taken for it is wrong before that"
)
_RESAMPLING = "3 and 5 are swapped: what is drawn after a rejection does not change how often first tokens are accepted"


def _called(digits: Sequence[int], sampler: int) -> int:
    """Which sampler the reader says that this one is."""
    return digits[_WARD.index(sampler)]


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
    digits="123456",
    form="the digits 1 to 6, each once, one a patient",
    fits=lambda digits: len(set(digits)) == 6,
    malformed=_DIGITS,
    found={
        _KIND: lambda digits: {_called(digits, 1), _called(digits, 2)} != {1, 2},
        _ARGMAX: lambda digits: _called(digits, 1) == 2,
        _HEALTHY: lambda digits: _called(digits, 6) != 6,
        _BONUS: lambda digits: _called(digits, 4) != 4,
        _RESAMPLING: lambda digits: True,
    },
    otherwise="another order",
)


def check_diagnosis(function: Callable[[], str]) -> bool:
    """function() -> six digits: which of the six samplers patients A to F are.  Says how many are right, not which."""
    return DIAGNOSIS.check(function)
