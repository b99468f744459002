"""The loops from outside: the same text as plain decoding, whatever the draft, the options and the numbers."""

import copy
import itertools
import math

import pytest
import torch

from spec_lib import (
    CachedModel,
    ModelDrafter,
    Sampling,
    TableModel,
    autoregressive,
    speculative,
    speculative_rounds,
    summarize,
)
from tests.helpers.loops import GREEDY, RULES, one_sentence
from tests.helpers.models import blurred, is_greedy, plain_greedy, prompt, tiny_gpt2

# --- greedy is plain greedy -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("gamma", range(1, 9))
def test_greedy_is_plain_greedy_for_every_prompt_length(pair, gamma):
    target, draft = pair
    rounds = []
    for length in range(1, 41):
        ids = prompt(length)
        # gamma + 2 tokens: one whole block at least.  The rules take turns (and are held equal elsewhere).
        rule = RULES[(length + gamma) % 2]
        g = speculative(target, draft, ids, gamma + 2, gamma=gamma, rule=rule, sampling=GREEDY)
        assert g.tokens.shape == (gamma + 2,)
        assert is_greedy(target, ids, g.tokens), length
        rounds += g.rounds
    # Without both verdicts, and a rejection after an acceptance, the equality above would say little.
    assert {"resampled", "bonus"} <= {r.origin for r in rounds}
    assert gamma == 1 or any(r.accepted and r.origin == "resampled" for r in rounds)


@pytest.mark.parametrize("rule", RULES)
def test_both_rules_are_plain_greedy(pair, rule):
    target, draft = pair
    ids = prompt(17, seed=1)
    text = plain_greedy(target, ids, 20)
    assert is_greedy(target, ids, torch.tensor(text))
    assert not is_greedy(target, ids, torch.tensor([*text[:-1], (text[-1] + 1) % 31]))
    for gamma in (1, 3, 8):
        g = speculative(target, draft, ids, 20, gamma=gamma, rule=rule, sampling=GREEDY)
        assert g.tokens.tolist() == text


def test_autoregressive_is_plain_greedy(pair):
    for length in range(1, 41, 3):
        g = autoregressive(pair[0], prompt(length), 8, sampling=GREEDY)
        assert len(g.tokens) == 8
        assert is_greedy(pair[0], prompt(length), g.tokens)
        assert g.rounds == []


def test_a_greedy_target_is_greedy_whatever_the_draft_does(pair):
    text = plain_greedy(pair[0], prompt(5), 15)
    for draft_sampling in (Sampling(), Sampling(5.0), Sampling(top_k=2)):
        for rule in RULES:
            g = speculative(
                *pair, prompt(5), 15, rule=rule, sampling=GREEDY, draft_sampling=draft_sampling, generator=2
            )
            assert g.tokens.tolist() == text


@pytest.mark.reported
def test_a_tie_at_temperature_0_is_one_token_and_not_a_coin():
    """At an exact tie softmax(x / tiny) stays .5/.5 and argmax takes one: the loop that mixed the two was not greedy.

    Right: temperature 0 writes the same token in plain and in speculative decoding, whatever the seed and the draft's
    settings.  Siblings: a tiny temperature keeps sharing the tie, in both loops.
    """
    rows = torch.tensor([[0.4, 0.4, 0.2], [0.1, 0.45, 0.45], [0.3, 0.3, 0.4]])
    target, draft = TableModel(rows), TableModel(rows.flip(0))
    texts = {tuple(autoregressive(target, [0], 9, sampling=GREEDY, generator=s).tokens.tolist()) for s in range(4)}
    for seed, rule, own in itertools.product(range(4), ("google", "deepmind"), (None, Sampling(), Sampling(1e-10))):
        options = {"rule": rule, "sampling": GREEDY, "draft_sampling": own, "generator": seed}
        texts.add(tuple(speculative(target, draft, [0], 9, **options).tokens.tolist()))
    assert texts == {(0,) * 9}
    for write in (
        lambda **o: autoregressive(target, [0], 40, **o),
        lambda **o: speculative(target, draft, [0], 40, **o),
    ):
        assert len(set(write(sampling=Sampling(1e-10), generator=0).tokens.tolist())) > 1


