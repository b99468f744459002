"""What a class does that nobody planned: Ctrl-C, wrappers, another default type, numbers of other libraries."""

import copy
import math
import signal
from fractions import Fraction

import numpy as np
import pytest
import torch
from conftest import tiny_gpt2
from test_decoding import CALLS, GREEDY, blurred, counted, one_sentence, plain_greedy, prompt, seeded

from spec_lib import (
    CachedModel,
    Sampling,
    TableModel,
    autoregressive,
    load_pair,
    plots,
    probabilities,
    speculative,
    speculative_rounds,
    summarize,
    widgets,
)
from spec_lib.devices import one_thread


@pytest.fixture(scope="module")
def pair():
    target = tiny_gpt2(0, layers=2, initializer_range=0.5, tie_word_embeddings=False)
    return target, blurred(target, 0.05)


# --- interrupted -----------------------------------------------------------------------------------


@pytest.mark.parametrize("error", [KeyboardInterrupt, RuntimeError])
@pytest.mark.parametrize("where", ["transformer.h.0", "transformer.h.1", "lm_head"])
def test_an_interrupted_pass_leaves_the_cache_as_it_was(pair, error, where):
    model, ids = pair[0], prompt(7)[0]
    cached = CachedModel(model)
    with torch.no_grad():
        cached.feed(ids[:3])

        def interrupt(*_):
            raise error

        hook = model.get_submodule(where).register_forward_hook(interrupt)
        try:
            with pytest.raises(error):
                cached.feed(ids[3:6])
        finally:
            hook.remove()
        assert cached.length == cached.fed == 3
        assert {layer.get_seq_length() for layer in cached.cache.layers} == {3}
        expected = model(input_ids=ids[None], use_cache=False).logits[0]
        torch.testing.assert_close(cached.feed(ids[3:]), expected[3:])
        cached.rollback(2)
        torch.testing.assert_close(cached.feed(ids[2:]), expected[2:])


def test_an_interrupted_first_pass_leaves_an_empty_cache(pair):
    cached, ids = CachedModel(pair[0]), prompt(7)[0]
    hook = pair[0].transformer.h[1].register_forward_pre_hook(lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
    with torch.no_grad(), pytest.raises(KeyboardInterrupt):
        cached.feed(ids)
    hook.remove()
    with torch.no_grad():
        torch.testing.assert_close(cached.feed(ids), pair[0](input_ids=ids[None], use_cache=False).logits[0])


class Reused:
    """A scored model without fresh(): one cache for all texts."""

    def __init__(self, model):
        self.inside = CachedModel(model)
        self.vocab, self.device, self.max_length = self.inside.vocab, self.inside.device, self.inside.max_length
        self.feed, self.rollback = self.inside.feed, self.inside.rollback

    length = property(lambda self: self.inside.length)


def test_after_an_interrupt_everything_can_be_used_again(pair):
    target, draft = Reused(pair[0]), Reused(pair[1])
    text = plain_greedy(pair[0], prompt(5), 20)
    for model in pair:
        for after in range(1, 6):
            calls = []

            def interrupt(module, arguments, output, calls=calls, after=after):
                calls.append(1)
                if len(calls) == after:
                    raise KeyboardInterrupt

            hook = model.transformer.h[0].register_forward_hook(interrupt)
            with pytest.raises(KeyboardInterrupt):
                speculative(target, draft, prompt(5), 20, sampling=GREEDY)
            hook.remove()
            assert speculative(target, draft, prompt(5), 20, sampling=GREEDY).tokens.tolist() == text


@pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="sends itself a signal")
def test_after_an_interrupt_torch_has_its_threads_back():
    model = tiny_gpt2(0, layers=2)
    one_thread(model)
    before = torch.get_num_threads()
    try:
        torch.set_num_threads(2)
        for layer in (model.transformer.h[0], model.lm_head):
            hook = layer.register_forward_hook(lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
            with pytest.raises(KeyboardInterrupt):
                speculative(model, model, prompt(5), 20)
            hook.remove()
            assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)


