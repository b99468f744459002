"""What a call is given: options, budgets, prompts and masks; each refusal is one sentence, before any work."""

import copy
import math

import numpy as np
import pytest
import torch

from spec_lib import Sampling, SharedNoise, autoregressive, speculative, speculative_rounds
from tests.helpers.loops import CALLS, GREEDY, RULES, one_sentence
from tests.helpers.models import blurred, counted, plain_greedy, prompt, tiny_gpt2

# --- options --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "word"),
    [
        *[({"gamma": v}, "gamma") for v in (0, -1, 1.5, True, "4", None, math.nan)],
        *[({"rule": v}, "rule") for v in ("banana", "Google", 3)],
        *[({"sampling": v}, "sampling") for v in ("greedy", 0.7, Sampling)],
        *[({"draft_sampling": v}, "draft_sampling") for v in ("greedy", 0.7)],
        *[({"eos_token_id": v}, "eos_token_id") for v in ("x", True, 1.5, [1, "x"], [[1]])],
        *[({"generator": v}, "generator") for v in ("7", 1.5, True, SharedNoise)],
    ],
    ids=str,
)
def test_bad_options_are_refused_before_any_work(pair, options, word):
    for name, call in CALLS.items():
        if name == "autoregressive" and word in ("gamma", "rule", "draft_sampling"):
            continue
        with counted(*pair) as calls, pytest.raises(ValueError) as error:
            call(*pair, prompt(4), 5, **options)
        assert calls == []
        one_sentence(error, word)


@pytest.mark.parametrize("budget", [-1, 1.5, True, "5", None, math.nan])
def test_a_bad_budget_is_refused(pair, budget):
    for call in CALLS.values():
        with pytest.raises(ValueError) as error:
            call(*pair, prompt(4), budget)
        one_sentence(error, "max_new_tokens", repr(budget))


def test_an_unknown_option_is_a_type_error(pair):
    for call in CALLS.values():
        with pytest.raises(TypeError, match="temperatur"):
            call(*pair, prompt(4), 5, temperatur=1)


def test_refusals_come_at_the_call_and_not_at_the_first_step(pair):
    for ids, options in (
        (prompt(4), {"gamma": 0}),
        (prompt(4), {"rule": "banana"}),
        (prompt(0), {}),
        (prompt(65), {}),
        (torch.zeros(2, 4, dtype=torch.int64), {}),
    ):
        with pytest.raises(ValueError):
            speculative_rounds(*pair, ids, 5, **options)  # no `next` here


@pytest.mark.parametrize("draft", [None, "distilgpt2", 3])
def test_something_that_is_no_draft_is_refused(pair, draft):
    with counted(pair[0]) as calls, pytest.raises((ValueError, TypeError)) as error:
        speculative_rounds(pair[0], draft, prompt(4), 6)
    assert calls == []
    one_sentence(error, "draft", repr(draft))


@pytest.mark.parametrize("rule", [["google"], {"a": 1}, 3])
def test_what_is_no_rule_is_refused(pair, rule):
    with pytest.raises(ValueError) as error:
        speculative(*pair, prompt(5), 5, rule=rule)
    one_sentence(error, "rule must be")


@pytest.mark.parametrize("eos", [31, -1, [3, 50256], 2**40])
def test_an_end_that_the_model_cannot_write_is_refused(pair, eos):
    for call in CALLS.values():
        with pytest.raises(ValueError) as error:
            call(*pair, prompt(5), 5, eos_token_id=eos)
        one_sentence(error, "eos_token_id", "31")


@pytest.mark.parametrize("seed", [2**64, -(2**63) - 1, 10**30])
def test_a_seed_that_is_too_large_is_refused(pair, seed):
    for call in CALLS.values():
        with counted(*pair) as calls, pytest.raises(ValueError) as error:
            call(*pair, prompt(5), 5, generator=seed)
        assert calls == []
        one_sentence(error, str(seed), "64 bits")
    for fits in (2**64 - 1, -(2**63)):
        assert len(speculative(*pair, prompt(5), 5, generator=fits).tokens) == 5


# --- whole numbers --------------------------------------------------------------------------------------------------


def test_whole_numbers_of_other_libraries(pair):
    import numpy

    expected = speculative(*pair, prompt(4), 12, gamma=3, eos_token_id=5, generator=7).tokens.tolist()
    for kind in (numpy.int64, numpy.int32, torch.tensor):
        g = speculative(*pair, prompt(4), kind(12), gamma=kind(3), eos_token_id=kind(5), generator=kind(7))
        assert g.tokens.tolist() == expected
    several = [numpy.array([5, 30]), torch.tensor([5, 30]), [torch.tensor(5), numpy.int64(30)]]
    expected = speculative(*pair, prompt(4), 12, eos_token_id=[5, 30], generator=7).tokens.tolist()
    for eos in several:
        assert speculative(*pair, prompt(4), 12, eos_token_id=eos, generator=7).tokens.tolist() == expected
        assert autoregressive(
            pair[0], prompt(4), numpy.int64(5), eos_token_id=eos, generator=numpy.int64(1)
        ).tokens.any()
    for bad in (torch.tensor([2, 3]), torch.tensor(2.0), numpy.float64(2), torch.tensor(True)):
        with pytest.raises(ValueError, match="gamma"):
            speculative(*pair, prompt(4), 12, gamma=bad)


