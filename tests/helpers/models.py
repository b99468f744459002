"""Small models."""

import torch


def tiny_gpt2(seed: int, vocab: int = 31, layers: int = 1, width: int = 16, context: int = 64, **config):
    """A small GPT-2 whose next token really depends on its context (initializer_range .2, see `test_power`)."""
    from transformers import GPT2Config, GPT2LMHeadModel

    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return GPT2LMHeadModel(
            GPT2Config(
                vocab_size=vocab,
                n_positions=context,
                n_embd=width,
                n_layer=layers,
                n_head=2,
                **{"initializer_range": 0.2, "bos_token_id": None, "eos_token_id": None, **config},
            )
        ).eval()
