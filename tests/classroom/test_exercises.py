"""Every exercise: the solution passes, each named mistake is told by its own hint, and no answer stops a notebook."""

from __future__ import annotations

import copy
import importlib
import pkgutil
from collections.abc import Callable, Iterator

import pytest
import torch

from spec_lib import checks
from spec_lib.checks.clinic import Diagnosis
from spec_lib.checks.engine import NOTHING, PLACEHOLDER, Case, Exercise
from tests.classroom.student_answers import ANSWERS
from tests.helpers.answers import solution, solutions, stub, stubs


def exercises() -> Iterator[tuple[str, Exercise]]:
    for module in pkgutil.iter_modules(checks.__path__):
        for name, value in vars(importlib.import_module(f"{checks.__name__}.{module.name}")).items():
            if isinstance(value, Exercise):
                yield name.lower(), value


EXERCISES = dict(exercises())
CHECKS = {name.removeprefix("check_"): value for name, value in vars(checks).items() if name.startswith("check_")}
DIGITS = {name for name, exercise in EXERCISES.items() if isinstance(exercise, Diagnosis)}  # read as text
MISTAKES = [(name, hint) for name, exercise in EXERCISES.items() for hint in exercise.mistakes]


def test_every_exercise_has_a_check_a_stub_and_a_solution():
    assert EXERCISES and EXERCISES.keys() == CHECKS.keys() == stubs().keys()
    assert len(solutions()) == len(stubs())
    assert len(EXERCISES) == len(list(exercises())), "two exercises with one name"
    assert {f"check_{name}" for name in EXERCISES} <= set(checks.__all__)


@pytest.mark.parametrize("name", EXERCISES)
def test_the_shown_solution_passes(name, capsys):
    assert CHECKS[name](solution(name)) is True
    assert capsys.readouterr().out.startswith(("Right.", "Right, in all "))


@pytest.mark.parametrize("name", EXERCISES)
def test_the_stub_is_told_to_be_one(name, capsys):
    for function in (stub(name), lambda *a: ..., lambda *a: None):
        assert CHECKS[name](function) is False
        assert capsys.readouterr().out == f"{PLACEHOLDER}\n"


@pytest.mark.parametrize("name", EXERCISES)
def test_lines_without_a_return_are_no_placeholder(name, capsys):
    def computed(*arguments):
        len(arguments)  # a `return` is missing before it

    def printed(*arguments):
        print(end="")

    for function in (computed, printed):
        assert CHECKS[name](function) is False
        assert capsys.readouterr().out == f"{NOTHING}\n"


@pytest.mark.parametrize("name", EXERCISES)
def test_an_exercise_tells_at_least_three_mistakes_apart(name):
    assert len(EXERCISES[name].mistakes) >= 3


@pytest.mark.parametrize(("name", "hint"), MISTAKES, ids=[f"{name}: {hint}" for name, hint in MISTAKES])
def test_a_mistake_is_told_by_its_own_hint(name, hint, capsys):
    assert CHECKS[name](EXERCISES[name].mistakes[hint]) is False, "this mistake is the right answer"
    out = capsys.readouterr().out
    assert out.endswith(f"  Hint: {hint}.\n") and out.count("Hint: ") == 1, out
    assert "yours" in out and "expected" in out, out


@pytest.mark.parametrize(("name", "answer", "words"), ANSWERS, ids=[f"{n}: {words!r}" for n, _, words in ANSWERS])
def test_what_a_student_writes_is_told(name, answer, words, capsys):
    assert CHECKS[name](answer) is False
    out = capsys.readouterr().out
    assert words in out and out.count("Hint: ") <= 1, out


def test_every_exercise_has_a_students_answer():
    assert {name for name, _, _ in ANSWERS} == EXERCISES.keys()


# --- answers that are no answers ------------------------------------------------------------------------------------


class Unreadable:
    """Raises whatever is asked of it."""

    def __getattr__(self, name):
        raise RuntimeError(name)

    def __repr__(self):
        raise RuntimeError("no text")

    def __float__(self):
        raise RuntimeError("no number")


class Wordless(Exception):
    def __str__(self):
        raise RuntimeError("no text")


