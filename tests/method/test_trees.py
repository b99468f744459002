"""Trees outside the loop: where tokens are placed, which rows are kept, which shapes are best, and what is refused."""

from __future__ import annotations

import itertools
import math

import pytest
import torch

import spec_lib as sl
from spec_lib import trees as library
from spec_lib.drafters import NGram, RecurrentHead, Tree
from tests.helpers import promises, trees
from tests.helpers.drafters import Bare
from tests.helpers.loops import one_sentence
from tests.helpers.models import blurred, known, prompt, tiny_gpt2, tiny_of, uncached

MAKE = {
    "cached": sl.CachedModel,
    "own": sl.GPT2,
    "fixed shapes": lambda model: sl.GPT2(model, graphs="eager"),
}


def model(context: int = 64, **config):
    """Float64: what a cache changes in a logit is far below what one wrong row does."""
    return tiny_gpt2(0, layers=2, context=context, **config).double()


def random_parents(count: int, g: torch.Generator) -> list[int]:
    return [int(torch.randint(-1, i, (), generator=g)) if i else -1 for i in range(count)]


# --- a pass over a tree ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("make", MAKE)
@pytest.mark.parametrize("seed", range(4))
def test_a_tree_is_read_as_its_paths_would_be_and_any_path_can_be_kept(make, seed):
    """Level by level or at once, after a text that was kept from a tree; against uncached passes of each path."""
    g, target = torch.Generator().manual_seed(seed), model()
    held = MAKE[make](target)
    text = prompt(4, seed=seed)[0].tolist()
    held.feed(torch.tensor(text), 1)
    with torch.no_grad():
        for k in (5, 1, 8, 3):
            parents, tokens = random_parents(k, g), torch.randint(31, (k,), generator=g).tolist()
            size, split = len(text), int(torch.randint(k + 1, (), generator=g))
            rows = [size + parent if parent >= 0 else size - 1 for parent in parents]
            parts = [slice(0, split), slice(split, k)] if 0 < split < k else [slice(0, k)]
            got = torch.cat([held.feed(torch.tensor(tokens[s]), parents=rows[s]) for s in parts])
            want = trees.rows_of(target, text, tokens, parents)[1:]
            assert (got - want).abs().max() < 1e-9
            assert held.length == size + k
            path = trees.ancestors(parents, int(torch.randint(-1, k, (), generator=g)))
            held.keep_rows(size, path)
            text += [tokens[i] for i in path]
            assert held.length == len(text)
            after = held.feed(torch.tensor([7, 3]))
            text += [7, 3]
            assert (after - uncached(target, text)[-2:]).abs().max() < 1e-9


@pytest.mark.parametrize("make", MAKE)
def test_a_tree_across_the_places_where_a_cache_grows(make):
    """Our own pass keeps its cache in steps of 256 rows."""
    target = model(context=300, initializer_range=0.3)
    for length in (250, 255, 256):
        held, text = MAKE[make](target), prompt(length, seed=1)[0].tolist()
        held.feed(torch.tensor(text), 1)
        got = held.feed(torch.tensor([1, 2, 3, 4]), parents=[length - 1, length - 1, length, length + 1])
        want = trees.rows_of(target, text, [1, 2, 3, 4], [-1, -1, 0, 1])[1:]
        assert (got - want).abs().max() < 1e-9
        held.keep_rows(length, [1, 3])
        assert (held.feed(torch.tensor([5]))[-1] - uncached(target, [*text, 2, 4, 5])[-1]).abs().max() < 1e-9


@pytest.mark.parametrize("make", MAKE)
def test_a_tree_may_be_rolled_back(make):
    """To any row: what is left of it can be grown again."""
    target, held = model(), MAKE[make](model())
    held.feed(torch.tensor([1, 2]), 1)
    held.feed(torch.tensor([3, 4, 5]), parents=[1, 1, 2])
    held.rollback(4)
    got = held.feed(torch.tensor([6]), parents=[3])
    assert (got[-1] - uncached(target, [1, 2, 4, 6])[-1]).abs().max() < 1e-9
    held.rollback(2)
    assert (held.feed(torch.tensor([8]))[-1] - uncached(target, [1, 2, 8])[-1]).abs().max() < 1e-9


