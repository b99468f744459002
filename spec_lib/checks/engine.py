"""Run an exercise: try the reader's function on named cases and say which mistake a wrong answer looks like."""

from __future__ import annotations

import copy
import dis
import inspect
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

PLACEHOLDER = "Nothing returned yet: replace the placeholder, then run the cell and this check again."
NOTHING = "Nothing was returned: the function does something, but no line that is reached begins with `return`."
NO_RETURN = "nothing was returned in this case, but something in others: is a `return` missing on one path"
SHAPE = "the numbers are right, but they are arranged differently: give them the expected shape"
ROUNDED = "the numbers are nearly right: does something round them, as a dtype of 16 bits does"
CHANGED = "Your function also changes an argument, as `p -= q` does: compute on a copy."
SHOWN = 12  # numbers of an answer that are printed

Nested = float | list["Nested"]


class Case(NamedTuple):
    """One call with a known answer, worked out by other means than the library's."""

    name: str
    arguments: tuple
    expected: object


def worked_out(reference: Callable, arguments: Mapping[str, tuple]) -> tuple[Case, ...]:
    """Cases whose expected value the reference works out; arguments: {name of the case: the call's arguments}."""
    return tuple(Case(name, given, reference(*copy.deepcopy(given))) for name, given in arguments.items())


@dataclass(frozen=True)
class Exercise:
    """What an answer has to do, and how it goes wrong.

    cases: from the simplest to the hardest; the first that differs is shown.  mistakes: {hint: the function that makes
    this mistake}.  afterwards: looks at a function that is right in all cases; returns what is still wrong with it, or
    an empty string.  errors: {how the error begins, with its name: the hint where the answer raises it}.  secret: a
    wrong answer is not shown the right one, only how many of its numbers are among those asked for.
    """

    cases: Sequence[Case]
    mistakes: Mapping[str, Callable]
    afterwards: Callable[[Callable], str] = lambda function: ""
    errors: Mapping[str, str] = field(default_factory=dict)
    secret: bool = False

    @classmethod
    def against(
        cls,
        reference: Callable,
        cases: Mapping[str, tuple],
        mistakes: Mapping[str, Callable],
        afterwards: Callable[[Callable], str] = lambda function: "",
        errors: Mapping[str, str] | None = None,
    ) -> Exercise:
        """An exercise whose expected values a reference works out; cases: {name: the call's arguments}."""
        return cls(worked_out(reference, cases), mistakes, afterwards, errors or {})

    def check(self, function: Callable) -> bool:
        """Print the verdict on the function and return whether it is right.  Only an interrupt by hand gets through."""
        changed = False
        for at, case in enumerate(self.cases):
            answer = ask(function, case.arguments)
            changed = changed or answer.changed
            if answer.error:
                print(f"Not yet: {case.name} raised {answer.error}")
                if hint := next((h for begin, h in self.errors.items() if answer.error.startswith(begin)), ""):
                    print(f"  Hint: {hint}.")
                return False
            if not answer.nothing and _same(answer.values, nested(case.expected)):
                continue
            answers = [answer if i == at else ask(function, other.arguments) for i, other in enumerate(self.cases)]
            if all(a.nothing for a in answers):
                print(nothing_returned(function))
                return False
            yours, expected = _side_by_side(answer, case.expected)
            if self.secret:
                right = set(flat(nested(case.expected)))
                shared = right & set(flat(answer.values)) if answer.values is not None else set()
                expected = f"{len(right)} numbers; {len(shared)} of yours are among them"
            print(f"Not yet: {case.name}\n  yours     {yours}\n  expected  {expected}")
            if hint := self._hint(answers, at):
                start = "Hint" if self._explains(hint, answers) else "Perhaps (going by this case alone)"
                print(f"  {start}: {hint}{'?' if hint in (NO_RETURN, ROUNDED) else '.'}")
            if any(a.changed for a in answers):
                print(f"  {CHANGED}")
            return False
        try:
            left = self.afterwards(function)
        except (Exception, SystemExit) as error:
            print(f"Not yet: in a last trial it raised {_said(error)}")
            return False
        print(
            ("Right." if len(self.cases) == 1 else f"Right, in all {len(self.cases)} cases.")
            + (f"\n{left}" if left else "")
            + (f"\n{CHANGED}" if changed else "")
        )
        return not left

    def _hint(self, answers: Sequence[Answer], at: int) -> str:
        """The mistake that explains the answer to case `at`; of several, the one that explains the most cases."""
        if answers[at].nothing:
            return NO_RETURN
        yours, expected = answers[at].values, nested(self.cases[at].expected)
        if yours is None:
            return ""
        if _same_numbers(yours, expected):
            return SHAPE
        agreements = {}
        for hint, mistake in self.mistakes.items():
            made = [ask(mistake, case.arguments) for case in self.cases]
            agrees = [_same_numbers(a.values, b.values) for a, b in zip(made, answers, strict=True)]
            if agrees[at]:
                agreements[hint] = sum(agrees)
        if agreements:
            return max(agreements, key=agreements.__getitem__)  # of equals, the first
        if _nearly(flat(yours), flat(expected)):
            return ROUNDED
        return "" if self.secret else _in_general(yours, expected)

    def _explains(self, hint: str, answers: Sequence[Answer]) -> bool:
        """Whether a hint fits every answer; cases in which the answer is no number count for nothing."""
        if hint not in self.mistakes:
            return True
        made = [ask(self.mistakes[hint], case.arguments) for case in self.cases]
        return all(b.values is None or _same_numbers(a.values, b.values) for a, b in zip(made, answers, strict=True))


