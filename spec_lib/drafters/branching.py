"""A tree of drafted tokens, from a draft model or a recurrent head.  Derived in notebook 14."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import torch

from .. import protocols
from ..cache import as_model
from ..devices import to_device
from ..drafting import ModelDrafter
from ..numbers import described
from ..protocols import Draft
from ..sampling import Sampling
from .heads import RecurrentHead

WITHOUT, INDEPENDENT, CERTAIN = "without replacement", "independent", "certain"


class Tree:
    """A drafter of trees of one shape.

    draft: a `RecurrentHead`, or a transformers model or `Model` that reads trees.  parents: the shape, as in
    `Draft`; where fewer tokens are asked for, its first nodes, so that the best ones should come first (`best_tree`).
    siblings: how the candidates for one position are drawn: "without replacement" (each from q without those before it,
    renormalised), "independent" (each from q) or "certain" (the likeliest ones).
    ValueError for another shape or way.
    """

    branches = True

    def __init__(self, draft, parents: Sequence[int], siblings: str = WITHOUT):
        self.parents, self.siblings = list(parents) if isinstance(parents, Iterable) else [], siblings
        if siblings not in (WITHOUT, INDEPENDENT, CERTAIN):
            raise ValueError(f'siblings must be "{WITHOUT}", "{INDEPENDENT}" or "{CERTAIN}", got {siblings!r}')
        wrong = [i for i, parent in enumerate(self.parents) if type(parent) is not int or not -1 <= parent < i]
        if not self.parents or wrong:
            raise ValueError(f"parents must be ints, each the index of an earlier node or -1, got {parents!r}")
        if hasattr(draft, "start") and not isinstance(draft, RecurrentHead):
            raise ValueError(
                f"a tree grows from a RecurrentHead or from a model that reads trees, got {described(draft)}"
            )
        self.draft = draft if isinstance(draft, RecurrentHead) else ModelDrafter(draft)

    def refuse(self, target: protocols.Model, longest: int) -> None:
        """ValueError where target or draft cannot read a tree, or what the draft refuses."""
        if not hasattr(target, "refuse_tree"):
            raise ValueError(f"a {type(target).__name__} reads chains only: no tree can be drafted for it")
        if (most := max(map(self.parents.count, self.parents))) > target.vocab:
            raise ValueError(f"{most} candidates for one position, of {target.vocab} tokens in all: take fewer")
        target.refuse_tree()
        self.draft.refuse(target, longest)
        if isinstance(self.draft, ModelDrafter):
            model = as_model(self.draft.model, "draft")
            if not hasattr(model, "refuse_tree") or model.vocab > target.vocab:
                raise ValueError(f"a {type(model).__name__} cannot draft a tree for this target: draft a chain")
            model.refuse_tree()

    def start(
        self, ids: torch.Tensor, sampling: Sampling, randomness: protocols.Randomness, target: protocols.Model
    ) -> TreeSession:
        """A session on the text ids (length,)."""
        if isinstance(self.draft, RecurrentHead):
            source = _FromHead(self.draft, ids, target)
        else:
            source = _FromModel(self.draft.start(ids, sampling, randomness, target))
        return TreeSession(self.parents, self.siblings, source, sampling, randomness, len(ids))


class TreeSession:
    """One text.  The tree grows level by level: all nodes of a level are read at once."""

    def __init__(self, parents, siblings, source, sampling, randomness, size):
        self.parents, self.siblings, self.source = parents, siblings, source
        self.sampling, self.randomness, self.size = sampling, randomness, size

    @torch.no_grad()
    def propose(self, k: int) -> Draft:
        """A tree of the first k nodes, fewer where the draft's context ends."""
        most = self.source.begin(k)
        parents = self.parents[: min(k, most)]
        if not parents:
            return Draft(torch.zeros(0, dtype=torch.int64), None, cut=most < k)
        below = self.sampling.probabilities(self.source.root())[None]  # (1, vocab), after the end of the text
        tokens: list[torch.Tensor] = [below.new_empty(0)] * len(parents)
        q = [below[0]] * len(parents)
        level, depth = [-1], 0  # the nodes whose children come next; -1 is the end of the text
        while level:
            children = [i for i, parent in enumerate(parents) if parent in level]
            for node, distribution in zip(level, below, strict=True):
                self._candidates([i for i in children if parents[i] == node], distribution, depth, tokens, q)
            level, depth = [i for i in children if i in parents], depth + 1  # those that have children
            if level:
                x, above = torch.cat([tokens[i] for i in level]), [parents[i] for i in level]
                below = self.sampling.probabilities(self.source.grow(level, x, above))
        certain = self.siblings == CERTAIN
        return Draft(torch.cat(tokens), None if certain else torch.stack(q), most < k, parents)

    def _candidates(self, nodes, distribution, depth, tokens, q) -> None:
        """Tokens for these siblings, and the distribution that each was drawn from given the earlier ones."""
        if self.siblings == CERTAIN:
            for i, x in zip(nodes, distribution.topk(len(nodes)).indices.split(1), strict=True):
                tokens[i] = x
            return
        free = torch.ones_like(distribution)  # 0 at what was drawn
        for i in nodes:
            left = distribution * free
            # Where nothing is left of q, any other token will do, as long as this is what it was drawn from.
            left = torch.where(left.sum() > 0, left, free)
            q[i] = left / left.sum()
            tokens[i] = self.randomness.draw(q[i], self.size + depth)
            if self.siblings == WITHOUT:
                free = free.scatter(0, tokens[i], 0)

    def accept(self, n: int, token: torch.Tensor, tokens: list[int], path: Sequence[int] | None = None) -> None:
        """The nodes of `path` were accepted and the target added `token` (1,)."""
        self.size += len(tokens)
        self.source.keep(list(path or []), token, tokens)

    @property
    def length(self) -> int | None:
        """Tokens in the draft's cache, None where it has none."""
        return self.source.length


