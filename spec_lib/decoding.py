"""The calls that write a text: one token per forward pass, or a draft verified in one pass.

Notebook 01 derives `autoregressive`, notebooks 04 to 06 the speculative round, which is in `writer`.  What may be
plugged in is in `protocols`, what is refused in `arguments`; all that shows or measures speculation reads the `Round`s
that are yielded.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence

import torch

from . import answers, arguments, protocols
from .batch import Engine
from .cache import as_model
from .numbers import at_least_one, described
from .records import Generation, Round
from .sampling import Sampling, as_randomness
from .writer import Writer


def autoregressive(
    target: torch.nn.Module | protocols.Model,
    ids: torch.Tensor,
    max_new_tokens: int,
    *,
    sampling: Sampling | None = None,
    eos_token_id: int | list[int] | None = None,
    generator: torch.Generator | int | protocols.Randomness | None = None,
    attention_mask: torch.Tensor | None = None,
) -> Generation:
    """Write with the target alone: one token per forward pass, with a KV cache.  Notebook 01.

    target: a transformers model or a `Model`.  ids: (1, length) or (length,) int64.  Arguments otherwise as in
    `speculative_rounds`, ValueErrors too, but no rollback is needed, and NaN logits are reported when the text is done.
    Without an EOS to look for, the tokens reach the host once, at the end.
    """
    sampling, target = arguments.a_sampling("sampling", sampling), as_model(target)
    ids, new, eos = arguments.a_text(target, ids, max_new_tokens, eos_token_id, attention_mask)
    randomness, size = as_randomness(generator, target.device), ids.shape[1]
    tokens, sums, unread = [ids[0, :0]], [], ids[0]
    with torch.no_grad():
        for position in range(size, size + new):
            logits = answers.some_logits(target.feed(unread, 1), None, target.vocab, "target")
            p = sampling.probabilities(logits[-1])  # (vocab,)
            unread = answers.a_token(randomness.draw(p, position))
            tokens.append(unread)
            sums.append(p.sum())
            if eos and int(unread) in eos:
                break
    written = torch.cat(tokens)
    bad = torch.stack(sums).isnan().tolist() if sums else []
    if any(bad):
        raise answers.not_a_number("target", bad.index(True) + 1, size + bad.index(True))
    host = written.cpu()
    ended = bool(eos) and len(host) > 0 and int(host[-1]) in eos
    return Generation(host, torch.cat([ids, written[None]], 1), [], "eos" if ended else "length")


def speculative(
    target: torch.nn.Module | protocols.Model,
    draft: torch.nn.Module | protocols.Model | protocols.Drafter,
    ids: torch.Tensor,
    max_new_tokens: int,
    *,
    gamma: int | Callable[[list[Round]], int] = 4,
    rule: str | protocols.Rule | None = None,
    sampling: Sampling | None = None,
    draft_sampling: Sampling | None = None,
    eos_token_id: int | list[int] | None = None,
    generator: torch.Generator | int | protocols.Randomness | None = None,
    trace: bool | Iterable[str] = False,
    attention_mask: torch.Tensor | None = None,
) -> Generation:
    """Write with a draft and a target: exactly the target's distribution, in fewer of its forward passes.

    All arguments and errors are those of `speculative_rounds`.  Chen et al., Algorithm 2; Leviathan et al.,
    Algorithm 1 in a loop.  Notebooks 04 to 06.
    """
    writer = Writer(target, draft, ids, max_new_tokens, gamma, rule, sampling, draft_sampling, eos_token_id, generator,
                    trace, attention_mask)  # fmt: skip
    rounds = list(writer)
    new = torch.tensor([t for r in rounds for t in r.tokens], dtype=torch.int64, device="cpu")
    return Generation(new, torch.cat([writer.ids, new[None].to(writer.ids.device)], 1), rounds, writer.stop_reason)


def speculative_rounds(
    target: torch.nn.Module | protocols.Model,
    draft: torch.nn.Module | protocols.Model | protocols.Drafter,
    ids: torch.Tensor,
    max_new_tokens: int,
    *,
    gamma: int | Callable[[list[Round]], int] = 4,
    rule: str | protocols.Rule | None = None,
    sampling: Sampling | None = None,
    draft_sampling: Sampling | None = None,
    eos_token_id: int | list[int] | None = None,
    generator: torch.Generator | int | protocols.Randomness | None = None,
    trace: bool | Iterable[str] = False,
    attention_mask: torch.Tensor | None = None,
) -> Iterator[Round]:
    """The same as `speculative`, each `Round` yielded as it happens.

    target: a transformers causal language model or a `Model`.  draft: one that shares its vocabulary, or a `Drafter`.
    ids: the prompt, (1, length) or (length,) int64.  Options:

    gamma: drafted tokens a round, at least 1 (Chen: K); fewer where the budget or a context ends, or the drafter
        proposes fewer.  Or a function that is given the rounds so far and says how many to draft next (0: none).
    rule: "google" (the default: all at once; at most one host-device synchronisation a round) | "deepmind" (one after
        the other; same tokens from the same uniforms) | "block" (accepts more of the same draft) | any `Rule`.  A
        generator that has a rule of its own, as `SharedNoise` does, takes no other.
    sampling: the target's `Sampling`; draft_sampling: the draft's own (default: the same).  Exact either way.
    eos_token_id: int, list or None (never stop).
    generator: torch.Generator, int seed, or a `Randomness`; all uniforms of a round are drawn before it is verified,
        so that one seed gives one text under both rules.
    trace: what each Round keeps: True (all), or some of "distributions" (p, q and the uniforms), "overlap", "caches".
    attention_mask: (1, length) of ones, with zeros at the left only: such padding is taken off.

    The distribution is the target's as far as it scores a token alike alone and in a block: up to rounding in float32,
    less finely in 16 bit, and not at all where scales are chosen anew for each pass (dynamic quantization).

    Raises ValueError before the text is read, for a batch, an empty prompt, a token outside the vocabulary, a text that
    the target's context cannot hold or that crosses a change of its positions, a model that is not causal (each is run
    once on four tokens), a cache that cannot be rolled back or is shared, a draft on another device, an option out of
    range; in a round, for NaN logits, what a plug gives against `protocols`, and a target that was used elsewhere.
    """
    return iter(Writer(target, draft, ids, max_new_tokens, gamma, rule, sampling, draft_sampling, eos_token_id,
                       generator, trace, attention_mask))  # fmt: skip


def speculative_batch(
    target: torch.nn.Module | protocols.Model,
    draft: torch.nn.Module | protocols.Model | protocols.Drafter | None,
    prompts: Sequence[torch.Tensor],
    max_new_tokens: int | Sequence[int],
    *,
    gamma: int | Callable[[list[Round]], int] = 4,
    rule: str | protocols.Rule | None = None,
    sampling: Sampling | Sequence[Sampling] | None = None,
    draft_sampling: Sampling | None = None,
    eos_token_id: int | list[int] | None = None,
    generators: Sequence | None = None,
    slots: int = 8,
    trace: bool | Iterable[str] = False,
) -> list[Generation]:
    """Write a text for each prompt, many in each forward pass: each is what `speculative` writes for it alone.

    prompts: a list of ids, each (1, length) or (length,) int64.  max_new_tokens, sampling: one for all, or a list with
    one for each.  generators: a list with a seed or a source of randomness for each (no two texts may share a source),
    or None.  slots: texts that are written at the same time.  The rest is as in `Engine`.
    Returns a `Generation` for each prompt, in their order.  Raises ValueError, naming the text, as `speculative_rounds`
    does, before any text is read.  Notebook 12.
    """
    if isinstance(prompts, torch.Tensor):
        raise ValueError(
            f"prompts must be a list of ids without padding, got one tensor of shape {tuple(prompts.shape)}: pass "
            "[pair.encode(text) for text in texts]"
        )
    prompts = _a_list("prompts", prompts)
    each = {
        "max_new_tokens": max_new_tokens if _is_list(max_new_tokens) else [max_new_tokens] * len(prompts),
        "sampling": sampling if _is_list(sampling) else [sampling] * len(prompts),
        "generators": [None] * len(prompts) if generators is None else _a_list("generators", generators),
    }
    for name, values in each.items():
        if len(values) != len(prompts):
            raise ValueError(f"{len(prompts)} prompts and {len(values)} {name}: give one for each")
    engine = Engine(target, draft, slots=min(at_least_one("slots", slots), len(prompts)), gamma=gamma, rule=rule,
                    trace=trace)  # fmt: skip
    requests = []
    for i, (ids, new, chosen, generator) in enumerate(zip(prompts, *each.values(), strict=True), 1):
        try:
            requests.append(engine.submit(ids, new, sampling=chosen, draft_sampling=draft_sampling,
                                          eos_token_id=eos_token_id, generator=generator))  # fmt: skip
        except ValueError as error:
            raise ValueError(f"text {i} of {len(prompts)}: {error}") from None
    while engine.running or engine.waiting:
        for request, _ in engine.step():
            if request.error is not None:
                raise ValueError(f"text {requests.index(request) + 1} of {len(prompts)}: {request.error}") from None
    return [request.generation() for request in requests]


def _is_list(values) -> bool:
    return isinstance(values, (list, tuple)) or getattr(values, "ndim", 0) > 0  # a tensor or an array, too


def _a_list(name: str, values) -> list:
    if not _is_list(values) or len(values) == 0:
        raise ValueError(
            f"{name} must be a list with one entry for each text, and at least one, got {described(values)}"
        )
    return list(values)
