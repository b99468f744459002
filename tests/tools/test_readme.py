"""What the README shows works as it stands there."""

import re

from tests.helpers.paths import ROOT


def test_the_drafter_of_ones_own_writes_its_text(capsys):
    (code,) = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text("utf-8"), re.S)
    names: dict = {}
    exec(code, names)
    assert len(names["g"].tokens) == 60 and sum(r.accepted for r in names["g"].rounds) > 0
    assert names["pair"].decode(names["g"].tokens) in capsys.readouterr().out
