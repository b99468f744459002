"""Drafts that branch, drawn and read a second time: without caches, masks or the library's drafter."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence

import torch

from tests.helpers import enumeration as exact

KINDS = ("without replacement", "independent", "certain")
SHAPES = {
    "two, two under each": [-1, -1, 0, 0, 1, 1],
    "two, two under the first": [-1, -1, 0, 0, 1],
    "one by one": [-1, 0, -1, 2],
    "a sibling after a child": [-1, 0, 0, -1],
    "three": [-1, -1, -1],
    "a chain": [-1, 0, 1],
}


def ancestors(parents: Sequence[int], node: int) -> list[int]:
    """The way from the end of the text to a node, itself included."""
    way = []
    while node >= 0:
        way.insert(0, node)
        node = parents[node]
    return way


def depth(parents: Sequence[int]) -> int:
    return max((len(ancestors(parents, i)) for i in range(len(parents))), default=0)


def candidate(q: torch.Tensor, taken: list[int], kind: str, size: int) -> torch.Tensor:
    """What the next sibling is drawn from, of `size` siblings in all, after those taken."""
    if kind == "independent":
        return q
    if kind == "certain":
        return torch.eye(len(q), dtype=q.dtype)[q.topk(size).indices[len(taken)]]
    left = q.clone()
    left[taken] = 0
    if left.sum() == 0:  # whatever is not taken will do
        left = torch.ones_like(q)
        left[taken] = 0
    return left / left.sum()


def drafts(
    draft: torch.Tensor, start: int, parents: Sequence[int], kind: str
) -> Iterator[tuple[list[int], torch.Tensor, float]]:
    """(tokens, q, weight): every tree that a Markov chain drafts after `start`."""

    def grow(tokens: list[int], rows: list[torch.Tensor], weight: float):
        i = len(tokens)
        if i == len(parents):
            yield tokens, torch.stack(rows), weight
            return
        above = start if parents[i] < 0 else tokens[parents[i]]
        earlier = [tokens[j] for j in range(i) if parents[j] == parents[i]]
        row = candidate(draft[above], earlier, kind, parents.count(parents[i]))
        for x, w in enumerate(row.tolist()):
            if w > 0:
                yield from grow([*tokens, x], [*rows, row], weight * w)

    yield from grow([], [], 1.0)


def tree_distribution(
    rule, target: torch.Tensor, draft: torch.Tensor, start: int, parents: Sequence[int], kind: str
) -> torch.Tensor:
    """The joint distribution of the depth + 1 tokens after `start`: one round of `rule`, completed by the target."""
    size, most = len(target), depth(parents) + 1
    rest, joint = exact.continuations(target, most), torch.zeros((size,) * most, dtype=target.dtype)
    found = [[] for _ in parents]
    for tokens, q, weight in drafts(draft, start, parents, kind):
        p = target[torch.tensor([start, *tokens])]
        for v in exact.verdicts(rule, p, q, torch.tensor(tokens), found, list(parents)):
            path = [i for i, on in enumerate(v.answer[0].tolist()) if on]
            assert path == ancestors(parents, path[-1] if path else -1), f"{path} is no path from the end of the text"
            m = most - 1 - len(path)
            after = v.distribution.view(size, *[1] * m) * rest[m]
            joint[tuple(tokens[i] for i in path)] += weight * v.weight * after
    return joint


@torch.no_grad()
def rows_of(model, text: list[int], tokens: list[int], parents: Sequence[int]) -> torch.Tensor:
    """Logits (k + 1, vocab) after the text and after each node, each from an uncached pass over a plain text."""
    paths = [[], *(ancestors(parents, i) for i in range(len(parents)))]
    ways = [[*text, *(tokens[i] for i in path)] for path in paths]
    return torch.stack([_after(model, tuple(way)) for way in ways])


def _after(model, text: tuple[int, ...]) -> torch.Tensor:
    if hasattr(model, "table"):
        return model.table[text[-1]].log()
    return model(input_ids=torch.tensor([text]), use_cache=False).logits[0, -1]


class Placed:
    """A model that reads a tree by reading every path as a text of its own: slow, and with no mask to get wrong.

    It stands in for a target or a draft, and notes the rows that it was told to keep.
    """

    def __init__(self, model):
        self.model, self.text, self.parents, self.kept = model, [], [], []
        self.vocab = model.config.vocab_size
        self.device, self.max_length = torch.device("cpu"), model.config.n_positions

    length = property(lambda self: len(self.text))

    @functools.cached_property
    def config(self):
        return self.model.config

    def feed(self, ids, keep=None, parents=None):
        begin = len(self.text)
        self.parents += range(begin - 1, begin - 1 + len(ids)) if parents is None else parents
        self.text += ids.tolist()
        rows = []
        for i in range(begin, len(self.text)):
            way, at = [], i
            while at >= 0:
                way.insert(0, self.text[at])
                at = self.parents[at]
            rows.append(_after(self.model, tuple(way)))
        logits = torch.stack(rows)
        return logits if keep is None else logits[-keep:]

    def rollback(self, length):
        self.text, self.parents = self.text[:length], self.parents[:length]

    def keep_rows(self, length, rows):
        self.kept.append(list(rows))
        self.text = self.text[:length] + [self.text[length + i] for i in rows]
        self.parents = list(range(-1, len(self.text) - 1))

    def refuse_tree(self):
        pass
