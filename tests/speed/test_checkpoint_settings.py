"""What a checkpoint's generation_config asks for must not change what is compared with what."""

import copy

import pytest
import torch
from transformers import GenerationConfig

import spec_lib as sl
from spec_lib.benchmark import VARIANTS, Setting, assisted, comparison
from spec_lib.benchmark.settings import THEIRS
from tests.helpers.models import tiny_gpt2
from tests.helpers.tokenizers import Words

NEW = 24
# What checkpoints ship, and what else would change the text.  Values that this pair's texts certainly meet.
SETTINGS = {
    "repetition_penalty": 1.8,
    "min_length": 30,
    "min_new_tokens": 30,
    "no_repeat_ngram_size": 1,
    "top_k": 1,
    "top_p": 0.01,
    "min_p": 0.9,
    "typical_p": 0.1,
    "epsilon_cutoff": 0.2,
    "eta_cutoff": 0.2,
    "temperature": 0.01,
    "bad_words_ids": [[i] for i in range(20)],
    "suppress_tokens": list(range(20)),
    "begin_suppress_tokens": list(range(20)),
    "forced_bos_token_id": 3,
    "forced_eos_token_id": 3,
    "sequence_bias": [[[i], -9.0] for i in range(20)],
    "exponential_decay_length_penalty": (1, 9.0),
    "renormalize_logits": True,
    "remove_invalid_values": True,
    "eos_token_id": list(range(15)),
    "max_length": 8,
    "max_new_tokens": 5,
    "num_beams": 2,
    "num_return_sequences": 2,
    "num_assistant_tokens": 1,
    "do_sample": True,
}


SHIPPED = ("repetition_penalty", "top_k", "temperature", "max_length")


@pytest.fixture
def pair():
    return sl.Pair(tiny_gpt2(0), tiny_gpt2(1), Words(), prompts={"one": "1 2 3"})


def text_of(pair, variant: str, temperature: float) -> list[int]:
    """The ids that a variant of transformers writes from one seed."""
    written, real = [], pair.target.generate
    pair.target.generate = lambda *a, **o: written.append(real(*a, **o)) or written[-1]
    try:
        torch.manual_seed(5)
        setting = Setting(gamma=3, new=NEW, temperature=temperature)
        counts = comparison._write(pair, setting, variant, torch.tensor([[1, 2, 3]]), 5)
    finally:
        del pair.target.generate
    assert counts[0] == NEW
    return written[0][0].tolist()


@pytest.mark.parametrize("variant", THEIRS)
@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_no_setting_of_either_checkpoint_reaches_the_text(pair, variant, temperature):
    """A repetition penalty of the target's checkpoint gave transformers' variants another distribution than ours.

    Right: the text is that of models without settings, which at temperature 0 is plain decoding's, and both models
    have their own settings afterwards.  Siblings: every setting that could change a text, of the target, the draft or
    both.
    """
    expected = text_of(pair, variant, temperature)
    if temperature == 0:
        plain = sl.autoregressive(pair.target, torch.tensor([[1, 2, 3]]), NEW, sampling=sl.Sampling(0))
        assert expected == plain.ids[0].tolist()
    for name, value in SETTINGS.items():
        both, one = (pair.target, pair.draft), name in SHIPPED and variant == THEIRS[1]
        for models in (both, (pair.target,), (pair.draft,)) if one else (both,):
            before = [m.generation_config for m in (pair.target, pair.draft)]
            for m in models:
                m.generation_config = copy.deepcopy(m.generation_config)
                setattr(m.generation_config, name, value)
            now = [m.generation_config for m in (pair.target, pair.draft)]
            kept = [config.to_dict() for config in now]
            assert text_of(pair, variant, temperature) == expected, name
            for m, config, values in zip((pair.target, pair.draft), now, kept, strict=True):
                assert m.generation_config is config and config.to_dict() == values
            pair.target.generation_config, pair.draft.generation_config = before


@pytest.mark.filterwarnings("ignore:Unfeasible length")
def test_these_settings_do_change_a_text(pair):
    """Otherwise the test above would show nothing: most of them, left in force, write another text or none."""
    changed, ids = [], torch.tensor([[1, 2, 3]])
    usual = {"do_sample": True, "top_k": 0, "max_new_tokens": NEW, "pad_token_id": 0}

    def write(**own):
        torch.manual_seed(5)
        config = GenerationConfig(**{**usual, **own})
        return pair.target.generate(ids, attention_mask=torch.ones_like(ids), generation_config=config).tolist()

    for name, value in SETTINGS.items():
        try:
            same = write(**{name: value}) == write()
        except (RuntimeError, ValueError):  # one needs an end of the text, one another form in older releases
            same = False
        changed += [] if same else [name]
    assert len(changed) >= 15 and {"repetition_penalty", "no_repeat_ngram_size", "top_k", "typical_p"} <= set(changed)


def test_settings_are_put_back_when_transformers_fails(pair, monkeypatch):
    before = pair.target.generation_config, pair.draft.generation_config
    monkeypatch.setattr(pair.target, "generate", lambda *a, **k: 1 / 0, raising=False)
    with pytest.raises(ZeroDivisionError):
        assisted.generate(pair, Setting(gamma=3, new=9), torch.tensor([[1, 2, 3]]), True)
    assert (pair.target.generation_config, pair.draft.generation_config) == before
    assert not pair.target._forward_hooks


def test_all_arms_at_zero_write_plain_decodings_text_whatever_the_checkpoint_asks(pair):
    pair.target.generation_config.repetition_penalty = 1.5
    measured = comparison.compare(pair, Setting(gamma=3, new=NEW, temperature=0.0), 1)
    assert set(measured.variants) == set(VARIANTS) and all(
        len(variant.seconds) == 1 for variant in measured.variants.values()
    )
    assert measured.variants["transformers"].passes == NEW
