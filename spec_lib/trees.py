"""Drafts that branch: several candidates for one position, each of which may go on.  Derived in notebook 14.

A tree of k drafted tokens is written as `parents`, a list of k ints: the index of each token's parent in the draft, -1
for the end of the text.  Parents stand before their children, and siblings in the order in which they were drawn.
"""

from __future__ import annotations

import heapq
import weakref
from collections.abc import Sequence
from itertools import pairwise

import torch

from .devices import to_device
from .numbers import at_least_one
from .verification import _check, residual


def verify_tree(
    p: torch.Tensor, q: torch.Tensor, drafted: torch.Tensor, uniforms: torch.Tensor, parents: Sequence[int]
) -> tuple[torch.Tensor, torch.Tensor]:
    """Walk from the end of the text to a leaf: try the children one after the other, go on from the first accepted.

    p: (k + 1, vocab), row 0 after the text and row i + 1 after drafted token i.  q: (k, vocab), the distribution that
    each token was really drawn from, given its earlier siblings; none was left out for what it is.  drafted, uniforms:
    (k,).
    Returns (path, distribution): path (k,) bool marks the accepted tokens, distribution (vocab,) is that of the token
    that follows them.  Nothing here waits for the device.  For a chain it is `verify_google`.
    Recursive rejection sampling: Miao et al. (2305.09781) for candidates that are drawn independently; Yang et al.
    (2401.06706), Jeon et al. (2402.14160) without replacement.  ValueError where the shapes do not fit, or parents are
    no tree.  Notebook 14.
    """
    k = _check(p, q, drafted, uniforms)
    fits = isinstance(parents, Sequence | torch.Tensor) and len(parents) == k
    if not fits or not all(-1 <= parent < i for i, parent in enumerate(parents)):
        raise ValueError(f"{k} drafted tokens need {k} parents, each an earlier one or -1, got {parents}")
    here, left = torch.full((), -1, device=p.device), p[0]  # where the walk stands, and what is still to be drawn there
    path = []
    for i, parent in enumerate(parents):  # a child comes after its parent and its earlier siblings: once through is all
        tried = here == parent
        ratio = left.gather(0, drafted[i : i + 1]) / q[i].gather(0, drafted[i : i + 1])
        accepted = tried & (uniforms[i] < ratio[0])
        left = torch.where(accepted, p[i + 1], torch.where(tried, residual(left, q[i]), left))
        here = torch.where(accepted, i, here)
        path.append(accepted)
    return (torch.stack(path) if path else torch.zeros(0, dtype=torch.bool, device=p.device)), left


def placed(length: int, tree: Sequence[int], parents: Sequence[int]) -> tuple[torch.Tensor, torch.Tensor]:
    """Where new tokens stand, and what they see, in a cache that is no longer a plain text.

    length: rows of the cache, the last len(tree) of which have these parents (rows, too); those before are the text.
    parents: the row of each new token's parent, one of the text or of the tree or of an earlier new token.
    Returns (positions in the text (n,) int64, (n, length + n) bool: which rows each new token sees, itself included).
    ValueError for a parent that is not there.
    """
    base, above = length - len(tree), [*tree, *parents]
    positions, seen = [], torch.zeros(len(parents), length + len(parents), dtype=torch.bool)
    for i, row in enumerate(range(length, length + len(parents))):
        depth, at = 0, row
        while at >= base:
            seen[i, at] = True
            if not -1 <= above[at - base] < at:
                raise ValueError(f"a token in row {at} of the cache cannot have row {above[at - base]} as its parent")
            depth, at = depth + 1, above[at - base]
        seen[i, : at + 1] = True
        positions.append(at + depth)
    return torch.tensor(positions), seen


def as_mask(seen: torch.Tensor, like: torch.Tensor) -> torch.Tensor:
    """What is added to the attention's scores: 0 where a row is seen, else the lowest number; dtype and device of
    `like`."""
    hidden = torch.zeros(seen.shape, dtype=like.dtype, device=seen.device)
    hidden.masked_fill_(~seen, torch.finfo(like.dtype).min)
    return to_device(hidden, like.device)


def cut(tree: list[int], length: int, to: int) -> list[int]:
    """What is left of the parents of a cache's last rows when it is rolled back from `length` rows to `to`."""
    return tree[: max(0, len(tree) - (length - to))]


def kept_rows(model, length: int, rows: list[int]) -> torch.Tensor:
    """The rows (n,) of a cache that `keep_rows` leaves.  ValueError for rows that it does not have."""
    room = range(model.length - length)
    if not 0 <= length <= model.length or list(rows) != sorted(set(rows)) or not all(row in room for row in rows):
        raise ValueError(f"cannot keep {length} tokens and the rows {rows} after them: the cache holds {model.length}")
    return torch.cat([torch.arange(length), length + torch.tensor(rows, dtype=torch.int64)])


def check_reads_trees(model) -> None:
    """ValueError where a sibling's child does not get the logits that it has alone, up to rounding."""
    known = model.model
    if known in _READ:
        return
    ids = torch.arange(4, device=model.device) % model.vocab
    why = "hides no sibling, or counts positions by rows"
    try:
        alone, tree = model.fresh(), model.fresh()
        want = alone.feed(torch.cat([ids[:1], ids[2:]]))[-1].cpu().double()  # in this order: MPS has no float64
        tree.feed(ids[:1])
        found = tree.feed(ids[1:], parents=[0, 0, 2])[-1].cpu().double()
        rough = 1000 * torch.finfo(next(known.parameters()).dtype).eps
        far = (found - want).abs().max() > min(0.1, rough) * want.abs().max()
        far = far or "local" in getattr(known.config, "attention_layers", ())  # a window of rows, too long for this try
    except (TypeError, ValueError, RuntimeError, IndexError) as error:
        far, why = True, f"{type(error).__name__}"
    if far:
        raise ValueError(f"{type(known).__name__} cannot read a tree ({why}): draft a chain")
    _READ.add(known)


_READ = weakref.WeakSet()  # models that were tried


def best_tree(chances: Sequence[float], nodes: int) -> list[int]:
    """The parents of the tree of so many nodes that is accepted deepest on average.

    chances: of the first, second, ... candidate for a position to be accepted, wherever in the tree, falling.  The
    chance to reach a node is the product along its path; the best tree has the nodes with the largest ones (Chen et
    al., *Sequoia*, 2402.12374).  ValueError unless 1 >= first >= second >= ... >= 0 and first > 0, and for
    nodes below 1.  Notebook 14.
    """
    chances, nodes = [float(chance) for chance in chances], at_least_one("nodes", nodes)
    if not chances or not chances[0] > 0 or not all(1 >= a >= b >= 0 for a, b in pairwise([*chances, chances[-1]])):
        raise ValueError(f"chances must fall, from at most 1, and the first be above 0, got {chances}")
    chances = [chance for chance in chances if chance > 0]
    parents, open_ = [], [(-chances[0], -1, 0)]  # - chance to reach it, parent, which candidate of the parent's
    while len(parents) < nodes and open_:
        reach, parent, candidate = heapq.heappop(open_)
        node = len(parents)
        parents.append(parent)
        heapq.heappush(open_, (reach * chances[0], node, 0))  # its first child
        if candidate + 1 < len(chances):  # and its next sibling
            heapq.heappush(open_, (reach / chances[candidate] * chances[candidate + 1], parent, candidate + 1))
    return parents
