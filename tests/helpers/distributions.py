"""Random distributions, and the exact distribution of whole texts by the target alone and by the real loop."""

import torch

import spec_lib as sl
from spec_lib import verify_google
from tests.helpers.enumeration import Text, chain_distribution, loop_distribution


def random_table(vocab: int, seed: int) -> torch.Tensor:
    """(vocab, vocab): the next-token distribution after each token, none of its entries small."""
    generator = torch.Generator().manual_seed(seed)
    return torch.rand(vocab, vocab, generator=generator, dtype=torch.float64).pow(2).clamp(min=0.02).softmax(-1)


def random_rows(rows: int, vocab: int, generator: torch.Generator) -> torch.Tensor:
    """(rows, vocab): zeros and one-hot rows among them."""
    weights = torch.rand(rows, vocab, dtype=torch.float64, generator=generator) ** 3
    weights = weights * (torch.rand(rows, vocab, generator=generator) < 0.8)
    weights[torch.rand(rows, generator=generator) < 0.1] = 0
    weights[:, 0] += (weights.sum(-1) == 0).double()
    return weights / weights.sum(-1, keepdim=True)


def random_rounds(count: int):
    """(p, q, drafted, uniforms) of rounds whose draft is often right; some uniforms are exactly 0."""
    g = torch.Generator().manual_seed(0)
    for i in range(count):
        k, vocab = 1 + i % 5, 2 + i % 6
        p, q = random_rows(k + 1, vocab, g), random_rows(k, vocab, g)
        q = torch.where(torch.rand(k, 1, generator=g) < 0.5, p[:k], q)
        drafted = torch.cat([sl.draw(row, torch.rand((), generator=g)) for row in q])
        uniforms = torch.rand(k, generator=g) * (torch.rand(k, generator=g) < 0.9)
        yield p, q, drafted, uniforms


def plain_texts(table: torch.Tensor, first: int, budget: int) -> dict[Text, float]:
    """The probability of each text of `budget` tokens after `first`, by the target alone."""
    return chain_distribution(table, first, budget)


def loop_texts(target, draft, first: int, budget: int, **options) -> dict[Text, float]:
    """The exact probability of each text that the real loop writes: nothing is drawn, each branch has its weight."""
    return loop_distribution(target, draft, [first], budget, verify_google, **options)[0]
