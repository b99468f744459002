"""Exact laws by enumeration: no sampling noise, so no tolerance beyond rounding.

A sampler is a function of tokens drawn and of uniforms.  Drawn tokens are enumerated with their probabilities.  A
uniform acts through a threshold, so [0, 1) is cut at every threshold that a rule, right or wrong, could have (p/q,
q/p, p, q at the drafted token); the rule under test then judges the middle of each piece, which counts with the
piece's length.  The pieces are the test's, the verdicts are the rule's own: a wrong rule gets its own wrong law.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch

import spec_lib as sl

Text = tuple[int, ...]


# ---------------------------------------------------------------------------------------------------- the rule


@dataclass
class Verdict:
    """What a rule says on a set of uniforms: its weight (the set's volume), one of its members, and the answer."""

    weight: float
    uniforms: torch.Tensor
    n: int
    distribution: torch.Tensor


def pieces(p: float, q: float) -> list[tuple[float, float]]:
    """[0, 1) cut at every candidate threshold: (middle, length) of each piece."""
    cuts = {0.0, 1.0, p, q}
    if q > 0:
        cuts.add(p / q)
    if p > 0:
        cuts.add(q / p)
    ends = sorted(c for c in cuts if 0 <= c <= 1)
    return [((a + b) / 2, b - a) for a, b in itertools.pairwise(ends)]


def verdicts(rule, p: torch.Tensor, q: torch.Tensor, drafted: torch.Tensor) -> list[Verdict]:
    """Everything that `rule` can answer to these laws and drafted tokens, with the exact probability of each answer.

    Pieces of one position's uniform that no answer tells apart (the others lowest, the others highest) are joined
    first, which leaves two a position, accepted and rejected; all their combinations are then judged.
    """
    tokens = drafted.tolist()
    cut = [pieces(float(p[i, x]), float(q[i, x])) for i, x in enumerate(tokens)]
    known: dict[tuple[float, ...], tuple] = {}

    def ask(middles: tuple[float, ...]) -> tuple:
        if middles not in known:
            uniforms = torch.tensor(middles, dtype=p.dtype)
            n, law = rule(p, q, drafted, uniforms)
            known[middles] = (int(n), law.numpy().tobytes()), Verdict(0.0, uniforms, int(n), law)
        return known[middles]

    lowest, highest = (tuple(c[end][0] for c in cut) for end in (0, -1))
    joined = []
    for i, c in enumerate(cut):
        groups: dict[tuple, list[float]] = {}
        for middle, length in c:
            answers = tuple(ask((*rest[:i], middle, *rest[i + 1 :]))[0] for rest in (lowest, highest))
            groups.setdefault(answers, [middle, 0.0])[1] += length
        joined.append(list(groups.values()))
    found: dict[tuple, Verdict] = {}
    for choice in itertools.product(*joined):
        key, verdict = ask(tuple(middle for middle, _ in choice))
        found.setdefault(key, verdict).weight += math.prod(length for _, length in choice)
    return list(found.values())


def random_distributions(size: int, seed: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Markov laws (size, size) of a target and a draft, float64: dense, with zeros, one-hot, or equal rows, mixed."""
    g = torch.Generator().manual_seed(seed)

    def row() -> torch.Tensor:
        kind = int(torch.randint(4, (), generator=g))
        weights = -torch.rand(size, generator=g, dtype=torch.float64).log()
        if kind == 0:  # zeros, at least one token left
            keep = torch.rand(size, generator=g) < 0.5
            keep[int(torch.randint(size, (), generator=g))] = True
            weights = weights * keep
        elif kind == 1:
            weights = torch.eye(size, dtype=torch.float64)[int(torch.randint(size, (), generator=g))]
        return weights / weights.sum()

    target = torch.stack([row() for _ in range(size)])
    equal = torch.rand(size, generator=g) < 0.2
    draft = torch.stack([target[x] if equal[x] else row() for x in range(size)])
    return target, draft


def continuations(laws: torch.Tensor, length: int) -> list[torch.Tensor]:
    """[m]: (size, size, ..., size), the law of the m tokens after token x by the target alone."""
    size = laws.shape[0]
    found = [torch.ones(size, dtype=laws.dtype)]
    for m in range(1, length + 1):
        found.append(laws.view(size, size, *[1] * (m - 1)) * found[-1][None])
    return found


def rule_distribution(
    rule, target: torch.Tensor, draft: torch.Tensor, start: int, gamma: int, drawn: torch.Tensor | None = None
) -> torch.Tensor:
    """The joint law of the gamma + 1 tokens after `start`: one round of `rule`, completed by the target's own law.

    drawn: the laws that the drafted tokens really come from, where a wrong sampler judges them by others.
    """
    size, drawn = target.shape[0], draft if drawn is None else drawn
    rest = continuations(target, gamma)
    law = torch.zeros((size,) * (gamma + 1), dtype=target.dtype)
    for tokens in itertools.product(range(size), repeat=gamma):
        seen = torch.tensor([start, *tokens])
        p, q, drafted = target[seen], draft[seen[:-1]], seen[1:]
        weight = math.prod(drawn[seen[i], x].item() for i, x in enumerate(tokens))
        if weight == 0:
            continue
        for v in verdicts(rule, p, q, drafted):
            m = gamma - v.n
            law[tokens[: v.n]] += weight * v.weight * v.distribution.view(size, *[1] * m) * rest[m]
    return law


# ---------------------------------------------------------------------------------------------------- the loop


class Branches:
    """Every path through a computation that asks `choose`, one whole run after the other, depth first."""

    def __init__(self, limit: int = 20_000):
        self.limit, self.path, self.count = limit, [], 0
        self.depth, self.weight = 0, 1.0

    def runs(self) -> Iterator[None]:
        """One item a run; `weight` is then the probability of the run's choices."""
        while True:
            self.depth, self.weight, self.count = 0, 1.0, self.count + 1
            assert self.count <= self.limit, f"more than {self.limit} paths: the loop does not end where it should"
            yield
            assert self.depth == len(self.path), "a replayed run asked for fewer choices than before"
            while self.path and self.path[-1][0] + 1 == self.path[-1][1]:
                self.path.pop()
            if not self.path:
                return
            self.path[-1][0] += 1

    def choose(self, weights: Sequence[float]) -> int:
        """The branch that this run takes among weights (all positive)."""
        if self.depth == len(self.path):
            self.path.append([0, len(weights)])
        index, count = self.path[self.depth]
        assert count == len(weights), "a replayed run met another choice than before"
        self.depth, self.weight = self.depth + 1, self.weight * weights[index]
        return index


class Script:
    """A source whose every token and verdict is a branch, and the rule that goes with it.

    The loop takes its uniforms before p and q meet, so `uniforms` gives stand-ins (NaN, which no rule accepts) and
    `judge`, the loop's `rule=`, puts the middle of the branch's piece there and asks the real rule.
    """

    def __init__(self, branches: Branches, rule):
        self.branches, self.rule, self.known = branches, rule, {}

    def draw(self, p: torch.Tensor, position) -> torch.Tensor:
        weights = p.tolist()
        assert abs(sum(weights) - 1) < 1e-9 and min(weights) >= 0, f"not a law: {weights}"
        tokens = [x for x, w in enumerate(weights) if w > 0]
        return torch.tensor([tokens[self.branches.choose([weights[x] for x in tokens])]])

    def uniforms(self, k: int, position) -> torch.Tensor:
        return torch.full((k,), math.nan, dtype=torch.float64)

    def judge(self, p, q, drafted, uniforms):
        assert uniforms.shape == drafted.shape
        key = (p.numpy().tobytes(), q.numpy().tobytes(), *drafted.tolist())
        if key not in self.known:
            self.known[key] = verdicts(self.rule, p, q, drafted)
        options = self.known[key]
        chosen = options[self.branches.choose([v.weight for v in options])]
        return self.rule(p, q, drafted, chosen.uniforms)


def plain_distribution(logits: torch.Tensor, sampling: sl.Sampling) -> list[float]:
    """What `Sampling` promises, written a second time and differently, for the law that all else is held against."""
    z = [float(x) for x in logits]
    order = sorted(range(len(z)), key=lambda x: -z[x])
    if sampling.temperature == 0:
        return [float(x == order[0]) for x in range(len(z))]
    weights = {x: math.exp((z[x] - z[order[0]]) / sampling.temperature) for x in order}
    kept = order[: sampling.top_k] if sampling.top_k else order
    if sampling.top_p is not None:
        total, mass, size = sum(weights[x] for x in kept), 0.0, 0
        while size < len(kept) and mass < sampling.top_p * total:
            mass, size = mass + weights[kept[size]], size + 1
        kept = kept[:size]
    total = sum(weights[x] for x in kept)
    return [weights[x] / total if x in kept else 0.0 for x in range(len(z))]


@torch.no_grad()
def target_distribution(
    model, prompt: list[int], budget: int, sampling: sl.Sampling | None = None, eos: Sequence[int] = ()
) -> dict[Text, float]:
    """The law of the target's whole texts, ending at EOS or the budget, from uncached forward passes."""
    open_, ended = {(): 1.0}, {}
    for _ in range(budget):
        grown: dict[Text, float] = {}
        ids = torch.tensor([[*prompt, *text] for text in open_])
        logits = model(input_ids=ids, use_cache=False).logits[:, -1]
        for (text, weight), row in zip(open_.items(), logits, strict=True):
            for x, w in enumerate(plain_distribution(row, sampling or sl.Sampling())):
                if w > 0:
                    (ended if x in eos else grown)[*text, x] = weight * w
        open_ = grown
    return ended | open_


def loop_distribution(
    target, draft, prompt: list[int], budget: int, rule, eos: int | list[int] | None = None, **options
) -> tuple[dict[Text, float], int]:
    """The law of the texts that `speculative_rounds` writes, and the number of its paths: every branch replayed.

    The models' caches are made once and emptied by the loop before each path: a third of the time is saved, and
    whatever a path leaves behind would show in the next.
    """
    branches, law = Branches(), {}
    script = Script(branches, rule)
    target, draft = sl.CachedModel(target), sl.CachedModel(draft)
    ids = torch.tensor([prompt])
    for _ in branches.runs():
        rounds = sl.speculative_rounds(
            target, draft, ids, budget, rule=script.judge, generator=script, eos_token_id=eos, **options
        )
        text = tuple(t for r in bounded(rounds, budget) for t in r.tokens)
        law[text] = law.get(text, 0.0) + branches.weight
    return law, branches.count


def bounded(rounds: Iterator[sl.Round], budget: int) -> Iterator[sl.Round]:
    """The rounds, of which there are at most `budget`: each adds a token, and a loop that runs on must not hang."""
    for count, r in enumerate(rounds, 1):
        assert count <= budget, f"more than {budget} rounds for {budget} tokens"
        yield r


def distance(a: dict[Text, float], b: dict[Text, float]) -> float:
    """The largest difference of two laws, over the texts of either."""
    return max(abs(a.get(text, 0.0) - b.get(text, 0.0)) for text in a.keys() | b.keys())
