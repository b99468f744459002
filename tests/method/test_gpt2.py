"""Our own forward pass of GPT-2: the logits of transformers', whatever was fed and rolled back before."""

from __future__ import annotations

import copy
import pickle

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import spec_lib as sl
from spec_lib.device.exact import random_gpt2

CLOSE = {"rtol": 1e-5, "atol": 1e-5}


@pytest.fixture(scope="module", params=["target", "small", "medium", "large"])
def embedded(request):
    pair = sl.load_pair("tiny", draft="medium" if request.param == "target" else request.param)
    return pair.target if request.param == "target" else pair.draft


def gpt2(**config) -> torch.nn.Module:
    """A small GPT-2 with weights far from zero, so that a slip anywhere shows in its logits."""
    from transformers import GPT2Config, GPT2LMHeadModel

    sizes = {"n_layer": 3, "n_embd": 24, "n_head": 3, "vocab_size": 61, "n_positions": 600, "initializer_range": 0.3}
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(3)
        model = GPT2LMHeadModel(GPT2Config(**sizes | {"bos_token_id": None, "eos_token_id": None} | config)).eval()
        for name, weight in model.named_parameters():
            if name.endswith("bias") or "ln_" in name:
                torch.nn.init.normal_(weight, std=0.3)
    return model


def alike(model: torch.nn.Module, steps: list[tuple[int, int, int | None]], vocab: int | None = None) -> None:
    """Feed both the same, and roll both back the same.  steps: (tokens to forget first, tokens to feed, keep)."""
    ours, theirs = sl.GPT2(model), sl.CachedModel(model)
    draws = torch.Generator().manual_seed(0)
    for forget, n, keep in steps:
        length = max(0, theirs.length - forget)
        ours.rollback(length), theirs.rollback(length)
        ids = torch.randint(vocab or theirs.vocab, (n,), generator=draws)
        a, b = ours.feed(ids, keep), theirs.feed(ids, keep)
        assert a.shape == b.shape and a.dtype == b.dtype
        assert torch.allclose(a, b, **CLOSE), (a - b).abs().max()
        assert (ours.length, ours.fed) == (theirs.length, theirs.fed)


def test_the_embedded_models_give_transformers_logits(embedded):
    """One token and many, across each step by which the cache grows, after rollbacks of every kind, to the end."""
    alike(embedded, [(0, 12, None), (0, 1, None), (0, 5, None), (4, 5, 1), (0, 230, 1), (3, 9, None), (0, 5, None)])
    alike(embedded, [(0, 1, None), (1, 2, None), (0, 600, 3), (500, 5, None), (0, 916, 1), (0, 1, None)])


@settings(max_examples=25, deadline=None, derandomize=True)
@given(
    st.lists(st.tuples(st.integers(0, 40), st.integers(1, 70), st.sampled_from([None, 1, 2])), min_size=1, max_size=7)
)
def test_any_feeding_and_rolling_back(steps):
    alike(NEAR, steps)


NEAR = gpt2()


@pytest.mark.parametrize(
    "config",
    [
        {"scale_attn_by_inverse_layer_idx": True},
        {"scale_attn_weights": False, "initializer_range": 0.1},
        {"reorder_and_upcast_attn": True, "attn_implementation": "eager"},
        {"activation_function": "gelu"},
        {"activation_function": "gelu_pytorch_tanh"},
        {"activation_function": "relu"},
        {"activation_function": "silu"},
        {"activation_function": "tanh"},
        {"n_inner": 40},
        {"tie_word_embeddings": False},
        {"layer_norm_epsilon": 0.1},
        {"n_layer": 1, "n_head": 1, "vocab_size": 1},
    ],
    ids=lambda config: ", ".join(f"{k}={v}" for k, v in config.items()),
)
def test_variants_of_gpt2(config):
    alike(gpt2(**config), [(0, 7, None), (0, 1, None), (3, 5, None), (0, 300, 2), (1, 2, None)])


def test_it_computes_what_the_parts_are_and_not_what_the_configuration_says():
    model = gpt2()
    model.transformer.h[0].mlp.act, model.transformer.h[1].ln_2.eps = torch.nn.ReLU(), 0.3
    alike(model, [(0, 7, None), (0, 1, None), (3, 5, None)])


