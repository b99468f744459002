"""Exact distributions by enumeration: no sampling noise, so no tolerance beyond rounding.

A sampler is a function of tokens drawn and of uniforms.  Drawn tokens are enumerated with their probabilities.  A
uniform acts through thresholds, which are found by asking the rule under test and nobody else: the cube of the
uniforms falls into boxes on which the rule's answer is constant, and an answer counts with its boxes' volume.  So an
exact rule passes whatever its thresholds are, and a wrong rule gets its own wrong distribution.
"""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch

import spec_lib as sl

Text = tuple[int, ...]


# ---------------------------------------------------------------------------------------------------- the rule

GRID = 2**53  # uniforms are multiples of 1/GRID: float64 holds them exactly, and two of them next to each other differ


@dataclass
class Verdict:
    """One answer of a rule, as it gave it, and the exact probability that the uniforms lead to it."""

    weight: float
    answer: tuple

    @property
    def n(self) -> int:
        """Accepted tokens; of a tree, the nodes on the path."""
        return int(torch.as_tensor(self.answer[0]).sum())

    @property
    def distribution(self) -> torch.Tensor:
        """(vocab,), of the token that follows them."""
        return self.answer[1]


class _Asked:
    """A rule on given distributions and drafted tokens, as a function of the uniforms alone, in units of 1 / GRID.

    Each point is asked once.  Answers are compared to the last bit; `verdicts` holds one of each kind.
    """

    def __init__(self, rule, p: torch.Tensor, q: torch.Tensor, drafted: torch.Tensor, parents=None):
        assert p.dtype == torch.float64, f"enumerate in float64: thresholds are found to its last bit, p is {p.dtype}"
        self.rule, self.given, self.known, self.verdicts = rule, (p, q, drafted), {}, {}
        self.tree = {} if parents is None else {"parents": parents}

    def __call__(self, point: tuple[int, ...]) -> tuple[int | tuple[bool, ...], bytes]:
        if point not in self.known:
            uniforms = torch.tensor([u / GRID for u in point], dtype=torch.float64)
            n, distribution = self.rule(*self.given, uniforms, **self.tree)
            self.known[point] = key = (tuple(n.tolist()) if self.tree else int(n)), distribution.numpy().tobytes()
            self.verdicts.setdefault(key, Verdict(0.0, (n, distribution)))
        return self.known[point]


Box = tuple[tuple[int, int], ...]  # of each uniform, the first grid point that is inside and the first that is not


