"""Trees are exact: the rule by enumeration, and the whole loop by every branch, through real caches."""

from __future__ import annotations

import pytest
import torch

import spec_lib as sl
from spec_lib.drafters import RecurrentHead, Tree
from tests.helpers import enumeration as exact
from tests.helpers import promises, trees
from tests.helpers import wrong_rules as wrong
from tests.helpers.distributions import random_table
from tests.helpers.models import small_pair, tiny_gpt2

# --- the rule -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("shape", trees.SHAPES)
def test_distribution(shape):
    """Of depth + 1 tokens, for vocabularies of 3 and, where there are few drafts, of 2 and 4."""
    promises.check_tree_rule([shape], (3,), range(2 if len(trees.SHAPES[shape]) > 4 else 4))
    if len(trees.SHAPES[shape]) <= 4:
        promises.check_tree_rule([shape], (4,), range(3))
    if trees.SHAPES[shape].count(-1) < 3:
        promises.check_tree_rule([shape], (2,), range(4), starts=2)


def test_a_chain_is_googles_rule_to_the_last_bit():
    promises.check_tree_of_one_branch(2000)


def test_the_frame_of_wrong_rules_is_right():
    target, draft = random_table(3, 0), random_table(3, 1)
    for kind in trees.KINDS:
        shape = trees.SHAPES["a sibling after a child"]
        got = trees.tree_distribution(wrong.tree_rule(), target, draft, 0, shape, kind)
        assert (got - exact.continuations(target, 3)[3][0]).abs().max() < 1e-14


WRONG = {  # rule: the kinds of siblings for which it is wrong
    "tree_by_p": {"without replacement", "independent", "certain"},
    "tree_not_updated": {"without replacement", "independent", "certain"},
    "tree_row_before": {"without replacement", "independent", "certain"},
    "tree_backwards": {"without replacement"},
    "tree_ratio_inverted": {"without replacement", "independent", "certain"},
}


@pytest.mark.parametrize("name", WRONG)
def test_wrong_rules_are_condemned(name):
    """Whatever tries siblings in another order than they were drawn in, or judges them by what is not left.  Where one
    token is lacking, as on most toys of three tokens, the order does not show; each of these two lacks two."""
    rows = [torch.tensor(row).double() / 10 for row in ([4, 3, 2, 1], [1, 2, 3, 4])]
    target, draft = (torch.stack([row.roll(x) for x in range(4)]) for row in rows)
    far = {}
    for kind in trees.KINDS:
        got = trees.tree_distribution(getattr(wrong, name), target, draft, 0, [-1, -1, 0], kind)
        far[kind] = (got - exact.continuations(target, 3)[3][0]).abs().sum().item() / 2
    assert {kind for kind, distance in far.items() if distance > 1e-3} == WRONG[name], far


# --- the loop -------------------------------------------------------------------------------------------------------

# shape, kinds of siblings, budget, paths: these are counted, since a lost branch would be one not looked at
LOOPS = [
    ((-1, -1, 0), ("without replacement",), 4, 1134),
    ((-1, -1, 0), ("independent",), 4, 2331),
    ((-1, -1, 0), ("certain",), 4, 81),
    ((-1, 0, -1), ("without replacement",), 4, 1422),
    ((-1, -1, -1), ("without replacement",), 4, None),
    ((-1, -1, 0, 1), ("certain",), 5, None),
]


@pytest.mark.parametrize(("shape", "kinds", "budget", "paths"), LOOPS, ids=str)
def test_loop(shape, kinds, budget, paths):
    """A target and a draft of GPT-2's kind, both with caches that hold trees."""
    assert promises.check_tree_loop(shape, kinds, budget) == (paths or pytest.approx(2000, abs=1950))


@pytest.mark.parametrize("kinds", [("without replacement",), ("certain",)])
def test_loop_with_eos(kinds):
    """On every position of a path."""
    promises.check_tree_loop((-1, -1, 0), kinds, eos=2)


@pytest.mark.parametrize("graphs", [False, "eager"])
def test_loop_through_our_own_pass(graphs):
    """As target and as draft."""
    kwargs = {"vocab": 3, "width": 8, "context": 16, "initializer_range": 0.4}
    target, draft = (tiny_gpt2(seed, layers=2, **kwargs).double() for seed in (6, 7))
    models = [sl.GPT2(m, graphs) for m in (target, draft)]
    for kind, shape, budget in (("certain", [-1, -1, 0], 4), ("without replacement", [-1, -1], 3)):
        got, _ = exact.loop_distribution(models[0], Tree(models[1], shape, kind), [1, 0, 1], budget)
        assert exact.distance(got, exact.target_distribution(target, [1, 0, 1], budget)) < 1e-10


