"""A generation shown as text: every character once, whole, with the origin of its tokens."""

import re

import pytest
import torch

from spec_lib import Generation, Pair, plots, speculative, widgets
from tests.helpers.loops import one_sentence
from tests.helpers.models import prompt
from tests.helpers.tokenizers import Letters, Words, byte_fallback, tokenizer_of

TEXTS = [
    "na\u00efve \u2615 and \U0001f409 once",
    "\u6f22\u5b57\u304b\u306a" * 12,
    "plain once once",
    "e\u0301 \U0001f409" * 9,
]


@pytest.mark.reported
@pytest.mark.parametrize("text", TEXTS)
@pytest.mark.parametrize("kind", ["one token a byte, as GPT-2", "bytes where needed, as Llama"])
def test_a_stream_is_the_text_and_has_no_half_characters(kind, text):
    """Streamed pieces lost their last block, or showed U+FFFD for a character whose bytes came in several tokens.

    Right: joined, the pieces are the decoded text; nothing is shown before it is whole; wherever the prompt ends.
    Siblings: a tokenizer that decodes each pending byte to a mark of its own, and takes the blank off the first word;
    long runs of bytes; an end-of-text token, which is no text.
    """
    tokenizer = tokenizer_of(eos_token="<|endoftext|>") if kind.startswith("one") else byte_fallback()

    class Some:
        decode = Pair.decode

    some = Some()
    some.tokenizer = tokenizer
    ids = tokenizer(text)["input_ids"]
    assert some.decode(ids) == text
    ends = [i for i in range(1, len(ids)) if "\ufffd" not in some.decode(ids[:i])]
    for end in {*ends[:9], *ends[-9:], *ends[::7]}:
        new = [*ids[end:], tokenizer.eos_token_id]
        names = ["accepted" if i % 3 else "bonus" for i in range(len(new))]
        found = list(plots.pieces(some, torch.tensor([ids[:end]]), zip(new, names, strict=True)))
        assert some.decode(ids[:end]) + "".join(piece for piece, _ in found) == text
        assert not any("\ufffd" in piece for piece, _ in found)
        assert len(found) >= len(text[len(some.decode(ids[:end])) :].split())


@pytest.mark.reported
def test_a_generation_shown_as_text_needs_no_widget(made):
    """The text that the step-through builds up is shown by a plain function too, to the last token."""
    ids, g = made
    page = plots.html_text(Letters(), ids, g, legend=False)
    assert re.sub("<[^>]+>", "", page).replace("&lt;", "<") == Letters().decode(g.ids)
    short = Generation(g.tokens[:0], ids, [])
    assert re.sub("<[^>]+>", "", plots.html_text(Letters(), ids, short, legend=False)) == "a b"


def test_a_prompt_that_is_not_this_generations(pair):
    words, g = Words(), speculative(*pair, prompt(5), 12, generator=1, trace=True)
    padded = torch.cat([torch.zeros(1, 2, dtype=torch.int64), prompt(5)], 1)
    for show in (plots.html_text, widgets.frames):
        assert show(words, prompt(5), g) == show(words, prompt(5)[0], g) == show(words, padded, g)
        for ids in (prompt(5, seed=3), prompt(4), prompt(5)[:, :3], "Once upon a time", None):
            with pytest.raises(ValueError) as error:
                show(words, ids, g)
            one_sentence(error, "prompt", "ids")
    with pytest.raises(ValueError):
        plots.html_text(words, g, prompt(5))


@pytest.mark.reported
def test_bytes_that_are_no_characters_cost_no_more_the_longer_they_go_on():
    """Where a model writes bytes that never become a character, all of them were decoded anew for each further one: a
    text of 4,000 took 60 times as long as another (sgl-project/sglang pull request 34852).

    Right: what is decoded for a token does not grow, and the pieces are what they were.  Siblings: such bytes between
    characters; characters before and behind them; bytes that begin a character each, which decode to one mark together.
    """

    class Counting:
        tokenizer, decoded = tokenizer_of(), 0

        def decode(self, tokens) -> str:
            self.decoded += len(tokens)
            return Pair.decode(self, tokens)

    first, lone = Counting.tokenizer("\u00e9")["input_ids"]
    beginning = Counting.tokenizer("\U0001f409")["input_ids"][:3]
    letter = Counting.tokenizer("a")["input_ids"]
    for run in ([lone], [first], beginning, [lone, *beginning]):
        ids = [*letter, *(run * 900)[:900], *letter, *run, first, lone, *letter]
        some = Counting()
        found = list(plots.pieces(some, torch.tensor([letter]), [(i, "bonus") for i in ids]))
        spent = some.decoded
        assert "".join(text for text, _ in found) == some.decode(letter + ids)[1:]
        assert spent < 250 * len(ids)
