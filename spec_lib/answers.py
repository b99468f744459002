"""What a plug may not answer in a round, each said in one sentence.  Who reads `writer` need not open this file."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch

from . import protocols
from .numbers import as_int, described
from .protocols import Draft


def own_cache(target: protocols.Model, size: int) -> None:
    """The target holds as many tokens as this text has, less one.  (Another text of that length is not noticed.)"""
    if target.length != size - 1:
        raise ValueError(
            f"the target holds {target.length} tokens instead of {size - 1}: another text was read with it between two "
            "rounds; give it a fresh(), so that each text has a cache of its own."
        )


def a_draft(draft: Draft, asked: int, target: protocols.Model) -> Draft:
    """A draft of at most as many tokens as were asked for, with a distribution for each, no wider than the target's."""
    vocab = target.vocab
    if not isinstance(draft, Draft) or not isinstance(draft.tokens, torch.Tensor) or draft.tokens.ndim != 1:
        raise ValueError(f"the drafter must give a Draft(tokens, q) with tokens of shape (k,), got {described(draft)}")
    k, q = len(draft.tokens), draft.q
    if q is not None and getattr(q, "ndim", 0) + isinstance(q, torch.Tensor) != 3:
        raise ValueError(f"the drafter's q must be a tensor (k, vocab) or None, got {described(q)}")
    if k > asked or (q is not None and len(q) != k):
        raise ValueError(
            f"the drafter was asked for at most {asked} tokens and gave {k}"
            + ("" if q is None else f" with {len(q)} distributions")
        )
    if q is not None and q.shape[1] > vocab:
        raise ValueError(
            f"the drafter's distributions have {q.shape[1]} tokens and the target's {vocab}: cut the draft's logits to "
            "the target's width before drawing, as ModelDrafter does"
        )
    if draft.parents is not None and not hasattr(target, "keep_rows"):
        raise ValueError(f"the draft is a tree, and a {type(target).__name__} reads chains only: draft a chain")
    if draft.parents is not None and not _are_parents(draft.parents, k):
        raise ValueError(
            f"the drafter's parents must be {k} ints, each the index of an earlier token or -1, got {draft.parents!r}"
        )
    return draft


def _are_parents(parents, k: int) -> bool:
    if not isinstance(parents, list) or len(parents) != k:
        return False
    return all(type(parent) is int and -1 <= parent < i for i, parent in enumerate(parents))


def a_verdict(n: int, token: int, drafted: list, seen: list, vocab: int, number: int, size: int) -> None:
    """A round's outcome, on the host.  seen: the sums of all p and of the rule's distribution, then of each q (k), then
    q of each drafted token (k)."""
    k, of_p, of_next = len(drafted), *seen[:2]
    rows, chances = seen[2 : 2 + k], seen[2 + k :]
    if any(not 0 <= x < vocab for x in drafted):
        raise ValueError(f"the drafter gave {drafted} in round {number}: the target's tokens are 0 to {vocab - 1}")
    if math.isnan(of_p) or any(map(math.isnan, rows)):
        raise not_a_number("target" if math.isnan(of_p) else "draft", number, size)
    if wrong := [i for i in range(k) if not (abs(rows[i] - 1) <= 0.02 and chances[i] > 0)]:  # 16 bit round by less
        i = wrong[0]
        why = f"sums to {rows[i]:.3g}" if abs(rows[i] - 1) > 0.02 else f"is 0 at the drafted token {drafted[i]}"
        raise ValueError(f"the drafter's q[{i}] {why} in round {number}: q must be what the tokens were drawn from")
    if not abs(of_next - 1) <= 0.02 or not (0 <= n <= k and n % 1 == 0):
        total = "a distribution with NaN" if math.isnan(of_next) else f"a distribution that sums to {of_next:.3g}"
        gave = total if 0 <= n <= k and n % 1 == 0 else f"n = {n} of {k} drafted tokens"
        raise ValueError(f"the rule gave {gave} in round {number}: it must return 0 <= n <= k and a distribution")
    if not 0 <= token < vocab:
        raise ValueError(f"token {token} was drawn in round {number}: the target's tokens are 0 to {vocab - 1}")


def not_a_number(model: str, number: int, position: int) -> ValueError:
    """The error of a model whose logits hold a NaN."""
    return ValueError(
        f"the {model} model gave NaN logits in round {number} (text position {position}): its weights or its 16-bit "
        "arithmetic overflowed; load it in float32 and try again."
    )


def a_judgement(answer, p: torch.Tensor, tree: torch.Size | None) -> tuple:
    """A rule's answer: (n, distribution), in a tree (path, distribution) with a path of this shape."""
    n, next_p = answer if isinstance(answer, (tuple, list)) and len(answer) == 2 else (None, None)
    if tree is None:
        fits, what = n.numel() == 1 if isinstance(n, torch.Tensor) else as_int(n) is not None, "n"
    else:
        fits, what = isinstance(n, torch.Tensor) and (n.shape, n.dtype) == (tree, torch.bool), "a path (k,) bool"
    if not fits or getattr(next_p, "shape", None) != p.shape[1:]:
        raise ValueError(f"the rule must return {what} and a distribution, got {described(answer)}")
    return n, next_p


def no_trees(rule: protocols.Rule) -> Callable:
    """In the place of a rule that knows chains only."""

    def refuse(*given, **named):
        name = getattr(rule, "__qualname__", None) or described(rule)
        raise ValueError(f"the rule {name} verifies chains, and the draft is a tree: leave it out, or draft a chain")

    return refuse
