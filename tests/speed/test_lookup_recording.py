"""The recording of prompt lookup on a model that copies, and its reader."""

from __future__ import annotations

import itertools
import json
import statistics

import pytest
import torch

import spec_lib as sl
from spec_lib import benchmark
from spec_lib.benchmark import lookup
from spec_lib.checks import recorded_texts

RUNS = benchmark.copying()
KINDS, TEMPERATURES, GAMMAS = ("copy", "edit", "summary", "open"), (0, 0.7, 1), (4, 10)


def mean(kind: str, temperature: float, gamma: int) -> float:
    """Tokens per pass of all seeds."""
    chosen = [r for r in RUNS if (r.kind, r.temperature, r.gamma) == (kind, temperature, gamma)]
    return sum(len(r.written) for r in chosen) / sum(len(r.rounds) for r in chosen)


def test_every_kind_is_there_at_every_setting():
    settings = [(r.kind, r.temperature, r.gamma) for r in RUNS]
    assert set(settings) == set(itertools.product(KINDS, TEMPERATURES, GAMMAS))
    for r in RUNS:
        assert len(r.written) == 80 and r.text == "".join(r.written) and "\ufffd" not in r.text
        assert r.tokens_per_pass == 80 / len(r.rounds) and 0 <= r.without_draft <= 1
        assert r.model.startswith("SmolLM2-135M-Instruct (") and "torch" in r.model and "202" in r.model
        assert all(0 <= a <= d <= r.gamma and o in ("plain", "bonus", "resampled") for d, a, o in r.rounds)
    assert len({(*s, r.seed) for s, r in zip(settings, RUNS, strict=True)}) == len(RUNS)
    assert all(settings.count(s) == (1 if s[1] == 0 else 4) for s in set(settings))
    assert lookup.FILE.stat().st_size < 200_000


def test_greedy_text_is_the_plain_one_and_does_not_depend_on_gamma():
    assert all(r.equals_plain is (None if r.temperature else True) for r in RUNS)
    for kind in KINDS:
        assert len({r.text for r in RUNS if (r.kind, r.temperature) == (kind, 0)}) == 1


@pytest.mark.parametrize("run", RUNS, ids=lambda r: f"{r.kind} {r.temperature} {r.gamma} {r.seed}")
def test_the_rounds_are_those_of_prompt_lookup(run):
    """The drafter itself, on the text so far: as many drafted, and those accepted that the text goes on with."""
    numbers = {piece: i for i, piece in enumerate(dict.fromkeys(run.prompt + run.written))}
    text, left = [numbers[piece] for piece in run.prompt], [numbers[piece] for piece in run.written]
    session = sl.drafters.NGram(longest=3).start(torch.tensor(text), sl.Sampling(), None, None)
    for r in run.rounds:
        drafted = session.propose(min(run.gamma, len(left) - 1)).tokens.tolist()
        assert len(drafted) == r.drafted and drafted[: r.accepted] == left[: r.accepted]
        if r.origin == "resampled":
            assert drafted[r.accepted] != left[r.accepted]
        else:
            assert r.accepted == r.drafted and (r.origin == "plain") == (not drafted)
        tokens, left = left[: r.accepted + 1], left[r.accepted + 1 :]
        session.accept(r.accepted, torch.tensor(tokens[-1:]), tokens)
    assert not left


def test_what_the_recording_shows():
    """Copying pays, an open text hardly, and sampling at temperature 1 leaves next to nothing of either."""
    for gamma in GAMMAS:
        greedy = [mean(kind, 0, gamma) for kind in KINDS]
        assert greedy == sorted(greedy, reverse=True) and greedy[0] > 0.9 * gamma and 1 <= greedy[-1] < 1.5
        for kind in KINDS[:2]:
            assert mean(kind, 0, gamma) > mean(kind, 0.7, gamma) >= 0.95 * mean(kind, 1, gamma)
        assert all(mean(kind, 1, gamma) < 1.6 for kind in KINDS)
    share = {
        t: statistics.mean(r.without_draft for r in RUNS if (r.kind, r.temperature) == ("copy", t)) for t in (0, 1)
    }
    assert share[0] < 0.1 < 0.4 < share[1]  # it is not that copies are rejected: there are none to propose


def test_other_recordings_are_read_without_a_word_of_it(tmp_path, capsys):
    (tmp_path / "a.json").write_bytes(lookup.FILE.read_bytes())
    (tmp_path / "b.json").write_bytes(recorded_texts.FILE.read_bytes())
    assert benchmark.recordings(tmp_path) == [] and benchmark.recordings()
    assert capsys.readouterr().out == ""
    assert benchmark.copying(tmp_path / "a.json") == RUNS


@pytest.mark.parametrize("change", [{"records": "speed"}, {"version": 2}, {"version": None}])
def test_a_file_that_is_another(change, tmp_path):
    (tmp_path / "a.json").write_text(json.dumps(json.loads(lookup.FILE.read_text("utf-8")) | change))
    with pytest.raises(ValueError, match="a.json is no recording of prompt lookup"):
        benchmark.copying(tmp_path / "a.json")
    for text in ("{", "[]", "3"):
        (tmp_path / "a.json").write_text(text)
        with pytest.raises(ValueError, match="a.json is no recording of prompt lookup"):
            benchmark.copying(tmp_path / "a.json")


def test_rounds_that_do_not_add_up(tmp_path):
    given = json.loads(lookup.FILE.read_text("utf-8"))
    given["runs"][3]["rounds"].pop()
    (tmp_path / "a.json").write_text(json.dumps(given))
    with pytest.raises(ValueError, match="do not add up to its 80 tokens"):
        benchmark.copying(tmp_path / "a.json")