def test_a_copy_of_a_model_on_one_thread_is_itself():
    model = tiny_gpt2(0)
    one_thread(model)
    twin = copy.deepcopy(model)
    with torch.no_grad():
        twin.lm_head.weight.zero_()
        assert twin(input_ids=prompt(3)).logits.abs().max() == 0
        assert model(input_ids=prompt(3)).logits.abs().max() > 0
    assert type(model).__name__ == "GPT2LMHeadModel"


def test_two_texts_on_one_cache_are_told_apart(pair):
    """Reading another text with the same cache between two rounds would silently go on in that other text."""
    target = Reused(pair[0])
    for other in (
        lambda: speculative_rounds(target, pair[1], prompt(5), 20),
        lambda: autoregressive(target, prompt(9), 3),
        lambda: target.rollback(2),
    ):
        rounds = speculative_rounds(target, pair[1], prompt(6), 20)
        next(rounds)
        other()
        with pytest.raises(ValueError) as error:
            next(rounds)
        one_sentence(error, "another text", "fresh()")


# --- another default type --------------------------------------------------------------------------


@pytest.mark.parametrize("default", [torch.bfloat16, torch.float16, torch.float64])
def test_the_default_type_of_torch_changes_no_draw(pair, default):
    """Uniforms of 16 bit have 256 values below .5: most tokens of a large vocabulary could never be drawn."""
    expected = speculative(*pair, prompt(5), 40, generator=1).tokens.tolist()
    plain = autoregressive(pair[0], prompt(5), 40, generator=1).tokens.tolist()
    torch.set_default_dtype(default)
    try:
        g = speculative(*pair, prompt(5), 40, generator=1, trace=True)
        assert g.tokens.tolist() == expected
        assert autoregressive(pair[0], prompt(5), 40, generator=1).tokens.tolist() == plain
        assert all(r.uniforms.dtype == torch.float32 for r in g.rounds)
        assert len(plots.html_text(_Words(), prompt(5), g)) > 100
    finally:
        torch.set_default_dtype(torch.float32)


class _Words:
    def decode(self, tokens):
        return "".join(f"w{int(t)} " for t in torch.as_tensor(tokens).flatten())


# --- models that cannot, and models inside others --------------------------------------------------


def phi(border: int) -> torch.nn.Module:
    import transformers as tf

    rope = {"rope_type": "longrope", "rope_theta": 1e4, "short_factor": [1.0] * 4, "long_factor": [4.0, 8.0, 16, 32]}
    sizes = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "num_key_value_heads": 2}
    return seeded(
        lambda: tf.Phi3ForCausalLM(
            tf.Phi3Config(
                vocab_size=31,
                **sizes,
                intermediate_size=32,
                max_position_embeddings=64,
                original_max_position_embeddings=border,
                pad_token_id=None,
                bos_token_id=None,
                eos_token_id=None,
                initializer_range=0.3,
                rope_parameters={**rope, "original_max_position_embeddings": border},
            )
        )
    ).double()


def test_positions_that_change_their_meaning_in_the_middle_of_a_text():
    """A block that straddles the border of a longrope model is scored with other factors than its tokens one by one."""
    target = phi(16)
    draft = tiny_gpt2(1)
    for length, new in ((10, 8), (16, 2), (17, 5), (1, 17)):
        for call in CALLS.values():
            with counted(target, draft) as calls, pytest.raises(ValueError) as error:
                call(target, draft, prompt(length), new, sampling=GREEDY)
            assert calls == []
            one_sentence(error, "Phi3ForCausalLM", "16", str(length))
    for length, new in ((10, 7), (1, 16), (16, 1), (18, 20), (30, 30)):  # wholly below, and wholly beyond
        text = plain_greedy(target, prompt(length), new)
        assert autoregressive(target, prompt(length), new, GREEDY).tokens.tolist() == text
        for q in (target, blurred(target)):
            g = speculative(target, q, prompt(length), new, gamma=4, sampling=GREEDY)
            assert g.tokens.tolist() == text
    # As a draft it only costs acceptance.
    g = speculative(draft, target, prompt(10), 30, sampling=GREEDY)
    assert g.tokens.tolist() == plain_greedy(draft, prompt(10), 30)


