"""transformers' own loops, plain and assisted, at the same setting as ours: the variants that others wrote."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterator

import torch

from ..pairs import Pair, inside
from .settings import Setting


def generate(pair: Pair, setting: Setting, ids: torch.Tensor, assisted: bool) -> tuple[torch.Tensor, int]:
    """Write with transformers' loop, past any end-of-text: (the new tokens' ids, the target's passes).

    pair: of transformers models, or of models of our protocol around them.  ids: (1, length).  Its acceptance cannot be
    read off, but the target's passes can be counted.
    """
    target, draft = inside(pair.target), inside(pair.draft)
    passes: list[int] = []
    hook = target.register_forward_hook(lambda *_: passes.append(1))
    try:
        with _own_settings((target, draft), setting), _without_its_own_warning():
            text = target.generate(
                ids, attention_mask=torch.ones_like(ids), assistant_model=draft if assisted else None
            )
    finally:
        hook.remove()
    return text[0, ids.shape[1] :], len(passes)


@contextlib.contextmanager
def _own_settings(models: tuple[torch.nn.Module, torch.nn.Module], setting: Setting) -> Iterator[None]:
    """Both models with fresh generation settings, and afterwards with their own again.

    A checkpoint brings settings of its own (a repetition penalty, top-k 50, a shortest length): with these the text
    would have another distribution than our loops' texts, and transformers merges them into whatever it is given.
    """
    from transformers import GenerationConfig

    fresh = {"eos_token_id": None, "pad_token_id": 0, "max_new_tokens": setting.new}
    if setting.temperature:  # otherwise it would keep the 50 likeliest tokens only
        fresh |= {"do_sample": True, "temperature": setting.temperature}
        fresh |= {"top_k": setting.top_k or 0, "top_p": setting.top_p or 1.0}
    else:
        fresh |= {"do_sample": False}
    length = {  # of a draft, fixed; the threshold would end one early where the draft model is unsure
        "num_assistant_tokens": setting.gamma,
        "num_assistant_tokens_schedule": "constant",
        "assistant_confidence_threshold": 0.0,
    }
    before = [model.generation_config for model in models]
    try:
        for model in models:
            model.generation_config = GenerationConfig(**fresh, **length)
        yield
    finally:
        for model, config in zip(models, before, strict=True):
            model.generation_config = config


@contextlib.contextmanager
def _without_its_own_warning() -> Iterator[None]:
    """transformers warns its caller of how it calls its own assistant: nothing that the caller could change."""

    def keep(record: logging.LogRecord) -> bool:
        return "Passing `generation_config` together with" not in str(record.msg)

    log = logging.getLogger("transformers.generation.utils")
    log.addFilter(keep)
    try:
        yield
    finally:
        log.removeFilter(keep)