def test_small_integers_do_not_wrap(pair):
    for new in (np.uint8(200), torch.tensor(200, dtype=torch.uint8)):
        for call in CALLS.values():
            with counted(*pair) as calls, pytest.raises(ValueError) as error:
                call(*pair, prompt(60), new)
            assert calls == []
            one_sentence(error, "60", "200", "64", "at most 5")


# --- prompts --------------------------------------------------------------------------------------------------------


def test_a_prompt_in_one_dimension_or_in_two(pair):
    text = plain_greedy(pair[0], prompt(5), 8)
    for ids in (prompt(5), prompt(5)[0], prompt(5).int(), prompt(5).tolist(), prompt(5)[0].tolist()):
        for g in (
            speculative(*pair, ids, 8, sampling=GREEDY),
            autoregressive(pair[0], ids, 8, sampling=GREEDY),
        ):
            assert g.tokens.tolist() == text
            assert g.ids.shape == (1, 13)
            assert g.ids.dtype == torch.int64


@pytest.mark.parametrize(
    ("ids", "words"),
    [
        (torch.zeros(2, 5, dtype=torch.int64), ["batch size must be 1", "(2, 5)"]),
        (torch.zeros(1, 1, 5, dtype=torch.int64), ["(1, 1, 5)"]),
        (torch.tensor(3), ["()"]),
        (torch.zeros(1, 0, dtype=torch.int64), ["empty"]),
        (torch.zeros(0, dtype=torch.int64), ["empty"]),
        ([], ["empty"]),
        ([[]], []),
        (torch.zeros(1, 5), ["ids", "float32"]),
        ([1.0, 2.0], ["ids", "float32"]),
        (torch.ones(1, 5, dtype=torch.bool), ["ids", "bool"]),
        ("Once upon a time", ["ids", "str"]),
        (None, ["ids", "None"]),
        ({"input_ids": torch.zeros(1, 5, dtype=torch.int64)}, ["ids", "dict"]),
        (torch.tensor([[1, 31]]), ["31"]),
        (torch.tensor([[1, 99, 2]]), ["99", "31"]),
        (torch.tensor([[1, -1, 2]]), ["-1"]),
    ],
    ids=str,
)
def test_a_bad_prompt_is_refused_in_one_sentence_before_any_work(pair, ids, words):
    for call in CALLS.values():
        with counted(*pair) as calls, pytest.raises(ValueError) as error:
            call(*pair, ids, 5)
        assert calls == []
        one_sentence(error, *words)


def test_a_tokenizers_output_is_refused_by_name(pair):
    from transformers import BatchEncoding

    for call in CALLS.values():
        with pytest.raises(ValueError) as error:
            call(*pair, BatchEncoding({"input_ids": prompt(4)}), 5)
        one_sentence(error, "ids", "BatchEncoding")


@pytest.mark.parametrize("kind", [torch.uint16, torch.uint8, torch.int16, torch.int32])
def test_ids_of_any_whole_type(pair, kind):
    text = plain_greedy(pair[0], prompt(5), 6)
    for call in (speculative, lambda t, d, *a, **o: autoregressive(t, *a, **o)):
        assert call(*pair, prompt(5).to(kind), 6, sampling=GREEDY).tokens.tolist() == text


@pytest.mark.parametrize("ids", [[1, None], ["a"], "abc", [[1, 2], [3]], [1, 2**70], [object()], None])
def test_what_is_no_list_of_ids_is_refused_in_one_sentence(pair, ids):
    for call in CALLS.values():
        with pytest.raises(ValueError) as error:
            call(*pair, ids, 5)
        one_sentence(error, "ids must be")


def test_a_prompt_that_leaves_no_room_is_not_told_to_ask_for_nothing(pair):
    for new in (0, 1):
        with pytest.raises(ValueError) as error:
            speculative(*pair, prompt(70), new)
        one_sentence(error, "70", "64", "shorten the prompt")
        assert "at most" not in str(error.value)


# --- padding and masks ----------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def padded():
    """A pair that declares a padding token."""
    target = tiny_gpt2(0, layers=2, pad_token_id=0)
    return target, blurred(target)


