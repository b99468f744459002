"""Nothing is left behind: modes, gradients, caches, models and random states are as they were, also after an error."""

import copy

import pytest
import torch

from spec_lib import CachedModel, Sampling, autoregressive, speculative, speculative_rounds
from tests.helpers.drafters import Bare, Reused
from tests.helpers.loops import CALLS, GREEDY, one_sentence
from tests.helpers.models import blurred, plain_greedy, prompt, tiny_gpt2

# --- evaluation mode and gradients ----------------------------------------------------------------------------------


def flags(*models: torch.nn.Module) -> list:
    return [
        *[m.training for model in models for m in model.modules()],
        *[p.requires_grad for model in models for p in model.parameters()],
        *[p.grad is None for model in models for p in model.parameters()],
    ]


@pytest.fixture
def mixed():
    """Two models in training mode (dropout .5), but for a layer; some weights frozen."""
    target = tiny_gpt2(0, layers=2, resid_pdrop=0.5, embd_pdrop=0.5, attn_pdrop=0.5)
    draft = blurred(target)
    for model in (target, draft):
        model.train()
        model.transformer.h[1].eval()
        model.transformer.wte.weight.requires_grad_(False)
    return target, draft


def test_training_mode_and_gradients_are_put_back(mixed):
    target, draft = mixed
    quiet = copy.deepcopy(target).eval()
    before, text = flags(*mixed), plain_greedy(quiet, prompt(5), 12)
    for g in (
        autoregressive(target, prompt(5), 12, sampling=GREEDY),
        speculative(target, draft, prompt(5), 12, sampling=GREEDY),
        speculative(target, target, prompt(5), 12, sampling=GREEDY),
    ):
        assert g.tokens.tolist() == text  # without dropout
        assert not g.tokens.requires_grad
        assert flags(*mixed) == before
    assert torch.is_grad_enabled()


def test_they_are_put_back_when_something_raises(mixed):
    target, draft = mixed
    before = flags(*mixed)

    def rule(p, q, drafted, uniforms):
        assert flags(*mixed) == before  # evaluation mode belongs to the pass, and the passes are over
        assert not torch.is_grad_enabled()
        raise KeyboardInterrupt

    passes = []
    watch = target.lm_head.register_forward_hook(
        lambda *_: passes.append(any(m.training for m in target.modules()) or torch.is_grad_enabled())
    )
    with pytest.raises(KeyboardInterrupt):
        speculative(target, draft, prompt(5), 12, rule=rule)
    watch.remove()
    assert len(passes) >= 2 and not any(passes)
    assert flags(*mixed) == before
    assert torch.is_grad_enabled()

    def refuse(module, args):
        raise RuntimeError("planted")

    hook = target.lm_head.register_forward_pre_hook(refuse)
    for call in CALLS.values():
        with pytest.raises(RuntimeError, match="planted"):
            call(target, draft, prompt(5), 12)
        assert flags(*mixed) == before
        assert torch.is_grad_enabled()
    hook.remove()


@pytest.mark.parametrize("grad", [True, False])
def test_between_rounds_the_caller_has_its_own_modes_back(mixed, grad):
    before = flags(*mixed)
    with torch.set_grad_enabled(grad):
        rounds = speculative_rounds(*mixed, prompt(5), 30, gamma=2, generator=0, trace=True)
        assert torch.is_grad_enabled() == grad
        assert flags(*mixed) == before
        for done, _ in zip(rounds, range(3), strict=False):
            assert torch.is_grad_enabled() == grad
            assert not torch.is_inference_mode_enabled()
            assert flags(*mixed) == before
            assert not done.p.is_inference()  # what is yielded can be trained on
        rounds.close()  # abandoned half-way
        assert torch.is_grad_enabled() == grad
        assert flags(*mixed) == before


def test_a_mode_that_the_caller_switches_between_two_rounds_counts(mixed):
    target, draft = mixed
    text = plain_greedy(copy.deepcopy(target).eval(), prompt(5), 24)
    for model in mixed:
        model.eval()
    told = []
    for i, done in enumerate(speculative_rounds(*mixed, prompt(5), 24, gamma=2, sampling=GREEDY)):
        told += done.tokens
        for model in mixed:
            assert model.training == (i > 0 and (i - 1) % 4 == 0)  # as the caller left it after the round before
            model.train(i % 4 == 0)  # on after rounds 0, 4, ..., off after the others
    assert told == text