@pytest.mark.parametrize("kind", ["bart", "t5", "bert"])
def test_models_that_read_in_both_directions_are_refused_by_the_loops_too(kind):
    import transformers as tf

    common = {"vocab_size": 31, "d_model": 16}
    make = {
        "bart": lambda: tf.BartForConditionalGeneration(
            tf.BartConfig(
                **common,
                encoder_layers=1,
                decoder_layers=1,
                encoder_attention_heads=2,
                decoder_attention_heads=2,
                encoder_ffn_dim=16,
                decoder_ffn_dim=16,
            )
        ),
        "t5": lambda: tf.T5ForConditionalGeneration(tf.T5Config(**common, d_kv=8, d_ff=16, num_layers=1, num_heads=2)),
        "bert": lambda: tf.BertLMHeadModel(
            tf.BertConfig(
                vocab_size=31, hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=16
            )
        ),
    }
    model, gpt = seeded(make[kind]), tiny_gpt2(0)
    for target, draft in ((model, gpt), (gpt, model)):
        for name, call in CALLS.items():
            if target is gpt and name == "autoregressive":
                continue
            with pytest.raises(ValueError) as error:
                call(target, draft, 4 + prompt(5, 20), 5)
            one_sentence(error, type(model).__name__, "both directions", "causal")


def test_a_compiled_model_is_the_model_inside(pair):
    compiled = torch.compile(pair[0], backend="eager")
    try:
        compiled(input_ids=prompt(5), use_cache=True)
    except NameError:  # torch 2.6 loses a name of transformers' on the way
        pytest.skip("this release of torch cannot compile this model")
    text = plain_greedy(pair[0], prompt(5), 10)
    g = speculative(compiled, pair[1], prompt(5), 10, sampling=GREEDY)
    assert g.tokens.tolist() == text
    assert autoregressive(compiled, prompt(5), 10, GREEDY).tokens.tolist() == text


class Adapted(torch.nn.Module):
    """As LoRA's wrapper: it hands everything on."""

    def __init__(self, model, tells: bool):
        super().__init__()
        self.base, self.config, self.device = model, model.config, model.device
        if tells:
            self.get_base_model = lambda: model

    def forward(self, *args, **kwargs):
        return self.base(*args, **kwargs)


def test_a_wrapper_is_looked_into_or_refused_by_its_name(pair):
    text = plain_greedy(pair[0], prompt(5), 10)
    wrapped = Adapted(pair[0], True)
    assert speculative(wrapped, pair[1], prompt(5), 10, sampling=GREEDY).tokens.tolist() == text
    with pytest.raises(ValueError) as error:
        speculative(Adapted(pair[0], False), pair[1], prompt(5), 10)
    one_sentence(error, "Adapted", "inside")


# --- numbers and prompts ---------------------------------------------------------------------------


def test_small_integers_do_not_wrap(pair):
    for new in (np.uint8(200), torch.tensor(200, dtype=torch.uint8)):
        for call in CALLS.values():
            with counted(*pair) as calls, pytest.raises(ValueError) as error:
                call(*pair, prompt(60), new)
            assert calls == []
            one_sentence(error, "60", "200", "64", "at most 5")


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


@pytest.mark.parametrize("eos", [31, -1, [3, 50256], 2**40])
def test_an_end_that_the_model_cannot_write_is_refused(pair, eos):
    for call in CALLS.values():
        with pytest.raises(ValueError) as error:
            call(*pair, prompt(5), 5, eos_token_id=eos)
        one_sentence(error, "eos_token_id", "31")


