"""The shapes of the embedded models: what all four share, and how large each is."""

from __future__ import annotations

from transformers import GPT2Config, GPT2LMHeadModel

CONTEXT = 1024  # positions
VOCAB = 2048
SHAPES = {  # layers, width, heads
    "young": (12, 144, 3),  # the target in its first stage
    "target": (18, 144, 3),
    "small": (1, 32, 1),
    "medium": (1, 160, 5),
    "large": (2, 192, 6),
}
DRAFTS = ("small", "medium", "large")


def new_model(name: str) -> GPT2LMHeadModel:
    """A model of this shape with random weights."""
    layers, width, heads = SHAPES[name]
    config = GPT2Config(
        vocab_size=VOCAB,
        n_positions=CONTEXT,
        n_embd=width,
        n_layer=layers,
        n_head=heads,
        activation_function="gelu_pytorch_tanh",  # GPT-2's own curve, computed in one operation
        resid_pdrop=0.0,
        embd_pdrop=0.0,
        attn_pdrop=0.0,
        bos_token_id=0,
        eos_token_id=0,
    )
    return GPT2LMHeadModel(config)
