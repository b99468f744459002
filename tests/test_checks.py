"""The exercise checkers: stubs, the notebooks' own solutions, and wrong answers told apart by name."""

import json
import re
from pathlib import Path

import pytest
import torch
import wrong_answers_02
import wrong_answers_03
import wrong_answers_04
import wrong_answers_05
import wrong_answers_06
import wrong_answers_07
import wrong_answers_08
import wrong_answers_09

import spec_lib as sl
from spec_lib import checks

NOTEBOOKS = Path(__file__).parent.parent / "notebooks"
MORE = (
    wrong_answers_02,
    wrong_answers_03,
    wrong_answers_04,
    wrong_answers_05,
    wrong_answers_06,
    wrong_answers_07,
    wrong_answers_08,
    wrong_answers_09,
)
CHECKERS = {
    "tokens_per_pass": checks.check_tokens_per_pass,
    "acceptance_rate": checks.check_acceptance_rate,
    "top_p": checks.check_top_p,
    "positions": checks.check_positions,
    "law_at": checks.check_temperature,
    **{name: check for module in MORE for name, check in module.CHECKERS.items()},
}


def solutions() -> dict[str, str]:
    """Every solution that a notebook shows in <details>, by the name of its function."""
    found = {}
    for file in NOTEBOOKS.glob("*.ipynb"):
        text = "\n".join(
            "".join(c["source"]) for c in json.loads(file.read_text())["cells"] if c["cell_type"] == "markdown"
        )
        for code in re.findall(r"<summary>Solution</summary>\s*```python\n(.*?)```", text, re.S):
            found[re.match(r"def (\w+)", code).group(1)] = code
    return found


def function(code: str):
    names: dict = {"sl": sl, "torch": torch}
    exec(code, names)
    return names[re.match(r"def (\w+)", code).group(1)]


def test_every_solution_has_a_checker_and_every_checker_a_solution():
    assert solutions().keys() == CHECKERS.keys()


@pytest.mark.parametrize("name", CHECKERS)
def test_the_shown_solution_passes(name, capsys):
    assert CHECKERS[name](function(solutions()[name])) is True
    assert capsys.readouterr().out.startswith("Right")


@pytest.mark.parametrize("name", CHECKERS)
def test_a_stub_and_a_crash_are_told_without_raising(name, capsys):
    assert CHECKERS[name](lambda *a: None) is False
    assert "Nothing returned yet" in capsys.readouterr().out
    assert CHECKERS[name](lambda *a: 1 / 0) is False
    assert "ZeroDivisionError" in capsys.readouterr().out
    assert CHECKERS[name](lambda *a: "text") is False


def by_order(values, indices, kept):
    law = torch.zeros(len(values)).scatter(-1, indices, values * kept)
    return law / law.sum()


def top_p_variant(stays, renormalise=True, in_order=False):
    def top_p(p, mass):
        values, indices = (p, torch.arange(len(p))) if in_order else p.sort(descending=True, stable=True)
        kept = stays(values.cumsum(-1), values, mass).float()
        law = torch.zeros(len(p)).scatter(-1, indices, values * kept)
        return law / law.sum() if renormalise else law

    return top_p


def below(total, values, mass):
    return total - values < mass


