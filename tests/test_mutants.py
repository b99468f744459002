"""Each known wrong sampler, planted one at a time, has to make named checks fail: who tests the tests?"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import checks_of_samplers
import pytest
import torch
import wrong_rules as wrong

import spec_lib as sl
from spec_lib import cache, decoding, drafting, sampling, verification

Plant = Callable[[pytest.MonkeyPatch, Callable[[], None]], None]


@dataclass(frozen=True)
class Mutant:
    """A fault, how it is planted (`hit` is called whenever the wrong code runs), and checks that must see it."""

    name: str
    plant: Plant
    caught_by: tuple[str, ...]


def rule(wrong_rule, names=("google", "deepmind")) -> Plant:
    """Another rule in the place of the real ones."""

    def plant(patch, hit):
        def planted(*args):
            hit()
            return wrong_rule(*args)

        for name in names:
            patch.setitem(verification.RULES, name, planted)

    return plant


def around(owner, name: str, wrapper) -> Plant:
    """wrapper(real, *args, **kwargs) in the place of owner.name; `real` is the course's own function."""

    def plant(patch, hit):
        real = getattr(owner, name)

        def planted(*args, **kwargs):
            hit()
            return wrapper(real, *args, **kwargs)

        patch.setattr(owner, name, planted)

    return plant


def both(*plants: Plant) -> Plant:
    def plant(patch, hit):
        for p in plants:
            p(patch, hit)

    return plant


def residual(function) -> Plant:
    return around(verification, "residual", lambda real, p, q: function(p, q))


class DraftSource:
    """A source whose drafted tokens come from `change(q)`, and not from the q that the loop is told."""

    def __init__(self, source, change):
        self.source, self.change = source, change

    def draw(self, p, position):
        return self.source.draw(self.change(p), position)


def drawn_from(change) -> Plant:
    """change(q, sampling): the law from which the draft really draws."""

    def start(real, drafter, ids, settings, source, target):
        return real(drafter, ids, settings, DraftSource(source, lambda p: change(p, settings)))

    return around(drafting.ModelDrafter, "start", start)


def certain(p: torch.Tensor) -> torch.Tensor:
    return torch.nn.functional.one_hot(p.argmax(), len(p)).to(p.dtype)


def raw_law(real, session, logits):
    return sampling.probabilities(logits[: session.vocab], sl.Sampling())


def soft_at_zero(real, logits, settings):
    return real(logits, settings if settings.temperature else sl.Sampling())


def target_ignores_sampling(real, job, *args, **kwargs):
    real(job, *args, **kwargs)
    job.sampling = sl.Sampling()


def constant_source(real, source, k, position):
    source.used = len(source.block) + 1  # never reuse the block
    source.generator = torch.Generator().manual_seed(123)
    return real(source, k, position)


def whole_text_again(real, scored, ids, keep=None):
    text = torch.cat([getattr(scored, "text", ids[:0])[: scored.length], ids])
    logits = real(scored, text)[-len(ids) :]
    scored.text, scored.length = text, len(text)
    return logits if keep is None else logits[-keep:]


def last_draft_not_fed(real, session, n, token):
    real(session, n, token)
    session.pending = token


def draft_never_trimmed(real, session, n, token):
    session.model.rollback = lambda length: None
    real(session, n, token)
    del session.model.rollback


def draft_trimmed_too_far(real, session, n, token):
    real(session, n, token)
    if 0 < n < len(session.drafted):
        session.model.rollback(session.model.length - 1)


def in_round(change) -> Plant:
    """change(real_rollback, target) gives the rollback that the target has during a round."""

    def wrapper(real, job, *args):
        target = job.target
        target.rollback = change(target.rollback, target)
        try:
            return real(job, *args)
        finally:
            del target.rollback

    return around(decoding._Job, "_round", wrapper)


def empties(real, scored, length):
    """`keys[..., :-0]`, with the length as it should be."""
    held = scored.length
    real(scored, 0 if length == held else length)
    scored.length = length


def crops_by_a_positive_count(real, scored, length):
    if length == 0:
        return real(scored, 0)  # a new text
    if length < scored.length:
        scored.cache.crop(scored.length - length)
        scored.length = length


def round_with(**changes) -> Plant:
    """`_round` called with changed size or left: each change is (job, value) -> value."""

    def wrapper(real, job, session, last, size, left, number):
        new = {"size": size, "left": left} | {
            name: change(job, {"size": size, "left": left}[name]) for name, change in changes.items()
        }
        return real(job, session, last, new["size"], new["left"], number)

    return around(decoding._Job, "_round", wrapper)


