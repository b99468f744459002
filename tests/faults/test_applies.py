"""Each planted fault can still be planted: a rewrite of the library must not leave one that changes nothing."""

from __future__ import annotations

import ast

import pytest

from tests.faults.catalogue import FAULTS, LIBRARY, SEAMS, TEXTS
from tests.helpers import promises


@pytest.mark.parametrize("fault", TEXTS, ids=lambda f: f.name)
def test_a_snippet_stands_once_and_holds_no_comment(fault):
    """And what becomes of the file is another program."""
    before = (LIBRARY / f"{fault.room}.py").read_text(encoding="utf-8")
    assert "#" not in fault.old + fault.new
    assert ast.dump(ast.parse(fault.source())) != ast.dump(ast.parse(before))


def test_a_snippet_that_does_not_stand_once_is_found_out(tmp_path):
    """Neither one that is gone nor one that is ambiguous."""
    for count in (0, 2):
        (tmp_path / f"{TEXTS[0].room}.py").write_text(TEXTS[0].old * count)
        with pytest.raises(ValueError, match=f"stands {count} times in {TEXTS[0].room}.py"):
            TEXTS[0].source(tmp_path)


def test_every_seam_is_seen_and_every_name_is_one():
    """A fault at a seam names the promises that break (`test_caught` sees the wrong code run); names are unique."""
    assert all(f.caught_by for f in SEAMS)
    assert len({f.name for f in FAULTS}) == len(FAULTS)
    assert {name for f in FAULTS for name in f.caught_by} <= set(promises.CHECKS)


def test_every_row_of_the_list_of_wrong_samplers_is_planted():
    """Rows 19 and 21 are about speed and about a library."""
    assert {f.name[:2] for f in FAULTS} >= {f"{n:02d}" for n in (*range(1, 19), 20, 22)}
