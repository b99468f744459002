"""The ten claims of notebook 00, asked again."""

from spec_lib import checks


def test_ten_question_marks_look_nothing_up(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(checks, "kept_answers", lambda folder=None: 1 / 0)
    checks.ask_again("??????????", tmp_path)
    out = capsys.readouterr().out
    assert all(claim in out for claim in checks.CLAIMS) and "found" not in out


def test_the_claims_are_asked_again_with_the_first_answers_beside(tmp_path, capsys):
    checks.keep_answers("TF?TFFFFFF", tmp_path)
    capsys.readouterr()
    checks.ask_again("ffffffffft", tmp_path)
    out = capsys.readouterr().out
    assert "first T, now F, found F" in out and "first -, now F" in out and "first F, now T" in out
    assert out.endswith("Right: 7 of 10 at first, 9 of 10 now.\n")
    checks.ask_again("FFF", tmp_path)
    assert "Write 10 letters" in capsys.readouterr().out
    assert len(checks.SETTLED) == len(checks.CLAIMS)
