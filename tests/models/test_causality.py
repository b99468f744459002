"""What is known of a transformers model: does it read ahead, on which device, and is it looked through only once."""

from __future__ import annotations

import copy
import gc
import inspect
import weakref
from types import SimpleNamespace

import pytest
import torch
from transformers import AutoConfig, AutoModelForCausalLM

import spec_lib as sl
from spec_lib import architectures
from tests.helpers.models import tiny_gpt2
from tests.helpers.tokenizers import Numbers

FAMILIES = ["llama", "qwen2", "qwen3", "mistral", "gpt_neox", "phi", "gemma", "olmo"]


def small(family: str, seed: int = 1, spread: float = 0.02, **more) -> torch.nn.Module:
    """A random decoder of this family.  At the default spread its tokens hardly look at each other."""
    sizes = {"vocab_size": 97, "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2}
    sizes |= {"num_key_value_heads": 2, "head_dim": 16, "intermediate_size": 64, "initializer_range": spread}
    ends = dict.fromkeys(("bos_token_id", "eos_token_id", "pad_token_id"))
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return AutoModelForCausalLM.from_config(AutoConfig.for_model(family, **sizes, **ends, **more)).eval()


def blind_to_its_config(model: torch.nn.Module) -> torch.nn.Module:
    """The same weights reading in both directions, by its attention modules and not by its configuration."""
    for module in model.modules():
        if hasattr(module, "is_causal"):
            module.is_causal = False
    return model


READS_AHEAD = "reads a text in both directions"


@pytest.mark.reported("faults-2, 1")
@pytest.mark.parametrize("family", FAMILIES)
def test_a_decoder_whose_configuration_makes_it_an_encoder_is_refused(family: str):
    """Since transformers 5.2 `is_causal = False` turns any decoder into an encoder: greedy speculation then wrote
    another text than greedy decoding, from the first token on, and nothing failed."""
    model = small(family, is_causal=False)
    ids = torch.tensor([[3, 5, 7, 11]])
    for call in (
        lambda: sl.autoregressive(model, ids, 5),
        lambda: sl.speculative(model, small(family), ids, 5),
        lambda: sl.speculative(small(family), model, ids, 5),
        lambda: sl.CachedModel(model),
        lambda: sl.Pair(model, small(family), Numbers()),
        lambda: sl.Pair(small(family), model, Numbers()),
    ):
        with pytest.raises(ValueError, match=READS_AHEAD):
            call()


@pytest.mark.parametrize("spread", [0.02, 0.3])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64])
def test_reading_ahead_is_found_by_what_the_model_does(dtype: torch.dtype, spread: float):
    """No configuration says so here: the logits of earlier tokens move with the last one, and that is enough."""
    model = small("llama", spread=spread).to(dtype)
    architectures.check_causal(copy.deepcopy(model))
    if spread == 0.02 and dtype == torch.bfloat16:
        return  # its tokens look at each other less than bfloat16 can show
    with pytest.raises(ValueError, match=READS_AHEAD):
        architectures.check_causal(blind_to_its_config(model))


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_causal_models_pass_in_every_precision(family: str, dtype: torch.dtype):
    """Rounding is not taken for reading ahead."""
    for spread in (0.02, 0.3):
        architectures.check_causal(small(family, spread=spread).to(dtype))


@pytest.mark.parametrize("vocab, context", [(1, 8), (2, 1), (2, 2), (5, 3)])
def test_the_smallest_models_pass(vocab: int, context: int):
    architectures.check_causal(tiny_gpt2(0, vocab=vocab, context=context))


def test_a_model_in_training_mode_is_no_reader_ahead():
    """Dropout changes logits too; it is switched off for the look, and back on."""
    model = tiny_gpt2(0, attn_pdrop=0.5, resid_pdrop=0.5).train()
    state = torch.random.get_rng_state()
    architectures.check_causal(model)
    assert model.training and torch.equal(state, torch.random.get_rng_state())