def budget(change) -> Plant:
    """change(prompt length, max_new_tokens) is what the loop counts down from."""

    def wrapper(real, job, *args, **kwargs):
        real(job, *args, **kwargs)
        job.max_new_tokens = change(job.ids.shape[1], job.max_new_tokens)

    return around(decoding._Job, "__init__", wrapper)


def tokens(change) -> Plant:
    """`Round.tokens` as another expression."""

    def plant(patch, hit):
        def planted(r):
            hit()
            return change(r)

        patch.setattr(decoding.Round, "tokens", property(planted))

    return plant


def eos_at_the_end_only(real, job, *args):
    eos, job.eos = job.eos, frozenset()
    try:
        return real(job, *args)
    finally:
        job.eos = eos


def bonus_behind_eos(real, job, *args):
    done, token = real(job, *args)
    if done.token is None:
        done.token, done.origin = int(token), "bonus"
    return done, token


def only_first_eos(real, scored, ids, count, settings, eos, mask):
    return real(scored, ids, count, settings, eos[0] if isinstance(eos, list) else eos, mask)


def zero_ends_the_text(real, *args):
    ids, eos = real(*args)
    return ids, eos | {0}


ROLLBACK = (cache.CachedModel, "rollback")
ACCEPT = (drafting.ModelSession, "accept")
MUTANTS = [
    Mutant(
        "01 resample from p",
        residual(wrong.residual_is_p),
        ("rule_distribution", "rule_references", "loop_distribution"),
    ),
    Mutant(
        "02 residual |p - q|",
        residual(wrong.residual_absolute),
        ("rule_distribution", "rule_references", "loop_distribution"),
    ),
    Mutant("03 softmax of the residual", residual(wrong.residual_softmax), ("rule_distribution", "rule_references")),
    Mutant(
        "04a argmax draft, soft q in the ratio",
        drawn_from(lambda p, s: certain(p)),
        ("loop_distribution", "loop_filters"),
    ),
    Mutant(
        "04b the same at temperature 0",
        both(
            around(sampling, "probabilities", soft_at_zero),
            drawn_from(lambda p, s: p if s.temperature else certain(p)),
        ),
        ("greedy", "eos"),
    ),
    Mutant(
        "05a draft drawn from its filtered law, raw q in the ratio",
        both(
            around(drafting.ModelSession, "_law", raw_law),
            drawn_from(lambda p, s: sampling.probabilities(p.log(), s)),
        ),
        ("loop_filters",),
    ),
    Mutant(
        "05b sampling settings reach the draft only",
        around(decoding._Job, "__init__", target_ignores_sampling),
        ("loop_filters", "greedy"),
    ),
    Mutant(
        "06a every uniform is .8823",
        rule(wrong.seed_in_the_loop),
        ("rule_distribution", "rule_references", "loop_distribution"),
    ),
    Mutant("06b seeded anew at every draw", around(sampling.Randomness, "uniforms", constant_source), ("source",)),
    Mutant(
        "07a last accepted token redrawn, no bonus",
        rule(wrong.rule_of(finish=wrong.last_redrawn)),
        ("rule_distribution", "rule_references", "own_draft"),
    ),
    Mutant("07b no bonus (law right)", rule(wrong.rule_of(finish=wrong.no_bonus)), ("own_draft", "rule_acceptance")),
    Mutant(
        "08a accepted ones counted behind a rejection", rule(wrong.counts_all_verdicts), ("rule_distribution", "trace")
    ),
    Mutant("08b only the first verdict counts", rule(wrong.first_verdict_decides), ("rule_distribution", "trace")),
    Mutant(
        "09 equality test, then a fresh draw",
        rule(wrong.rule_of(wrong.accept_if_equal, wrong.residual_is_p)),
        ("rule_distribution", "rule_references", "loop_distribution"),
    ),
    Mutant(
        "10 bonus from row gamma",
        rule(wrong.rule_of(finish=wrong.bonus_of_row_before)),
        ("rule_distribution", "every_token", "loop_distribution"),
    ),
    Mutant(
        "11 whole text fed on top of the cache",
        around(cache.CachedModel, "feed", whole_text_again),
        ("trace", "loop_distribution", "work"),
    ),
    Mutant("12a last draft never fed to the draft", around(*ACCEPT, last_draft_not_fed), ("trace", "own_draft")),
    Mutant("12b draft's cache never trimmed", around(*ACCEPT, draft_never_trimmed), ("trace",)),
    Mutant("12c draft's cache trimmed too far", around(*ACCEPT, draft_trimmed_too_far), ("trace",)),
    Mutant(
        "12d target's cache keeps a rejected token",
        in_round(lambda real, target: lambda length: real(min(length + 1, target.length))),
        ("loop_distribution", "trace", "greedy"),
    ),
    Mutant("13a cache[:-0]", around(*ROLLBACK, empties), ("trace", "loop_distribution", "own_draft")),
    Mutant("13b crop(+n)", around(*ROLLBACK, crops_by_a_positive_count), ("trace", "loop_distribution")),
    Mutant(
        "13c drafted[:-0]",
        tokens(lambda r: r.drafted[: r.accepted - len(r.drafted)].tolist() + ([] if r.token is None else [r.token])),
        ("loop_distribution", "every_token", "eos"),
    ),
    Mutant(
        "14a EOS inside a round not seen",
        around(decoding._Job, "_round", eos_at_the_end_only),
        ("eos", "loop_eos_distribution"),
    ),
    Mutant(
        "14b EOS, then a bonus", around(decoding._Job, "_round", bonus_behind_eos), ("eos", "loop_eos_distribution")
    ),
    Mutant(
        "15 only the first of several EOS ids",
        around(decoding, "_check", only_first_eos),
        ("eos", "loop_eos_distribution"),
    ),
    Mutant(
        "16a gamma not shortened at the end", round_with(left=lambda job, left: left + job.gamma), ("budget", "greedy")
    ),
    Mutant("16b one token more", budget(lambda prompt, count: count + 1), ("budget", "greedy")),
    Mutant("16c at least one token", budget(lambda prompt, count: max(1, count)), ("budget",)),
    Mutant("16d at least two tokens", budget(lambda prompt, count: max(2, count)), ("budget",)),
    Mutant(
        "17a len(ids) as prompt length",
        round_with(size=lambda job, size: size - job.ids.shape[1] + 1),
        ("trace", "loop_distribution", "greedy"),
    ),
    Mutant("17b prompt counted in the budget", budget(lambda prompt, count: max(0, count - prompt + 1)), ("budget",)),
    Mutant("18 0/0 in the residual", residual(wrong.residual_unguarded), ("rule_references",)),
    Mutant("20a google: not strict", rule(wrong.rule_of(wrong.accept_not_strict), ("google",)), ("rule_zero",)),
    Mutant("20b deepmind: not strict", rule(wrong.rule_of(wrong.accept_not_strict), ("deepmind",)), ("rules_agree",)),
    Mutant("22a token 0 ends the text", around(decoding, "_check", zero_ends_the_text), ("every_token", "budget")),
    Mutant(
        "22b token 0 is falsy",
        tokens(lambda r: r.drafted[: r.accepted].tolist() + ([r.token] if r.token else [])),
        ("every_token", "loop_distribution"),
    ),
    Mutant(
        "ratio q/p",
        rule(wrong.rule_of(wrong.accept_inverted)),
        ("rule_distribution", "rule_references", "loop_distribution"),
    ),
    Mutant("exact-match verification (law right)", rule(wrong.exact_match), ("rule_acceptance", "rule_references")),
]


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda m: f"{m.name}: caught by {', '.join(m.caught_by)}")
def test_caught(mutant: Mutant, monkeypatch):
    """Every check named behind the mutant fails on it, and for its sake: the wrong code ran."""
    hits = []
    mutant.plant(monkeypatch, lambda: hits.append(1))
    for name in mutant.caught_by:
        hits.clear()
        with pytest.raises((AssertionError, ValueError, IndexError, RuntimeError)):
            checks_of_samplers.CHECKS[name]()
        assert hits, f"{name} never reached the planted code"


def test_rows():
    """No row of the list of faults is forgotten."""
    rows = {m.name[:2] for m in MUTANTS}
    assert rows >= {f"{n:02d}" for n in (*range(1, 19), 20, 22)}


def test_rule_of_is_right(monkeypatch):
    """The frame in which wrong rules are written is itself right: what fails is the one part that differs."""
    rule(wrong.rule_of())(monkeypatch, lambda: None)
    for name in ("rule_distribution", "rule_references", "rule_acceptance", "rule_zero", "rules_agree", "trace"):
        checks_of_samplers.CHECKS[name]()