def test_a_head_with_biases():
    model = gpt2(tie_word_embeddings=False)
    model.lm_head.bias = torch.nn.Parameter(torch.linspace(-3, 3, 61))
    alike(model, [(0, 7, None), (0, 1, 1), (2, 5, None)])


def test_training_mode_and_gradients_are_none_of_its_business():
    model = gpt2(resid_pdrop=0.5, embd_pdrop=0.5, attn_pdrop=0.5)
    plain = sl.GPT2(model).feed(torch.arange(9))
    model.train()
    logits = sl.GPT2(model).feed(torch.arange(9))
    assert torch.equal(logits, plain) and not logits.requires_grad
    assert all(part.training for part in model.modules())


def test_a_cache_that_grew_in_inference_mode_goes_on_outside():
    model = gpt2()
    ours, theirs = sl.GPT2(model), sl.CachedModel(model)
    ids = torch.arange(300) % 61
    with torch.inference_mode():
        ours.feed(ids), theirs.feed(ids)
    assert torch.allclose(ours.feed(ids[:5]), theirs.feed(ids[:5]), **CLOSE)
    with torch.inference_mode():
        made = ours.fresh()
    assert torch.allclose(made.feed(ids[:5]), theirs.fresh().feed(ids[:5]), **CLOSE)


@pytest.mark.parametrize("graphs", [False, "eager"])
@pytest.mark.parametrize(
    "copied", [copy.copy, copy.deepcopy, lambda x: pickle.loads(pickle.dumps(x))], ids=["copy", "deepcopy", "pickle"]
)
def test_a_copy_goes_on_by_itself(copied, graphs):
    """With what was read so far; neither then sees what the other reads, and a copy outlives what it was made of."""
    model, ids = gpt2(), torch.arange(40)
    ours, theirs = sl.GPT2(model, graphs=graphs), sl.CachedModel(model)
    for part in (ids[:9], ids[9:12]):
        ours.feed(part), theirs.feed(part)
    made = copied(ours)
    for one in (made, ours, made):
        theirs.rollback(12), one.rollback(12)
        for part in (ids[20:23], ids[30:31]):
            a, b = one.feed(part), theirs.feed(part)
            assert torch.allclose(a, b, **CLOSE)
        other = ours.fresh()  # takes what a text that ended has given back
        other.feed(ids[:5]), other.feed(ids[:5])
    del ours, one, other
    after = made.fresh()
    after.feed(ids[:9]), after.feed(ids[:3])
    theirs.rollback(12), made.rollback(12)
    assert torch.allclose(made.feed(ids[20:23]), theirs.feed(ids[20:23]), **CLOSE)