@pytest.mark.parametrize("rule", [["google"], {"a": 1}, None, 3])
def test_what_is_no_rule_is_refused(pair, rule):
    with pytest.raises(ValueError) as error:
        speculative(*pair, prompt(5), 5, rule=rule)
    one_sentence(error, "rule must be")


@pytest.mark.parametrize("seed", [2**64, -(2**63) - 1, 10**30])
def test_a_seed_that_is_too_large_is_refused(pair, seed):
    for call in CALLS.values():
        with counted(*pair) as calls, pytest.raises(ValueError) as error:
            call(*pair, prompt(5), 5, generator=seed)
        assert calls == []
        one_sentence(error, str(seed), "64 bits")
    for fits in (2**64 - 1, -(2**63)):
        assert len(speculative(*pair, prompt(5), 5, generator=fits).tokens) == 5


def test_settings_of_any_real_type():
    x = torch.tensor([1.0, 2.0, 4.0])
    for half in (Fraction(1, 2), np.float32(0.5), np.float64(0.5)):
        assert torch.equal(probabilities(x, Sampling(half, top_p=half)), probabilities(x, Sampling(0.5, top_p=0.5)))


# --- results ---------------------------------------------------------------------------------------


def test_rounds_and_generations_can_be_compared_and_summed_up_from_anything(pair):
    g = speculative(*pair, prompt(5), 20, generator=1)
    assert g.rounds[1] in g.rounds
    assert g.rounds.index(g.rounds[1]) == 1
    assert g == g
    assert g != speculative(*pair, prompt(5), 20, generator=1)
    expected = summarize(g.rounds)
    assert summarize(g) == expected or math.isnan(expected.mean_overlap)
    for given in (g, tuple(g.rounds), speculative_rounds(*pair, prompt(5), 20, generator=1)):
        assert repr(summarize(given)) == repr(expected)


@pytest.mark.parametrize(
    "tokens, word", [(None, "NoneType"), ("abc", "str"), ([-1], "-1"), ([1.5], "1.5"), ([True], "True"), ({1}, "set")]
)
def test_what_is_no_token_is_not_decoded(tokens, word):
    with pytest.raises(ValueError) as error:
        load_pair("tiny").decode(tokens)
    one_sentence(error, "token ids", word)


def test_a_token_alone_and_numbers_of_numpy_are_decoded():
    pair = load_pair("tiny")
    text = pair.decode(torch.tensor([300]))
    for tokens in (300, np.int64(300), [np.int32(300)], np.array([300]), (300,), torch.tensor(300), np.array([[300]])):
        assert pair.decode(tokens) == text
    with pytest.raises(ValueError) as error:
        pair.decode(autoregressive(TableModel(torch.ones(2, 2) / 2), [0], 3))
    one_sentence(error, "generation.tokens")


def test_a_prompt_that_is_not_this_generations(pair):
    words, g = _Words(), speculative(*pair, prompt(5), 12, generator=1, trace=True)
    padded = torch.cat([torch.zeros(1, 2, dtype=torch.int64), prompt(5)], 1)
    for show in (plots.html_text, widgets.frames):
        assert show(words, prompt(5), g) == show(words, prompt(5)[0], g) == show(words, padded, g)
        for ids in (prompt(5, seed=3), prompt(4), prompt(5)[:, :3], "Once upon a time", None):
            with pytest.raises(ValueError) as error:
                show(words, ids, g)
            one_sentence(error, "prompt", "ids")
    with pytest.raises(ValueError):
        plots.html_text(words, g, prompt(5))


def test_laws_of_different_length_are_not_explored():
    with pytest.raises(ValueError) as error:
        widgets.overlap_explorer([0.5, 0.3, 0.2], [0.1, 0.9])
    one_sentence(error, "3", "2", "same tokens")