@pytest.mark.parametrize("make", [*MAKE, "table"])
def test_what_a_pass_refuses(make):
    held = sl.TableModel(torch.full((31, 31), 1 / 31)) if make == "table" else MAKE[make](model())
    held.feed(torch.tensor([1, 2, 3]))
    for bad, word in (([2], "needs as many parents, got 1"), ([2, 2, 2], "needs as many parents, got 3")):
        with pytest.raises(ValueError, match=word):
            held.feed(torch.tensor([4, 5]), parents=bad)
    if make != "table":  # a table looks at the last token only
        for bad in ([2, 4], [3, 2], [-2, 2]):
            with pytest.raises(ValueError, match="as its parent") as error:
                held.feed(torch.tensor([4, 5]), parents=bad)
            one_sentence(error)
    assert held.length == 3 and held.tree == []
    held.feed(torch.tensor([4, 5]), parents=[2, 2])
    with pytest.raises(ValueError, match="holds a tree: say with keep_rows"):
        held.feed(torch.tensor([6]))
    for length, rows in ((3, [2]), (3, [1, 0]), (3, [0, 0]), (-1, [0]), (6, []), (3, [-1])):
        with pytest.raises(ValueError, match=f"cannot keep {length} tokens and the rows") as error:
            held.keep_rows(length, rows)
        one_sentence(error, "the cache holds 5")
    held.keep_rows(3, [1])
    assert held.length == 4
    held.feed(torch.tensor([6]))


def test_places():
    promises.check_tree_places()


# --- which architectures --------------------------------------------------------------------------------------------

READ = ["opt", "llama", "phi", "neox", "gpt-j", "codegen", "bigcode", "mistral", "gemma2", "qwen2", "qwen3"]
REFUSED = ["bloom", "falcon", "gpt neo, local attention", "lfm2"]


@pytest.mark.parametrize("family", READ)
def test_families_that_read_trees(family):
    """Their text with a tree is the plain greedy one, and each row is what its path gives alone."""
    wide = {"sliding_window": 40} if family in ("mistral", "gemma2") else {}
    target = tiny_of(family, **wide)
    sl.CachedModel(target).refuse_tree()
    held, text, tokens, parents = sl.CachedModel(target), [5, 6, 7], [1, 2, 3, 4, 8], [-1, -1, 0, 1, 3]
    with torch.no_grad():
        held.feed(torch.tensor(text), 1)
        got = held.feed(torch.tensor(tokens), parents=[3 + p if p >= 0 else 2 for p in parents])
        want = trees.rows_of(target, text, tokens, parents)[1:]
        assert (got - want).abs().max() < 1e-4
        held.keep_rows(3, [1, 3, 4])
        after = held.feed(torch.tensor([9]))[-1]
    assert (after - uncached(target, [*text, 2, 4, 8, 9])[-1]).abs().max() < 1e-4
    ids, greedy = 4 + prompt(9, 90), sl.Sampling(0)
    plain = sl.autoregressive(target, ids, 14, sampling=greedy)
    tree = Tree(target, [-1, -1, 0, 1, 1])
    g = sl.speculative(target, tree, ids, 14, sampling=greedy, draft_sampling=sl.Sampling(0.5), gamma=5, generator=1)
    assert g.tokens.tolist() == plain.tokens.tolist()
    assert any(r.path for r in g.rounds)


@pytest.mark.reported
def test_a_tree_within_a_sliding_window():
    """Siblings share a position, and a window that counts rows hides what a token may see (sgl-project/sglang pull
    request 39287).

    Right: as long as the text with its tree fits the window the text is the plain one, for target and draft alike; a
    text that does not fit is refused before any work.
    """
    target = tiny_of("mistral", sliding_window=16)
    draft, wide = blurred(target), tiny_of("mistral", sliding_window=40)
    ids, greedy, tree = 4 + prompt(5, 90), sl.Sampling(0), [-1, -1, -1, 0, 0, 1, 3, 3, 4, 6, 6, 7]
    for new in (8, 11):
        want = sl.autoregressive(target, ids, new, sampling=greedy).tokens.tolist()
        for drafts in (target, draft):
            g = sl.speculative(target, Tree(drafts, tree, "certain"), ids, new, gamma=12, sampling=greedy)
            assert g.tokens.tolist() == want
    for one, other in ((target, wide), (wide, draft)):
        with pytest.raises(ValueError) as error:
            sl.speculative(one, Tree(other, tree), ids, 12, gamma=12)
        one_sentence(error, "sliding window of 16")