def test_the_weights_are_shared():
    """What is learnt or loaded into the model is what the next pass computes with."""
    model = gpt2()
    ours = sl.GPT2(model)
    assert ours.embedding.data_ptr() == model.transformer.wte.weight.data_ptr()
    before = ours.feed(torch.arange(5))
    with torch.no_grad():
        model.transformer.h[1].mlp.c_fc.weight.mul_(2)
    ours.rollback(0)
    after = ours.feed(torch.arange(5))
    assert not torch.allclose(before, after) and torch.allclose(
        after, sl.CachedModel(model).feed(torch.arange(5)), **CLOSE
    )


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
def test_in_16_bit_it_is_no_further_from_float64(dtype):
    """Root mean square of the distance to float64's logits, over 300 positions: at most 1.5 times transformers'."""
    exact = random_gpt2((4, 96, 4), 199, "cpu", torch.float64, seed=1, spread=0.15)
    narrow = random_gpt2((4, 96, 4), 199, "cpu", torch.float64, seed=1, spread=0.15).to(dtype)
    exact.load_state_dict({k: v.double() for k, v in narrow.state_dict().items()})  # the rounded weights are the model
    ids = torch.randint(199, (300,), generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        right = exact(ids[None]).logits[0]
    far = {}
    for wrapped in (sl.GPT2(narrow), sl.CachedModel(narrow)):
        logits = torch.cat([wrapped.feed(part) for part in (ids[:50], *ids[50:60].split(1), *ids[60:].split(5))])
        assert logits.dtype == dtype
        far[type(wrapped)] = float((logits.double() - right).square().mean().sqrt())
    assert 0 < far[sl.GPT2] <= 1.5 * far[sl.CachedModel], far


@pytest.mark.parametrize("shape", [(6, 768, 12), (12, 768, 12)], ids=["distilgpt2", "gpt2"])
def test_the_real_shapes(shape):
    """Random weights, real widths: the distance to float64 is at most 1.5 times transformers'."""
    model = random_gpt2(shape, 5003, "cpu", seed=2, spread=0.05)
    ids = torch.randint(5003, (40,), generator=torch.Generator().manual_seed(0))
    ours, theirs = (
        torch.cat([m.feed(part) for part in (ids[:30], *ids[30:35].split(1), ids[35:])])
        for m in (sl.GPT2(model), sl.CachedModel(model))
    )
    with torch.no_grad():
        right = model.double()(ids[None]).logits[0]
    ours, theirs = (float((x - right).square().mean().sqrt()) for x in (ours, theirs))
    assert 0 < ours <= 1.5 * theirs, (ours, theirs)


def test_texts_on_the_fast_pair_are_the_pairs():
    """One seed, one text: both rules, sampled and greedy."""
    pair = sl.load_pair("tiny")
    fast = pair.fast()
    assert fast.target.model is pair.target and fast.fast().draft.model is pair.draft
    assert fast.device == pair.device and torch.equal(fast.encode("Once"), pair.encode("Once"))
    ids = pair.encode("The old woman")
    for seed, (rule, temperature) in enumerate([("google", 1.0), ("deepmind", 1.0), ("google", 0.0)]):
        options = {"generator": seed, "sampling": sl.Sampling(temperature)}
        a, b = (sl.speculative(p.target, p.draft, ids, 40, rule=rule, **options) for p in (pair, fast))
        assert a.tokens.tolist() == b.tokens.tolist()
        assert [r.accepted for r in a.rounds] == [r.accepted for r in b.rounds]
        a, b = (sl.autoregressive(p.target, ids, 40, **options) for p in (pair, fast))
        assert a.tokens.tolist() == b.tokens.tolist()


def test_what_is_not_gpt2_is_refused_in_a_sentence():
    from transformers import GPTNeoConfig, GPTNeoForCausalLM, LlamaConfig, LlamaForCausalLM

    small = {"vocab_size": 61, "hidden_size": 16, "num_attention_heads": 2, "max_position_embeddings": 32}
    llama = LlamaForCausalLM(LlamaConfig(intermediate_size=16, num_hidden_layers=1, **small))
    neo = GPTNeoForCausalLM(GPTNeoConfig(num_layers=1, num_heads=2, attention_types=[[["global"], 1]], **{
        k: v for k, v in small.items() if k != "num_attention_heads"
    }))  # fmt: skip
    for model in (llama, neo):
        with pytest.raises(ValueError, match="is not of GPT-2's architecture"):
            sl.GPT2(model)
    pair = sl.load_pair("tiny")
    with pytest.raises(ValueError, match="^the draft: LlamaForCausalLM is not of GPT-2's architecture"):
        sl.Pair(pair.target, llama_for(pair), pair.tokenizer).fast()
    with pytest.raises(ValueError, match="cross-attention"):
        sl.GPT2(gpt2(add_cross_attention=True))
    wrapped = gpt2()
    wrapped.transformer.h[2].mlp.c_fc = torch.nn.Linear(24, 96)
    with pytest.raises(ValueError, match="c_fc .*Linear"):
        sl.GPT2(wrapped)


def hooked(model):
    model.transformer.h[1].register_forward_hook(lambda module, given, out: None)


def watched_before(model):
    model.register_forward_pre_hook(lambda module, given: None)


def offloaded(model):
    mlp = model.transformer.h[0].mlp
    mlp.forward = mlp.forward


def pruned(model):
    model.transformer.h[2].attn.num_heads = 2


def attending_otherwise(model):
    from transformers import AttentionInterface

    AttentionInterface.register("ours", lambda *a, **k: None)
    model.config._attn_implementation = "ours"


def quantized(model):
    class Linear8(torch.nn.Linear):
        pass

    model.lm_head.__class__ = Linear8


def reparametrized(model):
    torch.nn.utils.parametrizations.weight_norm(model.transformer.wte)


class Louder(torch.nn.Dropout):
    def forward(self, x):
        return 2 * x


def louder_embeddings(model):
    model.transformer.drop = Louder()


def louder_layer(model):
    model.transformer.h[1].mlp.dropout = Louder()


def louder_attention(model):
    model.transformer.h[1].attn.resid_dropout = Louder()


def left_out(model):
    model.transformer.h[1] = torch.nn.Identity()


def shrunk(model):
    model.transformer.wpe.max_norm = 0.1


def of_two_dtypes(model):
    model.lm_head = torch.nn.Linear(24, 61, bias=False, dtype=torch.float64)


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (hooked, r"^transformer\.h\.1 has a forward hook, which would not be called: remove it"),
        (watched_before, "^this GPT-2 has a forward hook"),
        (offloaded, r"^transformer\.h\.0\.mlp of this GPT-2 is a GPT2MLP with more to it than its weights"),
        (pruned, r"^transformer\.h\.2\.attn of this GPT-2 has heads pruned away: go on with transformers"),
        (attending_otherwise, "attends by 'ours', a function of your own, which would not be called"),
        (quantized, "^lm_head of this GPT-2 is a Linear8 with more to it than its weights"),
        (reparametrized, r"^transformer\.wte of this GPT-2 is a ParametrizedEmbedding"),
        (louder_embeddings, r"^transformer\.drop of this GPT-2 is a Louder with more to it"),
        (louder_layer, r"^transformer\.h\.1\.mlp\.dropout of this GPT-2 is a Louder with more to it"),
        (louder_attention, r"^transformer\.h\.1\.attn\.resid_dropout of this GPT-2 is a Louder"),
        (left_out, r"^transformer\.h\.1 of this GPT-2 is a Identity"),
        (shrunk, r"^transformer\.wpe of this GPT-2 shrinks its rows to a norm \(max_norm\): set it to None\.$"),
        (of_two_dtypes, r"^the weights of this GPT-2 are float32 on cpu and float64 on cpu: move all of them to one"),
    ],
    ids=lambda x: getattr(x, "__name__", ""),
)
def test_a_gpt2_that_computes_something_else_is_refused(change, sentence):
    """It would be computed without the change, and the text would be another model's.  Also where it is new to us."""
    for seen_before in (True, False):
        model = gpt2()
        if seen_before:
            sl.GPT2(model)
        change(model)
        with pytest.raises(ValueError, match=sentence) as raised:
            sl.GPT2(model)
        assert "\n" not in str(raised.value)


