"""What is known of a transformers model: whether it can write a text, how its cache is named, where its limits lie.

Whoever reads `cache` for the method need not open this file.
"""

from __future__ import annotations

import inspect
import weakref
from dataclasses import dataclass

import torch

from .modes import evaluating
from .numbers import described


@dataclass(frozen=True)
class Facts:
    """What `CachedModel` needs to know.

    cache_argument: the name of forward's argument for the key-value cache.  keeps: forward can score the last positions
    only.  border: text length at which its positions change their meaning, or None.
    """

    cache_argument: str
    keeps: bool
    border: int | None


_KNOWN: weakref.WeakKeyDictionary = weakref.WeakKeyDictionary()  # each model is looked through once, not once a text
_CAUSAL: weakref.WeakSet = weakref.WeakSet()


def facts(model: torch.nn.Module) -> Facts:
    """The facts of a model.  ValueError where it cannot go on writing a text, or keeps no key-value cache."""
    if not (isinstance(model, torch.nn.Module) and hasattr(model, "config")):
        hint = ": pass its .target or its .draft" if hasattr(model, "target") else ""
        raise ValueError(f"the model must be one of transformers, got {described(model)}{hint}")
    if model not in _KNOWN:
        _KNOWN[model] = _look_through(model)
    return _KNOWN[model]


def _look_through(model: torch.nn.Module) -> Facts:
    parameters = _parameters(model)
    # transformers 5.24 renamed the argument and warns about the old name; before it, only the old one exists.
    name = next((n for n in ("cache", "past_key_values") if n in parameters), None)
    if name is None and "input_ids" not in parameters:
        raise ValueError(f"{type(model).__name__} wraps a model: pass the transformers model that is inside it.")
    if _said_to_read_ahead(model):
        check_causal(model)  # says so
    if name is None or getattr(model, "_is_stateful", False):
        raise ValueError(
            f"{type(model).__name__} takes no key-value cache (it keeps a recurrent state, or nothing of its past) "
            "and cannot be rolled back after a rejected token; choose a model whose layers all use full attention."
        )
    if getattr(model.config.get_text_config(), "num_hidden_layers", 1) == 0:
        raise ValueError(f"{type(model).__name__} has no layers: its cache cannot tell how much has been read.")
    check_causal(model)
    border = _longrope_border(model.config.get_text_config())
    return Facts(cache_argument=name, keeps="logits_to_keep" in parameters, border=border)


def padding_of(config) -> int | None:
    """The id of the padding token, or None where there is none, or where it also begins or ends texts."""
    pad = getattr(config, "pad_token_id", None)  # some configurations lack the field, and learners set it late
    eos = getattr(config, "eos_token_id", None)  # of many chat models a list
    others = [getattr(config, "bos_token_id", None), *(eos if isinstance(eos, (list, tuple)) else [eos])]
    return None if pad in others else pad


def inside(model: torch.nn.Module) -> torch.nn.Module:
    """The transformers model inside what torch.compile and LoRA (peft) make of one."""
    bare = getattr(model, "_orig_mod", model)
    return bare.get_base_model() if hasattr(bare, "get_base_model") else bare


def _parameters(model: torch.nn.Module) -> set[str]:
    return set(inspect.signature(type(inside(model)).forward).parameters)


def device_of(model: torch.nn.Module) -> torch.device:
    """The device that the model's input must be on.

    Weights that accelerate keeps in memory or on disk until they are needed lie on "meta"; its hook on the input
    embedding then says where the work is done.  ValueError where nothing says so.
    """
    if model.device.type != "meta":
        return model.device
    hook = getattr(model.get_input_embeddings(), "_hf_hook", None)
    device = getattr(hook, "execution_device", None)
    if device is None:
        raise ValueError(f"{type(model).__name__} has no weights (its device is meta): load it with from_pretrained.")
    return torch.device(device)


# --- does it read ahead? ----------------------------------------------------------------------------------------------


def check_causal(model: torch.nn.Module, role: str = "the model") -> None:
    """ValueError for a model whose scores depend on later tokens: nothing else would fail, and the text would be wrong.

    Encoders such as BERT say so in their layers, and decoders turned into encoders in `config.is_causal`.  Others are
    found by what they do: the last of four tokens is changed, and the logits of the first three must stay.
    """
    if model in _CAUSAL:
        return
    if _said_to_read_ahead(model) or _reads_ahead(model, role):
        raise ValueError(
            f"{role}, {type(model).__name__}, reads a text in both directions (or has an encoder that does) and cannot "
            "go on writing one; choose a causal language model, such as GPT-2."
        )
    _CAUSAL.add(model)


def _said_to_read_ahead(model: torch.nn.Module) -> bool:
    if any(vars(m).get("is_decoder", True) is False for m in model.modules()):
        return True
    return any(getattr(c, "is_causal", True) is False for c in (model.config, model.config.get_text_config()))


def _reads_ahead(model: torch.nn.Module, role: str) -> bool:
    config, bare = model.config.get_text_config(), inside(model)
    most = getattr(config, "max_position_embeddings", None)
    if config.vocab_size < 2 or (most is not None and most < 2):
        return False
    n = min(4, most or 4)
    ids = (torch.arange(n, device=device_of(model)) % config.vocab_size)[None]
    changed = ids.clone()
    changed[0, -1] = (changed[0, -1] + 1) % config.vocab_size
    options = {"attention_mask": torch.ones_like(ids), "use_cache": False}
    options = {name: value for name, value in options.items() if name in _parameters(model)}
    with evaluating(bare):
        outs = [bare(input_ids=x, **options) for x in (ids, changed)]
    if not hasattr(outs[0], "logits"):  # of AutoModel, which leaves the last layer out
        raise ValueError(
            f"{role}, {type(model).__name__}, scores no tokens (it returns hidden states, no logits): load it with "
            "AutoModelForCausalLM."
        )
    a, b = (out.logits[0, :-1] for out in outs)
    # The same shapes are computed twice, so that equal inputs give equal numbers, up to a GPU's order of addition.
    return float((a - b).abs().max()) > 16 * torch.finfo(a.dtype).eps * float(a.abs().max())


# --- positions that change their meaning ------------------------------------------------------------------------------


def _longrope_border(config) -> int | None:
    """Where "longrope" models (Phi-3's long ones) turn all positions by other factors.

    They do so once a pass reaches beyond the length that they were first trained for.  What a cache holds from before,
    and the scores of a block that straddles the border, are then neither the short model's nor the long one's.
    """
    rope = getattr(config, "rope_parameters", None) or getattr(config, "rope_scaling", None) or {}
    kinds = [rope, *(v for v in rope.values() if isinstance(v, dict))]  # one for all layers, or one for each kind
    if not any("longrope" in (k.get("rope_type"), k.get("type")) for k in kinds):
        return None
    borders = [k.get("original_max_position_embeddings") for k in kinds]
    return next((b for b in [getattr(config, "original_max_position_embeddings", None), *borders] if b), None)