class _FromHead:
    """States of a recurrent head: each node's own, so that there is no cache to roll back."""

    length = None

    def __init__(self, head: RecurrentHead, ids: torch.Tensor, target):
        self.head, self.target, self.last, self.row = head, target, ids[-1:], -1
        target.keep_hidden()

    def begin(self, k: int) -> int:
        """How many nodes it can draft."""
        return 0 if self.target.hidden is None else k

    def root(self) -> torch.Tensor:
        """Logits (vocab,) after the text."""
        with self.head.threads():
            state = self.head.step(self.target.hidden[self.row].to(self.head.dtype)[None], self.last)
            self.states = {-1: state[0]}
            return self.head.logits(state)[0]

    def grow(self, nodes: list[int], tokens: torch.Tensor, above: list[int]) -> torch.Tensor:
        """Logits (n, vocab) after these nodes, whose tokens (n,) follow the nodes `above`."""
        with self.head.threads():
            states = self.head.step(torch.stack([self.states[i] for i in above]), tokens)
            self.states |= dict(zip(nodes, states, strict=True))
            return self.head.logits(states)

    def keep(self, path: list[int], token: torch.Tensor, tokens: list[int]) -> None:
        """`token` was drawn from the target's row of the last accepted node."""
        self.last, self.row = token, path[-1] + 1 if path else 0


class _FromModel:
    """A draft model's cache: the text, then the inner nodes of the tree in the order in which they were read."""

    def __init__(self, session):
        self.session, self.model, self.rows = session, session.model, {}

    @property
    def length(self) -> int:
        """Tokens in the draft's cache."""
        return self.model.length

    def begin(self, k: int) -> int:
        """How many nodes fit: the last of a chain is not read, so it needs no position."""
        return max(0, int(min(k, self.session.most - len(self.session.text) + 1)))

    def root(self) -> torch.Tensor:
        """Logits (vocab,) after the text."""
        logits = self.session._feed(self.session.unread())
        self.rows = {-1: self.model.length - 1}
        return self._wide(logits[None])[0]

    def grow(self, nodes: list[int], tokens: torch.Tensor, above: list[int]) -> torch.Tensor:
        """Logits (n, vocab) after these nodes, whose tokens (n,) follow the nodes `above`."""
        parents = [self.rows[i] for i in above]
        self.rows |= {node: self.model.length + i for i, node in enumerate(nodes)}
        ids = tokens if self.session.vocab <= self.model.vocab else tokens.clamp(max=self.model.vocab - 1)
        return self._wide(self.model.feed(ids, parents=parents))

    def _wide(self, logits: torch.Tensor) -> torch.Tensor:
        missing = self.session.vocab - logits.shape[1]
        return torch.nn.functional.pad(logits, (0, missing), value=-torch.inf) if missing else logits

    def keep(self, path: list[int], token: torch.Tensor, tokens: list[int]) -> None:
        """Of the tree, the accepted nodes that were read stay in the cache."""
        size = len(self.session.text)
        if self.rows:
            self.model.keep_rows(size, [self.rows[i] - size for i in path if i in self.rows])
        self.rows = {}
        new = to_device(torch.tensor(tokens[:-1], dtype=torch.int64), token.device)
        self.session.text = torch.cat([self.session.text, new, token])