@pytest.mark.reported
def test_a_tie_of_two_rows_is_near_enough():
    """Greedy speculative text differed from plain greedy text where two tokens were tied, and was called wrong.

    Right: with two equal rows in the output layer every token is within .001 of the largest score; nothing more can be
    asked.  Siblings: both rules, and the plain loop.
    """
    target = tiny_gpt2(0, initializer_range=0.5, tie_word_embeddings=False)
    with torch.no_grad():
        target.lm_head.weight[16:31] = target.lm_head.weight[:15]
    draft = blurred(target, 0.03)
    for write in (
        lambda ids: autoregressive(target, ids, 30, sampling=GREEDY),
        lambda ids: speculative(target, draft, ids, 30, sampling=GREEDY),
        lambda ids: speculative(target, draft, ids, 30, sampling=GREEDY, rule="deepmind"),
    ):
        g = write(prompt(5))
        with torch.no_grad():
            scores = target(input_ids=g.ids, use_cache=False).logits[0, 4:-1]
        assert (scores.amax(-1) - scores.gather(1, g.tokens[:, None])[:, 0]).max() < 1e-3
        assert (scores.topk(2).values.diff() == 0).sum() > 15  # it did meet ties


# --- the best draft and the worst -----------------------------------------------------------------------------------


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("sampling", [Sampling(), GREEDY, Sampling(0.7, 5), Sampling(1e-3)], ids=str)
def test_a_model_as_its_own_draft_accepts_everything(pair, rule, sampling):
    g = speculative(pair[0], pair[0], prompt(5), 41, gamma=4, rule=rule, sampling=sampling, generator=1)
    assert [len(r.tokens) for r in g.rounds] == [5] * 8 + [1]
    assert [r.origin for r in g.rounds] == ["bonus"] * 8 + ["plain"]
    assert summarize(g.rounds).alpha == 1


def test_a_draft_that_is_never_right_costs_time_and_nothing_else(pair):
    # Disjoint supports: the draft knows tokens 3 and 4 only, the target never writes them.
    target = torch.zeros(5, 5, dtype=torch.float64)
    target[:, :3] = 1 / 3
    draft = torch.zeros(5, 5, dtype=torch.float64)
    draft[:, 3:] = 1 / 2
    for rule in RULES:
        g = speculative(TableModel(target), TableModel(draft), torch.tensor([[0]]), 9, gamma=5, rule=rule, generator=0)
        assert [len(r.tokens) for r in g.rounds] == [1] * 9
        assert g.tokens.max() < 3
        assert g.ids.shape == (1, 10)


@pytest.mark.reported
@pytest.mark.parametrize("temperature", [1e-3, 1.0])
def test_a_model_never_rejects_itself(pair, temperature):
    """A model as its own draft met 0/0, or lost tokens to its own verdict.

    Right: in 32 bits everything is accepted; in 16 bits a block and single steps round differently, so that a few of a
    hundred are rejected, and none is a failure.
    """
    for dtype, seeds, allowed in ((torch.float32, 8, 0), (torch.bfloat16, 4, 12)):
        model, rejected, emitted = copy.deepcopy(pair[0]).to(dtype), 0, 0
        for seed in range(seeds):
            s = summarize(
                speculative(model, model, prompt(3), 61, sampling=Sampling(temperature), generator=seed).rounds
            )
            rejected, emitted = rejected + s.rejected, emitted + s.emitted
        assert emitted == 61 * seeds and rejected <= allowed, f"{dtype}: {rejected}"


# --- options --------------------------------------------------------------------------------------------------------


def test_draft_sampling_reaches_the_draft_and_only_the_draft(pair):
    g = speculative(*pair, prompt(5), 20, draft_sampling=GREEDY, generator=0, trace=True)
    assert all(sorted(r.q.unique().tolist()) == [0, 1] for r in g.rounds if len(r.q))
    assert all((r.p > 0).all() for r in g.rounds)
    g = speculative(*pair, prompt(5), 20, sampling=Sampling(top_k=3), draft_sampling=Sampling(), trace=True)
    assert all((r.p > 0).sum(-1).eq(3).all() for r in g.rounds)
    assert all((r.q > 0).all() for r in g.rounds)
    g = speculative(*pair, prompt(5), 20, sampling=Sampling(top_k=3), trace=True)  # default: the target's
    assert all((r.q > 0).sum(-1).eq(3).all() for r in g.rounds)


@pytest.mark.parametrize("sampling", [Sampling(top_k=3), Sampling(0.5, 2, 0.9), Sampling(top_p=0.3)], ids=str)
def test_no_token_outside_the_targets_choice_is_ever_written(pair, sampling):
    for seed in range(4):
        g = speculative(*pair, prompt(4), 12, sampling=sampling, draft_sampling=Sampling(3.0), generator=seed)
        with torch.no_grad():
            p = sampling.probabilities(pair[0](input_ids=g.ids, use_cache=False).logits[0, 3:-1])
        assert (p.gather(1, g.tokens[:, None]) > 0).all()


