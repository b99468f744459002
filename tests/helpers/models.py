"""Models that several tests share, small enough for thousands of forward passes, and how they are read without us.

Nothing here uses the library's own loops or caches: what a model says of a text is read in one uncached pass.
"""

from __future__ import annotations

import contextlib
import copy
import functools
from types import SimpleNamespace

import torch

import spec_lib as sl
from spec_lib.architectures import facts

# ------------------------------------------------------------------------------------------------ transformers models


def seeded(make):
    """make(), with torch's random state set to 0 for it and restored; in eval mode."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return make().eval()


def tiny_gpt2(seed: int, vocab: int = 31, layers: int = 1, width: int = 16, context: int = 64, **config):
    """A small GPT-2 whose next token really depends on its context (initializer_range .2, see `power`)."""
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


@functools.cache
def float_pair():
    """(target, draft), float32, 31 tokens, context 64, far enough apart for a wrong rule to show: `models`."""
    return tiny_gpt2(0, layers=2), tiny_gpt2(1)


def tiny_of(family: str, vocab: int = 97, **changes) -> torch.nn.Module:
    """Two layers of a family other than GPT-2, whose next token depends on its context; changes: of its config."""
    import transformers as tf

    common = {"vocab_size": vocab, "hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2}
    usual = {**common, "intermediate_size": 32, "max_position_embeddings": 64, "initializer_range": 0.3}
    shared = {**usual, "num_key_value_heads": 1}
    old = {"vocab_size": vocab, "n_embd": 16, "n_layer": 2, "n_positions": 64, "initializer_range": 0.3}
    opt = {**common, "ffn_dim": 32, "max_position_embeddings": 64, "word_embed_proj_dim": 16, "init_std": 0.3}
    neo = {"vocab_size": vocab, "hidden_size": 16, "num_layers": 2, "num_heads": 2, "max_position_embeddings": 64}
    neo |= {"attention_types": [[["global", "local"], 1]], "window_size": 4, "initializer_range": 0.3}
    bloom = {"vocab_size": vocab, "hidden_size": 16, "n_layer": 2, "n_head": 2, "initializer_range": 0.3}
    mamba = {"vocab_size": vocab, "hidden_size": 16, "num_hidden_layers": 1, "state_size": 4}
    window = {**shared, "sliding_window": 8}
    upper = {"use_sliding_window": True, "max_window_layers": 1}
    make = {
        "opt": (tf.OPTForCausalLM, tf.OPTConfig, opt),
        "llama": (tf.LlamaForCausalLM, tf.LlamaConfig, shared),
        "phi": (tf.PhiForCausalLM, tf.PhiConfig, usual),
        "neox": (tf.GPTNeoXForCausalLM, tf.GPTNeoXConfig, usual),
        "bloom": (tf.BloomForCausalLM, tf.BloomConfig, bloom),
        "gpt neo, local attention": (tf.GPTNeoForCausalLM, tf.GPTNeoConfig, neo),
        "gpt-j": (tf.GPTJForCausalLM, tf.GPTJConfig, {**old, "n_head": 2, "rotary_dim": 4}),
        "codegen": (tf.CodeGenForCausalLM, tf.CodeGenConfig, {**old, "n_head": 4, "rotary_dim": 4}),
        "bigcode": (tf.GPTBigCodeForCausalLM, tf.GPTBigCodeConfig, {**old, "n_head": 2}),
        "falcon": (tf.FalconForCausalLM, tf.FalconConfig, {**common, "initializer_range": 0.3, "alibi": True}),
        "mistral": (tf.MistralForCausalLM, tf.MistralConfig, {**window, "attn_implementation": "eager"}),
        "gemma2": (tf.Gemma2ForCausalLM, tf.Gemma2Config, {**window, "head_dim": 8}),
        "qwen2": (tf.Qwen2ForCausalLM, tf.Qwen2Config, shared),
        "qwen2, sliding window": (tf.Qwen2ForCausalLM, tf.Qwen2Config, {**window, **upper}),
        "qwen3": (tf.Qwen3ForCausalLM, tf.Qwen3Config, {**shared, "head_dim": 8}),
        "lfm2": (tf.Lfm2ForCausalLM, tf.Lfm2Config, {**shared, "layer_types": ["conv", "full_attention"]}),
        "mamba": (tf.MambaForCausalLM, tf.MambaConfig, mamba),
        "openai-gpt": (tf.OpenAIGPTLMHeadModel, tf.OpenAIGPTConfig, {**old, "n_head": 2}),
        "bert": (tf.BertLMHeadModel, tf.BertConfig, usual),
    }
    kind, config, sizes = make[family]
    return seeded(lambda: kind(config(**{**sizes, **changes})))


def blurred(model: torch.nn.Module, noise: float = 0.03, seed: int = 5) -> torch.nn.Module:
    """A copy with noise on its weights: a draft that is sometimes right, also about the likeliest token."""
    draft, generator = copy.deepcopy(model), torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for weight in draft.parameters():
            weight += noise * torch.randn(weight.shape, generator=generator)
    return draft


def remembering(model):
    """The model, with each forward pass computed once for each (ids, content of the cache), bit for bit.

    The cache stays the real one: its real content is the key, it grows by the remembered keys and values, and it is
    cropped by the code under test.  Enumeration meets the same few passes thousands of times.
    """
    forward, known = model.forward, {}

    @functools.wraps(forward)
    def remembered(*args, **kwargs):
        cache = kwargs.get("cache", kwargs.get("past_key_values"))
        if cache is None:
            return forward(*args, **kwargs)
        layers = cache.layers
        before = [t for layer in layers if getattr(layer, "keys", None) is not None for t in (layer.keys, layer.values)]
        tree = [kwargs[name] for name in ("position_ids", "attention_mask") if kwargs.get(name) is not None]
        options = (kwargs.get("logits_to_keep"), kwargs.get("output_hidden_states"))
        key = (*kwargs["input_ids"][0].tolist(), *options, *(t.numpy().tobytes() for t in (*before, *tree)))
        if key in known:
            (logits, states), added = known[key]
            for i, (keys, values) in enumerate(added):
                cache.update(keys, values, i)
        else:
            length = cache.get_seq_length()
            out = forward(*args, **kwargs)
            logits, states = out.logits, getattr(out, "hidden_states", None)
            added = [(x.keys[..., length:, :].clone(), x.values[..., length:, :].clone()) for x in layers]
            known[key] = (logits, states), added
        return SimpleNamespace(logits=logits, hidden_states=states)

    model.forward = remembered
    return model


def fresh_pair(vocab: int) -> tuple[torch.nn.Module, torch.nn.Module]:
    """(target, draft), float64 GPT-2 with two or three tokens, far apart and attentive (see `power`)."""
    seed, scale = {2: (0, 0.6), 3: (6, 0.4)}[vocab]
    kwargs = {"vocab": vocab, "width": 8, "context": 16, "initializer_range": scale}
    return tiny_gpt2(seed, layers=2, **kwargs).double(), tiny_gpt2(seed + 1, **kwargs).double()


@functools.cache
def small_pair(vocab: int):
    """`fresh_pair`, each of whose passes is computed once."""
    return tuple(map(remembering, fresh_pair(vocab)))


# ------------------------------------------------------------------------------------------------------------- tables


def table(*rows: list[float]) -> sl.TableModel:
    """The Markov chain with these rows, float64."""
    return sl.TableModel(torch.tensor(rows, dtype=torch.float64))


def counter(size: int) -> sl.TableModel:
    """0, 1, 2, ... and from the top back to 0."""
    return sl.TableModel(torch.eye(size, dtype=torch.float64).roll(1, 1))


# -------------------------------------------------------------------------------------- texts, read without the library


def prompt(length: int, vocab: int = 31, seed: int = 0) -> torch.Tensor:
    """(1, length) token ids, always the same."""
    return torch.randint(vocab, (1, length), generator=torch.Generator().manual_seed(100 * seed + length))


@torch.no_grad()
def uncached(model, text) -> torch.Tensor:
    """Logits (len(text), vocab) after each token of the text, a list or a tensor (length,), in one uncached pass."""
    return model(input_ids=torch.as_tensor(text)[None], use_cache=False).logits[0]


@torch.no_grad()
def first_layers_alone(model, text: list[int], layers: int) -> torch.Tensor:
    """Logits (len(text), vocab) of a GPT-2's or Llama's last norm and head on what leaves its first layers."""
    states = model(input_ids=torch.tensor([text]), use_cache=False, output_hidden_states=True).hidden_states[layers][0]
    body = model.base_model
    last = len(getattr(body, "h", None) or body.layers)
    norm = body.ln_f if hasattr(body, "ln_f") else body.norm
    return model.lm_head(states if layers == last else norm(states))  # the last ones that it gives are normed already


def plain_greedy(model, ids: torch.Tensor, new: int) -> list[int]:
    """The reference: after ids (1, length) `new` tokens, the likeliest each time; no cache, no loop of ours."""
    text = ids[0].tolist()
    for _ in range(new):
        text.append(int(uncached(model, text)[-1].argmax()))
    return text[len(text) - new :]


def is_greedy(model, ids: torch.Tensor, tokens: torch.Tensor) -> bool:
    """Whether tokens are the plain greedy text after ids: each is the likeliest after the ones before it."""
    text = torch.cat([ids[0], tokens])
    return torch.equal(uncached(model, text)[ids.shape[1] - 1 : -1].argmax(-1), tokens)


def known(*models: torch.nn.Module) -> None:
    """Have these models looked through now, so that the passes which this takes once are not counted later."""
    for model in models:
        with contextlib.suppress(ValueError):  # the test is about that refusal, then
            facts(model)


@contextlib.contextmanager
def fed_positions(*models: torch.nn.Module):
    """The positions of each forward call, one list a model; not those by which the models are looked through."""
    known(*models)
    calls = [[] for _ in models]
    hooks = [
        m.register_forward_pre_hook(lambda module, args, kw, c=c: c.append(kw["input_ids"].shape[1]), with_kwargs=True)
        for m, c in zip(models, calls, strict=True)
    ]
    try:
        yield calls
    finally:
        for hook in hooks:
            hook.remove()


@contextlib.contextmanager
def counted(*models: torch.nn.Module):
    """The positions of each forward call of these models, in one list; not those by which they are looked through."""
    known(*models)
    calls: list[int] = []
    hooks = [
        m.register_forward_pre_hook(lambda module, args, kw: calls.append(kw["input_ids"].shape[1]), with_kwargs=True)
        for m in models
    ]
    try:
        yield calls
    finally:
        for hook in hooks:
            hook.remove()


@torch.no_grad()
def power(target, draft, vocab: int, length: int) -> tuple[float, list[float]]:
    """(mean TV of target and draft, how far one earlier token moves each one's next distribution), on random texts.

    Random models at the default initialiser hardly look at their context: wrong rules and wrong caches then pass.
    """
    texts = torch.randint(vocab, (64, length), generator=torch.Generator().manual_seed(0))
    other = texts.clone()
    other[:, 1] = (other[:, 1] + 1) % vocab

    def distributions(model, ids):
        return model(input_ids=ids, use_cache=False).logits[:, -1].softmax(-1)

    def far(a, b):
        return ((a - b).abs().sum(-1) / 2).mean().item()

    models = (target, draft)
    between = far(distributions(target, texts), distributions(draft, texts))
    return between, [far(distributions(m, texts), distributions(m, other)) for m in models]