@pytest.mark.parametrize("widths", [(3, 2, 9), (3, 3, 4), (3, 3, 3)], ids=str)
def test_loop_of_tables(widths):
    """A draft that is narrower than the target, and one whose context ends before the text does."""
    target, draft = sl.TableModel(random_table(widths[0], 0)), sl.TableModel(random_table(widths[1], 1), widths[2])
    for kind in trees.KINDS:
        got, _ = exact.loop_distribution(target, Tree(draft, [-1, -1, 0], kind), [1, 0], 4)
        want = exact.chain_distribution(target.table, 0, 4)
        assert exact.distance(got, want) < 1e-12


def test_loop_after_one_token():
    """A head has no state to begin with then, and a draft model has nothing to read before."""
    target, draft = small_pair(3)
    want = exact.target_distribution(target, [1], 4)
    for drafter in (Tree(draft, [-1, -1, 0], "certain"), Tree(promises.a_head(target), [-1, -1, 0], "certain")):
        got, _ = exact.loop_distribution(sl.CachedModel(target), drafter, [1], 4, rough=1e-6)
        assert exact.distance(got, want) < 1e-6
    assert isinstance(drafter.draft, RecurrentHead)


def test_loop_with_filters():
    """Where q has zeros, also fewer tokens than there are candidates, and where the target has."""
    target, draft = small_pair(3)
    for sampling, own in (
        (sl.Sampling(0.7, top_k=2), None),
        (None, sl.Sampling(top_k=1)),
        (sl.Sampling(0), sl.Sampling(1)),
        (sl.Sampling(0), None),
    ):
        tree = Tree(exact.Emptied(sl.CachedModel(draft), trees=True), [-1, -1, 0])
        models = exact.Emptied(sl.CachedModel(target), trees=True), tree
        got, _ = exact.loop_distribution(*models, [1, 0, 1], 4, sampling=sampling, draft_sampling=own)
        assert exact.distance(got, exact.target_distribution(target, [1, 0, 1], 4, sampling)) < 1e-10


@pytest.mark.parametrize("name", [name for name in promises.CHECKS if name.startswith("tree_")])
def test_check(name):
    """The promises that planted faults have to break."""
    promises.CHECKS[name]()


@pytest.mark.parametrize("kind", trees.KINDS)
def test_a_tree_read_path_by_path_writes_the_same_text(kind):
    """A target and a draft without a mask: they read every path as a text of its own."""
    target, draft = (tiny_gpt2(seed, layers=2).double() for seed in (0, 1))
    texts = []
    for make in (sl.CachedModel, sl.GPT2, trees.Placed):
        models = make(target), Tree(make(draft), promises.TREE, kind)
        rounds = promises.tree_rounds(*models, promises.prompt(5), 40, generator=2)
        texts.append([(r.path, r.tokens) for r in rounds])
    assert texts[0] == texts[1] == texts[2]
    kept = [rows for rows in models[0].kept if rows]
    assert any(rows != list(range(len(rows))) for rows in kept), "no path left the first branch"


@pytest.mark.parametrize("siblings", trees.KINDS)
def test_greedy_on_the_embedded_pair(siblings):
    pair = sl.load_pair("tiny")
    ids, greedy = pair.encode("Once upon a time"), sl.Sampling(0)
    plain = sl.autoregressive(pair.target, ids, 60, sampling=greedy).tokens.tolist()
    for target, draft in ((pair.target, pair.draft), (sl.GPT2(pair.target), sl.GPT2(pair.draft))):
        g = sl.speculative(target, Tree(draft, [-1, -1, 0, 0, 1, 2], siblings), ids, 60, gamma=6, sampling=greedy,
                           draft_sampling=sl.Sampling(1), generator=0)  # fmt: skip
        assert g.tokens.tolist() == plain
        assert {tuple(r.path) for r in g.rounds if r.path} & {(1,), (1, 4), (0, 3)}, "only first branches were accepted"
    assert torch.equal(g.ids[0, ids.shape[1] :], g.tokens)