def test_a_model_is_looked_through_once_and_not_kept():
    """A text costs no further pass, and the memory of a model that is gone is free."""
    model, passes = tiny_gpt2(0), []
    hook = model.register_forward_hook(lambda *_: passes.append(1))
    sl.CachedModel(model)
    assert len(passes) == 2
    for _ in range(3):
        sl.CachedModel(model).fresh()
    assert len(passes) == 2
    hook.remove()
    gone = weakref.ref(model)
    del model, hook
    gc.collect()
    assert gone() is None


def test_a_padding_token_that_is_set_late_counts_from_then_on():
    """Learners write `model.config.pad_token_id = ...` after a first text: no stored fact may hide that."""
    model, ids = tiny_gpt2(0), torch.tensor([[5, 1, 2]])
    sl.autoregressive(model, ids, 3)
    model.config.pad_token_id = 5
    with pytest.raises(ValueError, match="begins with the padding token 5"):
        sl.autoregressive(model, ids, 3)
    masked = sl.autoregressive(model, ids, 3, attention_mask=torch.tensor([[0, 1, 1]]), generator=0)
    assert masked.ids[0, :2].tolist() == [1, 2]


# --- weights that are elsewhere until they are needed -----------------------------------------------------------------


class Elsewhere(torch.nn.Module):
    """A model whose embedding accelerate keeps on disk: its device is meta, and a hook knows the real one."""

    def __init__(self, inside, hook):
        super().__init__()
        self.inside, self.config, self.device = inside, inside.config, torch.device("meta")
        self.embedding = SimpleNamespace(_hf_hook=hook) if hook else SimpleNamespace()

    def get_input_embeddings(self):
        return self.embedding

    def forward(self, input_ids, past_key_values=None, use_cache=None, logits_to_keep=0):
        name = "cache" if "cache" in inspect.signature(self.inside.forward).parameters else "past_key_values"
        given = {} if past_key_values is None else {name: past_key_values}
        return self.inside(input_ids=input_ids, use_cache=use_cache, logits_to_keep=logits_to_keep, **given)


@pytest.mark.reported("faults-2, 12")
@pytest.mark.parametrize("device", ["cpu", torch.device("cpu")])
def test_an_offloaded_embedding_reads_where_its_hook_says(device):
    model = Elsewhere(tiny_gpt2(0), SimpleNamespace(execution_device=device))
    ids = torch.tensor([[1, 2, 3]])
    expected = sl.autoregressive(tiny_gpt2(0), ids, 8, generator=0).ids
    assert torch.equal(sl.autoregressive(model, ids, 8, generator=0).ids, expected)
    assert torch.equal(sl.speculative(model, tiny_gpt2(1), ids, 8, gamma=2, generator=0).ids[:, :3], ids)


@pytest.mark.reported("faults-2, 12")
@pytest.mark.parametrize("hook", [None, SimpleNamespace(), SimpleNamespace(execution_device=None)])
def test_a_model_without_weights_is_refused_in_a_sentence(hook):
    with pytest.raises(ValueError, match="has no weights"):
        sl.autoregressive(Elsewhere(tiny_gpt2(0), hook), torch.tensor([[1, 2, 3]]), 8)


@pytest.mark.reported("faults-2, 12")
def test_a_pair_reads_on_the_same_device():
    """`pair.device` and `pair.encode` follow."""
    model = Elsewhere(tiny_gpt2(0), SimpleNamespace(execution_device="cpu"))
    assert sl.Pair(model, tiny_gpt2(1), Numbers()).device == torch.device("cpu")


def test_an_encoder_without_a_cache_is_refused_for_what_it_is():
    """BERT for masked tokens keeps no cache because it reads both ways: that is the reason to name."""
    from transformers import BertConfig, BertForMaskedLM

    sizes = {"vocab_size": 31, "hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2}
    with pytest.raises(ValueError, match=READS_AHEAD):
        sl.autoregressive(BertForMaskedLM(BertConfig(**sizes, intermediate_size=16)), [4, 5, 6], 3)
