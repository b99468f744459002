"""`python -m spec_lib generate`: where a text ends, and what reaches the terminal."""

import pytest
import torch

import spec_lib as sl
from spec_lib import __main__ as cli
from spec_lib import plots
from tests.helpers.models import tiny_gpt2
from tests.helpers.tokenizers import Numbers

PROMPT, NEW = "1 2 3", 12


@pytest.fixture
def pair(monkeypatch):
    made = sl.Pair(
        *(tiny_gpt2(seed, initializer_range=0.5, tie_word_embeddings=False) for seed in (3, 4)),
        Numbers(),
        prompts={"one": PROMPT},
    )
    monkeypatch.setattr(sl, "load_pair", lambda *a, **k: made)
    return made


def greedy(pair) -> list[int]:
    return sl.autoregressive(pair.target, pair.encode(PROMPT), NEW, sampling=sl.Sampling(0)).tokens.tolist()


def written(capsys, *arguments) -> list[int]:
    words = ["generate", PROMPT, "--temperature", "0", "--max-new-tokens", str(NEW), *arguments]
    assert cli.main(words) == 0
    return [int(x) for x in capsys.readouterr().out.split()[3:]]


def test_the_text_ends_where_the_target_says(pair, capsys):
    """Gemma and Llama 3 list ends of a turn in generation_config that are not the tokenizer's end: they were ignored.

    Right: the first of all ends ends the text, as in transformers.  Siblings: one end or a list, with the tokenizer's
    or without, several of which one comes first, ids beyond the vocabulary, no tokenizer's end; --ignore-eos ignores
    all.
    """
    text = greedy(pair)
    third = next(i for i in range(2, NEW) if text[i] not in text[:i])
    x, later = text[third], next(t for t in text[third + 1 :] if t not in text[: third + 1])
    shown = [t for t in text if t != 30]
    pair.target.generation_config.eos_token_id = None
    assert written(capsys) == shown
    for listed in (x, [x], (x,), [30, x], [x, later], [later, x], [x, -1, 10**6]):
        pair.target.generation_config.eos_token_id = listed
        pair.tokenizer.eos_token_id = 30
        assert written(capsys) == text[: third + 1], listed
        pair.tokenizer.eos_token_id = None
        assert written(capsys) == text[: third + 1], listed
        assert written(capsys, "--ignore-eos") == shown, listed
    pair.tokenizer.eos_token_id = x  # the tokenizer's end counts too
    for listed in (None, later, [later], [-1]):
        pair.target.generation_config.eos_token_id = listed
        assert written(capsys) == text[: third + 1], listed
    assert written(capsys, "--ignore-eos") == shown
    del pair.target.generation_config  # a model that has none
    assert written(capsys) == text[: third + 1]


def test_the_text_is_transformers_own(pair, capsys):
    text = greedy(pair)
    pair.target.generation_config.eos_token_id = [30, text[4]]
    config = {"max_new_tokens": NEW, "do_sample": False, "pad_token_id": 0}
    ids = pair.encode(PROMPT)
    theirs = pair.target.generate(ids, attention_mask=torch.ones_like(ids), **config)[0, 3:].tolist()
    assert len(theirs) < NEW and written(capsys) == [t for t in theirs if t != 30]


@pytest.mark.parametrize("verbose", [[], ["-v"]])
def test_all_that_a_model_writes_reaches_the_terminal_through_the_printers(pair, capsys, monkeypatch, verbose):
    """Control characters that a model writes went to the terminal as they are: they clear it, or set its title.

    Right: prompt, text and each token of the log go through the functions that make them visible.
    """
    monkeypatch.setattr(plots, "ansi_text", lambda text, origin, colour: text.replace("\x1b", "ESC"))
    monkeypatch.setattr(plots, "visible", lambda text: text.replace("\x1b", "ESC"))
    monkeypatch.setattr(Numbers, "decode", lambda self, ids, **_: "".join(f"\x1b[2J{i} " for i in ids))
    assert cli.main(["generate", PROMPT, "--max-new-tokens", "20", "--ignore-eos", "--seed", "2", *verbose]) == 0
    out = capsys.readouterr().out
    assert "\x1b" not in out and out.count("ESC[2J") >= 20
    assert not verbose or "rejected ESC[2J" in out


@pytest.mark.parametrize("prompt", ["one", PROMPT])
def test_the_comparison_is_of_the_prompt_that_was_given(pair, capsys, monkeypatch, prompt):
    """Right: a prompt that is also the name of one of the pair's own is a text, not that one."""
    given = []
    monkeypatch.setattr(Numbers, "__call__", lambda self, text, **_: given.append(text) or {"input_ids": [1, 2]})
    assert cli.main(["generate", prompt, "--max-new-tokens", "6", "--seed", "1", "--compare"]) == 0
    assert set(given) == {prompt}
    assert "times as fast" in capsys.readouterr().out
