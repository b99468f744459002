"""Every way that speculative sampling on tables can go, each with its exact probability: nothing is sampled.

A table is a model of which the next token depends on the last one only: row x is the distribution given a text that
ends in x.  Notebook 04.
"""

from __future__ import annotations

import itertools
import math
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence

import torch

Text = tuple[int, ...]
Chances = Mapping[Text, float]  # {tokens: their probability}
# (p, q, drafted, uniforms) -> the distribution of each token that the round writes; of none: a draft discarded whole.
# Or a `protocols.Rule`, which gives (n, the distribution of the next token).
Rule = Callable[[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor], Sequence[torch.Tensor]]


def every_round(
    rule: Rule,
    target: torch.Tensor,
    draft: torch.Tensor,
    last: int,
    gamma: int,
    drawn: torch.Tensor | None = None,
) -> dict[Text, float]:
    """What a round may write after the token `last`: {tokens: probability}.

    target, draft: tables (vocab, vocab).  drawn: the table that draft tokens are really drawn from, where that is not
    the one whose q the rule is given.  A uniform acts only by being below or above the ratios p/q of the draft tokens,
    so [0, 1) is cut there and each piece counts with its length.  A round in which the rule writes nothing is made
    anew, with another draft.
    Raises ValueError for a rule that has other thresholds than the ratios, and where no draft is ever accepted.
    """
    drawn, written = draft if drawn is None else drawn, defaultdict(float)
    for tokens in itertools.product(range(len(target)), repeat=gamma):
        context = [last, *tokens]
        chance = math.prod(float(drawn[a, b]) for a, b in itertools.pairwise(context))
        if chance > 0:
            p, q = target[context], draft[context[:-1]]
            drafted = torch.tensor(tokens, dtype=torch.int64)
            for weight, rows in _pieces(rule, p, q, drafted):
                for new, part in _all_draws(rows):
                    written[new] += chance * weight * part
    total = math.fsum(written.values())
    if total == 0:
        raise ValueError("the rule discards every draft: no round ever ends")
    return {new: weight / total for new, weight in written.items()}


def _pieces(rule: Rule, p: torch.Tensor, q: torch.Tensor, drafted: torch.Tensor) -> Iterator[tuple[float, list]]:
    """(probability, what the rule says) for each combination of pieces of the uniforms.

    Each uniform is cut at the ratios of all draft tokens, for rules that use one uniform for several of them.
    """
    ratios = [float(p[t, x] / q[t, x]) for t, x in enumerate(drafted.tolist())]
    ends = sorted({0.0, 1.0, *(ratio for ratio in ratios if 0 < ratio < 1)})
    for box in itertools.product(itertools.pairwise(ends), repeat=len(drafted)):
        said = []
        for share in (0.5, 0.01, 0.99):  # one point would do; two more find a rule with other thresholds
            point = [low + share * (high - low) for low, high in box]
            rows = rule(p, q, drafted, torch.tensor(point, dtype=p.dtype))
            said.append([row.tolist() for row in _written(rows, drafted, p)])
        if said[0] != said[1] or said[0] != said[2]:
            raise ValueError("this rule has other thresholds than p/q, so it cannot be enumerated here")
        yield math.prod(high - low for low, high in box), said[0]


def _written(said: Sequence, drafted: torch.Tensor, p: torch.Tensor) -> Sequence[torch.Tensor]:
    """A rule's answer as the distribution of each token: the accepted ones are certain."""
    n = said[0] if len(said) == 2 else None
    if n is None or getattr(n, "ndim", 0) > 0:
        return said
    return [*torch.eye(p.shape[1], dtype=p.dtype)[drafted[: int(n)]], said[1]]


def _all_draws(rows: Sequence[Sequence[float]]) -> Iterator[tuple[Text, float]]:
    """Every combination of one token from each distribution, with its probability; nothing where there is none."""
    if not rows:
        return
    possible = [[(x, weight) for x, weight in enumerate(row) if weight > 0] for row in rows]
    for draws in itertools.product(*possible):
        yield tuple(x for x, _ in draws), math.prod(weight for _, weight in draws)


def every_text(
    rule: Rule,
    target: torch.Tensor,
    draft: torch.Tensor,
    length: int,
    gamma: int,
    drawn: torch.Tensor | None = None,
    start: int = 0,
) -> dict[Text, float]:
    """What rounds write after the token `start`, until there are at least `length` new tokens: {tokens: probability}.

    The other arguments are those of `every_round`.
    """
    rounds = [every_round(rule, target, draft, last, gamma, drawn) for last in range(len(target))]
    unfinished, finished = {(): 1.0}, defaultdict(float)
    while unfinished:
        longer = defaultdict(float)
        for text, weight in unfinished.items():
            for new, chance in rounds[text[-1] if text else start].items():
                whole = text + new
                (finished if len(whole) >= length else longer)[whole] += weight * chance
        unfinished = longer
    return dict(finished)


def target_texts(target: torch.Tensor, length: int, start: int = 0) -> dict[Text, float]:
    """The target's own distribution of `length` tokens: products of entries of its table."""
    texts = itertools.product(range(len(target)), repeat=length)
    return {text: math.prod(float(target[a, b]) for a, b in itertools.pairwise((start, *text))) for text in texts}


def first_tokens(texts: Chances, count: int) -> dict[Text, float]:
    """The distribution of the first `count` tokens of texts that have at least so many, scaled to sum to 1."""
    found = defaultdict(float)
    for text, weight in texts.items():
        found[text[:count]] += weight
    total = math.fsum(found.values())
    return {text: weight / total for text, weight in found.items()}


def largest_difference(a: Chances, b: Chances) -> float:
    """Over all texts of either, of their two probabilities."""
    return max(abs(a.get(text, 0.0) - b.get(text, 0.0)) for text in a.keys() | b.keys())


def total_variation(a: Chances, b: Chances) -> float:
    """Half the sum of the absolute differences of two distributions."""
    return math.fsum(abs(a.get(text, 0.0) - b.get(text, 0.0)) for text in a.keys() | b.keys()) / 2