def test_in_the_callers_inference_mode(pair):
    with torch.inference_mode():
        g = speculative(*pair, prompt(5), 8, sampling=GREEDY)
    assert g.tokens.tolist() == plain_greedy(pair[0], prompt(5), 8)


def test_a_scored_model_is_as_good_as_its_model(mixed):
    quiet = copy.deepcopy(mixed[0]).eval()
    text = plain_greedy(quiet, prompt(5), 12)
    before = flags(*mixed)
    scored = [CachedModel(m) for m in mixed]
    assert autoregressive(scored[0], prompt(5), 12, sampling=GREEDY).tokens.tolist() == text
    for _ in range(2):  # used again, it starts empty
        assert speculative(*scored, prompt(5), 12, sampling=GREEDY).tokens.tolist() == text
    assert flags(*mixed) == before


# --- models and caches ----------------------------------------------------------------------------------------------


def test_nothing_of_the_models_is_changed(pair):
    def state(model):
        weights = [(n, w.clone()) for n, w in model.state_dict().items()]
        attributes = {k: v for k, v in vars(model).items() if not k.startswith("_")}
        return weights, model.config.to_dict(), model.generation_config.to_dict(), sorted(attributes), len(vars(model))

    before = [state(m) for m in pair]
    ids = prompt(5)
    copy_of_ids = ids.clone()
    autoregressive(pair[0], ids, 8, generator=0)
    for gamma in (8, 2):
        speculative(*pair, ids, 20, gamma=gamma, sampling=Sampling(0.7, 9, 0.9), generator=0, eos_token_id=3)
    for old, model in zip(before, pair, strict=True):
        new = state(model)
        assert new[1:] == old[1:]
        assert all(n == m and torch.equal(a, b) for (n, a), (m, b) in zip(new[0], old[0], strict=True))
    assert torch.equal(ids, copy_of_ids)


def test_two_generations_at_once_do_not_meet(pair):
    texts = [plain_greedy(pair[0], prompt(n), 15) for n in (3, 8)]
    streams = [speculative_rounds(*pair, prompt(n), 15, gamma=3, sampling=GREEDY) for n in (3, 8)]
    out = [[], []]
    while any(streams):
        for i, stream in enumerate(streams):
            done = next(stream, None) if stream else None
            if done is None:
                streams[i] = None
            else:
                out[i] += done.tokens
    assert out == texts


def test_after_an_interrupt_everything_can_be_used_again(deep_pair):
    target, draft = Reused(deep_pair[0]), Reused(deep_pair[1])
    text = plain_greedy(deep_pair[0], prompt(5), 20)
    for model in deep_pair:
        for after in range(1, 6):
            calls = []

            def interrupt(module, arguments, output, calls=calls, after=after):
                calls.append(1)
                if len(calls) == after:
                    raise KeyboardInterrupt

            hook = model.transformer.h[0].register_forward_hook(interrupt)
            with pytest.raises(KeyboardInterrupt):
                speculative(target, draft, prompt(5), 20, sampling=GREEDY)
            hook.remove()
            assert speculative(target, draft, prompt(5), 20, sampling=GREEDY).tokens.tolist() == text


def test_two_texts_on_one_cache_are_told_apart(pair):
    """Reading another text with the same cache between two rounds would silently go on in that other text."""
    target = Reused(pair[0])
    for other in (
        lambda: speculative_rounds(target, pair[1], prompt(5), 20),
        lambda: autoregressive(target, prompt(9), 3),
        lambda: target.rollback(2),
    ):
        rounds = speculative_rounds(target, pair[1], prompt(6), 20)
        next(rounds)
        other()
        with pytest.raises(ValueError) as error:
            next(rounds)
        one_sentence(error, "another text", "fresh()")


def test_one_scored_model_in_both_places(pair):
    # A learner who wraps the model once and hands it in twice must not get two readers on one cache.
    cached = CachedModel(pair[0])
    g = speculative(cached, cached, prompt(4), 12, sampling=GREEDY)
    assert g.tokens.tolist() == plain_greedy(pair[0], prompt(4), 12)


def test_one_scored_model_cannot_be_target_and_draft_on_one_cache():
    rows = torch.tensor([[0.5, 0.5], [0.25, 0.75]])
    one = Bare(rows)
    with pytest.raises(ValueError) as error:
        speculative(one, one, torch.tensor([[0, 1]]), 5)
    one_sentence(error, "fresh")
    assert len(speculative(one, Bare(rows), torch.tensor([[0, 1]]), 5).tokens) == 5
