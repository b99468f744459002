"""One text on its way to a client: characters come whole, stop strings are cut, wherever tokens and rounds fall."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spec_lib.server.text import Text
from tests.helpers.served_checks import PROMPT, cut, rounds, sent
from tests.helpers.tokenizers import Bytes


@pytest.mark.parametrize("sizes", [(1,), (5,), (2, 3), (1, 7)], ids=str)
@pytest.mark.parametrize(
    "stop, want",
    [
        ((" beautiful",), "the most"),
        (("\n",), "the most beautiful garden"),
        (("garden\nthe", "nothing"), "the most beautiful "),
        (("beautifully", "beautiful garden", "beautiful gown"), "the most "),
        (("t b",), "the mos"),
        (("e",), "th"),
        (("absent",), "the most beautiful garden\nthe water"),
        (("the water",), "the most beautiful garden\n"),
        (("water!",), "the most beautiful garden\nthe water"),
        (("st beautiful g", "b", "u"), "the most "),
    ],
)
def test_stop_strings_are_cut_wherever_the_tokens_fall(stop, want, sizes):
    parts, text = sent(b"the most beautiful garden\nthe water", stop, sizes)
    whole = "the most beautiful garden\nthe water"
    assert "".join(parts) == want == cut(whole, stop)[0]
    assert text.finish == ("length" if want == whole else "stop")
    assert text.tokens == cut(whole, stop)[1]  # none behind the stop, and those of the stop itself


def test_nothing_of_a_stop_string_is_sent_before_it_is_recognised():
    parts, _ = sent(b"so beautify, beautiful", (" beautiful",))
    assert parts == ["s", "o", *[""] * 8, " beautify", ",", *[""] * 10]


def test_nothing_more_is_held_than_may_begin_a_stop_string():
    parts, _ = sent(b"aabaac", ("aac",))
    assert parts == ["", "", "aab", "", "", ""]
    parts, _ = sent(b"xyxyz!", ("xyz",))
    assert parts == ["", "", "xy", "", ""]


@given(
    st.text("ab\u00e9\U0001f409", max_size=30),
    st.lists(st.text("ab\u00e9\U0001f409", min_size=1, max_size=4), max_size=3),
    st.lists(st.integers(1, 6), min_size=1, max_size=4),
)
def test_any_text_any_stops_any_rounds(text, stop, sizes):
    stop = tuple(stop)
    if text:
        parts, made = sent(text.encode(), stop, sizes)
        assert ("".join(parts), made.tokens) == cut(text, stop)
        assert made.finish == ("stop" if any(s in text for s in stop) else "length")


@pytest.mark.parametrize("sizes", [(1,), (3,), (5, 2)], ids=str)
def test_a_characters_bytes_are_held_until_it_is_whole(sizes):
    said = "na\u00efve \u2615 and \U0001f409, \u6f22\u5b57"
    parts, _ = sent(said.encode(), (), sizes)
    assert "".join(parts) == said and not any("\ufffd" in part for part in parts)


def test_a_text_that_ends_inside_a_character_says_so():
    parts, text = sent("a\U0001f409".encode()[:-1])
    assert parts[0] == "a" and "".join(parts[1:]).strip("\ufffd") == "" and parts[-1]
    assert text.finish == "length"


def test_the_token_that_ends_a_text_is_counted_and_not_shown():
    parts, text = sent(b"the end.", sizes=(3,), reason="eos")
    assert "".join(parts) == "the end" and text.tokens == 8 and text.finish == "stop"
    parts, text = sent(b"the end.", ("xyz", "nd."), sizes=(3,), reason="eos")  # what was held back comes
    assert "".join(parts) == "the end" and text.finish == "stop"


def test_draft_tokens_are_counted_as_far_as_the_text_goes():
    _, text = sent(b"abcdefgh", (), (4,))
    assert (text.tokens, text.accepted, text.rejected) == (8, 6, 2)
    _, text = sent(b"abcdefgh", ("f",), (4,))  # within the second round's accepted ones
    assert (text.tokens, text.accepted, text.rejected) == (6, 5, 1)
    _, text = sent(b"abcdefgh", ("h",), (4,))
    assert (text.tokens, text.accepted, text.rejected) == (8, 6, 2)


def test_each_piece_keeps_its_origin_when_it_is_cut():
    text = Text(Bytes(), PROMPT, ("cd",))
    first, second = rounds(list(b"abcdef"), [3])
    assert text.feed(first, None) == [("a", "accepted"), ("b", "accepted")]  # "c" waits
    assert text.feed(second, "length") == [] and text.finish == "stop"
    text = Text(Bytes(), PROMPT, ("cx",))
    text.feed(first, None)
    assert text.feed(second, "length") == [("c", "resampled"), ("d", "accepted"), ("e", "accepted"), ("f", "resampled")]