def test_gamma_belongs_to_the_call(pair):
    target = pair[0]
    for gamma in (1, 4, 8, 2, 8, 2):
        g = speculative(target, target, prompt(4), 20, gamma=gamma, generator=gamma)
        assert {len(r.drafted) for r in g.rounds if not r.cut} == {gamma}
        assert all(len(r.drafted) < gamma for r in g.rounds if r.cut)


def test_a_sampling_of_ones_own_reaches_both_models(pair):
    class Odd(Sampling):
        def probabilities(self, logits):
            return super().probabilities(logits.index_fill(-1, torch.arange(0, logits.shape[-1], 2), -math.inf))

    g = speculative(*pair, prompt(4), 20, sampling=Odd(), generator=0)
    assert all(t % 2 for t in g.tokens.tolist())
    assert all(t % 2 for r in g.rounds for t in r.drafted.tolist())


@pytest.mark.reported
def test_the_draft_length_of_one_call_does_not_stay(pair):
    """A draft length set for one call was ignored, or stayed for the next: it lived in the model's own settings.

    Right: every full round drafts what its own call asked for, with a drafter and models that are used again.
    """
    target, drafter = CachedModel(pair[0]), ModelDrafter(CachedModel(pair[0]))
    before = [m.generation_config.to_dict() for m in pair]
    counts = {}
    for gamma in (8, 2, 1, 4, 8, 2):
        rounds = speculative(target, drafter, prompt(4), 28, gamma=gamma, sampling=GREEDY).rounds
        assert {len(r.drafted) for r in rounds if not r.cut} == {gamma}
        assert counts.setdefault(gamma, [len(r.drafted) for r in rounds]) == [len(r.drafted) for r in rounds]
    assert [m.generation_config.to_dict() for m in pair] == before


# --- models that break, and numbers of 16 bit -----------------------------------------------------------------------


@pytest.mark.parametrize("sampling", [Sampling(), GREEDY, Sampling(0.7, 5, 0.9)], ids=str)
@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("broken", ["target", "draft"])
def test_nan_is_raised_in_its_round_and_named(sampling, rule, broken):
    target = tiny_gpt2(0, layers=2)
    draft = blurred(target)
    rounds = speculative_rounds(target, draft, prompt(5), 40, gamma=3, rule=rule, sampling=sampling, generator=0)
    text = [next(rounds) for _ in range(2)]
    size = 5 + sum(len(r.tokens) for r in text)
    with torch.no_grad():
        (target if broken == "target" else draft).transformer.ln_f.weight[3] = math.nan
    with pytest.raises(ValueError) as error:
        next(rounds)
    one_sentence(error, f"the {broken} model", "NaN", "round 3", f"position {size}")


def test_nan_in_the_plain_loop_is_named():
    target = tiny_gpt2(0, layers=2)
    with torch.no_grad():
        target.transformer.wpe.weight[7] = math.nan  # the third new token reads text position 7
    with pytest.raises(ValueError) as error:
        autoregressive(target, prompt(6), 10, generator=0)
    one_sentence(error, "the target model", "NaN", "round 3")
    assert len(autoregressive(target, prompt(6), 2, generator=0).tokens) == 2


def test_half_precision_writes_a_near_likeliest_token(pair):
    # 16 bit rounds a block and a single step differently: near-ties may fall either way, nothing else.
    target, draft = (copy.deepcopy(m).bfloat16() for m in pair)
    g = speculative(target, draft, prompt(5), 30, sampling=GREEDY, generator=0, trace=True)
    assert g.rounds[0].p.dtype == g.rounds[0].q.dtype == torch.float32
    with torch.no_grad():
        logits = target(input_ids=g.ids, use_cache=False).logits[0, 4:-1].float()
    gap = logits.amax(-1) - logits.gather(1, g.tokens[:, None]).squeeze(1)
    assert gap.max() <= 0.02 * logits.abs().max()


@pytest.mark.parametrize("temperature", [1e-10, 1e-3, 100.0])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_extreme_temperatures(pair, temperature, dtype):
    target, draft = (copy.deepcopy(m).to(dtype) for m in pair)
    g = speculative(target, draft, prompt(5), 30, sampling=Sampling(temperature), generator=0)
    assert len(g.tokens) == 30
    if temperature < 1e-5 and dtype == torch.float32:
        assert g.tokens.tolist() == plain_greedy(target, prompt(5), 30)