def verdicts(rule, p: torch.Tensor, q: torch.Tensor, drafted: torch.Tensor, found=None, parents=None) -> list[Verdict]:
    """Everything that `rule` can answer to these distributions and drafted tokens, each with its exact probability.

    The cube of the uniforms is cut into boxes on which the answer is constant.  A rule that has `cuts(p, q, drafted)`,
    one list of thresholds for each uniform, is asked between them; of any other the thresholds are found (`_boxes`).
    In each box a random point is asked too: a rule for which the boxes are not fine enough fails here, loudly.
    found: thresholds of similar cases, a list for each uniform, to be tried first and added to.
    parents: of a tree, which the rule is then given, too; n is its path.
    """
    ask, k = _Asked(rule, p, q, drafted, parents), len(drafted)
    cuts = getattr(rule, "cuts", None)
    boxes = (
        _boxes(ask, k, _guesses(p, q, drafted, parents), found or [[] for _ in range(k)])
        if cuts is None
        else _cells(cuts(p, q, drafted), k)
    )
    probes = random.Random(p.numpy().tobytes() + q.numpy().tobytes())  # others for each case, the same in every run
    for box in boxes:
        # Thresholds that were found are right to the last bit, those that a rule brings up to rounding.
        inside = tuple(low if cuts is None else (low + high) // 2 for low, high in box)
        key = ask(inside)
        ask.verdicts[key].weight += math.prod((high - low) / GRID for low, high in box)
        probe = tuple(probes.randrange(low, high) for low, high in box)
        wide = cuts is None or all(high - low > ROUNDING for low, high in box)
        if wide and ask(probe) != key:
            _complain(ask, inside, probe)
    return [v for v in ask.verdicts.values() if v.weight > 0]


ROUNDING = 2**10  # in units of 1 / GRID, about 1e-13


def _boxes(ask: _Asked, k: int, guesses: list[list[int]], found: list[list[int]]) -> Iterator[Box]:
    """The boxes of a rule whose number of accepted tokens is monotone in each uniform, or which tests one position of
    a tree after the other, each by one uniform against a threshold.

    Its answer is constant on a box if it is the same at the lowest and at the highest corner.  Where the answers at
    these corners differ, walk from one to the other, one uniform after the other: the first that changes the answer
    has a threshold, which bisection finds with the others held where they are.  The box is split there.  So the
    threshold of one uniform may depend on what the others have decided.
    """
    open_, count = [((0, GRID),) * k], 0
    while open_:
        box = open_.pop()
        lowest, highest = (tuple(low for low, _ in box), tuple(high - 1 for _, high in box))
        first = ask(lowest)
        if ask(highest) == first:
            yield box
            continue
        count += 1
        if count > MOST_CUTS:
            _complain(ask, lowest, highest)
        i = next(i for i in range(k) if ask((*highest[: i + 1], *lowest[i + 1 :])) != first)

        def differs(u: int, i=i, lowest=lowest, highest=highest, first=first) -> bool:
            return ask((*highest[:i], u, *lowest[i + 1 :])) != first

        cut = _first(differs, *box[i], guesses[i] + found[i])
        if cut not in guesses[i] and cut not in found[i]:
            found[i].append(cut)
        open_ += [(*box[:i], part, *box[i + 1 :]) for part in ((cut, box[i][1]), (box[i][0], cut))]


MOST_CUTS = 200


def _first(differs: Callable[[int], bool], low: int, high: int, guesses: list[int]) -> int:
    """The smallest u in (low, high) that differs: not at low, at high - 1, and monotone in between.

    guesses: where it may be, in any order.  They only save time: a guess that is right is one whose neighbour below
    does not differ.
    """
    known = sorted({u for u in guesses if low < u < high - 1})
    low, high = low, high - 1  # not at low, at high
    while known:
        middle = len(known) // 2
        u = known[middle]
        if differs(u):
            high, known = u, known[:middle]
        else:
            low, known = u, known[middle + 1 :]
    if high - low > 1 and not differs(high - 1):
        return high
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if differs(middle) else (middle, high)
    return high


def _guesses(p: torch.Tensor, q: torch.Tensor, drafted: torch.Tensor, parents=None) -> list[list[int]]:
    """Thresholds that many rules have, of each uniform: p/q, q/p, p and q at the drafted token.  In a tree: what the
    earlier siblings left of p, over q."""
    out = []
    if parents is not None:
        left = {-1: p[0], **{i: p[i + 1] for i in range(len(parents))}}
        for i, (x, parent) in enumerate(zip(drafted.tolist(), parents, strict=True)):
            h = math.ceil(float(left[parent][x] / q[i, x]) * GRID)
            out.append([u for u in (h - 1, h, h + 1) if u < GRID])
            rest = (left[parent] - q[i]).clamp(min=0)
            left[parent] = rest / rest.sum() if rest.sum() > 0 else left[parent]
        return out
    for i, x in enumerate(drafted.tolist()):
        a, b = float(p[i, x]), float(q[i, x])
        likely = (a, b, a / b if b > 0 else 1.0, b / a if a > 0 else 1.0)
        out.append([math.ceil(h * GRID) for h in likely if h < 1])
    return out


def _cells(cuts: Sequence[Sequence[float]], k: int) -> Iterator[Box]:
    """The boxes between thresholds that a rule brings."""
    assert len(cuts) == k, f"cuts gave thresholds for {len(cuts)} uniforms, there are {k}"
    ends = [sorted({0, GRID, *(math.ceil(h * GRID) for h in of_one if 0 < h < 1)}) for of_one in cuts]
    yield from itertools.product(*(list(itertools.pairwise(e)) for e in ends))


def _complain(ask: _Asked, inside: tuple[int, ...], probe: tuple[int, ...]) -> None:
    name = getattr(ask.rule, "__name__", type(ask.rule).__name__)
    u, v = ([x / GRID for x in point] for point in (inside, probe))
    raise AssertionError(
        f"{name} cannot be enumerated: it accepts {ask(inside)[0]} tokens at the uniforms {u} and {ask(probe)[0]} at "
        f"{v}, and not every threshold in between is "
        + (
            "named by its cuts(p, q, drafted): name them all, one list for each uniform."
            if hasattr(ask.rule, "cuts")
            else "found, since its count is not monotone in each uniform, or a threshold slides with another uniform, "
            "or it draws random numbers of its own: if it has thresholds, give it an attribute cuts(p, q, drafted), "
            "which returns them, one list for each uniform."
        )
    )


def random_distributions(size: int, seed: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Two Markov chains (size, size), target and draft, float64: dense, with zeros, one-hot, or equal rows, mixed."""
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


def continuations(rows: torch.Tensor, length: int) -> list[torch.Tensor]:
    """[m]: (size, size, ..., size), the distribution of the m tokens after token x by the target alone.

    rows: (size, size), row x is the next-token distribution after token x.
    """
    size = rows.shape[0]
    found = [torch.ones(size, dtype=rows.dtype)]
    for m in range(1, length + 1):
        found.append(rows.view(size, size, *[1] * (m - 1)) * found[-1][None])
    return found


def chain_distribution(rows: torch.Tensor, start: int, length: int) -> dict[Text, float]:
    """The same as a table: the probability of each text of `length` tokens after `start`."""
    joint = continuations(rows, length)[length][start]
    return {text: joint[text].item() for text in itertools.product(range(len(rows)), repeat=length)}


class Outcome(NamedTuple):
    """One way in which a round can go: what was drafted, what the rule said, and the probability of both."""

    tokens: Text
    verdict: Verdict
    weight: float


def outcomes(
    rule, target: torch.Tensor, draft: torch.Tensor, start: int, gamma: int, drawn: torch.Tensor | None = None
) -> Iterator[Outcome]:
    """Every outcome of one round of `rule` after token `start`.

    target, draft: (size, size) next-token distributions after each token.  drawn: those that the drafted tokens
    really come from, where a wrong sampler verifies them by others.
    """
    drawn, found = draft if drawn is None else drawn, [[] for _ in range(gamma)]
    for tokens in itertools.product(range(target.shape[0]), repeat=gamma):
        seen = torch.tensor([start, *tokens])
        weight = math.prod(drawn[seen[i], x].item() for i, x in enumerate(tokens))
        if weight > 0:
            for v in verdicts(rule, target[seen], draft[seen[:-1]], seen[1:], found):
                yield Outcome(tokens, v, weight * v.weight)


def rule_distribution(rule, target: torch.Tensor, draft: torch.Tensor, start: int, gamma: int, drawn=None):
    """(size, ..., size): the joint distribution of the gamma + 1 tokens after `start`: one round of `rule`, completed
    by the target alone.  Arguments as in `outcomes`."""
    size, rest = target.shape[0], continuations(target, gamma)
    joint = torch.zeros((size,) * (gamma + 1), dtype=target.dtype)
    for tokens, v, weight in outcomes(rule, target, draft, start, gamma, drawn):
        m = gamma - v.n
        joint[tokens[: v.n]] += weight * v.distribution.view(size, *[1] * m) * rest[m]
    return joint


def mean_accepted(rule, target: torch.Tensor, draft: torch.Tensor, start: int, gamma: int, drawn=None) -> float:
    """The expected number of accepted tokens of a round.  Arguments as in `outcomes`."""
    return math.fsum(weight * v.n for _, v, weight in outcomes(rule, target, draft, start, gamma, drawn))


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
    """A randomness whose every token and verdict is a branch, and the rule that goes with it.

    The loop takes its uniforms before p and q meet, so `uniforms` gives stand-ins (NaN, which no rule accepts), and
    `judge`, the loop's `rule=`, gives the branch's answer of the real rule, which is asked once about each p and q.
    """

    def __init__(self, branches: Branches, rule=None, of_trees=None, rough: float = 1e-9):
        self.branches, self.rough, self.known = branches, rough, {}
        self.asked, self.of_trees = rule or sl.verify_google, of_trees or sl.verify_tree  # as they stand now

    def draw(self, p: torch.Tensor, position) -> torch.Tensor:
        weights = p.tolist()
        assert abs(sum(weights) - 1) < self.rough and min(weights) >= 0, f"not a distribution: {weights}"
        tokens = [x for x, w in enumerate(weights) if w > 0]
        return torch.tensor([tokens[self.branches.choose([weights[x] for x in tokens])]])

    def uniforms(self, k: int, position) -> torch.Tensor:
        return torch.full((k,), math.nan, dtype=torch.float64)

    def judge(self, p, q, drafted, uniforms, parents=None):
        assert uniforms.shape == drafted.shape
        key = (p.numpy().tobytes(), q.numpy().tobytes(), *drafted.tolist(), *(parents or []))
        if key not in self.known:
            rule = self.asked if parents is None else self.of_trees
            self.known[key] = verdicts(rule, p, q, drafted, parents=parents)
        options = self.known[key]
        return options[self.branches.choose([v.weight for v in options])].answer


def plain_distribution(logits: torch.Tensor, sampling: sl.Sampling) -> list[float]:
    """What `Sampling` promises, written a second time and differently: all else is held against it."""
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
    """The distribution of the target's whole texts, ending at EOS or the budget, from uncached forward passes."""
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


class Emptied:
    """A model without `fresh`, so that the loop empties its cache instead of making a new one.

    It has what the page of protocols asks of a model, and no other ability; with trees=True, it reads them too.
    """

    def __init__(self, model: sl.protocols.Model, trees: bool = False):
        self.model, self.feed, self.rollback = model, model.feed, model.rollback
        self.vocab, self.device, self.max_length = model.vocab, model.device, model.max_length
        if trees:
            self.keep_rows, self.refuse_tree = model.keep_rows, model.refuse_tree

    @property
    def length(self) -> int:
        """Tokens read and not rolled back."""
        return self.model.length


def loop_distribution(
    target,
    draft,
    prompt: list[int],
    budget: int,
    rule=None,
    eos: int | list[int] | None = None,
    of_trees=None,
    rough: float = 1e-9,
    **options,
) -> tuple[dict[Text, float], int]:
    """The distribution of the texts that `speculative_rounds` writes, and the number of its paths: each replayed.

    target, draft: transformers models, or what the loop takes in their place.  Caches are made once and emptied by
    the loop before each path: much time is saved, and whatever a path leaves behind would show in the next.
    of_trees: the rule where a draft is a tree.  rough: how far from 1 a q may sum, where a drafter works in float32.
    """
    branches, found = Branches(), {}
    script = Script(branches, rule, of_trees, rough)
    target, draft = (Emptied(sl.CachedModel(m)) if isinstance(m, torch.nn.Module) else m for m in (target, draft))
    ids = torch.tensor([prompt])
    for _ in branches.runs():
        rounds = sl.speculative_rounds(
            target, draft, ids, budget, rule=script.judge, generator=script, eos_token_id=eos, **options
        )
        text = tuple(t for r in bounded(rounds, budget) for t in r.tokens)
        found[text] = found.get(text, 0.0) + branches.weight
    return found, branches.count


def bounded(rounds: Iterator[sl.Round], budget: int) -> Iterator[sl.Round]:
    """The rounds, of which there are at most `budget`: each adds a token, and a loop that runs on must not hang."""
    for count, r in enumerate(rounds, 1):
        assert count <= budget, f"more than {budget} rounds for {budget} tokens"
        yield r


def distance(a: dict[Text, float], b: dict[Text, float]) -> float:
    """The largest difference of two distributions, over the texts of either."""
    return max(abs(a.get(text, 0.0) - b.get(text, 0.0)) for text in a.keys() | b.keys())