def test_one_that_reads_in_both_directions_is_refused():
    model = gpt2()
    model.config.is_causal = False
    with pytest.raises(ValueError, match="reads a text in both directions"):
        sl.GPT2(model)


def test_other_objects_are_refused_with_a_way_on():
    from transformers import GPT2Config, GPT2DoubleHeadsModel, GPT2LMHeadModel

    class Louder(GPT2LMHeadModel):
        def forward(self, *a, **k):
            out = super().forward(*a, **k)
            out.logits *= 2
            return out

    config = GPT2Config(n_layer=1, n_embd=8, n_head=2, vocab_size=9)
    for made in (Louder(config), GPT2DoubleHeadsModel(config)):
        with pytest.raises(ValueError, match=f"^{type(made).__name__} is not of GPT-2's architecture"):
            sl.GPT2(made)
    with pytest.raises(ValueError, match=r"^Pair is not a transformers model: pass its \.target\.$"):
        sl.GPT2(sl.load_pair("tiny"))
    with pytest.raises(ValueError, match=r"^CachedModel is not a transformers model: pass its \.model\.$"):
        sl.GPT2(sl.CachedModel(gpt2()))
    with pytest.raises(ValueError, match="^OptimizedModule wraps a model: pass the GPT2LMHeadModel inside"):
        sl.GPT2(torch.compile(gpt2()))


def test_what_transformers_itself_hooks_in_is_no_reason():
    """It adds hooks to collect hidden states when these were asked for once."""
    model = gpt2()
    with torch.no_grad():
        model(torch.arange(5)[None], output_hidden_states=True)
    alike(model, [(0, 5, None)])