@dataclass(frozen=True)
class Answer:
    """What a function made of a case: numbers, something else (`values` is None), nothing at all, or an error."""

    values: Nested | None = None
    shown: str = ""
    nothing: bool = False
    error: str = ""
    changed: bool = False  # whether numbers among the arguments are others than before


def ask(function: Callable, arguments: tuple) -> Answer:
    """Call the function with copies of the arguments, which it may change, and note what it returns at once."""
    try:
        given = copy.deepcopy(arguments)
        got = function(*given)
    except (Exception, SystemExit) as error:  # an exercise must never stop the notebook
        return Answer(error=_said(error))
    if got is None or got is Ellipsis:
        return Answer(nothing=True, shown="nothing")
    changed = any(map(_changed, arguments, given))
    try:
        return Answer(values=nested(got), changed=changed)
    except Exception:  # whatever an object of the reader's own does when it is read
        return Answer(shown=_described(got), changed=changed)


def _changed(before: object, after: object) -> bool:
    """Whether an argument holds other numbers than before; what holds no numbers is not looked at."""
    try:
        return not _same(nested(before), nested(after))
    except Exception:
        return False


def nothing_returned(function: Callable) -> str:
    """What to say of an answer that never returns anything: a placeholder still, or lines without a `return`."""

    def operations(of: Callable) -> list[str]:
        return [step.opname for step in dis.get_instructions(of) if step.opname != "NOP"]

    function = inspect.unwrap(function)
    written = hasattr(function, "__code__") and operations(function) != operations(lambda: None)
    return NOTHING if written else PLACEHOLDER


def nested(x: object) -> Nested:
    """The numbers of x in nested lists, a list of one being its element.  Raises where x holds anything else."""
    if hasattr(x, "tolist"):  # a tensor or an array
        x = x.tolist()
    if isinstance(x, Sequence) and not isinstance(x, (str, bytes, bytearray)):
        items = [nested(item) for item in x]
        return items[0] if len(items) == 1 else items
    if isinstance(x, (str, bytes, bytearray)):
        raise TypeError("text is not a number")
    return float(x)


def flat(values: Nested) -> list[float]:
    """All numbers of a nested list, in their order."""
    return [x for item in values for x in flat(item)] if isinstance(values, list) else [values]


def _same(a: Nested | None, b: Nested | None) -> bool:
    """Whether two nested lists have one shape and the same numbers, up to the rounding of float32."""
    if isinstance(a, list) and isinstance(b, list):
        return len(a) == len(b) and all(map(_same, a, b))
    if a is None or b is None or isinstance(a, list) or isinstance(b, list):
        return False
    return a == b or abs(a - b) < 1e-5 * max(1.0, abs(b)) or (math.isnan(a) and math.isnan(b))


