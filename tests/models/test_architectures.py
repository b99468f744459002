"""What a model must be able to do, and which one cannot: each is refused by its name, and wrappers are looked into."""

import math

import pytest
import torch

import spec_lib as sl
from spec_lib import CachedModel, Pair, Sampling, autoregressive, speculative, speculative_rounds
from tests.helpers.loops import CALLS, GREEDY, one_sentence
from tests.helpers.models import (
    blurred,
    counted,
    is_greedy,
    known,
    plain_greedy,
    prompt,
    seeded,
    tiny_gpt2,
    tiny_of,
    uncached,
)
from tests.helpers.tokenizers import Words

# --- caches that cannot be rolled back ------------------------------------------------------------------------------


def test_a_sliding_window_cannot_be_rolled_back():
    mistral, gpt = tiny_of("mistral"), tiny_gpt2(0, vocab=97)
    ids = 4 + prompt(12, 90)
    for target, draft in ((mistral, mistral), (mistral, gpt), (gpt, mistral)):
        for call in (speculative, speculative_rounds):
            with counted(target, draft) as calls, pytest.raises(ValueError) as error:
                call(target, draft, ids, 10)
            assert calls == []
            one_sentence(error, "Mistral", "sliding window of 8", "cache")
    # One token a pass needs no rollback: right, far beyond the window.
    assert autoregressive(mistral, ids, 20, sampling=GREEDY).tokens.tolist() == plain_greedy(mistral, ids, 20)


def test_a_pass_interrupted_beyond_the_window_empties_the_cache_and_raises_its_own_error():
    """Layers with a window cannot be cut back: the clean-up hid Ctrl-C behind its own error, and left them wrong."""
    mistral, ids = tiny_of("mistral"), 4 + prompt(15, 90)[0]
    cached = CachedModel(mistral)
    cached.feed(ids[:12])

    def interrupt(*_):
        raise KeyboardInterrupt

    hook = mistral.model.layers[-1].register_forward_hook(interrupt)
    with pytest.raises(KeyboardInterrupt):
        cached.feed(ids[12:14])
    hook.remove()
    assert cached.length == 0
    with torch.no_grad():
        torch.testing.assert_close(cached.feed(ids)[-1], mistral(input_ids=ids[None], use_cache=False).logits[0, -1])


def test_a_text_that_stays_inside_the_window_is_no_reason_to_refuse():
    mistral = tiny_of("mistral")
    ids = 4 + prompt(2, 90)
    g = speculative(mistral, blurred(mistral), ids, 5, gamma=2, sampling=GREEDY)
    assert g.tokens.tolist() == plain_greedy(mistral, ids, 5)


def test_a_model_without_layers_is_refused():
    """Its cache stays empty, so that transformers would begin at position 0 again in every pass; ours counts itself."""
    model = tiny_gpt2(0, layers=0)
    with pytest.raises(ValueError, match="GPT2LMHeadModel has no layers: its cache cannot tell"):
        sl.CachedModel(model)
    ours, ids = sl.GPT2(model), torch.arange(9)
    found = torch.cat([ours.feed(ids[:4]), ours.feed(ids[4:])])
    assert torch.allclose(found, uncached(model, ids), rtol=1e-5, atol=1e-5)


def test_a_recurrent_state_cannot_be_rolled_back():
    mamba, gpt = tiny_of("mamba"), tiny_gpt2(0, vocab=97)
    for target, draft in ((mamba, mamba), (mamba, gpt), (gpt, mamba)):
        for call in (speculative, speculative_rounds):
            with counted(target, draft) as calls, pytest.raises(ValueError) as error:
                call(target, draft, 4 + prompt(6, 90), 5)
            assert calls == []
            one_sentence(error, "Mamba", "recurrent state", "rolled back")


@pytest.mark.reported
@pytest.mark.parametrize(
    ("family", "word"), [("gemma2", "window of 8"), ("qwen2, sliding window", "window of 8"), ("lfm2", "Lfm2")]
)
def test_a_cache_that_forgets_by_itself_is_refused(family, word):
    """With a sliding window or a recurrent state the cache cannot take a rejected token back, and text was wrong.

    Right: refused before any work, naming the model.  Siblings: models where only one layer in two is of that kind, in
    either place of the pair; plain decoding, which takes nothing back, stays right beyond the window.
    """
    model, gpt, ids = tiny_of(family), tiny_gpt2(0, vocab=97), 4 + prompt(12, 90)
    for target, draft in ((model, model), (model, gpt), (gpt, model)):
        with pytest.raises(ValueError) as error:
            speculative_rounds(target, draft, ids, 10)
        one_sentence(error, word, "cannot be rolled back")
    assert autoregressive(model, ids, 12, sampling=GREEDY).tokens.tolist() == plain_greedy(model, ids, 12)


# --- no cache, two directions ---------------------------------------------------------------------------------------


