"""What a plug may not answer, each said in one sentence.  Who reads `writer` need not open this file."""

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
            "rounds; give it a fresh(), so that each text has a cache of its own (or its length does not go with its "
            "feed and rollback)."
        )


def a_model(model: protocols.Model, role: str) -> protocols.Model:
    """A model that says what `Model` lists beside its methods, as it must before anything is read."""
    numbers = ("length", "vocab")
    lacks = [name for name in numbers if as_int(getattr(model, name, None)) is None]
    lacks += [name for name in ("max_length", "device") if not hasattr(model, name)]
    if lacks:
        raise ValueError(
            f"the {role}, {described(model)}, must have {', '.join(lacks)} as protocols.Model says (length and vocab "
            "are ints, max_length may be None)"
        )
    return model


def a_session(session: protocols.Session) -> protocols.Session:
    """What a drafter's start returned."""
    if not (hasattr(session, "propose") and hasattr(session, "accept")):
        raise ValueError(f"the drafter's start must return a session with propose and accept, got {_shown(session)}")
    return session


def some_logits(logits: torch.Tensor, rows: int | None, vocab: int | None, model: str) -> torch.Tensor:
    """What a model's feed returned: (rows, vocab); None: any number of them."""
    shape = getattr(logits, "shape", ())
    fits = isinstance(logits, torch.Tensor) and logits.is_floating_point() and len(shape) == 2
    if not (fits and rows in (None, shape[0]) and vocab in (None, shape[1])):
        wanted = f"({rows or 'n'}, {vocab or 'vocab'})"
        raise ValueError(f"the {model} model's feed must return logits {wanted}, a row a token, got {_shown(logits)}")
    return logits


def a_table(table: torch.Tensor) -> torch.Tensor:
    """The table of a `TableModel`, square and floating."""
    shape = getattr(table, "shape", ())
    if not isinstance(table, torch.Tensor) or len(shape) != 2 or shape[0] != shape[1] or not table.is_floating_point():
        raise ValueError(f"table must be a tensor (vocab, vocab) of a floating dtype, got {_shown(table)}")
    return table


def a_token(token: torch.Tensor) -> torch.Tensor:
    """What a source of randomness drew."""
    if not isinstance(token, torch.Tensor) or (token.shape, token.dtype) != ((1,), torch.int64):
        raise ValueError(f"draw must return one token, a tensor (1,) of int64, got {_shown(token)}")
    return token


def a_draft(draft: Draft, asked: int, target: protocols.Model) -> Draft:
    """A draft of at most as many tokens as were asked for, with a distribution for each, no wider than the target's."""
    vocab = target.vocab
    if not isinstance(draft, Draft) or not isinstance(draft.tokens, torch.Tensor) or draft.tokens.ndim != 1:
        got = f"tokens that are {_shown(draft.tokens)}" if isinstance(draft, Draft) else _shown(draft)
        raise ValueError(f"the drafter must give a Draft(tokens, q) with tokens of shape (k,), got {got}")
    k, q = len(draft.tokens), draft.q
    dtype = draft.tokens.dtype
    if k and (dtype.is_floating_point or dtype.is_complex or dtype == torch.bool):  # torch.tensor([]) is float32
        raise ValueError(f"the drafter's tokens must be of an integer dtype, got {_shown(draft.tokens)}")
    fits = isinstance(q, torch.Tensor) and q.ndim == 2 and q.is_floating_point() and q.itemsize > 1
    if q is not None and not fits:
        raise ValueError(
            "the drafter's q must be a tensor (k, vocab) or None, of a floating dtype of 16 bits or more, got "
            f"{_shown(q)}"
        )
    if q is not None and q.device.type != torch.device(target.device).type:
        raise ValueError(f"the drafter's q is on {q.device} and the target on {target.device}: move q")
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
        f"the {model} model gave NaN logits in round {number} (text position {position}), or infinite ones: its "
        "weights or its 16-bit arithmetic overflowed; load it in float32 and try again."
    )


def a_judgement(answer, p: torch.Tensor, tree: torch.Size | None) -> tuple:
    """A rule's answer: (n, distribution), in a tree (path, distribution) with a path of this shape."""
    n, next_p = answer if isinstance(answer, (tuple, list)) and len(answer) == 2 else (None, None)
    if tree is None:
        single = isinstance(n, torch.Tensor) and n.numel() == 1 and n.device == p.device
        fits, what = single or (not isinstance(n, torch.Tensor) and as_int(n) is not None), "n"
    else:
        fits, what = isinstance(n, torch.Tensor) and (n.shape, n.dtype) == (tree, torch.bool), "a path (k,) bool"
    if not fits or not isinstance(next_p, torch.Tensor) or (next_p.shape, next_p.device) != (p.shape[1:], p.device):
        raise ValueError(
            f"the rule must return {what} and a distribution, got {_shown(answer)}, where p is {_shown(p)}"
        )
    return n, next_p


def _shown(answer) -> str:
    """What was answered, in a few words: of a tensor its shape and dtype, of a pair what each is."""
    if isinstance(answer, torch.Tensor):
        return f"a tensor {tuple(answer.shape)} of {str(answer.dtype).removeprefix('torch.')} on {answer.device}"
    if isinstance(answer, (tuple, list)) and 0 < len(answer) <= 3:
        return f"({', '.join(map(_shown, answer))})"
    return described(answer)


def no_trees(rule: protocols.Rule) -> Callable:
    """In the place of a rule that knows chains only."""

    def refuse(*given, **named):
        name = getattr(rule, "__qualname__", None) or described(rule)
        raise ValueError(f"the rule {name} verifies chains, and the draft is a tree: leave it out, or draft a chain")

    return refuse
