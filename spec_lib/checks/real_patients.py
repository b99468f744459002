"""Five recorded runs of a system that others use, as patients G to K of notebook 07, and the check of a diagnosis."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

from .clinic import Diagnosis
from .engine import Case
from .recorded_texts import SampledTexts, Text, sampled_texts

_ORDER = (3, 2, 0, 4, 1)  # which run of the recording patient G is, patient H, ...
_RIGHT = "020024"
_FIRST, _KIND = slice(0, 5), 5  # of the answer's digits


def patients(texts: SampledTexts | None = None) -> dict[str, Counter[Text]]:
    """How often patients G to K wrote each text, the runs of the recording in another order.

    texts: None for the recording that the course brings.
    """
    runs = list((texts or sampled_texts()).runs.values())
    return {letter: runs[i] for letter, i in zip("GHIJK", _ORDER, strict=True)}


def who_they_were(texts: SampledTexts | None = None) -> dict[str, str]:
    """{letter: the name of that run}: the answer, for after the diagnosis."""
    names = list((texts or sampled_texts()).runs)
    return {letter: names[i] for letter, i in zip("GHIJK", _ORDER, strict=True)}


_FORM = (
    "six digits between quotes: for G, H, I, J and K the first token that is wrong (0: none, or 1, 2, 3), then the "
    "number of the fault (1 to 5)"
)
_HEALTHY = "a run was called wrong that raises no alarm in any test"
_MISSED = "a run was called right that raises an alarm"
_TOO_EARLY = "token 1 of a wrong run raises no alarm, and nothing is drafted before it: the prompt's own pass yields it"
_TOO_LATE = "token 3 is wrong as well, but not the first: look at token 2, given token 1"
_COOLER = "another temperature at every position shows at token 1, as the control did"
_ALWAYS = (
    "a sampler that accepts everything writes what the draft model writes, and a draft model close to the target does "
    "not write the token that the target finds least likely"
)
_FROM_P = "a resampled token that is drawn from p may be too frequent, but is hardly ever the least likely one of p"
_BONUS = "with gamma 4 the first bonus is token 6: three tokens cannot show it"


def _says(answer: str) -> Callable[[], str]:
    return lambda: answer


REAL_PATIENTS = Diagnosis(
    cases=(Case("five patients and their fault", (), _RIGHT),),
    mistakes={
        _FORM: _says("HK"),
        _HEALTHY: _says("022024"),
        _MISSED: _says("020004"),
        _TOO_EARLY: _says("010014"),
        _TOO_LATE: _says("030034"),
        _COOLER: _says("020021"),
        _ALWAYS: _says("020022"),
        _FROM_P: _says("020023"),
        _BONUS: _says("020025"),
    },
    form="six digits",
    fits=lambda digits: max(digits[_FIRST]) <= 3 and 1 <= digits[_KIND] <= 5,
    malformed=_FORM,
    found={
        _HEALTHY: lambda digits: any(d and r == "0" for d, r in zip(digits[_FIRST], _RIGHT, strict=False)),
        _MISSED: lambda digits: any(not d and r != "0" for d, r in zip(digits[_FIRST], _RIGHT, strict=False)),
        _TOO_EARLY: lambda digits: 1 in digits[_FIRST],
        _TOO_LATE: lambda digits: 3 in digits[_FIRST],
        _COOLER: lambda digits: digits[_KIND] == 1,
        _ALWAYS: lambda digits: digits[_KIND] == 2,
        _FROM_P: lambda digits: digits[_KIND] == 3,
        _BONUS: lambda digits: digits[_KIND] == 5,
    },
)


def check_real_patients(function: Callable[[], str]) -> bool:
    """function() -> six digits: the first wrong token of patients G to K (0: none), then the number of the fault."""
    return REAL_PATIENTS.check(function)