@pytest.mark.parametrize("rule", RULES)
def test_left_padding_with_its_mask_changes_nothing(padded, pair, rule):
    ids = torch.tensor([[4, 8, 15, 16, 23, 7]])
    mask = torch.tensor([[0, 0, 0, 1, 1, 1, 1, 1, 1]])
    for target, draft in (padded, pair):  # with and without a declared padding token
        text = plain_greedy(target, ids, 12)
        left = torch.cat([torch.zeros(1, 3, dtype=torch.int64), ids], 1)
        for m in (mask, mask.bool(), mask.float(), mask[0], mask.tolist()):
            g = speculative(target, draft, left, 12, rule=rule, sampling=GREEDY, attention_mask=m)
            assert g.tokens.tolist() == text
        assert autoregressive(target, left, 12, sampling=GREEDY, attention_mask=mask).tokens.tolist() == text
        full = torch.ones_like(ids)
        assert speculative(target, draft, ids, 12, sampling=GREEDY, attention_mask=full).tokens.tolist() == text
        a, b = (
            speculative(target, draft, i, 12, rule=rule, generator=1, attention_mask=m).tokens.tolist()
            for i, m in ((left, mask), (ids, None))
        )
        assert a == b


@pytest.mark.parametrize(
    ("mask", "word"),
    [
        ([[1, 0, 1, 1]], "left end"),
        ([[0, 1, 0, 1]], "left end"),
        ([[1, 1, 1, 0]], "left end"),
        ([[1, 1, 1]], "fit"),
        ([[0, 0, 0, 0]], "empty"),
    ],
)
def test_other_masks_are_refused(padded, mask, word):
    for call in CALLS.values():
        with counted(*padded) as calls, pytest.raises(ValueError) as error:
            call(*padded, prompt(4) + 0, 5, attention_mask=torch.tensor(mask))
        assert calls == []
        one_sentence(error, word)


def test_padding_without_its_mask_is_refused(padded):
    ids = torch.tensor([[0, 0, 4, 8]])
    for call in CALLS.values():
        with counted(*padded) as calls, pytest.raises(ValueError) as error:
            call(*padded, ids, 5)
        assert calls == []
        one_sentence(error, "padding token 0", "attention_mask")
    # Said to be text, or inside the text, it is a token like any other.
    for text, mask in ((ids, torch.ones_like(ids)), (torch.tensor([[4, 0, 8, 0]]), None)):
        g = speculative(*padded, text, 8, sampling=GREEDY, attention_mask=mask)
        with torch.no_grad():
            logits = padded[0](input_ids=g.ids, attention_mask=torch.ones_like(g.ids), use_cache=False).logits
        assert g.tokens.tolist() == logits[0, 3:-1].argmax(-1).tolist()


@pytest.mark.reported
def test_padding_known_to_one_of_the_two_models(pair):
    """The mask reached one model, or the first round only.

    Right: the text of the prompt without its padding.  Siblings: only the target, or only the draft, declares padding.
    """
    target, draft = pair
    padded, padded_draft = copy.deepcopy(target), copy.deepcopy(draft)
    for model in (padded, padded_draft):
        model.config.pad_token_id = 0
    ids, mask = torch.tensor([[0, 0, 0, 4, 8, 15]]), torch.tensor([[0, 0, 0, 1, 1, 1]])
    text = plain_greedy(target, ids[:, 3:], 14)
    for t, d in ((padded, draft), (target, padded_draft), (padded, padded_draft)):
        assert speculative(t, d, ids, 14, sampling=GREEDY, attention_mask=mask).tokens.tolist() == text


@pytest.mark.reported
def test_padding_at_the_right_end_is_refused(padded):
    """A prompt padded at its right end was continued after the padding (huggingface/transformers issue 14521).

    Right: refused in a sentence before any work, as padding at the left without its mask is.  One token of it alone,
    or what a mask calls text, is a token like any other (above).
    """
    for ids in ([[4, 8, 0, 0]], [4, 8, 0, 0, 0]):
        for call in CALLS.values():
            with counted(*padded) as calls, pytest.raises(ValueError) as error:
                call(*padded, torch.tensor(ids), 5)
            assert calls == []
            one_sentence(error, "ends in padding", "token 0")
    ids = torch.tensor([[4, 8, 0, 0]])
    assert len(speculative(*padded, ids, 5, attention_mask=torch.ones_like(ids)).tokens) == 5


@pytest.mark.reported
def test_a_padding_token_that_is_one_of_several_ends_is_no_padding(pair):
    """A configuration with a list of ends was compared as if it had one (huggingface/text-generation-inference pull
    request 2774, huggingface/optimum-neuron pull request 580).

    Right: a prompt may begin and end with it, as where it is the only end.
    """
    target, draft = (copy.deepcopy(model) for model in pair)
    text = plain_greedy(pair[0], torch.tensor([[2, 4, 2, 2]]), 6)
    for ends in (2, [7, 2], [2, 9]):
        for model in (target, draft):
            model.config.pad_token_id, model.config.eos_token_id = 2, ends
        assert speculative(target, draft, torch.tensor([[2, 4, 2, 2]]), 6, sampling=GREEDY).tokens.tolist() == text
