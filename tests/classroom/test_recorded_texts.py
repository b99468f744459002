"""The recorded runs of notebook 07 and the test of each token given those before it."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import replace

import pytest
import torch

import spec_lib as sl
from spec_lib.checks import chi_squared, real_patients, recorded_texts
from spec_lib.checks.recorded_texts import conditional, likeliest_rows, ranks, rows_after, sampled_texts, share_of

RECORDED = sampled_texts()
WRONG = {"H", "K"}


def row(*numbers: float) -> torch.Tensor:
    return torch.tensor(numbers, dtype=torch.float64)


@pytest.fixture(scope="module")
def tiny():
    return sl.load_pair("tiny", device="cpu", dtype="float64")


@pytest.fixture(scope="module")
def known(tiny):
    """temperature -> the rows of the target for tokens 1, 2 and 3."""
    return {t: [likeliest_rows(tiny.target, RECORDED.prompt, length, t) for length in range(3)] for t in (1.0, 0.9)}


# --- the recording --------------------------------------------------------------------------------------------------


def test_the_recording_is_of_the_embedded_pair_small_and_says_where_it_is_from(tiny):
    assert recorded_texts.FILE.stat().st_size < 160_000
    assert RECORDED.about.keys() == {"source", "date", "engine", "setting", "repaired"}
    assert RECORDED.about["source"].endswith("vllm/issues/55005") and RECORDED.about["date"] == "2026-11-28"
    assert list(RECORDED.prompt) == tiny.encode(tiny.prompts["predictable"])[0].tolist()
    assert [sum(counts.values()) for counts in RECORDED.runs.values()] == [8000, 6000, 8000, 8000, 8000]
    for counts in RECORDED.runs.values():
        assert {len(text) for text in counts} == {3}
        assert all(0 <= token < len(tiny.tokenizer) for text in counts for token in text)


def test_a_recording_is_written_as_it_is_read(tmp_path):
    text = recorded_texts.to_json(RECORDED)
    assert text == recorded_texts.FILE.read_text("utf-8")
    (tmp_path / "a.json").write_text(text)
    assert sampled_texts(tmp_path / "a.json") == RECORDED
    backwards = {name: Counter(dict(reversed(list(counts.items())))) for name, counts in RECORDED.runs.items()}
    assert recorded_texts.to_json(replace(RECORDED, runs=backwards)) == text  # in whatever order it was counted


GOOD = {"records": "sampled texts", "version": 1, "about": {}, "prompt": [1], "runs": {"a": {"1": {"2": 3}}}}


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"records": "prompt lookup"}, "is no recording of sampled texts"),
        ({"version": 2}, "is no recording of sampled texts"),
        ({"runs": None}, "is damaged"),
        ({"runs": {"a": {"one": 1}}}, "is damaged"),
        ({"prompt": 3}, "is damaged"),
        ({"runs": {"a": {"1": {"2": 0}}}}, "was written 0 times"),
        ({"runs": {"a": {"1": {"2": 1.5}}}}, "was written 1.5 times"),
        ({"runs": {"a": {"1": {"2": 1}, "2": 1}}}, "all of one length"),
        ({"runs": {"a": {}}}, "all of one length"),
    ],
)
def test_a_file_that_is_no_such_recording_is_refused(change, said, tmp_path):
    (tmp_path / "a.json").write_text(json.dumps(GOOD))
    assert sampled_texts(tmp_path / "a.json").runs == {"a": {(1, 2): 3}}
    (tmp_path / "a.json").write_text(json.dumps(GOOD | change))
    with pytest.raises(ValueError, match=said) as error:
        sampled_texts(tmp_path / "a.json")
    assert "a.json" in str(error.value) and "\n" not in str(error.value)


@pytest.mark.parametrize("text", ["{", "[]", "3"])
def test_what_is_no_recording_at_all_is_refused(text, tmp_path):
    (tmp_path / "a.json").write_text(text)
    with pytest.raises(ValueError, match=r"a\.json is no recording of sampled texts"):
        sampled_texts(tmp_path / "a.json")


# --- the tests ------------------------------------------------------------------------------------------------------

ROWS = {(0,): row(0.5, 0.3, 0.2), (1,): row(0.1, 0.1, 0.8)}
COUNTS = {(0, 0, 2): 6, (0, 1, 1): 2, (1, 2, 0): 2, (2, 2, 2): 50, (0,): 7}


def test_a_token_is_expected_as_often_as_the_rows_before_it_say():
    seen, expected = conditional(COUNTS, ROWS)
    assert seen == {0: 6, 1: 2, 2: 2}  # nothing of the text that begins with 2, nor of the one that ends there
    assert [expected[x] for x in range(3)] == pytest.approx([0.8 * 0.5 + 0.2 * 0.1, 0.26, 0.32])
    seen, expected = conditional(COUNTS, {(): row(0.2, 0.2, 0.6)})
    assert seen == {0: 15, 1: 2, 2: 50} and expected == {0: 0.2, 1: 0.2, 2: 0.6}
    for nothing in ({}, {(2, 2): 3}):
        with pytest.raises(ValueError, match="no text begins as one of the rows does"):
            conditional(nothing, ROWS)
        with pytest.raises(ValueError, match="no text begins as one of the rows does"):
            share_of(nothing, ROWS, {(0,): 0, (1,): 0})


def test_ranks_and_shares_by_hand():
    seen, expected = ranks(COUNTS, ROWS)
    assert seen.tolist() == [8, 2, 0]  # rank 1: six times 0 after 0, twice 2 after 1
    assert expected.tolist() == pytest.approx([8 * 0.5 + 2 * 0.8, 8 * 0.3 + 2 * 0.1, 8 * 0.2 + 2 * 0.1])
    assert share_of(COUNTS, ROWS, {(0,): 1, (1,): 2}) == pytest.approx((0.4, 0.8 * 0.3 + 0.2 * 0.8))


def test_the_rows_are_the_targets_own_after_each_text(tiny):
    texts = [(1986, 14), (732, 517), (0, 0)]
    with torch.no_grad():
        for temperature in (1.0, 0.9):
            rows = rows_after(tiny.target, RECORDED.prompt, texts, temperature)
            assert list(rows) == texts
            for text, found in rows.items():
                ids = torch.tensor([[*RECORDED.prompt, *text]])
                alone = sl.Sampling(temperature=temperature).probabilities(tiny.target(ids).logits[0, -1])
                assert found.dtype == torch.float64 and float((found - alone).abs().max()) < 1e-12


def test_the_likeliest_texts_are_extended(tiny):
    first = likeliest_rows(tiny.target, RECORDED.prompt, 0)[()]
    singles = likeliest_rows(tiny.target, RECORDED.prompt, 1, most=7)
    assert [x for (x,) in singles] == first.topk(7).indices.tolist()
    pairs = likeliest_rows(tiny.target, RECORDED.prompt, 2, most=7)
    chances = {(x, y): float(first[x] * p) for (x,), after in singles.items() for y, p in enumerate(after)}
    assert list(pairs) == sorted(chances, key=chances.__getitem__, reverse=True)[:7]


def test_a_right_sampler_alarms_no_more_often_than_the_level_says_and_a_wrong_one_does(known):
    """Counts of second tokens, drawn from the rows after as many first tokens as run G wrote."""
    rows, cooler = known[1.0][1], known[0.9][1]
    before = Counter()
    for text, n in real_patients.patients()["G"].items():
        before[text[:1]] += n
    generator = torch.Generator().manual_seed(1)

    def p_values(drawn_from, experiments: int) -> list[float]:
        found = []
        for _ in range(experiments):
            counts = Counter()
            for text, n in before.items():
                if text in rows:
                    drawn = torch.multinomial(drawn_from[text], n, replacement=True, generator=generator).tolist()
                    counts.update((*text, y) for y in drawn)
            found.append(chi_squared.goodness_of_fit(*conditional(counts, rows), least=5).p_value)
        return found

    right = p_values(rows, 200)
    assert sum(p < 0.1 for p in right) <= 20 and max(right) > 0.9 and min(right) < 0.3  # conservative, and not blind
    assert max(p_values(cooler, 3)) < 1e-6


# --- what the notebook says ------------------------------------------------------------------------------------------


def first_alarm(counts, rows) -> int:
    """The first token whose test raises an alarm; 0 where none does."""
    tests = (chi_squared.goodness_of_fit(*conditional(counts, known), least=5) for known in rows)
    return next((token for token, r in enumerate(tests, 1) if r.p_value < chi_squared.LEVEL), 0)


def test_the_answer_is_what_the_tests_find(known):
    found = [first_alarm(counts, known[1.0]) for counts in real_patients.patients().values()]
    (case,) = real_patients.REAL_PATIENTS.cases
    assert "".join(map(str, found)) == case.expected[:5]
    for counts in real_patients.patients().values():  # with the core's 10 expected counts too, and by pairs
        at_least_10 = chi_squared.goodness_of_fit(*conditional(counts, known[1.0][1])).p_value
        assert (at_least_10 < chi_squared.LEVEL) == (first_alarm(counts, known[1.0]) == 2)


def test_who_is_wrong_is_who_was_not_repaired():
    patients, names = real_patients.patients(), real_patients.who_they_were()
    assert patients.keys() == names.keys() == set("GHIJK")
    assert {letter for letter, name in names.items() if name.endswith("as installed")} == WRONG
    for letter, name in names.items():
        assert patients[letter] == RECORDED.runs[name]


@pytest.mark.parametrize(("letter", "statistic", "d"), [("H", 73_866, 58), ("K", 4_800, 42)])
def test_the_second_token_of_the_wrong_runs(letter, statistic, d, known):
    result = chi_squared.goodness_of_fit(*conditional(real_patients.patients()[letter], known[1.0][1]), least=5)
    assert (round(result.statistic), result.d) == (statistic, d)


def test_the_control_is_found_in_every_token_of_every_run(known):
    for counts in real_patients.patients().values():
        for rows in known[0.9]:
            result = chi_squared.goodness_of_fit(*conditional(counts, rows), least=5)
            assert result.p_value < chi_squared.LEVEL and result.statistic > 170


def test_the_traces_of_a_temperature_that_nobody_wrote(tiny, known):
    """Uniform, likeliest, least likely; and id 0, or the draft model's likeliest, where the target's row is nan."""
    rows = known[1.0][1]
    drafted = {x: int(r.argmax()) for x, r in rows_after(tiny.draft, RECORDED.prompt, rows).items()}
    least = {x: int(r.argmin()) for x, r in rows.items()}
    for letter, counts in real_patients.patients().items():
        seen, expected = ranks(counts, rows)
        assert seen.sum() == pytest.approx(float(expected.sum()))
        tail = seen[1024:-1].view(-1)  # the less likely half, without the last rank
        at_zero, at_least = share_of(counts, rows, dict.fromkeys(rows, 0))[0], share_of(counts, rows, least)[0]
        assert (tail.sum() > 100) == (at_least > 0.03) == (letter in WRONG)
        assert (at_zero > 0.7) == (letter == "H")
        assert (share_of(counts, rows, drafted)[0] > 0.8) == (letter == "K")
        if letter == "K":  # uniform over what is left: eight parts of 128 ranks, but for the last rank
            parts = [float(x.sum()) for x in tail.split(128)]
            shares = {i: len(x) / len(tail) for i, x in enumerate(tail.split(128))}
            assert chi_squared.goodness_of_fit(dict(enumerate(parts)), shares).p_value > chi_squared.LEVEL
