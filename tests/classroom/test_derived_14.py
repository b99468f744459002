"""What notebook 14 derives is what the module does; the values that it prints, worked out apart from its code."""

from __future__ import annotations

import itertools
from fractions import Fraction as F

import pytest
import torch

import spec_lib as sl
from spec_lib import trees
from tests.helpers.answers import solution
from tests.helpers.notebooks import definitions

TOYS = {
    "three": ([F(n, 10) for n in (5, 3, 2)], [F(n, 10) for n in (2, 5, 3)]),
    "four": ([F(n, 10) for n in (4, 3, 2, 1)], [F(n, 10) for n in (1, 2, 3, 4)]),
}
SIX = [-1, -1, 0, 0, 1, 2]


@pytest.fixture(scope="module")
def notebook() -> dict:
    return definitions("14_trees", sl=sl, parents=SIX, SHAPE=[-1, -1, 0, 0, 1, 1])


def random_tree(size: int, g: torch.Generator) -> list[int]:
    return [int(torch.randint(-1, i, (), generator=g)) if i else -1 for i in range(size)]


def test_the_walk_is_the_modules(notebook):
    """On random trees, rows and uniforms: the same path, and the same distribution of the next token."""
    g = torch.Generator().manual_seed(0)
    lengths = set()
    for _ in range(300):
        k, vocab = int(torch.randint(1, 8, (), generator=g)), 4
        parents = random_tree(k, g)
        p, q = (torch.rand(n, vocab, generator=g, dtype=torch.float64) + 0.01 for n in (k + 1, k))
        p, q = p / p.sum(1, keepdim=True), q / q.sum(1, keepdim=True)
        drafted = torch.multinomial(q, 1, generator=g).flatten()
        uniforms = torch.rand(k, generator=g, dtype=torch.float64)
        on_path, distribution = sl.verify_tree(p, q, drafted, uniforms, parents)
        rows = [t.tolist() for t in (p, q, drafted, uniforms)]
        path, left = notebook["walk"](*rows, parents)
        assert on_path.nonzero().flatten().tolist() == path
        assert distribution.tolist() == pytest.approx([float(x) for x in left], abs=1e-12)
        lengths.add(len(path))
    assert lengths >= {0, 1, 2, 3}


def test_a_chain_is_walked_as_the_papers_do():
    g = torch.Generator().manual_seed(1)
    for _ in range(100):
        p, q = ((2 * torch.randn(n, 5, generator=g)).softmax(-1) for n in (4, 3))
        drafted, uniforms = torch.multinomial(q, 1, generator=g).flatten(), torch.rand(3, generator=g)
        path, distribution = sl.verify_tree(p, q, drafted, uniforms, [-1, 0, 1])
        n, other = sl.verify_google(p, q, drafted, uniforms)
        assert int(path.sum()) == int(n) and torch.equal(distribution, other)


def test_the_acceptances_are_the_studied_ones(notebook):
    independent, without = (lambda q, x: q), notebook["without"]
    found = {name: notebook["accepted"](p, q, 2, independent) for name, (p, q) in TOYS.items()}
    assert found == {"three": F(19, 25), "four": F(18, 25)}
    found = {name: notebook["accepted"](p, q, 2, without) for name, (p, q) in TOYS.items()}
    assert found == {"three": F(283, 350), "four": F(107, 140)}
    assert notebook["accepted"](*TOYS["three"], 3, without) == 1


def test_the_best_is_the_smallest_cut(notebook):
    """Over all sets of tokens, not only those of the order that the notebook looks at."""
    for name, best in (("three", F(43, 50)), ("four", F(79, 100))):
        p, q = TOYS[name]
        assert notebook["best_possible"](p, q, 2) == best
        for count in (1, 2, 3):
            cuts = [
                sum(p[x] for x in h) + 1 - sum(q[x] for x in h) ** count
                for size in range(len(p) + 1)
                for h in itertools.combinations(range(len(p)), size)
            ]
            assert notebook["best_possible"](p, q, count) == min(cuts)
            assert notebook["accepted"](p, q, count, lambda q, x: q) <= min(cuts)


def test_a_toy_of_ones_own_may_have_zeros(notebook):
    """In p, in q, or both have nothing in common."""
    for p, q in (([4, 3, 3, 0], [0, 2, 3, 5]), ([0, 5, 5], [5, 5, 0]), ([10, 0], [0, 10])):
        p, q = [F(n, 10) for n in p], [F(n, 10) for n in q]
        overlap = sum(map(min, p, q))
        for count in (1, 2, 3):
            best = notebook["best_possible"](p, q, count)
            for next_q in (lambda q, x: q, notebook["without"]):
                assert overlap <= notebook["accepted"](p, q, count, next_q) <= 1
            assert notebook["accepted"](p, q, count, lambda q, x: q) <= best <= min(1, count * overlap)


def test_one_candidate_is_the_overlap(notebook):
    for p, q in TOYS.values():
        assert (
            notebook["accepted"](p, q, 1, lambda q, x: q) == sum(map(min, p, q)) == notebook["best_possible"](p, q, 1)
        )


def test_what_is_not_updated_is_wrong_by_what_is_said(notebook):
    p, q = TOYS["three"]
    assert notebook["written"](p, q, True) == p
    assert notebook["written"](p, q, False) == [F(35, 100), F(39, 100), F(26, 100)]


def test_the_mismatch_shows_on_four_tokens_only(notebook):
    found = {
        name: sum(abs(a - b) for a, b in zip(notebook["mismatched"](p, q), p, strict=True)) / 2
        for name, (p, q) in TOYS.items()
    }
    assert found == {"three": 0, "four": F(17, 392)}


def test_the_enumerated_walk_covers_everything(notebook):
    p, q = TOYS["three"]
    for drafted in itertools.product(range(3), repeat=6):
        ways = list(notebook["outcomes"](p, q, drafted))
        assert sum(chance for chance, _, _ in ways) == 1 and all(sum(left) == 1 for _, _, left in ways)


def test_the_mask_is_what_the_cache_is_told():
    mask = solution("tree_mask")
    for parents in (SIX, [-1], [-1, 0, 1], [-1, 0, -1, 2, 1, 3, 3]):
        length = 3
        positions, seen = trees.placed(length, [], [length + parent for parent in parents])
        assert torch.equal(mask(parents).bool(), seen[:, length:]) and bool(seen[:, :length].all())
        assert positions.tolist() == [length + int(row.sum()) - 1 for row in mask(parents)]


def test_the_best_tree_has_the_largest_sum(notebook):
    """Against all trees of up to five nodes."""
    chances = [0.6, 0.3, 0.2]

    def all_trees(nodes: int):
        shapes = itertools.product(*(range(-1, i) for i in range(nodes)))
        return (list(shape) for shape in shapes if max(map(shape.count, shape)) <= len(chances))

    for nodes in range(1, 6):
        best = notebook["expected"](trees.best_tree(chances, nodes), chances)
        assert best == pytest.approx(max(notebook["expected"](tree, chances) for tree in all_trees(nodes)))


def test_the_shown_solutions():
    two, branch = solution("two_candidates"), solution("branch_from")
    for (p, q), want in zip(TOYS.values(), (0.76, 0.72), strict=True):
        rows = [torch.tensor([float(x) for x in row], dtype=torch.float64) for row in (p, q)]
        assert float(two(*rows)) == pytest.approx(want)
    for a in ([0.66, 0.09], [0.73, 0.08], [0.5, 0.3]):
        d = branch(*a)
        tree = trees.best_tree(a, d)  # a chain down to depth d - 1, then the second candidate at the root
        assert tree == [*range(-1, d - 2), -1]