endless: list = []
endless.append(endless)
NO_ANSWERS = [
    ("text", "'text'"),
    (b"1", "b'1'"),
    ("", "''"),
    ({0.5}, "{0.5}"),
    ({"a": 1}, "{'a': 1}"),
    ([1.0, None], "[1.0, None]"),
    ((..., ...), "(Ellipsis, Ellipsis)"),
    (1j, "1j"),
    (10**400, "1000"),
    (endless, "[[...]]"),
    (torch.empty(2, device="meta"), "meta"),
    (torch.tensor([1j]), "tensor("),
    (torch.float32, "torch.float32"),
    (print, "<built-in function print>"),
]
NUMBERS = [
    (float("nan"), "nan"),
    (float("inf"), "inf"),
    (-7.25, "-7.25"),
    (1e300, "1e+300"),
    (torch.full((2, 5), 99.5), "99.5, 99.5"),
    (torch.full((40,), 99.5), "(40 numbers)"),
    ([[99.5], [98.5, 97.5]], "99.5, 98.5, 97.5"),
    (torch.zeros(7, 0), "no numbers"),
]


@pytest.mark.parametrize("name", EXERCISES)
def test_an_answer_of_another_kind_is_shown_and_never_raises(name, capsys):
    for answer, shown in NO_ANSWERS + NUMBERS:
        if name in DIGITS:
            shown = str(answer)[:4]
        assert CHECKS[name](lambda *a, answer=answer: answer) is False
        out = capsys.readouterr().out
        yours = out[out.index("  yours") : out.index("  expected")]
        assert out.startswith("Not yet:") and "raised" not in out and shown in yours, out
    if name not in DIGITS:
        assert CHECKS[name](lambda *a: Unreadable()) is False
        assert "an object of type Unreadable" in capsys.readouterr().out


@pytest.mark.parametrize("name", EXERCISES)
def test_an_answer_that_raises_is_told_by_its_error(name, capsys):
    def raises(error: BaseException) -> Callable:
        def answer(*arguments):
            raise error

        return answer

    for error in (ValueError("a bad one"), NotImplementedError(), Wordless(), SystemExit(), StopIteration()):
        assert CHECKS[name](raises(error)) is False
        out = capsys.readouterr().out
        assert out.startswith("Not yet:") and out.rstrip().endswith((type(error).__name__, "a bad one")), out
    assert CHECKS[name](lambda one, too, many, arguments, for_, any_, of, them: 1) is False
    assert "TypeError" in capsys.readouterr().out
    with pytest.raises(KeyboardInterrupt):  # a loop without end can be stopped
        CHECKS[name](raises(KeyboardInterrupt()))


def spoil(value: object) -> None:
    if isinstance(value, torch.Tensor):
        value.zero_()
    elif isinstance(value, (list, dict)):
        value.clear()


@pytest.mark.parametrize("name", EXERCISES)
def test_an_answer_that_changes_its_arguments_counts_by_what_it_returns(name, capsys):
    def answer(*arguments):
        found = solution(name)(*copy.deepcopy(arguments))
        for value in arguments:
            spoil(value)
        return found

    assert CHECKS[name](answer) is True
    assert CHECKS[name](lambda *arguments: answer(*arguments) and None) is False
    assert CHECKS[name](solution(name)) is True, "the cases were changed"
    for hint, mistake in EXERCISES[name].mistakes.items():
        capsys.readouterr()
        assert CHECKS[name](lambda *a, mistake=mistake: (mistake(*copy.deepcopy(a)), *map(spoil, a))[0]) is False
        assert f"Hint: {hint}." in capsys.readouterr().out


@pytest.mark.parametrize("name", sorted(EXERCISES.keys() - DIGITS - {"broken_rule"}))
def test_a_number_too_many_or_too_few_is_told(name, capsys):
    def numbers(*arguments):
        found = solution(name)(*arguments)
        parts = found if isinstance(found, (list, tuple)) else [found]
        return [x for part in parts for x in torch.as_tensor(part, dtype=torch.float64).flatten().tolist()]

    for answer in (lambda *a: [*numbers(*a), 0.25], lambda *a: numbers(*a)[:-1]):
        assert CHECKS[name](answer) is False
        out = capsys.readouterr().out
        assert out.startswith("Not yet:") and "raised" not in out and "yours" in out
    assert CHECKS[name](lambda *a: [[solution(name)(*a)]]) is True  # dimensions of one do not count