WRONG = [
    ("tokens_per_pass", lambda rs: sum(r.accepted for r in rs) / len(rs), "not counted"),
    ("tokens_per_pass", lambda rs: sum(len(r.drafted) + 1 for r in rs) / len(rs), "rejected drafts are counted"),
    ("acceptance_rate", lambda rs: sum(r.accepted for r in rs) / sum(len(r.drafted) for r in rs), "never judged"),
    (
        "acceptance_rate",
        lambda rs: sum(r.accepted for r in rs) / (sum(r.accepted for r in rs) + sum(r.origin != "plain" for r in rs)),
        "every round counts one rejection",
    ),
    ("acceptance_rate", lambda rs: sum(r.origin == "bonus" for r in rs) / len(rs), "accepted everything"),
    (
        "acceptance_rate",
        lambda rs: sum(r.accepted for r in rs) / sum(r.accepted + (r.accepted < len(r.drafted)) for r in rs),
        "counts as a rejection",
    ),
    ("top_p", top_p_variant(below, renormalise=False), "not divided by their sum"),
    ("top_p", top_p_variant(lambda t, v, m: t < m), "is left out"),
    ("top_p", top_p_variant(lambda t, v, m: t - v <= m), "one token too many"),
    ("top_p", top_p_variant(below, in_order=True), "order of their ids"),
    ("positions", lambda p, n, c: p + n if c else sum(p + i for i in range(1, n + 1)), "drawn, and nothing is asked"),
    ("positions", lambda p, n, c: p + n - 1, "every step reads it again"),
    ("positions", lambda p, n, c: p + n - 1 if c else p * n, "does not grow"),
    ("law_at", lambda x, t: (x * t).softmax(-1) if t else torch.full((3,), 1 / 3), "multiplied by the temperature"),
    ("law_at", lambda x, t: x.softmax(-1) / t if t else torch.zeros(3), "not the logits"),
    ("law_at", lambda x, t: (x / t).softmax(-1), "divides by zero"),
    *(row for module in MORE for row in module.WRONG),
]


@pytest.mark.parametrize("name, wrong, named", WRONG, ids=[f"{i} {n}: {w}" for i, (n, _, w) in enumerate(WRONG)])
def test_a_wrong_answer_is_told_by_its_likely_mistake(name, wrong, named, capsys):
    assert CHECKERS[name](wrong) is False
    out = capsys.readouterr().out
    assert named in out, out
    assert named.endswith("Error") or ("yours" in out and "expected" in out), out


def test_three_wrong_answers_of_each_are_told_apart():
    named = {name: {w for n, _, w in WRONG if n == name} for name in CHECKERS}
    named["tokens_per_pass"].add("added up")  # below
    assert all(len(found) >= 3 for found in named.values())


def test_the_sum_instead_of_the_mean_is_told(capsys):
    # one round cannot tell a sum from a mean: the second case can
    assert checks.check_tokens_per_pass(lambda rs: float(sum(r.accepted + 1 for r in rs))) is False
    assert "added up" in capsys.readouterr().out


def test_answers_are_kept_and_a_question_mark_overwrites_nothing(tmp_path, capsys):
    checks.keep_answers("TF?TF?TF?T", tmp_path)
    checks.keep_answers("????????F?", tmp_path)
    kept = "".join(checks.kept_answers(tmp_path).get(str(i), "-") for i in range(1, 11))
    assert kept == "TF-TF-TFFT"
    checks.keep_answers("TRUE", tmp_path)
    assert "Write 10 letters" in capsys.readouterr().out
    (tmp_path / "file").write_text("")
    checks.keep_answers("TTTTTTTTTT", tmp_path / "file")  # not a folder: one line, no traceback
    assert "could not be written" in capsys.readouterr().out


def test_an_answer_that_changes_its_argument_is_judged_by_what_it_returns(capsys):
    def in_place(x, t):
        if t == 0:
            return torch.zeros_like(x).scatter(-1, x.argmax(-1, keepdim=True), 1.0)
        x /= t
        return x.softmax(-1)

    assert checks.check_temperature(in_place) is True
    assert checks.check_tokens_per_pass(lambda rounds: rounds.clear() or 5) is False
    assert checks.check_tokens_per_pass(lambda rounds: 10**400) is False


def test_a_spoilt_file_of_answers_is_none(tmp_path):
    for text in ("5", "[1]", "null", "{"):
        (tmp_path / "answers.json").write_text(text)
        assert checks.kept_answers(tmp_path) == {}
    checks.keep_answers(None, tmp_path)
