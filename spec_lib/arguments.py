"""What the loops refuse before any work, each in one sentence; a caller's options in one form.

What a model, a drafter or a source of randomness refuses is said where it is defined, what is wrong with its answers in
`answers`.  Whoever reads `decoding` and `writer` for the algorithm need not open either file.
"""

from __future__ import annotations

import inspect
import reprlib
from collections.abc import Callable, Iterable

import torch

from . import answers, protocols
from .numbers import as_int, described
from .records import Round
from .sampling import Sampling
from .trees import verify_tree
from .verification import RULES

TRACES = ("distributions", "overlap", "caches")  # what a round can keep: `trace=` names some of them


def a_text(
    target: protocols.Model, ids, max_new_tokens, eos_token_id, attention_mask
) -> tuple[torch.Tensor, int, frozenset[int]]:
    """The prompt as (1, length) int64 on the target's device, the tokens to write, and the EOS ids."""
    new = as_int(max_new_tokens)
    if new is None or new < 0:
        raise ValueError(f"max_new_tokens must be a whole number of at least 0, got {max_new_tokens!r}")
    ids, masked = _unpadded(_as_row(ids), attention_mask)
    if ids.shape[1] == 0:
        raise ValueError("the prompt is empty: pair.encode('') gives the tokenizer's start token where it has one")
    seen = [ids.min().view(1), ids.max().view(1), ids[0, :1], ids[0, -2:]]
    low, high, first, *last = torch.cat(seen).tolist()  # at once: on a GPU each look is a wait
    if low < 0 or high >= target.vocab:
        raise ValueError(f"token id {low if low < 0 else high} is outside the target's vocabulary of {target.vocab}")
    padding = None if masked else getattr(target, "padding", None)
    if first == padding:
        raise ValueError(
            f"the prompt begins with the padding token {padding}: take it off, or pass its attention_mask (speculative "
            "and Engine.submit take one; speculative_batch takes prompts without padding)"
        )
    if last == [padding] * 2:  # one alone may belong to the text
        raise ValueError(f"the prompt ends in padding, token {padding}: take it off, or the text would go on after it")
    longest = ids.shape[1] + new - 1  # the last token is drawn, never fed
    if target.max_length is not None and longest > target.max_length:
        most = target.max_length - ids.shape[1] + 1
        raise ValueError(
            f"{ids.shape[1]} prompt tokens and {new} new ones need {longest} positions and the target has "
            f"{target.max_length}: shorten the prompt{f' or ask for at most {most} new tokens' if most > 0 else ''}."
        )
    if hasattr(target, "refuse_text"):
        target.refuse_text(ids.shape[1], longest)
    return ids.to(target.device), new, _ends(eos_token_id, target.vocab)


def can_work(target: protocols.Model, drafter: protocols.Drafter, rule: Callable, longest: int) -> None:
    """All can do what is asked of them in a text of which the target reads `longest` tokens; rule: as from `a_rule`."""
    if getattr(drafter, "branches", False):
        rule.refuse_trees()
    if hasattr(target, "refuse_rollback"):
        target.refuse_rollback(longest)
    if hasattr(drafter, "refuse"):
        drafter.refuse(target, longest)


def own_source(writer, others: Iterable) -> None:
    """No other text that is still written draws from this text's source of randomness."""
    source, *taken = (getattr(x.randomness, "generator", None) or x.randomness for x in (writer, *others))
    if any(source is other for other in taken):
        raise ValueError(
            f"another text draws from the same generator, {described(source)}: give each text a seed or a source of "
            "its own, or its text would depend on the other's"
        )


def can_draft_in_a_batch(drafter: protocols.Drafter, text: protocols.Model) -> None:
    """A drafter that is no model needs no more of the target than a text of a batch has."""
    try:
        fits = not getattr(drafter, "branches", False)
        if fits and hasattr(drafter, "refuse"):
            drafter.refuse(text, 1)
    except ValueError:
        fits = False
    if not fits:
        raise ValueError(
            f"{type(drafter).__name__} cannot draft in a batch, whose texts show no hidden states and no single "
            "layers and read no trees: draft with a model or with NGram, or write the texts one after the other with "
            "speculative"
        )


def _as_row(ids) -> torch.Tensor:
    if isinstance(ids, list):
        try:
            ids = torch.tensor(ids, dtype=None if ids else torch.int64)
        except (TypeError, ValueError, RuntimeError, OverflowError):  # words, None, rows of different length
            several = ": for several texts see speculative_batch" if isinstance(ids[0], torch.Tensor) else ""
            got = reprlib.repr(ids) + several
            raise ValueError(f"ids must be token ids, whole numbers in one list, got {got}") from None
    if not isinstance(ids, torch.Tensor) or ids.is_floating_point() or ids.dtype == torch.bool:
        got = ids.dtype if isinstance(ids, torch.Tensor) else type(ids).__name__
        raise ValueError(f"ids must be a tensor of token ids, (1, length) as pair.encode returns it, got {got}")
    ids = ids[None] if ids.ndim == 1 else ids
    if ids.ndim != 2 or ids.shape[0] != 1:
        raise ValueError(f"the batch size must be 1, one prompt of shape (1, length); got shape {tuple(ids.shape)}")
    return ids.to(torch.int64)  # torch lacks min and max for some unsigned types