# --- the engine -----------------------------------------------------------------------------------------------------

TWICE = Exercise(
    cases=(Case("one", (1.0,), 2.0), Case("a third", (1 / 3,), 2 / 3), Case("two", (2.0,), 4.0)),
    mistakes={
        "it is squared": lambda x: x * x,
        "it is doubled twice": lambda x: 4 * x,
        "nothing is done to it": lambda x: x,
    },
)


def test_a_hint_explains_as_many_cases_as_it_can(capsys):
    assert TWICE.check(lambda x: x) is False  # in the first case it looks squared too
    assert capsys.readouterr().out == "Not yet: one\n  yours     1\n  expected  2\n  Hint: nothing is done to it.\n"


def test_a_hint_that_does_not_fit_all_answers_is_only_a_guess(capsys):
    """A false hint sent a learner off: of one case alone many mistakes look alike."""
    assert TWICE.check(lambda x: [1.0, 5.0, 7.0][[1.0, 1 / 3, 2.0].index(x)]) is False
    assert "  Perhaps (going by this case alone): it is squared.\n" in capsys.readouterr().out


def test_a_wrong_answer_that_changes_its_arguments_is_told_so(capsys):
    def in_place(p, q):
        p -= q
        return p.clamp(min=0) + p

    assert checks.check_residual(in_place) is False
    assert "changes an argument" in capsys.readouterr().out
    assert checks.check_residual(lambda p, q: p - q) is False
    assert "changes an argument" not in capsys.readouterr().out


def test_a_right_answer_that_changes_its_arguments_is_told_so_too(capsys):
    def in_place(times, warm_up):
        del times[:warm_up]
        return solution("median_and_spread")(times, 0)

    assert checks.check_median_and_spread(in_place) is True
    assert capsys.readouterr().out.endswith("cases.\nYour function also changes an argument, as `p -= q` does: "
                                            "compute on a copy.\n")  # fmt: skip
    assert checks.check_median_and_spread(solution("median_and_spread")) is True
    assert "changes an argument" not in capsys.readouterr().out


def test_a_wrong_answer_without_a_name_gets_no_hint(capsys):
    assert TWICE.check(lambda x: x + 5) is False
    assert capsys.readouterr().out == "Not yet: one\n  yours     6\n  expected  2\n"


COUNTED = Exercise((Case("a table", (), torch.arange(24.0).view(4, 6)),), {})
OF_FIVE = Exercise((Case("five", (), [1.0, 2.0, 3.0, 4.0, 5.0]),), {})


@pytest.mark.parametrize(
    ("exercise", "answer", "hint"),
    [
        (OF_FIVE, [1, 2, 3, 4, 5, 6], "one number too many: look at where a range or a slice begins and ends"),
        (OF_FIVE, [2, 3, 4, 5], "one number too few: look at where a range or a slice begins and ends"),
        (OF_FIVE, 15.0, "this is one number, and 5 are asked for"),
        (OF_FIVE, [1, 2], "these are 2 numbers, and 5 are asked for"),
        (OF_FIVE, [[1, 2], [3, 4]], "the shape is (2, 2), and (5,) is asked for"),
        (OF_FIVE, [1, 2, 3, 4, 6], ""),  # seen at a glance
        (OF_FIVE, [[1, 2], 3, 4], "one number too few"),
        (TWICE, [1.0, 2.0], "one number is asked for, and these are 2"),
        (COUNTED, torch.arange(28.0).view(4, 7), "the shape is (4, 7), and (4, 6) is asked for"),
        (COUNTED, torch.arange(24.0).view(4, 6) + (torch.arange(24.0) == 17).view(4, 6), "is [2, 5]: 18 instead of 17"),
        (COUNTED, [*range(20), 99.0, 21.0, 22.0, 23.0], ""),  # of another shape, with another number
    ],
)
def test_what_can_be_said_of_any_wrong_answer_is_told(exercise, answer, hint, capsys):
    assert exercise.check(lambda *a: answer) is False
    out = capsys.readouterr().out
    assert hint in out, out
    assert out.count("Hint: ") == bool(hint), out