@pytest.mark.parametrize("family", REFUSED)
def test_families_that_do_not_are_refused_before_any_work(family, monkeypatch):
    """Biases in the place of positions, windows that count rows, convolutions: as target and as draft."""
    target, table = tiny_of(family), sl.TableModel(torch.full((97, 97), 1 / 97))
    with pytest.raises(ValueError, match="cannot read a tree") as error:
        sl.CachedModel(target).refuse_tree()
    one_sentence(error, type(target).__name__)
    if family == "lfm2":
        return  # nor can it be rolled back, which is said first
    known(target)
    asked = []
    target.register_forward_pre_hook(lambda module, args, kw: asked.append(kw["input_ids"].shape[1]), with_kwargs=True)
    for models in ((target, Tree(table, [-1, -1])), (table, Tree(target, [-1, -1]))):
        with pytest.raises(ValueError, match="cannot read a tree: |cannot read a tree \\("):
            sl.speculative(*models, 4 + prompt(9, 90), 8)
    assert all(n <= 4 for n in asked)  # it was tried on a tree of its own, and on nothing else


def test_a_model_is_tried_once():
    target = tiny_gpt2(3)
    known(target)
    calls = []
    target.register_forward_hook(lambda *a: calls.append(1))
    for _ in range(3):
        sl.CachedModel(target).refuse_tree()
    assert len(calls) == 3


# --- a rule over trees ----------------------------------------------------------------------------------------------


def test_the_rule_takes_what_the_loop_gives():
    p, q = torch.rand(3, 4).softmax(-1), torch.rand(2, 4).softmax(-1)
    given = [p.clone(), q.clone(), torch.tensor([1, 2]), torch.tensor([0.5, 0.5])]
    before = [t.clone() for t in given]
    path, distribution = sl.verify_tree(*given, [-1, -1])
    assert path.shape == (2,) and path.dtype == torch.bool and distribution.shape == (4,)
    assert all(torch.equal(a, b) for a, b in zip(given, before, strict=True))
    path, distribution = sl.verify_tree(p[:1], q[:0], given[2][:0], given[3][:0], [])
    assert path.shape == (0,) and path.dtype == torch.bool and torch.equal(distribution, p[0])


def test_a_token_of_probability_0_is_never_accepted():
    """Not by a uniform of exactly 0, and not as a second candidate of which nothing is left."""
    p = torch.tensor([[0.0, 1.0, 0.0]] * 3)
    path, distribution = sl.verify_tree(p, torch.full((2, 3), 1 / 3), torch.tensor([0, 2]), torch.zeros(2), [-1, -1])
    assert not path.any() and distribution.tolist() == [0, 1, 0]
    p = torch.tensor([[0.5, 0.5, 0.0]] * 3)
    q = torch.tensor([[1.0, 0.0, 0.0], [0.0, 0.5, 0.5]])
    path, distribution = sl.verify_tree(p, q, torch.tensor([0, 2]), torch.tensor([0.9, 0.0]), [-1, -1])
    assert not path.any() and distribution.tolist() == [0, 1, 0]


@pytest.mark.parametrize("chances", [(0.6, 0.2, 0.1), (0.9, 0.05), (0.4, 0.39, 0.38, 0.37), (0.7,)])
def test_the_best_tree_is_the_best_of_all_trees(chances):
    """By trying all trees of up to five nodes."""

    def depth(parents: list[int]) -> float:
        reach = {-1: 1.0}
        for i, parent in enumerate(parents):
            reach[i] = reach[parent] * chances[parents[:i].count(parent)]
        return sum(reach.values()) - 1

    for nodes in range(1, 6):
        every = itertools.product(*(range(-1, i) for i in range(nodes)))
        fits = [list(t) for t in every if all(t.count(x) <= len(chances) for x in t)]
        found = library.best_tree(chances, nodes)
        assert library.best_tree(chances, nodes + 1)[:nodes] == found  # so that its first nodes are a best tree, too
        assert depth(found) == pytest.approx(max(map(depth, fits)))


# --- a drafter of trees ---------------------------------------------------------------------------------------------

TABLES = [sl.TableModel(torch.rand(9, 9, generator=torch.Generator().manual_seed(i)).softmax(-1)) for i in range(2)]


@pytest.mark.parametrize(
    "parents", [[], [0], [-1, 1], [-2], [-1, 2, 0], [-1.0], [True], ["a"], [None], [-1, torch.tensor(0)]], ids=repr
)
def test_a_bad_shape_is_refused(parents):
    with pytest.raises(ValueError, match="parents must be ints, each the index of an earlier node or -1") as error:
        Tree(TABLES[1], parents)
    one_sentence(error)


@pytest.mark.parametrize("parents", [None, 3])
def test_what_is_no_shape_at_all_is_refused(parents):
    with pytest.raises(ValueError, match="parents must be ints") as error:
        Tree(TABLES[1], parents)
    one_sentence(error)