@pytest.mark.reported
def test_a_model_without_a_cache_or_without_a_direction_is_refused():
    """Of the same kind: a model that keeps nothing of its past, and one that reads in both directions, whose text came
    out wrong without a word.

    Right: each refused in a sentence that says what it is; a BERT told to be a decoder is welcome.
    """
    with pytest.raises(ValueError) as error:
        speculative(tiny_of("openai-gpt"), tiny_gpt2(0, vocab=97), prompt(5), 5)
    one_sentence(error, "OpenAIGPTLMHeadModel", "no key-value cache")

    gpt, bert = tiny_gpt2(0, vocab=97), tiny_of("bert")
    for role, models in (("target", (bert, gpt)), ("draft", (gpt, bert))):
        with pytest.raises(ValueError) as error:
            Pair(*models, Words(97))
        one_sentence(error, f"the {role}", "BertLMHeadModel", "both directions")
    decoder = tiny_of("bert", is_decoder=True)
    assert Pair(decoder, gpt, Words(97)).target is decoder
    ids = 4 + prompt(6, 90)
    assert is_greedy(decoder, ids, speculative(decoder, blurred(decoder), ids, 9, sampling=GREEDY).tokens)


def two_ways(kind: str) -> torch.nn.Module:
    """A model that reads in both directions, 31 tokens."""
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
    }
    return tiny_of("bert", vocab=31) if kind == "bert" else seeded(make[kind])


@pytest.mark.parametrize("kind", ["bart", "t5", "bert"])
def test_models_that_read_in_both_directions_are_refused_by_the_loops_too(kind):
    model, gpt = two_ways(kind), tiny_gpt2(0)
    for target, draft in ((model, gpt), (gpt, model)):
        for name, call in CALLS.items():
            if target is gpt and name == "autoregressive":
                continue
            with pytest.raises(ValueError) as error:
                call(target, draft, 4 + prompt(5, 20), 5)
            one_sentence(error, type(model).__name__, "both directions", "causal")


# --- positions ------------------------------------------------------------------------------------------------------


def phi(border: int) -> torch.nn.Module:
    """A longrope model, 31 tokens: from position `border` on its positions have other factors."""
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
        assert autoregressive(target, prompt(length), new, sampling=GREEDY).tokens.tolist() == text
        for q in (target, blurred(target)):
            g = speculative(target, q, prompt(length), new, gamma=4, sampling=GREEDY)
            assert g.tokens.tolist() == text
    # As a draft it only costs acceptance.
    g = speculative(draft, target, prompt(10), 30, sampling=GREEDY)
    assert g.tokens.tolist() == plain_greedy(draft, prompt(10), 30)


@pytest.mark.reported
def test_a_reader_of_its_own_mask_gets_one_as_long_as_the_text():
    """Rejected tokens stayed in the output, and the mask and the positions grew on without them.

    Right: a draft that is never right costs a pass a token and leaves nothing: none of its tokens, and in every pass a
    mask exactly as long as what is kept and fed.  Siblings: the draft's own passes; padding taken off the prompt.
    """
    target = tiny_gpt2(0, layers=2, pad_token_id=0)
    draft = blurred(target, 0.2)
    text = plain_greedy(target, torch.tensor([[4, 8, 15, 16]]), 8)

    class Never(Sampling):  # whatever the draft would say, but the right token
        def probabilities(self, logits):
            return super().probabilities(logits.index_fill(-1, torch.tensor(text), -math.inf))

    known(target, draft)
    seen, hooks = {target: [], draft: []}, []
    for model, calls in seen.items():

        def note(module, args, kw, calls=calls):
            held = (kw.get("cache") or kw.get("past_key_values")).get_seq_length()
            calls.append((kw["attention_mask"].shape[1], held + kw["input_ids"].shape[1], kw["attention_mask"].all()))

        hooks.append(model.register_forward_pre_hook(note, with_kwargs=True))
    for ids, mask in (([[4, 8, 15, 16]], None), ([[0, 0, 4, 8, 15, 16]], [[0, 0, 1, 1, 1, 1]])):
        options = {"gamma": 5, "sampling": GREEDY, "draft_sampling": Never(), "generator": 0, "attention_mask": mask}
        g = speculative(target, draft, torch.tensor(ids), 8, **options)
        assert g.tokens.tolist() == text and g.ids.shape == (1, 12)
        assert [len(r.tokens) for r in g.rounds] == [1] * 8
    for hook in hooks:
        hook.remove()
    for calls in seen.values():
        assert len(calls) > 8 and all(length == text and whole for length, text, whole in calls)


# --- models inside others -------------------------------------------------------------------------------------------


def test_a_compiled_model_is_the_model_inside(pair):
    compiled = torch.compile(pair[0], backend="eager")
    try:
        compiled(input_ids=prompt(5), use_cache=True)
    except NameError:  # torch 2.6 loses a name of transformers' on the way
        pytest.skip("this release of torch cannot compile this model")
    text = plain_greedy(pair[0], prompt(5), 10)
    g = speculative(compiled, pair[1], prompt(5), 10, sampling=GREEDY)
    assert g.tokens.tolist() == text
    assert autoregressive(compiled, prompt(5), 10, sampling=GREEDY).tokens.tolist() == text


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
