"""Texts written together and the same texts alone: what is compared, and on which models."""

from __future__ import annotations

import copy
import functools

import torch

import spec_lib as sl
from spec_lib import rows
from tests.helpers.models import blurred, float_pair, prompt

LENGTHS = (9, 1, 4, 17, 2, 6, 12, 3)  # of the prompts
BUDGETS = (3, 20, 11, 6, 17, 1, 14, 8)
SEEDS = range(100, 108)


@functools.cache
def double_pair():
    """A target and a draft near it, in float64, in which a pass over several texts leaves each text as it is."""
    target = copy.deepcopy(float_pair()[0]).double()
    return target, blurred(target, 0.05)


def made_again(model: torch.nn.Module) -> torch.nn.Module:
    """The same model, made anew: once asked for its hidden states, transformers leaves hooks in it that no pickle
    takes, and copies have them too."""
    other = type(model)(model.config).to(model.dtype)
    other.load_state_dict(model.state_dict())
    return other.eval()


def models(own: bool = True):
    """The pair, on our own forward pass or on transformers'."""
    return tuple(map(sl.GPT2, double_pair())) if own else double_pair()


def prompts() -> list[torch.Tensor]:
    return [prompt(n) for n in LENGTHS]


def together(own: bool = True, slots: int = 8, pair=None, **options) -> list[sl.Generation]:
    return sl.speculative_batch(
        *(pair or models(own)), prompts(), list(BUDGETS), slots=slots, generators=list(SEEDS), **options
    )


def alone(own: bool = True, pair=None, sampling=None, **options) -> list[sl.Generation]:
    each = sampling if isinstance(sampling, list) else [sampling] * len(LENGTHS)
    return [
        sl.speculative(*(pair or models(own)), ids, new, sampling=chosen, generator=seed, **options)
        for ids, new, chosen, seed in zip(prompts(), BUDGETS, each, SEEDS, strict=True)
    ]


def outcome(r: sl.Round) -> tuple:
    return r.drafted.tolist(), r.accepted, r.token, r.origin, r.cut


def differing(batch: list[sl.Generation], single: list[sl.Generation]) -> tuple[list[int], list[int]]:
    """The texts that are not the same, and those whose rounds are not."""
    texts, rounds = [], []
    for i, (a, b) in enumerate(zip(batch, single, strict=True)):
        if not torch.equal(a.ids, b.ids) or not torch.equal(a.tokens, b.tokens) or a.stop_reason != b.stop_reason:
            texts.append(i)
        if list(map(outcome, a.rounds)) != list(map(outcome, b.rounds)):
            rounds.append(i)
    return texts, rounds


def _check(what: str, slots: int, **options) -> None:
    for own in (True, False):
        texts, rounds = differing(together(own, slots, **options), alone(own, **options))
        found = texts if what == "texts" else rounds
        assert not found, f"{what} {found} are not what they are alone, with {slots} slots, own {own}"


# Each sees what the ones before it cannot: see `test_what_each_test_of_a_batch_sees`.


def check_batch_greedy() -> None:
    """Greedy texts are those alone, all at once: whatever is wrong with a draft does not show."""
    _check("texts", 8, sampling=sl.Sampling(0))


def check_batch_greedy_refilled() -> None:
    """The same with fewer slots than texts."""
    _check("texts", 3, sampling=sl.Sampling(0))


def check_batch_seeded() -> None:
    """Sampled texts are those alone with their seeds."""
    _check("texts", 8)


def check_batch_seeded_refilled() -> None:
    """The same with fewer slots than texts."""
    _check("texts", 3)


def check_batch_rounds() -> None:
    """Rounds of greedy texts are those alone: what was drafted, and how much of it was accepted."""
    _check("rounds", 3, sampling=sl.Sampling(0))


def check_batch_widened() -> None:
    """A cache that grows in the middle of several texts keeps what it holds."""
    step, rows.STEP = rows.STEP, 4
    try:
        _check("texts", 3)
    finally:
        rows.STEP = step


def spoiled() -> tuple:
    """`models`, where token 30 makes every later logit of its text NaN."""
    pair = tuple(copy.deepcopy(model) for model in double_pair())
    for model in pair:
        with torch.no_grad():
            model.lm_head.weight = torch.nn.Parameter(model.lm_head.weight.clone())  # no longer the embedding
            model.transformer.wte.weight[30] = torch.nan
    return pair


def check_batch_nan() -> None:
    """A text with NaN logits ends alone: its neighbours go on, and so does the next text in its slot."""
    pair = spoiled()
    for make in (sl.GPT2, sl.CachedModel):
        target, draft = map(make, pair)
        engine = sl.Engine(target, draft, slots=2)
        good, bad, later = (torch.tensor([row]) for row in ([1, 2, 3], [4, 30, 5, 6, 7, 8, 9], [7, 8]))
        texts = [engine.submit(ids, 9, generator=1) for i, ids in enumerate((good, bad, later))]
        for _ in range(60):
            if not engine.step():
                break
        assert texts[1].stop_reason == "error" and "NaN" in str(texts[1].error) and not texts[1].rounds
        for i in (0, 2):
            want = sl.speculative(target, draft, texts[i].ids, 9, generator=1)  # which meets no token 30
            assert texts[i].generation().tokens.tolist() == want.tokens.tolist(), f"text {i} was spoiled"


def check_batch_samplings() -> None:
    """Each text is drawn as it asks for, whatever its neighbours do."""
    each = [sl.Sampling(0), sl.Sampling(), sl.Sampling(0.7, 5), sl.Sampling(1.3, None, 0.8)] * 2
    _check("texts", 3, sampling=each)