@pytest.mark.parametrize("chances", [[], [0], [0.3, 0.5], [1.2], [0.5, -0.1], [math.nan], [0.5, math.nan]], ids=repr)
def test_chances_that_are_none_grow_no_tree(chances):
    with pytest.raises(ValueError, match="chances must fall") as error:
        library.best_tree(chances, 3)
    one_sentence(error)


def test_a_candidate_that_is_never_accepted_is_in_no_tree():
    assert library.best_tree([0.5, 0, 0], 4) == [-1, 0, 1, 2]
    for nodes in (0, -1, 1.5, True, "a"):
        with pytest.raises(ValueError, match="nodes must be a whole number"):
            library.best_tree([0.5], nodes)


def rows(*shape):
    return torch.full(shape, 0.25)


@pytest.mark.parametrize(
    ("p", "q", "uniforms", "parents", "said"),
    [
        (rows(2, 4), rows(2, 4), rows(2), [-1, 0], "need p of shape (3, vocab)"),
        (rows(3, 4), rows(4, 4), rows(2), [-1, 0], "q of (2, vocab)"),
        (rows(3, 4), rows(2, 4), rows(1), [-1, 0], "2 uniforms"),
        *[(rows(3, 4), rows(2, 4), rows(2), given, "2 parents") for given in ([-1], [-1, 0, 1], [1, -1], [-1, -2])],
    ],
)
def test_the_rule_refuses_what_does_not_fit(p, q, uniforms, parents, said):
    with pytest.raises(ValueError) as error:
        library.verify_tree(p, q, torch.tensor([0, 1]), uniforms, parents)
    one_sentence(error, said)


def test_a_bad_way_of_drawing_is_refused():
    with pytest.raises(ValueError, match='siblings must be "without replacement", "independent" or "certain"') as error:
        Tree(TABLES[1], [-1], "greedy")
    one_sentence(error, "'greedy'")


def refused(target, draft, word: str, **options) -> None:
    """In one sentence, and nothing is read before."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sl.TableModel, "feed", None)
        for call in (sl.speculative, sl.speculative_rounds):
            with pytest.raises(ValueError, match=word) as error:
                call(target, draft, torch.tensor([0, 1]), 9, **options)
            one_sentence(error)


def test_who_cannot_verify_or_draft_a_tree_is_refused_before_any_work():
    table, wider = TABLES[0], sl.TableModel(torch.full((12, 12), 1 / 12))
    tree = Tree(TABLES[1], [-1, -1, 0])
    refused(Bare(table.table), tree, "a Bare reads chains only: no tree can be drafted for it")
    refused(table, Tree(Bare(table.table), [-1, -1]), "a Bare cannot draft a tree for this target: draft a chain")
    refused(table, Tree(wider, [-1, -1]), "a TableModel cannot draft a tree for this target: draft a chain")
    for shape in ([-1] * 10, [*[-1] * 10, 0]):
        refused(table, Tree(table.fresh(), shape), "10 candidates for one position, of 9 tokens in all: take fewer")
    refused(table, tree, "the rule verify_block verifies chains, and the draft is a tree", rule="block")
    refused(table, tree, "the rule mine verifies chains, and the draft is a tree", rule=mine)
    refused(table, Tree(RecurrentHead(tiny_gpt2(0)), [-1]), "a head needs hidden states, and a TableModel")
    refused(sl.GPT2(tiny_gpt2(1)), Tree(RecurrentHead(tiny_gpt2(0)), [-1]), "made for another target")
    for other in (sl.drafters.Heads(tiny_gpt2(0)), NGram(), sl.drafters.EarlyExit(1), tree):
        with pytest.raises(ValueError, match="grows from a RecurrentHead or from a model") as error:
            Tree(other, [-1])
        one_sentence(error, f"got a {type(other).__name__}")
    with pytest.raises(ValueError, match="draft must be a transformers model"):
        sl.speculative(table, Tree(3, [-1]), torch.tensor([0]), 4)


def mine(p, q, drafted, uniforms):
    """A rule of one's own that knows chains only."""
    return sl.verify_google(p, q, drafted, uniforms)


def test_a_rule_of_ones_own_may_know_trees():
    def seen(p, q, drafted, uniforms, parents=None):
        asked.append(parents)
        if parents is None:  # nothing was drafted, or a chain
            return sl.verify_google(p, q, drafted, uniforms)
        return sl.verify_tree(p, q, drafted, uniforms, parents)

    asked, tree = [], Tree(TABLES[1], [-1, -1, 0])
    texts = [sl.speculative(TABLES[0], tree, torch.tensor([0]), 12, generator=1, **o).tokens.tolist()
             for o in ({}, {"rule": "google"}, {"rule": "deepmind"}, {"rule": seen})]  # fmt: skip
    assert texts[0] == texts[1] == texts[2] == texts[3]
    assert asked[0] == [-1, -1, 0]


