"""The slower checks that a maintainer starts by hand: what they are asked to look at."""

import sys

import pytest

from tests.classroom import odd_pairs, run_twice
from tests.faults import plant
from tests.helpers.paths import chosen
from tests.speed import notebooks_on_sim


@pytest.mark.reported
@pytest.mark.parametrize("check", [odd_pairs, run_twice, plant, notebooks_on_sim], ids=lambda m: m.__name__)
def test_a_name_that_fits_nothing_is_not_taken_for_a_check_without_complaint(check, monkeypatch):
    """A path in place of a number ended in two seconds with exit code 0: fifteen notebooks "ran", and none had."""
    word = "notebooks/03_rejection_sampling.ipynb"
    monkeypatch.setattr(sys, "argv", ["check", word])
    with pytest.raises(SystemExit, match=f"Nothing to check is called '{word}': the names are "):
        check.main() if check is odd_pairs else check.main([word])


def test_the_names_that_are_chosen():
    names = ["03_one.ipynb", "04_two.ipynb", "05_one.ipynb"]
    assert chosen([], names) == names
    assert chosen(["05", "03"], names) == [names[0], names[2]]
    assert chosen(["one"], names, str.__contains__) == [names[0], names[2]]
    with pytest.raises(SystemExit, match="'06'"):
        chosen(["03", "06"], names)


def test_a_planted_fault_meets_the_tests_of_its_file_first():
    """They were run in one order for all: the tests of a changed cache came after a minute of others."""
    files = [file for name in plant.TESTS for path in sorted(plant.ROOT.glob(name)) for file in plant._tests_in(path)]
    for room, first in (
        ("cache", "test_cache"),
        ("exporting", "test_export"),
        ("drafters/heads", "test_heads"),
        ("plain_gpt2", "test_gpt2"),
    ):
        parts = plant.in_order(files, room)
        assert parts[0][0].stem == first and len(parts[0]) < 4 and sorted(sum(parts, [])) == sorted(files)