def _unpadded(ids: torch.Tensor, mask) -> tuple[torch.Tensor, bool]:
    """ids without the padding that the mask hides, and whether there was a mask."""
    if mask is None:
        return ids, False
    mask = torch.as_tensor(mask)
    mask = mask[None] if mask.ndim == 1 else mask
    if mask.shape != ids.shape:
        raise ValueError(f"attention_mask {tuple(mask.shape)} does not fit ids {tuple(ids.shape)}")
    first = ids.shape[1] - int((mask[0] != 0).sum())
    if not bool((mask[0, first:] != 0).all()):
        raise ValueError("attention_mask may hide tokens at the left end only (padding); take the others out of ids")
    return ids[:, first:], True


def _ends(eos_token_id, vocab: int) -> frozenset[int]:
    several = isinstance(eos_token_id, (list, tuple, set, frozenset)) or getattr(eos_token_id, "ndim", 0) == 1
    eos = [] if eos_token_id is None else [as_int(e) for e in (eos_token_id if several else [eos_token_id])]
    if None in eos:
        raise ValueError(f"eos_token_id must be a token id, a list of them or None, got {eos_token_id!r}")
    if any(not 0 <= e < vocab for e in eos):
        raise ValueError(f"eos_token_id {eos_token_id!r} is outside the target's vocabulary of {vocab}")
    return frozenset(eos)


def a_sampling(name: str, sampling: Sampling | None, default: Sampling | None = None) -> Sampling:
    """The sampling, or where none was given the default; 0 or {} are none of these."""
    sampling = (default or Sampling()) if sampling is None else sampling
    if not isinstance(sampling, Sampling):
        raise ValueError(f"{name} must be a spec_lib.Sampling, got {sampling!r}")
    return sampling


def a_gamma(gamma: int | Callable[[list[Round]], int]) -> Callable[[list[Round]], int]:
    """A function of the rounds so far: the one given, its answers checked, or one that always gives the same number."""
    if not callable(gamma):
        if (number := as_int(gamma) or 0) < 1:
            raise ValueError(
                f"gamma, the drafted tokens a round, must be a whole number of at least 1, got {gamma!r} "
                "(or a function of the rounds so far)"
            )
        return lambda rounds: number

    def checked(rounds: list[Round]) -> int:
        number = as_int(wanted := gamma(rounds))
        if number is None or number < 0:
            raise ValueError(f"gamma must give a whole number of at least 0, got {wanted!r} in round {len(rounds) + 1}")
        return number

    return checked


def a_rule(rule: str | protocols.Rule | None, randomness) -> tuple[Callable, bool]:
    """The rule as a function of (p, q, drafted, uniforms, position, parents), and whether it goes token by token."""
    own = None if isinstance(randomness, type) else getattr(randomness, "verify_coupled", None)
    if rule is None:
        rule = own or "google"
    elif own is not None and rule != own:
        raise ValueError(
            f"{type(randomness).__name__} is exact under its own rule only: leave rule out, got {described(rule)}"
        )
    if isinstance(rule, type) or not (callable(rule) or (isinstance(rule, str) and rule in RULES)):
        names = ", ".join(f'"{name}"' for name in RULES)
        raise ValueError(f"rule must be {names} or a function like verify_google, got {described(rule)}")
    rule = rule if callable(rule) else RULES[rule]
    try:
        signature = inspect.signature(rule.forward if isinstance(rule, torch.nn.Module) else rule)
    except (TypeError, ValueError):  # some functions written in C have none
        signature = None
    asks = signature.parameters if signature else ()
    try:
        if signature:
            signature.bind(*"pqxu", **{name: None for name in ("position", "parents") if name in asks})
    except TypeError as error:
        raise ValueError(f"rule must take (p, q, drafted, uniforms), got {described(rule)}: {error}") from None
    papers = rule in (RULES["google"], RULES["deepmind"])
    chains_only = answers.no_trees(rule)
    trees_only = "parents" in asks and asks["parents"].default is inspect.Parameter.empty
    of_trees = rule if "parents" in asks else verify_tree if papers else chains_only

    def asked(p, q, drafted, uniforms, position, parents=None):
        if parents is not None:
            return answers.a_judgement(of_trees(p, q, drafted, uniforms, parents=parents), p, drafted.shape)
        if trees_only:  # a chain is a tree too
            path, next_p = asked(p, q, drafted, uniforms, position, [*range(-1, len(drafted) - 1)])
            return path.sum(), next_p
        told = {"position": position} if "position" in asks else {}
        return answers.a_judgement(rule(p, q, drafted, uniforms, **told), p, None)

    asked.refuse_trees = chains_only if of_trees is chains_only else lambda: None
    return asked, getattr(rule, "token_by_token", True)


def a_trace(trace: bool | Iterable[str]) -> frozenset[str]:
    """The parts to be traced, by their names in TRACES."""
    parts = TRACES if trace is True else () if trace is False or trace is None else trace
    parts = [parts] if isinstance(parts, str) else list(parts) if isinstance(parts, Iterable) else None
    if parts is None or any(part not in TRACES for part in parts):
        raise ValueError(f"trace must be True, False or some of {', '.join(TRACES)}, got {trace!r}")
    return frozenset(parts)
