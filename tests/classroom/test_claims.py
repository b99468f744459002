"""The ten claims: answers are kept without overwriting, asked again with the first beside, and never raise."""

import re
from pathlib import Path

import pytest

from spec_lib import checks

NOTEBOOKS = sorted((Path(__file__).parents[2] / "notebooks").glob("[0-9][0-9]_*.ipynb"))


def test_there_are_ten_claims_and_each_is_settled():
    assert len(checks.CLAIMS) == len(checks.SETTLED) == 10
    numbers = {notebook.name[:2] for notebook in NOTEBOOKS}
    for found, where, why in checks.SETTLED:
        assert found in ("T", "F") and set(where.split(", ")) <= numbers and why


def test_some_claims_are_true_so_that_one_letter_for_all_is_no_good_answer():
    found = [found for found, _, _ in checks.SETTLED]
    assert 3 <= found.count("T") <= 5


def test_no_notebook_settles_a_claim_otherwise():
    """A notebook writes "**Claim 4 is true.**" where it settles one."""
    for notebook in NOTEBOOKS:
        for number, said in re.findall(r"[Cc]laim (\d+) is (true|false)", notebook.read_text()):
            found = checks.SETTLED[int(number) - 1][0]
            assert said == {"T": "true", "F": "false"}[found], f"{notebook.name} on claim {number}"


def test_answers_are_kept_and_a_question_mark_overwrites_nothing(tmp_path, capsys):
    checks.keep_answers("TF?TF?TF?T", tmp_path)
    assert capsys.readouterr().out == "Kept: 7 answers, 3 left open.\n"
    checks.keep_answers("????????F?", tmp_path)
    kept = "".join(checks.kept_answers(tmp_path).get(str(i), "-") for i in range(1, 11))
    assert kept == "TF-TF-TFFT"


@pytest.mark.parametrize("answers", ["TRUE", "", "TTTTTTTTTTT", "TTTTTTTTTX", None, 5])
@pytest.mark.parametrize("asks", [checks.keep_answers, checks.ask_again])
def test_other_letters_are_refused_in_a_sentence_and_nothing_is_written(answers, asks, tmp_path, capsys):
    asks(answers, tmp_path)
    assert capsys.readouterr().out == f"Write 10 letters, each T, F or ?; this was {answers!r}.\n"
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_cannot_be_written_gets_a_line(tmp_path, monkeypatch, capsys):
    (tmp_path / "file").write_text("")
    checks.keep_answers("TTTTTTTTTT", tmp_path / "file")  # not a folder
    assert "could not be written" in capsys.readouterr().out

    def no_home():
        raise RuntimeError("no home folder")

    monkeypatch.setattr(Path, "home", no_home)
    checks.keep_answers("TTTTTTTTTT")
    assert "could not be written" in capsys.readouterr().out
    assert checks.kept_answers() == {}


def test_a_spoilt_file_of_answers_is_none(tmp_path):
    for text in ("5", "[1]", "null", "{"):
        (tmp_path / "answers.json").write_text(text)
        assert checks.kept_answers(tmp_path) == {}


def test_ten_question_marks_look_nothing_up(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(checks.claims, "kept_answers", lambda folder=None: 1 / 0)
    checks.ask_again("??????????", tmp_path)
    out = capsys.readouterr().out
    assert all(claim in out for claim in checks.CLAIMS) and "found" not in out


def test_the_claims_are_asked_again_with_the_first_answers_beside(tmp_path, capsys):
    found = [found for found, _, _ in checks.SETTLED]
    assert found[3] == "T" and found[0] == "F"
    checks.keep_answers("TF?TFFFFFF", tmp_path)  # right: claims 2, 4, 5, 6, 7 and 8
    capsys.readouterr()
    checks.ask_again("".join(found).lower(), tmp_path)
    out = capsys.readouterr().out
    assert "first T, now F, found F" in out and "first -, now F" in out and "first F, now T, found T" in out
    assert out.endswith("Right: 6 of 10 at first, 10 of 10 now.\n")


@pytest.mark.parametrize("letter", "TF")
def test_right_answers_are_counted_against_each_claims_own_truth(letter, tmp_path, capsys):
    checks.ask_again(10 * letter, tmp_path)
    right = [found for found, _, _ in checks.SETTLED].count(letter)
    assert capsys.readouterr().out.endswith(f"Right: 0 of 10 at first, {right} of 10 now.\n")
