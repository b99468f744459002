"""What people hand to the public functions by mistake: each is told in one sentence what was wrong, before any work."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from transformers import GPT2Config, GPT2Model

import spec_lib as sl
from spec_lib import drafters, plots, records
from tests.helpers.models import tiny_gpt2
from tests.helpers.tokenizers import Numbers

P, Q = torch.tensor([0.5, 0.3, 0.2]), torch.tensor([0.2, 0.3, 0.5])
ROWS, X, U = torch.full((3, 4), 0.25), torch.tensor([1, 2]), torch.tensor([0.3, 0.9])
IDS = torch.tensor([[3, 5, 7]])


@pytest.fixture(scope="module")
def pair() -> sl.Pair:
    return sl.Pair(tiny_gpt2(0), tiny_gpt2(1), Numbers())


def told(call, *words: str) -> None:
    with pytest.raises(ValueError) as error:
        call()
    said = str(error.value)
    assert "\n" not in said and len(said) < 400, said
    assert all(word in said for word in words), said


NO_ROWS = [None, "x", [0.5, 0.3, 0.2], P.numpy(), 3, torch.tensor(0.5), torch.zeros(2, 0)]


@pytest.mark.parametrize("given", NO_ROWS, ids=str)
def test_distributions_and_logits_are_tensors(given):
    told(lambda: sl.probabilities(given, sl.Sampling()), "logits must be a tensor (..., vocab)")
    told(lambda: sl.draw(given, torch.tensor(0.3)), "p must be one distribution, a tensor (vocab,)")
    told(lambda: sl.residual(given, Q), "p and q must be tensors")
    told(lambda: sl.residual(P, given), "p and q must be tensors")


def test_logits_without_rows_have_no_rows_of_probabilities():
    assert sl.probabilities(torch.zeros(0, 3), sl.Sampling(0.5, 2, 0.9)).shape == (0, 3)


@pytest.mark.parametrize("u", [0.3, None, "x", [0.3], np.float32(0.3), torch.tensor([0.3, 0.9])], ids=str)
def test_a_uniform_is_a_tensor(u):
    told(lambda: sl.draw(P, u), "u must be one uniform, a tensor as torch.rand(()) gives it")


def test_several_distributions_have_no_one_token():
    told(lambda: sl.draw(ROWS, torch.tensor(0.3)), "p must be one distribution")


@pytest.mark.parametrize("sampling", [0, 1.0, "greedy", {"temperature": 0}, sl.Sampling, None], ids=str)
def test_a_sampling_is_one(sampling):
    told(lambda: sl.probabilities(P, sampling), "sampling must be a spec_lib.Sampling")


@pytest.mark.parametrize("rule", [sl.verify_google, sl.verify_deepmind, sl.verify_block, sl.verify_tree])
@pytest.mark.parametrize(
    "name, given",
    [("p", ROWS.tolist()), ("p", ROWS.numpy()), ("p", ROWS[0]), ("p", None), ("p", ROWS.int()), ("q", None)]
    + [("q", ROWS[:2].tolist()), ("drafted", [1, 2]), ("drafted", X.float()), ("drafted", X.numpy())]
    + [("drafted", X[None]), ("uniforms", [0.3, 0.9]), ("uniforms", None), ("uniforms", U.numpy())],
)
def test_a_rules_arguments(rule, name, given):
    arguments = {"p": ROWS, "q": ROWS[:2], "drafted": X, "uniforms": U, name: given}
    more = {"parents": [-1, 0]} if rule is sl.verify_tree else {}
    told(lambda: rule(**arguments, **more), name)


def test_a_tree_needs_parents():
    told(lambda: sl.verify_tree(ROWS, ROWS[:2], X, U, None), "2 drafted tokens need 2 parents")


def test_a_rule_for_trees_verifies_chains_too(pair):
    """A chain is a tree without branches, and a drafter of trees may end in one."""
    for draft in (pair.draft, drafters.Tree(pair.draft, [-1, -1, 0])):
        for seed in range(4):
            texts = [
                sl.speculative(pair.target, draft, IDS, 20, rule=rule, generator=seed).tokens.tolist()
                for rule in (None, sl.verify_tree)
            ]
            assert texts[0] == texts[1]
    batch = sl.speculative_batch(pair.target, pair.draft, [IDS], 9, rule=sl.verify_tree, generators=[1])
    assert batch[0].tokens.tolist() == sl.speculative(pair.target, pair.draft, IDS, 9, generator=1).tokens.tolist()


TABLES = [
    None,
    "x",
    [[0.5, 0.5], [0.2, 0.8]],
    np.eye(2),
    P,
    torch.ones(2, 3) / 3,
    torch.ones(3, 2) / 2,
    torch.eye(2).int(),
]


@pytest.mark.parametrize("table", TABLES, ids=str)
def test_a_table_is_square(table):
    told(lambda: sl.TableModel(table), "table must be a tensor (vocab, vocab) of a floating dtype")


def test_what_is_no_model_of_transformers(pair):
    for given in (None, "gpt2", 3, [pair.target], type(pair.target), pair.target.config, pair.target.forward):
        told(lambda x=given: sl.CachedModel(x), "the model must be one of transformers")
    told(lambda: sl.CachedModel(pair), "pass its .target or its .draft")


def test_a_model_without_its_last_layer(pair):
    """AutoModel in place of AutoModelForCausalLM."""
    bare = GPT2Model(GPT2Config(vocab_size=31, n_positions=64, n_embd=8, n_layer=1, n_head=2)).eval()
    calls = [lambda: sl.CachedModel(bare), lambda: sl.autoregressive(bare, IDS, 3), lambda: sl.Engine(bare, None)]
    calls += [lambda: sl.speculative(bare, pair.draft, IDS, 3), lambda: sl.speculative(pair.target, bare, IDS, 3)]
    calls += [lambda: sl.Pair(pair.target, bare, Numbers())]
    for call in calls:
        told(call, "GPT2Model, scores no tokens", "AutoModelForCausalLM")


@pytest.mark.parametrize("keep", [2, np.int64(2), torch.tensor(2)], ids=repr)
def test_rows_wanted_may_be_any_whole_number(pair, keep):
    """transformers takes another integer type for an index, and scores one position alone."""
    wanted = sl.CachedModel(pair.target).feed(IDS[0])[-2:]
    for model in (sl.CachedModel(pair.target), sl.GPT2(pair.target)):
        assert torch.allclose(model.feed(IDS[0], keep), wanted, atol=1e-5)


@pytest.mark.parametrize("tokenizer", [None, "gpt2", 3, {}])
def test_a_pair_needs_a_tokenizer(pair, tokenizer):
    told(lambda: sl.Pair(pair.target, pair.draft, tokenizer), "tokenizer of a Pair must be a tokenizer")
    told(lambda: sl.check_vocabulary(tokenizer, Numbers()), "two tokenizers are compared")
    if tokenizer is not None:
        told(lambda: sl.Pair(pair.target, pair.draft, Numbers(), tokenizer), "draft_tokenizer of a Pair must be")


NO_ROUNDS = [None, 3, "x", {}, [None], [1, 2], torch.tensor([1, 2])]


def test_rounds_are_asked_for_everywhere_alike(pair):
    """A whole generation will do; several at once, or what is none, are told what to pass."""
    g = sl.speculative(pair.target, pair.draft, IDS, 10, generator=1, trace=True)
    readers = [sl.summarize, records.identity_sides, plots.origins, plots.acceptance_positions, plots.tape_rows]
    readers += [lambda r: plots.round_rows(pair, r), lambda r: plots.animation_frames(pair, r)]
    for read in readers:
        assert str(read(g)) == str(read(g.rounds)) and "nan, nan" not in str(read(g))
        for given in (*NO_ROUNDS, g.rounds[0], [g, g], [g.rounds]):
            told(lambda r=read, x=given: r(x), "rounds must be those of a generation, g.rounds")
        told(lambda r=read: r([g, g]), "[r for g in generations for r in g.rounds]")
    assert math.isnan(sl.summarize([]).alpha)