def test_a_search_is_not_given_away_by_a_hint_that_fits_any_answer(capsys):
    secret = Exercise(COUNTED.cases, {}, secret=True)
    assert secret.check(lambda: torch.arange(24.0).view(4, 6) + 1) is False
    assert "Hint" not in capsys.readouterr().out


def test_numbers_that_differ_late_are_shown_with_more_digits(capsys):
    assert TWICE.check(lambda x: 2 * float(torch.tensor(x).half())) is False
    out = capsys.readouterr().out
    assert "yours     0.666504\n  expected  0.666667\n  Hint: the numbers are nearly right" in out
    assert TWICE.check(lambda x: 2 * x + 1e-4) is False
    assert "yours     2.0001\n  expected  2\n" in capsys.readouterr().out


def test_an_error_with_a_hint_of_its_own_is_told_both(capsys):
    inverse = Exercise((Case("of zero", (0.0,), 0.0),), {}, errors={"ZeroDivisionError": "nothing divides by 0"})
    assert inverse.check(lambda x: 1 / x) is False
    said = capsys.readouterr().out
    assert said.startswith("Not yet: of zero raised ZeroDivisionError: ")
    assert said.endswith("\n  Hint: nothing divides by 0.\n")
    assert inverse.check(lambda x: [][0]) is False
    assert "Hint" not in capsys.readouterr().out


def test_a_wrong_answer_is_computed_once_for_each_case(capsys):
    calls = []
    assert TWICE.check(lambda x: calls.append(x) or 5.0) is False
    assert sorted(calls) == sorted(case.arguments[0] for case in TWICE.cases)


def test_an_answer_that_is_changed_later_is_the_one_that_was_returned():
    kept: list = []

    def one_list_for_all(best, drafted):
        kept[:] = solution("greedy_tokens")(best, drafted)
        return kept

    assert checks.check_greedy_tokens(one_list_for_all) is True


def test_an_error_in_the_last_trial_is_told(capsys):
    def once(mask):
        once.calls += 1
        return solution("accepted_count")(mask) if once.calls <= 6 else 1 / 0

    once.calls = 0
    assert checks.check_accepted_count(once) is False
    assert capsys.readouterr().out == "Not yet: in a last trial it raised ZeroDivisionError: division by zero\n"


def test_a_search_is_not_given_away_and_its_order_does_not_matter(capsys):
    """Any wrong answer to the three misprints was told the right one; the right lines in another order were wrong."""
    assert checks.check_misprinted_lines(lambda: (12, 8, 10)) and "Right" in capsys.readouterr().out
    assert not checks.check_misprinted_lines(lambda: (3, 8, 12))
    said = capsys.readouterr().out
    assert "3 numbers; 2 of yours are among them" in said and "8, 10, 12" not in said
    for right in ({8, 10, 12}, torch.tensor([12, 8, 10]), [12.0, 8.0, 10.0]):
        assert checks.check_misprinted_lines(lambda right=right: right)
    capsys.readouterr()
    for wrong in ({1, 2, 3}, "lines 8, 9", ("8", "9", "10"), Unreadable()):  # no address, which may hold a 12
        assert not checks.check_misprinted_lines(lambda wrong=wrong: wrong)
    assert "12" not in capsys.readouterr().out


def test_a_test_is_told_true_or_false(capsys):
    assert not checks.check_smallest_test(lambda session: True)
    said = capsys.readouterr().out
    assert "yours     True" in said and "expected  False" in said


@pytest.mark.parametrize(
    "read",
    [
        lambda m: m[m].sum(),
        lambda m: m.masked_select(m).sum(),
        lambda m: torch.equal(m, m),
        lambda m: torch.unique(m),
        lambda m: m.to("cpu"),
        lambda m: m.tolist(),
        lambda m: bool(m[0]),
    ],
)
def test_what_makes_a_device_wait_is_counted_as_a_read(read):
    assert checks.host_reads(read, (torch.tensor([True, False, True]),)) > 0
    assert checks.host_reads(lambda m: m.long().cumprod(-1).sum(-1), (torch.tensor([True, False, True]),)) == 0