def llama_for(pair: sl.Pair) -> torch.nn.Module:
    from transformers import LlamaConfig, LlamaForCausalLM

    config = LlamaConfig(vocab_size=len(pair.tokenizer), hidden_size=16, intermediate_size=16, num_hidden_layers=1,
                         num_attention_heads=2, max_position_embeddings=64)  # fmt: skip
    return LlamaForCausalLM(config)


FED = {
    "a row": (torch.arange(3)[None], None, r"of shape \(n,\), got \(1, 3\)"),
    "nothing": (torch.arange(0), None, r"at least one token, of shape \(n,\), got \(0,\)"),
    "fractions": (torch.tensor([1.5]), None, "feed takes a tensor of token ids, int64, got torch.float32"),
    "a mask": (torch.tensor([True, False]), None, "token ids, int64, got torch.bool"),
    "bytes": (torch.tensor([1, 0], dtype=torch.uint8), None, "token ids, int64, got torch.uint8"),
    "a list": ([1, 2], None, "token ids, int64, got list"),
    "elsewhere": (torch.arange(3, device="meta"), None, "the ids are on meta and the model on cpu: move the ids"),
    "no rows": (torch.arange(3), 0, "keep, the rows wanted, must be a whole number of at least 1, or None.* got 0"),
    "fewer than none": (torch.arange(3), -1, "keep, .*got -1"),
    "half a row": (torch.arange(3), 1.5, "keep, .*got 1.5"),
    "too many": (torch.zeros(598, dtype=torch.int64), None, "600 positions and 3 are filled: 598 more do not fit"),
}
MAKES = {
    "own": sl.GPT2,
    "own, fixed shapes": lambda model: sl.GPT2(model, graphs="eager"),
    "transformers": sl.CachedModel,
    "a table": lambda model: sl.TableModel(torch.full((61, 61), 1 / 61), max_length=600),
}


@pytest.mark.parametrize("make", MAKES)
@pytest.mark.parametrize("given", FED)
def test_bad_input_is_refused_alike(make, given):
    """And nothing has happened then."""
    model, (ids, keep, sentence) = MAKES[make](NEAR), FED[given]
    model.feed(torch.arange(3))
    with pytest.raises(ValueError, match=sentence) as raised:
        model.feed(ids, keep)
    assert model.length == model.fed == 3 and "\n" not in str(raised.value)
    assert len(model.feed(torch.arange(3, dtype=torch.int32), 9)) == 3


@pytest.mark.parametrize("make", MAKES)
def test_a_length_that_the_text_never_had_is_refused_alike(make):
    model = MAKES[make](NEAR)
    model.feed(torch.arange(5))
    for length in (6, -1, 2.5, 3.0, True, None, "2", torch.tensor(2.5), torch.arange(2), float("nan")):
        with pytest.raises(ValueError, match="^cannot roll back to .*: the cache holds 5$"):
            model.rollback(length)
        assert model.length == 5
    length = torch.tensor(4)
    model.rollback(length)
    length += 1  # a rule's tensor, say, which is used again
    assert model.length == 4 and type(model.length) is int


@pytest.mark.parametrize("graphs", [False, "eager"])
def test_a_model_that_was_moved_in_the_middle_of_a_text(graphs):
    model = gpt2()
    ours = sl.GPT2(model, graphs=graphs)
    ours.feed(torch.arange(5)), ours.feed(torch.arange(2))
    model.double()
    for length in (7, 0):
        ours.rollback(length)
        with pytest.raises(ValueError, match=r"float32 on cpu and the model is now float64 on cpu: begin again with"):
            ours.feed(torch.arange(2))
    ours, theirs = ours.fresh(), sl.CachedModel(model)
    for part in (torch.arange(5), torch.arange(2)):
        assert torch.allclose(ours.feed(part), theirs.feed(part), rtol=1e-12, atol=1e-12)


def test_an_interrupted_pass_leaves_the_text_as_it_was(monkeypatch):
    ours = sl.GPT2(NEAR)
    ours.feed(torch.arange(250) % 61)
    with monkeypatch.context() as patch:
        patch.setattr(sl.GPT2, "score", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            ours.feed(torch.arange(20) % 61)
    assert ours.length == 250
    right = sl.CachedModel(NEAR)
    right.feed(torch.arange(250) % 61)
    assert torch.allclose(ours.feed(torch.arange(5)), right.feed(torch.arange(5)), **CLOSE)