@pytest.mark.parametrize(
    "answer",
    [2, (torch.zeros(2, dtype=torch.bool), None), (torch.zeros(3, dtype=torch.bool), 0), (1, 0), ("ab", 0)],
    ids=repr,
)
def test_a_rule_that_answers_something_else_is_refused(answer):
    def wrong(p, q, drafted, uniforms, parents=None):
        return (answer[0], p[0] if answer[1] == 0 else answer[1]) if isinstance(answer, tuple) else answer

    with pytest.raises(ValueError, match=r"the rule must return a path \(k,\) bool and a distribution") as error:
        sl.speculative(TABLES[0], Tree(TABLES[1], [-1, -1]), torch.tensor([0]), 9, rule=wrong)
    one_sentence(error)


class Gives:
    """A drafter of one's own that gives these tokens with these parents, and does not say that it branches."""

    def __init__(self, tokens, parents):
        self.given = tokens, parents

    def start(self, ids, sampling, randomness, target):
        return self

    def propose(self, k):
        tokens, parents = self.given
        return sl.Draft(torch.tensor(tokens), None, parents=parents)

    def accept(self, n, token, tokens, path=None):
        self.told = n, tokens, path


@pytest.mark.parametrize(
    "parents", [[-1], [-1, 1], [-1, -2], [0, 0], (-1, -1), [-1, 0.0], [True, -1], torch.tensor([-1, 0]), "ab"], ids=repr
)
def test_a_drafts_bad_parents_are_refused(parents):
    with pytest.raises(ValueError, match="the drafter's parents must be 2 ints, each the index of an earlier") as error:
        sl.speculative(TABLES[0], Gives([1, 2], parents), torch.tensor([0]), 9)
    one_sentence(error)


def test_a_tree_that_was_not_announced_is_refused_in_its_round():
    for options, word in (
        ({"rule": "block"}, "the rule verify_block verifies chains, and the draft is a tree"),
        (
            {"generator": sl.SharedNoise(1)},
            "the rule SharedNoise.verify_coupled verifies chains, and the draft is a tree",
        ),
    ):
        with pytest.raises(ValueError, match=word) as error:
            sl.speculative(TABLES[0], Gives([1, 2], [-1, -1]), torch.tensor([0]), 9, **options)
        one_sentence(error)
    with pytest.raises(ValueError, match="the draft is a tree, and a Bare reads chains only: draft a chain") as error:
        sl.speculative(Bare(TABLES[0].table), Gives([1, 2], [-1, -1]), torch.tensor([0]), 9)
    one_sentence(error)


def test_a_strangers_tree_is_verified_and_its_session_told_of_the_path():
    count = sl.TableModel(torch.eye(9).roll(1, 1))
    drafter = Gives([5, 1, 2, 7, 3], [-1, -1, 1, 1, 2])
    r = next(sl.speculative_rounds(count, drafter, torch.tensor([0]), 9, gamma=5))
    assert (r.path, r.accepted, r.tokens, r.origin) == ([1, 2, 4], 3, [1, 2, 3, 4], "bonus")
    assert drafter.told == (3, [1, 2, 3, 4], [1, 2, 4])


def test_statistics_of_trees():
    """Tokens per pass count; an acceptance rate does not, since several candidates share a position."""
    g = sl.speculative(TABLES[0], Tree(TABLES[1], [-1, -1, 0]), torch.tensor([0]), 40, gamma=3, generator=0, trace=True)
    s = sl.summarize(g)
    assert math.isnan(s.alpha) and math.isnan(s.mean_overlap)
    assert s.emitted == 40 and s.tokens_per_pass == 40 / len(g.rounds) and s.share == s.accepted / s.drafted
    assert all(r.overlap is None and not r.token_by_token for r in g.rounds if r.parents)
    assert all(r.p.shape == (4, 9) and r.q.shape == (3, 9) for r in g.rounds if len(r.drafted) == 3)


def test_the_draft_may_be_the_target_itself():
    """Independent siblings from the right distribution: the first of them is always accepted."""
    target = model()
    tree = Tree(target, [-1, 0, 1, -1], "independent")
    g = sl.speculative(target, tree, prompt(5), 30, gamma=4, generator=0)
    assert all(r.path == [0, 1, 2] for r in g.rounds if len(r.drafted) == 4)
    shared = sl.CachedModel(target)
    shared.fresh = lambda: shared
    with pytest.raises(ValueError, match="one model with one cache"):
        sl.speculative(shared, Tree(shared, [-1]), prompt(5), 5)