def _same_numbers(a: Nested | None, b: Nested | None) -> bool:
    """Whether both are numbers and the same ones, whatever the shape."""
    return a is not None and b is not None and _same(flat(a), flat(b))


def _nearly(a: Sequence[float], b: Sequence[float]) -> bool:
    """Whether fractions differ by no more than what 16 bits lose (bfloat16: 1 in 256)."""
    fractions = any(x != round(x) for x in b if math.isfinite(x))
    return fractions and len(a) == len(b) and all(abs(x - y) <= abs(y) / 128 for x, y in zip(a, b, strict=True))


def _in_general(yours: Nested, expected: Nested) -> str:
    """What can be said of any wrong answer: how many numbers it has, or where the first of many is wrong."""
    mine, theirs = flat(yours), flat(expected)
    shapes = _shape(yours), _shape(expected)
    if not mine or not theirs:
        return ""
    if len(mine) != len(theirs):
        these = f"these are {len(mine)} numbers" if len(mine) > 1 else "this is one number"
        if len(theirs) == 1:
            return f"one number is asked for, and {these}"
        if len(mine) > 1 and max(map(len, shapes)) > 1:
            return f"the shape is {shapes[0]}, and {shapes[1]} is asked for (dimensions of 1 are left out)"
        if len(mine) > 1 and abs(len(mine) - len(theirs)) == 1:
            much = "many" if len(mine) > len(theirs) else "few"
            return f"this is one number too {much}: look at where a range or a slice begins and ends"
        return f"{these}, and {len(theirs)} are asked for"
    if shapes[0] == shapes[1] and (len(shapes[1]) > 1 or len(mine) > SHOWN):  # too many to compare by eye
        place, a, b = _first_difference(yours, expected)
        return f"the first number that differs, counted from 0, is {place}: {_show(a)} instead of {_show(b)}"
    return ""


def _first_difference(a: Nested, b: Nested) -> tuple[list[int], Nested, Nested]:
    """Where two lists first differ, as indices, and what stands there in each."""
    if not isinstance(a, list) or not isinstance(b, list) or len(a) != len(b):
        return [], a, b
    at = next(i for i, (x, y) in enumerate(zip(a, b, strict=True)) if not _same(x, y))
    place, *numbers = _first_difference(a[at], b[at])
    return [at, *place], *numbers


def _shape(values: Nested) -> tuple[int, ...]:
    """The shape of nested lists, as far as all parts have one: ((1, 2), (3, 4)) is (2, 2), and ((1, 2), 3) is (2,)."""
    if not isinstance(values, list):
        return ()
    inner = [_shape(item) for item in values]
    return (len(values), *(inner[0] if len(set(inner)) == 1 else ()))


def _side_by_side(answer: Answer, expected: object) -> tuple[str, str]:
    """Both answers in print, with as many digits as it takes to tell them apart, and brackets where only those do."""
    yours, theirs = answer.values, nested(expected)
    if yours is None:
        return answer.shown, str(expected) if isinstance(expected, bool) else _show(theirs)
    if isinstance(expected, bool) and yours in (0.0, 1.0):
        return str(bool(yours)), str(expected)
    if _same_numbers(yours, theirs):
        return _brackets(yours), _brackets(theirs)
    shown = [(_show(yours, digits), _show(theirs, digits)) for digits in (3, 6, 9, 12)]
    return next((texts for texts in shown if texts[0] != texts[1]), shown[-1])


def _show(values: Nested, digits: int = 3) -> str:
    numbers = flat(values)
    texts = [f"{x:.{digits}f}".rstrip("0").rstrip(".") if abs(x) < 1e15 else f"{x:.6g}" for x in numbers[:SHOWN]]
    more = f" ... ({len(numbers)} numbers)" if len(numbers) > SHOWN else ""
    return ", ".join(texts) + more if numbers else "no numbers"


def _brackets(values: Nested) -> str:
    return f"[{', '.join(map(_brackets, values))}]" if isinstance(values, list) else _show(values)


def _described(x: object) -> str:
    try:
        return repr(x)[:80]
    except Exception:
        return f"an object of type {type(x).__name__}"


def _said(error: BaseException) -> str:
    try:
        return f"{type(error).__name__}: {error}".removesuffix(": ")
    except Exception:
        return type(error).__name__
