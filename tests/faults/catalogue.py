"""Every fault that is planted on purpose, once each: what is wrong, where, how it is planted, and what must see it.

Two ways of planting.  At a *seam*: something that a caller may hand in or replace is a wrong one (a rule, a model, a
randomness, a drafter, the loop called with other options); `caught_by` names the promises that have to break, which
takes seconds and is part of the tests.  As *text*: where there is no seam, a snippet of the source becomes another, in
this process (`planted`, where promises see it) or in a copy of the project (`python -m tests.faults.plant`).
A snippet stands once in its file and holds no comment.  Those of `decoding`, `drafting`, `cache`, `records` and
`sampling` stand together in TEXTS: after a rewrite of these files `test_applies.py` says which have to be re-aimed.
"""

from __future__ import annotations

import sys
import types
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
import torch

import spec_lib as sl
from spec_lib import cache, drafting, records, sampling, verification
from tests.helpers import enumeration
from tests.helpers import wrong_rules as wrong

LIBRARY = Path(sl.__file__).parent
Plant = Callable[[pytest.MonkeyPatch, Callable[[], None]], None]


@dataclass(frozen=True)
class Fault:
    """name: what is wrong.  room: the part of the method that is wrong.  plant: plant(patch, hit) makes it so through
    `patch`; `hit` is called whenever the wrong code runs.  caught_by: promises (`promises.CHECKS`) that must break."""

    name: str
    room: str
    plant: Plant
    caught_by: tuple[str, ...]


@dataclass(frozen=True)
class Text:
    """name: what is wrong.  room: its file, spec_lib/`room`.py (or in a folder, as "drafters/branching"), in which
    `old` stands once and becomes `new`.  caught_by: promises that must break; none where only the tests of a subject
    see it."""

    name: str
    room: str
    old: str
    new: str
    caught_by: tuple[str, ...] = ()

    def source(self, library: Path = LIBRARY) -> str:
        """The file with the fault in it.  ValueError where the snippet does not stand there once."""
        text = (library / f"{self.room}.py").read_text(encoding="utf-8")
        if text.count(self.old) != 1:
            raise ValueError(f"{self.name!r}: its snippet stands {text.count(self.old)} times in {self.room}.py")
        return text.replace(self.old, self.new)

    def plant(self, patch: pytest.MonkeyPatch, hit: Callable[[], None]) -> None:
        """Replace the module's public and private names, wherever the library holds them, by those of a wrong copy."""
        name = f"spec_lib.{self.room}".replace("/", ".")
        real, copy = sys.modules[name], types.ModuleType(name)
        copy.__package__, copy.__file__ = name.rpartition(".")[0], real.__file__
        patch.setitem(sys.modules, copy.__name__, copy)  # dataclasses look their module up
        exec(compile(self.source(), f"{self.room} with a fault", "exec"), copy.__dict__)
        patch.setitem(sys.modules, copy.__name__, real)
        modules = [m for name, m in sys.modules.items() if name.split(".")[0] == "spec_lib" and m is not real]
        for name, old in vars(real).items():
            if getattr(old, "__module__", None) == real.__name__:
                for module in [real, *modules]:
                    for at in [k for k, v in vars(module).items() if v is old]:
                        patch.setattr(module, at, vars(copy)[name])
                if isinstance(old, type) and any(c.__module__ != real.__name__ for c in old.__subclasses__()):
                    for at in [k for k, v in vars(old).items() if isinstance(v, types.FunctionType)]:
                        patch.setattr(old, at, vars(vars(copy)[name])[at])  # for what inherits them elsewhere
        for key, old in list(verification.RULES.items()):
            if getattr(old, "__module__", None) == real.__name__:
                patch.setitem(verification.RULES, key, vars(copy)[old.__name__])
        hit()


# --- how to plant at a seam -----------------------------------------------------------------------------------------


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


def rule(wrong_rule, names=("google", "deepmind")) -> Plant:
    """Another rule in the place of the real ones."""

    def plant(patch, hit):
        def planted(p, q, drafted, uniforms):
            hit()
            return wrong_rule(p, q, drafted, uniforms)

        for name in names:
            patch.setitem(verification.RULES, name, planted)

    return plant


def residual(function) -> Plant:
    """function(p, q) in the place of the residual distribution."""
    return around(verification, "residual", lambda real, p, q: function(p, q))


def settings(change) -> Plant:
    """change(sampling) is the `Sampling` that decides."""
    return around(sampling, "probabilities", lambda real, logits, s: real(logits, change(s)))


def loop(wrapper) -> Plant:
    """wrapper(real, target, draft, ids, budget, **options) in the place of `speculative_rounds`, and of the rounds
    behind `speculative`."""

    def plant(patch, hit):
        real = sl.speculative_rounds

        def planted(*args, **options):
            hit()
            return wrapper(real, *args, **options)

        def whole(target, draft, ids, budget, **options):
            rounds = list(enumeration.bounded(planted(target, draft, ids, budget, **options), max(1, 2 * budget)))
            new = torch.tensor([t for r in rounds for t in r.tokens], dtype=torch.int64)
            eos = options.get("eos_token_id")
            ends = [] if eos is None else eos if isinstance(eos, list) else [eos]
            ended = len(new) > 0 and int(new[-1]) in ends
            return sl.Generation(new, torch.cat([ids.view(1, -1), new[None]], 1), rounds, "eos" if ended else "length")

        patch.setattr(sl, "speculative_rounds", planted)
        patch.setattr(sl, "speculative", whole)

    return plant


def options(change) -> Plant:
    """change(options) gives the options with which the loop is really called."""
    return loop(lambda real, *args, **given: real(*args, **change(given)))


def budget(change) -> Plant:
    """change(prompt length, max_new_tokens) is what the loop counts down from."""

    def wrapper(real, target, draft, ids, count, **given):
        return real(target, draft, ids, change(ids.shape[-1], count), **given)

    return loop(wrapper)


class Handed:
    """A model that somebody hands in, right but for what a subclass changes.

    It has what the page of protocols asks of a model, and says what else the model says of itself.
    """

    def __init__(self, model):
        self.inner = sl.CachedModel(model) if isinstance(model, torch.nn.Module) else model
        self.inner.rollback(0)

    def __getattr__(self, name: str):
        if name in ("inner", "fresh"):
            raise AttributeError(name)
        return getattr(self.inner, name)

    def feed(self, ids, keep=None):
        return self.inner.feed(ids, keep)

    def rollback(self, length):
        self.inner.rollback(length)


def handed(kind: type, as_target: bool) -> Plant:
    """The target, or the draft, is handed in as a `Handed` of that kind."""

    def wrapper(real, target, draft, *args, **given):
        models = (kind(target), draft) if as_target else (target, kind(draft))
        return real(*models, *args, **given)

    return loop(wrapper)


class DrawnFrom:
    """A randomness whose drafted tokens come from `change(q)`, and not from the q that the loop is told."""

    def __init__(self, randomness, change):
        self.randomness, self.change = randomness, change

    def draw(self, p, position):
        return self.randomness.draw(self.change(p), position)


def drawn_from(change, reported=lambda s: s) -> Plant:
    """change(q, sampling): the distribution from which the draft really draws; reported(sampling) gives q."""

    def start(real, drafter, ids, s, randomness, *rest):
        return real(drafter, ids, reported(s), DrawnFrom(randomness, lambda p: change(p, s)), *rest)

    return around(drafting.ModelDrafter, "start", start)


def emitted(change) -> Plant:
    """`Round.tokens` as another expression."""

    def plant(patch, hit):
        def planted(r):
            hit()
            return change(r)

        patch.setattr(records.Round, "tokens", property(planted))

    return plant


# --- wrong parts ----------------------------------------------------------------------------------------------------


def certain(p: torch.Tensor) -> torch.Tensor:
    return torch.nn.functional.one_hot(p.argmax(), len(p)).to(p.dtype)


def soft(s: sl.Sampling) -> sl.Sampling:
    return s if s.temperature else sl.Sampling()


def same_uniforms(real, randomness, k, position):
    return real(type(randomness)(123), k, position)


def one_uniform(p, q, drafted, uniforms):
    return sl.verify_google(p, q, drafted, uniforms[:1].expand(len(drafted)))


def residual_of_the_next(p, q, drafted, uniforms):
    n, distribution = sl.verify_google(p, q, drafted, uniforms)
    n = int(n)
    return n, verification.residual(p[n], q[min(n + 1, len(q) - 1)]) if n < len(q) else distribution


def whole_text_again(real, model, ids, keep=None):
    text = torch.cat([getattr(model, "text", ids[:0])[: model.length], ids])
    logits = real(model, text)[-len(ids) :]
    model.text, model.length = text, len(text)
    return logits if keep is None else logits[-keep:]


class KeepsOneMore(Handed):
    """Of what is to be forgotten, the first token stays."""

    def rollback(self, length):
        self.inner.rollback(min(length + 1, self.inner.length) if length else 0)


class NeverTrims(Handed):
    """Only a new text empties it; it says the length that it should have."""

    said = None

    @property
    def length(self):
        return self.inner.length if self.said is None else self.said

    def feed(self, ids, keep=None):
        self.said = None if self.said is None else self.said + len(ids)
        return self.inner.feed(ids, keep)

    def rollback(self, length):
        if length:
            self.said = length
        else:
            self.inner.rollback(0)


class TrimsTooFar(Handed):
    """One token that it read and that is still text is forgotten with the others; its length says nothing of it."""

    lost = 0

    @property
    def length(self):
        return self.inner.length + self.lost

    def rollback(self, length):
        further = 1 if 1 < length - self.lost < self.inner.length else 0
        self.inner.rollback(max(0, length - self.lost - further))
        self.lost = self.lost + further if length else 0


class SkipsTheLastDraft(Handed):
    """Of two unread tokens, as after a draft accepted whole, it reads the second only."""

    skipped = 0

    @property
    def length(self):
        return self.inner.length + self.skipped

    def feed(self, ids, keep=None):
        if len(ids) == 2 and self.length:
            self.skipped, ids = self.skipped + 1, ids[1:]
        return self.inner.feed(ids, keep)

    def rollback(self, length):
        self.inner.rollback(max(0, length - self.skipped))
        self.skipped = self.skipped if length else 0


def empties(real, model, length):
    """`keys[..., :-0]`, with the length as it should be."""
    held = model.length
    real(model, 0 if length == held else length)
    model.length = length


def crops_by_a_positive_count(real, model, length):
    if length == 0:
        return real(model, 0)  # a new text
    if length < model.length:
        model.cache.crop(model.length - length)
        model.length = length


def eos_at_the_end_only(real, *args, eos_token_id=None, **given):
    eos = eos_token_id if isinstance(eos_token_id, list) else [eos_token_id]
    for r in real(*args, **given):
        yield r
        if r.tokens[-1] in eos:
            return


def bonus_after_eos(real, *args, **given):
    for r in real(*args, **given):
        if r.token is None:
            r.token, r.origin = int(r.drafted[r.accepted - 1]), "bonus"
        yield r


def gamma_not_shortened(real, target, draft, ids, count, **given):
    left = count
    if left:
        for r in real(target, draft, ids, count + given.get("gamma", 4), **given):
            yield r
            left -= len(r.tokens)
            if left <= 0:
                return


def first_of(eos):
    return eos[0] if isinstance(eos, list) else eos


def with_zero(eos):
    return [0] if eos is None else [0, *eos] if isinstance(eos, list) else [0, eos]


HEADS, LESSONS, SHIPPED = "drafters/heads", "drafters/lessons", "drafters/shipped"

V, S, C, D, W, G, R, OWN, FIXED = (
    "verification", "sampling", "cache", "decoding", "writer", "drafting", "records", "gpt2", "graphs")  # fmt: skip
T, NOISE, BRANCH = "trees", "coupling", "drafters/branching"
EXPORT = "exporting"
LOOKUP, EARLY = "drafters/ngram", "drafters/early_exit"
EXACT = ("rule_distribution", "rule_references", "loop_distribution")
RULE = ("rule_distribution", "rule_references")
ROLLBACK = (cache.CachedModel, "rollback")

# The number is the row of the list of wrong samplers that stand in public code.
SEAMS = (
    # --- the rule
    Fault("01 resample from p, not from the residual", V, residual(wrong.residual_is_p), EXACT),
    Fault("01 the same in google's rule", V, rule(wrong.rule_of(rejected=wrong.residual_is_p), ("google",)), RULE),
    Fault("01 the same in deepmind's rule", V, rule(wrong.rule_of(rejected=wrong.residual_is_p), ("deepmind",)), RULE),
    Fault("02 residual |p - q|", V, residual(wrong.residual_absolute), EXACT),
    Fault("03 softmax of the residual", V, residual(wrong.residual_softmax), RULE),
    Fault("residual turned round", V, residual(lambda p, q: wrong.residual_unguarded(q, p)), RULE),
    Fault("residual not divided by its sum", V, residual(lambda p, q: (p - q).clamp(min=0)), RULE),
    Fault("06a every uniform is .8823", V, rule(wrong.seed_in_the_loop), EXACT),
    Fault("one uniform for all drafted tokens", V, rule(one_uniform), ("rule_distribution", "trace")),
    Fault(
        "07a last accepted token drawn again, no bonus",
        V,
        rule(wrong.rule_of(finish=wrong.last_resampled)),
        (*RULE, "own_draft"),
    ),
    Fault(
        "07b no bonus (exact all the same)",
        V,
        rule(wrong.rule_of(finish=wrong.no_bonus)),
        ("own_draft", "rule_acceptance"),
    ),
    Fault("08a accepted tokens counted after a rejection", V, rule(wrong.counts_all_verdicts), (RULE[0], "trace")),
    Fault("08b only the first verdict counts", V, rule(wrong.first_verdict_decides), (RULE[0], "trace")),
    Fault(
        "09 equality test, then a fresh draw",
        V,
        rule(wrong.rule_of(wrong.accept_if_equal, wrong.residual_is_p)),
        EXACT,
    ),
    Fault(
        "10 bonus from row gamma",
        V,
        rule(wrong.rule_of(finish=wrong.bonus_of_row_before)),
        ("rule_distribution", "every_token", "loop_distribution"),
    ),
    Fault(
        "10 the same in google's rule",
        V,
        rule(wrong.rule_of(finish=wrong.bonus_of_row_before), ("google",)),
        ("rule_distribution", "rules_agree"),
    ),
    Fault(
        "10 the same in deepmind's rule",
        V,
        rule(wrong.rule_of(finish=wrong.bonus_of_row_before), ("deepmind",)),
        ("rule_distribution", "rules_agree"),
    ),
    Fault(
        "bonus from the residual of the last position",
        V,
        rule(wrong.rule_of(finish=wrong.bonus_of_residual)),
        ("rule_distribution", "loop_distribution"),
    ),
    Fault("q of the next position in the residual", V, rule(residual_of_the_next), ("rule_distribution",)),
    Fault("18 0/0 in the residual", V, residual(wrong.residual_unguarded), ("rule_references",)),
    Fault("20a a tie accepts (google)", V, rule(wrong.rule_of(wrong.accept_not_strict), ("google",)), ("rule_zero",)),
    Fault(
        "20b a tie accepts (deepmind)", V, rule(wrong.rule_of(wrong.accept_not_strict), ("deepmind",)), ("rules_agree",)
    ),
    Fault("ratio q/p", V, rule(wrong.rule_of(wrong.accept_inverted)), EXACT),
    Fault("ratio q/p (google)", V, rule(wrong.rule_of(wrong.accept_inverted), ("google",)), RULE),
    Fault("ratio q/p (deepmind)", V, rule(wrong.rule_of(wrong.accept_inverted), ("deepmind",)), RULE),
    Fault(
        "exact-match verification (exact, fewer acceptances)",
        V,
        rule(wrong.exact_match),
        ("rule_acceptance", "rule_references"),
    ),
    # --- sampling
    Fault(
        "temperature multiplies",
        S,
        settings(lambda s: replace(s, temperature=1 / s.temperature if s.temperature else 0)),
        ("settings", "loop_filters"),
    ),
    Fault("temperature squared", S, settings(lambda s: replace(s, temperature=s.temperature**2)), ("settings",)),
    Fault(
        "temperature dropped", S, settings(lambda s: replace(s, temperature=1 if s.temperature else 0)), ("settings",)
    ),
    Fault("temperature 0 is soft", S, settings(soft), ("settings", "greedy")),
    Fault("top-k dropped", S, settings(lambda s: replace(s, top_k=None)), ("settings", "loop_filters")),
    Fault("top-k one too many", S, settings(lambda s: replace(s, top_k=s.top_k and s.top_k + 1)), ("settings",)),
    Fault("top-p dropped", S, settings(lambda s: replace(s, top_p=None)), ("settings",)),
    Fault("06b seeded anew at every draw", S, around(sl.Randomness, "uniforms", same_uniforms), ("randomness",)),
    # --- what the draft draws from
    Fault(
        "04a argmax draft, soft q in the ratio",
        G,
        drawn_from(lambda p, s: certain(p)),
        ("loop_distribution", "loop_filters"),
    ),
    Fault(
        "04b the same at temperature 0",
        G,
        both(settings(soft), drawn_from(lambda p, s: p if s.temperature else certain(p))),
        ("greedy", "eos"),
    ),
    Fault(
        "05a draft drawn from its filtered distribution, raw q in the ratio",
        G,
        drawn_from(lambda p, s: s.probabilities(p.log()), reported=lambda s: sl.Sampling()),
        ("loop_filters",),
    ),
    Fault(
        "draft draws from another distribution than it reports",
        G,
        drawn_from(lambda p, s: p.sqrt()),
        ("loop_distribution",),
    ),
    Fault(
        "05b sampling settings reach the draft only",
        D,
        options(lambda o: o | {"sampling": None, "draft_sampling": o.get("draft_sampling") or o.get("sampling")}),
        ("loop_filters", "greedy"),
    ),
    Fault("gamma ignored", D, options(lambda o: o | {"gamma": 4}), ("own_draft", "work")),
    # --- the caches
    Fault(
        "11 whole text fed on top of the cache",
        C,
        around(cache.CachedModel, "feed", whole_text_again),
        ("trace", "loop_distribution", "work"),
    ),
    Fault("12a last draft token never fed to the draft", G, handed(SkipsTheLastDraft, False), ("trace", "own_draft")),
    Fault("12b draft's cache never trimmed", G, handed(NeverTrims, False), ("trace",)),
    Fault("12c draft's cache trimmed too far", G, handed(TrimsTooFar, False), ("trace",)),
    Fault(
        "12d target's cache keeps a rejected token",
        D,
        handed(KeepsOneMore, True),
        ("loop_distribution", "trace", "greedy"),
    ),
    Fault("target's cache loses an accepted token", D, handed(TrimsTooFar, True), ("loop_distribution", "trace")),
    Fault("13a cache[:-0]", C, around(*ROLLBACK, empties), ("trace", "loop_distribution", "own_draft")),
    Fault("13b crop(+n)", C, around(*ROLLBACK, crops_by_a_positive_count), ("trace", "loop_distribution")),
    # --- what is written
    Fault(
        "13c drafted[:-0]",
        R,
        emitted(lambda r: r.drafted[: r.accepted - len(r.drafted)].tolist() + ([] if r.token is None else [r.token])),
        ("loop_distribution", "every_token", "eos"),
    ),
    Fault(
        "22b token 0 is falsy",
        R,
        emitted(lambda r: r.drafted[: r.accepted].tolist() + ([r.token] if r.token else [])),
        ("every_token", "loop_distribution"),
    ),
    Fault("14a EOS inside a round not seen", D, loop(eos_at_the_end_only), ("eos", "loop_eos_distribution")),
    Fault("14b EOS, then a bonus", D, loop(bonus_after_eos), ("eos", "loop_eos_distribution")),
    Fault(
        "15 only the first of several EOS ids",
        D,
        options(lambda o: o | {"eos_token_id": first_of(o.get("eos_token_id"))}),
        ("eos", "loop_eos_distribution"),
    ),
    Fault(
        "22a token 0 ends the text",
        D,
        options(lambda o: o | {"eos_token_id": with_zero(o.get("eos_token_id"))}),
        ("every_token", "budget"),
    ),
    Fault("16a gamma not shortened at the end", D, loop(gamma_not_shortened), ("budget", "greedy")),
    Fault("16b one token more", D, budget(lambda prompt, count: count + 1), ("budget", "greedy")),
    Fault("16c at least one token", D, budget(lambda prompt, count: max(1, count)), ("budget",)),
    Fault("16d at least two tokens", D, budget(lambda prompt, count: max(2, count)), ("budget",)),
    Fault("17b prompt counted in the budget", D, budget(lambda prompt, count: max(0, count - prompt + 1)), ("budget",)),
)

# A batch and its texts alone.  The greedy texts of a batch show nothing of what is wrong with its draft.
SEEN_BY_ALL = ("batch_greedy", "batch_greedy_refilled", "batch_seeded", "batch_seeded_refilled", "batch_rounds")
OF_THE_DRAFT = ("batch_seeded", "batch_seeded_refilled", "batch_rounds")
REFILLED = ("batch_greedy_refilled", "batch_seeded_refilled", "batch_rounds")
BATCHES = (
    Text("one position for all texts", "rows", "self._logits(padded, at, column",
         "self._logits(padded, at.amax(0, keepdim=True).expand_as(at), column", SEEN_BY_ALL),
    Text("the columns of the longest text", "rows", "torch.where(real, at, self.columns - 1)",
         "torch.where(real, start.amax() + step, self.columns - 1)", SEEN_BY_ALL),
    Text("rejected columns not hidden", "rows", "<= at[..., None]", "<= 0 * at[..., None] + end", SEEN_BY_ALL),
    Text("a token in a batch does not see itself", "rows", "<= at[..., None]", "< at[..., None]", SEEN_BY_ALL),
    Text("padding written over the beginning", "rows", "torch.where(real, at, self.columns - 1)",
         "torch.where(real, at, 0)", SEEN_BY_ALL),
    Text("padding counted as tokens", "rows", "self.lengths[i] += n", "self.lengths[i] += longest", SEEN_BY_ALL),
    Text("the last column's logits for every text", "rows", "range(max(0, n - keep), n)",
         "range(longest - keep, longest)", OF_THE_DRAFT),
    Text("the draft's keys and values not moved", "batch", "view.rows.move(view.slot, slot)",
         "view.rows.move(view.slot, slot) if view is last.views[0]"
         " else view.rows.lengths.__setitem__(slot, view.length)",
         OF_THE_DRAFT),
    Text("the length not moved with the text", "rows", "self.lengths[to] = self.lengths[source]", "pass", SEEN_BY_ALL),
    Text("a slot is rolled back by one token too few", "rows",
         "self.rows.lengths[self.slot] = check_rollback(self, length)",
         "self.rows.lengths[self.slot] = min(check_rollback(self, length) + 1, self.length)", SEEN_BY_ALL),
    Text("rejected tokens stay in the slot", "rows", "self.rows.lengths[self.slot] = check_rollback(self, length)",
         "check_rollback(self, length)", SEEN_BY_ALL),
    Text("the first text's budget for all", "batch", "ids, max_new_tokens, self.gamma",
         "ids, vars(self).setdefault('new', max_new_tokens), self.gamma", SEEN_BY_ALL),
    Text("a freed slot keeps its length", "rows", "self.lengths[slot] = 0", "pass", REFILLED),
    Text("a freed slot keeps what it held", "rows", "self._zero(slot)", "pass", ("batch_nan",)),
    Text("one source for all texts", "batch", "eos_token_id, generator, self.trace",
         "eos_token_id, vars(self).setdefault('one', torch.Generator().manual_seed(int(generator))), self.trace",
         ("batch_seeded", "batch_seeded_refilled")),
    Text("the first text's uniforms for every text", "batch", "eos_token_id, generator, self.trace",
         "eos_token_id, vars(self).setdefault('one', generator), self.trace",
         ("batch_seeded", "batch_seeded_refilled")),
    Text("the first text's sampling for every text", "batch", "self.rule, sampling, draft_sampling",
         "self.rule, vars(self).setdefault('one', sampling), draft_sampling", ("batch_samplings",)),
    Text("a text's numbers read from its neighbour's", "batch", "                del seen[: len(part)]\n", "",
         SEEN_BY_ALL),
    Text("drafting stops with the shortest draft", "batch", "max((room or 0", "min((room or 0",
         ("batch_rounds",)),
    Text("wide slots begin empty", "row_models", "self.cache[..., : self.columns - 1, :] = old[..., :-1, :]", "pass",
         ("batch_widened",)),
    Text("wide layers begin empty", "row_models", "wide[:, :, : held.shape[2] - 1] = held[:, :, :-1]", "pass",
         ("batch_widened",)),
    Text("keys moved without values", "row_models", "self.cache[:, :, to, :, :length] = self.cache[:, :, source",
         "self.cache[:, :1, to, :, :length] = self.cache[:, :1, source", SEEN_BY_ALL),
    Text("layers not moved with the text", "row_models", "part[to, :, :length] = part[source, :, :length]", "pass",
         SEEN_BY_ALL),
    Text("logits of another text's rows", "row_models", "[i * n + j for i, kept", "[i + j for i, kept", SEEN_BY_ALL),
    Text("one text's error ends them all", "request", "except ValueError as error:", "except KeyError as error:",
         ("batch_nan",)),
    Text("one session for all texts", "batch", 'raise ValueError("the drafter\'s start gave',
         'str("the drafter\'s start gave'),
    Text("a local window of columns", "row_models", '"local" in getattr', '"none" in getattr'),
    Text("a batch where the longest text moves the positions", "row_models", "model.facts.border is not None", "False"),
    Text("an engine goes on after an interrupt", "batch", "self.broken = True", "self.broken = False"),
    Text("trees in a batch", "arguments", 'fits = not getattr(drafter, "branches", False)', "fits = True"),
    Text("two texts share a source", "arguments", "any(source is other for other in taken)", "False"),
)  # fmt: skip

# The server: what OpenAI's clients would take for an answer.
ANSWERS, STRANGERS, SENT = ("served_answers",), ("served_strangers",), ("served_text",)
SERVER = (
    Text("the texts of a client that left are written on", "server/replies", "row.cancelled = True", "pass", STRANGERS),
    Text("only a streamed text notices that its client left", "server/replies", "_left(receive))",
         "_left(receive) if self.asked.stream else asyncio.Event().wait())", STRANGERS),
    Text("a stream that breaks off looks complete", "server/replies", "await say(error.body())", "pass", STRANGERS),
    Text("a stream that breaks off says that it is done", "server/replies", "await say(error.body())",
         'await say("[DONE]")', STRANGERS),
    Text("texts that an engine's failure ends are not told", "server/worker",
         'self._end(row, "error", Event(row, error=Refused(500, FAILED, code="engine_failed")))',
         'self._end(row, "error", Event(row, [], 0, 0, 0, "length"))', STRANGERS),
    Text("texts that the end of the server ends are not told", "server/worker",
         "row.events.put_nowait(Event(row, error=why))", 'row.events.put_nowait(Event(row, [], 0, 0, 0, "length"))',
         STRANGERS),
    Text("a waiting list without end", "server/worker", "len(self.open) + len(rows) > self.texts", "False", STRANGERS),
    Text("one text counts for all of a request", "server/worker", "len(self.open) + len(rows) > self.texts",
         "len(self.open) + 1 > self.texts", STRANGERS),
    Text("a token's bytes decoded alone", "server/text", "self.held += self.pieces.feed(token, origin)",
         "self.held += [(self.pieces.pair.decode([token]), origin)]", SENT),
    Text("a stop string within one piece only", "server/text",
         'text = "".join(piece for piece, _ in self.held)\n        ends =',
         'text = self.held[-1][0] if self.held else ""\n        ends =', SENT),
    Text("a stop string is sent before it is recognised", "server/text", "self._take(self._beginning())",
         "self._take()", SENT),
    Text("what follows a stop string is sent", "server/text", "self._take(len(text) - min(ends)[1])",
         "self._take(len(text) - min(ends)[0])", SENT),
    Text("what was held back is lost at the end", "server/text", "            self.held += self.pieces.end()\n",
         "            return []\n", SENT),
    Text("tokens after a stop string are counted", "server/text", "            self.tokens += 1\n",
         "            self.tokens += len(tokens) if i == 1 else 0\n", SENT),
    Text("the token that ends a text is not counted", "server/text", "            self.tokens += 1\n",
         '            self.tokens += reason != "eos" or i < len(tokens)\n', SENT),
    Text("the token that ends a text is shown", "server/text", 'if reason == "eos" and i', 'if reason == "none" and i',
         SENT),
    Text("one seed for all texts of a request", "server/app", "wanted.seed + index", "wanted.seed", ANSWERS),
    Text("top-k 40 for who says nothing", "server/asked", '("top_k", 0, 0, None)', '("top_k", 40, 0, None)'),
    Text("top-p .95 for who says nothing", "server/asked", '("top_p", 1.0, 0, 1)', '("top_p", 0.95, 0, 1)', ANSWERS),
    Text("a factor of 0 is taken for one that changes nothing", "server/asked", '"repetition_penalty": (1,)',
         '"repetition_penalty": (0,)'),
    Text("what is not supported is ignored", "server/asked", "if value is not None and not any(",
         "if False and not any(", ANSWERS),
    Text("0 is the same as false", "server/asked", "value == x and isinstance(value, bool) == isinstance(x, bool)",
         "value == x"),
    Text("alpha over all drafted in the metrics", "server/metrics",
         'done.token_by_token and done.origin == "resampled" and tokens > done.accepted',
         "len(done.drafted) - accepted", ANSWERS),
    Text("a token rejected in each round", "server/metrics",
         'done.token_by_token and done.origin == "resampled" and tokens > done.accepted', "1", ANSWERS),
    Text("a round's draft tokens counted beyond a stop string", "server/metrics", "min(done.accepted, tokens)",
         "done.accepted"),
    Text("the event loop waits for the engine", "server/worker", "                new, self.inbox = self.inbox, []\n",
         "                new, self.inbox = self.inbox, []\n            self.lock.acquire()\n"),
    Text("any name for this machine will do", "server/app", "return name in self.names", "return True"),
    Text("a body is read whatever its length", "server/app", "                    if size > most:\n",
         "                    if False:\n"),
    Text("half a header stays for ever", "server/serving", "if self.cycle is before:", "if False:"),
    Text("an answer that nobody reads stays for ever", "server/serving", "UNREAD_SECONDS, self.transport.abort",
         "UNREAD_SECONDS, id, 0"),
    Text("a client that leaves is an error in the log", "server/replies", "if work.done():", "if not work.done():"),
    Text("an answer that is read on is given up all the same", "server/serving",
         "        if self.unread_timer is not None:\n            self.unread_timer.cancel()\n", ""),
    Text("connections without end", "server/serving", "len(self.connections) > MOST:", "False:"),
    Text("any page may send texts", "server/app", '!= "application/json"', '== "none"'),
    Text("an engine that failed is used again", "server/worker", "self.engine, self.rows = None, {}",
         "self.rows = {}"),
)  # fmt: skip


# Text faults, written against decoding.py, drafting.py, cache.py, records.py, tracing.py, arguments.py, modes.py,
# architectures.py, sampling.py and gpt2.py as they stand: here, and nowhere else, are snippets of them.
DRAW = "token = self.randomness.draw(distribution, self.size + count)"
FETCH = "tokens = torch.cat([token, self.given, n]).to(sums.dtype)"
BLOCK = "generator=self.generator, device=where"
SAME_BLOCK = (
    "generator=torch.Generator().manual_seed(self.generator.initial_seed()) if self.generator else None, device=where"
)
JOINED = "            self.text.append(token)\n"
SEARCHED = f"""            for n in self.sizes:
                if n <= len(self.text):
                    self.after[tuple(self.text[-n:])] = len(self.text)
{JOINED}"""
TEXTS = (
    # --- sampling
    Text(
        "top-p without the token that reaches it",
        S,
        "before >= max(float(sampling.top_p), 1e-30)",
        "values.cumsum(-1) > max(float(sampling.top_p), 1e-30)",
        ("settings",),
    ),
    Text(
        "top-p not divided by what is left",
        S,
        "values / values.sum(-1, keepdim=True))\n    return p",
        "values)\n    return p",
        ("settings",),
    ),
    Text("16-bit distributions", S, "logits if logits.dtype == torch.float64 else logits.float()", "logits"),
    Text("draws a token of probability 0 at u = 0", S, "* total[-1:], right=True)", "* total[-1:], right=False)"),
    Text(
        "the last uniform handed out is the next one's first",
        S,
        "self.used += k\n        return self.singly[self.used - 1] if k == 1 else "
        "self.block[self.used - k : self.used]",
        "self.used += max(k - 1, 1)\n        return self.block[max(0, self.used - k) : max(k, self.used)]",
        ("randomness",),
    ),
    Text("every block of uniforms the same", S, BLOCK, SAME_BLOCK, ("randomness",)),
    Text("uniforms in torch's default type", S, ", device=where, dtype=torch.float32)", ", device=where)"),
    Text("seed ignored", S, "torch.Generator().manual_seed(seed)", "torch.Generator().manual_seed(0)"),
    Text(
        "caller's random state used in spite of a seed",
        S,
        "256), generator=self.generator, ",
        "256), ",
        (
            "budget",
            "one_seed_one_text",
        ),
    ),
    # --- the cache
    Text(
        "rollback keeps one token too many",
        C,
        "self.cache.crop(length - self.length)",
        "self.cache.crop(min(length - self.length + 1, -1))",
        (
            "trace",
            "eos",
        ),
    ),
    Text(
        "rollback forgets nothing",
        C,
        "self.cache.crop(length - self.length)",
        "pass",
        (
            "positions",
            "trace",
        ),
    ),
    Text(
        "rollback does not count",
        C,
        "cut(self.tree, self.length, length), length\n\n    def refuse",
        "self.tree, self.length\n\n    def refuse",
        (
            "positions",
            "trace",
        ),
    ),
    Text(
        "rollback to a length never reached",
        C,
        "if kept is None or not 0 <= kept <= model.length:",
        "if kept is None or not 0 <= kept:",
    ),
    Text(
        "work not counted",
        C,
        "self.fed + len(ids)\n        rows =",
        "self.fed\n        rows =",
    ),
    Text("two texts in one cache", C, "return CachedModel(self.model)", "return self"),
    Text("an interrupted pass leaves its traces", C, "if surplus > 0:", "if False:"),
    Text("positions that change their meaning let in", C, "if border is not None and size", "if False and size"),
    Text("sliding windows let in", C, "if window is not None and longest >= window:", "if False:"),
    Text("recurrent models let in", "architectures", 'or getattr(model, "_is_stateful", False)', "or False"),
    Text(
        "models that read in both directions let in",
        "architectures",
        "    check_causal(model)\n    border",
        "    border",
    ),
    Text("our own pass lets them in", "plain_gpt2", "    check_causal(model)", "    pass"),
    Text("training mode kept", "modes", "part.training = False", "part.training = True"),
    # --- the loop
    Text(
        "target fed without the text's last token",
        W,
        "torch.cat([self.last, self.x])",
        "torch.cat([0 * self.last, self.x])",
        (
            "every_token",
            "own_draft",
        ),
    ),
    Text(
        "budget one too many",
        W,
        "min(self.wanted, self.left - 1)",
        "min(self.wanted, self.left)",
        (
            "randomness",
            "every_token",
        ),
    ),
    Text("budget one too few", W, "min(self.wanted, self.left - 1)", "max(min(self.wanted, self.left - 2), 0)",
         ("own_draft",)),
    Text(
        "17a len(ids) as prompt length",
        W,
        "self.size, self.last = self.ids.shape[1], ",
        "self.size, self.last = len(self.ids), ",
        (
            "positions",
            "own_draft",
        ),
    ),
    Text("end-of-text counted out", W, "stop + 1, None, None", "stop, None, None", ("eos",)),
    Text(
        "end-of-text does not stop the loop",
        W,
        'self.stop_reason, self.left = "eos", 0',
        'self.stop_reason = "eos"',
        ("eos",),
    ),
    Text("end-of-text of the plain loop overlooked", D, "if eos and int(unread) in eos:", "if False:"),
    Text("stop reason of the plain loop always length", D, '"eos" if ended else "length"', '"length"'),
    Text("a round cut by budget or context not marked", W, "self.asked < self.wanted or draft.cut", "False"),
    Text("a round cut by the end of the text not marked", W, "None, None, cut=True", "None, None, cut=False"),
    Text(
        "a plain round called a bonus",
        W,
        '"plain" if not drafted else "bonus" if ended',
        '"bonus" if ended',
        ("own_draft",),
    ),
    Text("draft's own sampling dropped", W, "draft_sampling, self.sampling", "None, self.sampling"),
    Text(
        "sampling reaches the draft only where it is its own",
        W,
        "draft_sampling, self.sampling",
        "draft_sampling, type(self.sampling)()",
        ("own_draft",),
    ),
    Text(
        "generator dropped",
        W,
        "as_randomness(generator, self.target.device)",
        "as_randomness(None, self.target.device)",
        (
            "positions",
            "budget",
        ),
    ),
    Text(
        "one transfer more a round",
        W,
        FETCH,
        "tokens = torch.cat([token, self.given, n.clone().fill_(int(n[0]))]).to(sums.dtype)",
    ),
    Text(
        "the token drawn with a uniform that verified",
        W,
        DRAW,
        DRAW + " if not len(u) else __import__('spec_lib').draw(distribution, u[-1])",
        (
            "randomness",
            "positions",
        ),
    ),
    Text(
        "plain decoding draws from another distribution than its own",
        D,
        "randomness.draw(p, position)",
        "randomness.draw(p.sqrt(), position)",
    ),
    Text(
        "draft not told of its verdict",
        W,
        "self.session.accept(n, token.clone(), list(new))",
        "self.session.accept(0, token.clone(), list(new))",
        (
            "positions",
            "own_draft",
        ),
    ),
    Text(
        "rule dropped",
        "arguments",
        "rule = rule if callable(rule) else RULES[rule]",
        'rule = RULES["google"]',
        ("loop_distribution",),
    ),
    Text("attention mask dropped", "arguments", "return ids[:, first:], True", "return ids, True"),
    Text("another text on the same cache goes unnoticed", "answers", "if target.length != size - 1:", "if False:"),
    Text(
        "an end outside the vocabulary goes unnoticed",
        "arguments",
        "if any(not 0 <= e < vocab for e in eos):",
        "if False:",
    ),
    Text(
        "overlap of the position before, where it looks ahead",
        "tracing",
        "torch.minimum(p[k], ahead)",
        "torch.minimum(p[k - 1], ahead)",
        ("trace",),
    ),
    Text("alpha over all drafted", R, "alpha=ratio(accepted, accepted + rejected)", "alpha=ratio(accepted, drafted)"),
    Text(
        "tokens per pass without the target's own", R, "accepted + sum(r.token is not None for r in rounds)", "accepted"
    ),
    Text(
        "overlap over positions that were not tested",
        R,
        'r.overlap[: r.accepted + (r.origin == "resampled")]',
        "r.overlap",
    ),
    # --- what plugs are told and may do
    Text("gamma's function sees no rounds", W, "self.gamma(self.rounds or [])", "self.gamma([])"),
    Text("the rule is told the position before", W, "self.x, u, self.size, ", "self.x, u, self.size - 1, "),
    Text(
        "uniforms for the position before",
        W,
        "uniforms(len(self.x), self.size)",
        "uniforms(len(self.x), self.size - 1)",
    ),
    Text(
        "the token drawn for the first drafted position",
        W,
        DRAW,
        "token = self.randomness.draw(distribution, self.size)",
    ),
    Text("the draft's tokens drawn for one position", G, "len(self.text) + len(self.distributions)", "len(self.text)"),
    Text("a trace holds the drafter's own buffer", "tracing", 't.to("cpu", copy=True)', 't.to("cpu")'),
    Text("every part is traced", "tracing", 'if "distributions" in self.parts:', "if self.parts:"),
    Text(
        "a q that is no distribution goes unnoticed",
        "answers",
        "abs(rows[i] - 1) <= 0.02 and chances",
        "chances",
    ),
    Text("a drafted token of no chance goes unnoticed", "answers", " and chances[i] > 0", ""),
    Text("a rule's nonsense goes unnoticed", "answers", "if not abs(of_next - 1) <= 0.02 or not", "if not"),
    # --- passes of fixed shape
    Text("the mask hides a token from itself", FIXED, "self.steps[:bucket] > at", "self.steps[:bucket] >= at"),
    Text("the mask shows the next position", FIXED, "self.steps[:bucket] > at", "self.steps[:bucket] > 1 + at"),
    Text("padding goes on at the next positions", FIXED, "torch.minimum(self.start + self.steps[:size], self.last)",
         "self.start + self.steps[:size]"),
    Text("padding is what the last block left", FIXED, "if n < size:", "if n > size:"),
    Text("a pass starts where the last one did", FIXED, "        self.start.fill_(start)\n", ""),
    Text("a block ends where the last one did", FIXED, "        self.last.fill_(start + n - 1)\n", ""),
    Text("a bucket one position short", FIXED, "self._bucket(start + n)", "self._bucket(start + n - 1)"),
    Text("a drafting bucket for one token", FIXED, "self._bucket(start + m + k - 1)", "self._bucket(start + m)"),
    Text("the padded rows are returned", FIXED,
         "max(0, n - keep), n)", "max(0, n - keep), None)"),
    Text("drafting stays at one position", FIXED, "tokens[-1], at[-1:] + 1", "tokens[-1], at[-1:]"),
    Text("drafting uses one uniform for all", FIXED, "draw(q[-1], self.uniforms[i])", "draw(q[-1], self.uniforms[0])"),
    Text("drafting ignores the sampling", FIXED, "sampling.probabilities(", "Sampling().probabilities("),
    Text("one graph for every sampling", FIXED, "(m, k, sampling, bucket), lambda", "(m, k, bucket), lambda"),
    Text("one graph for every bucket", FIXED, "self._run((size, bucket)", "self._run((size,)"),
    Text("all uniforms of a block at once", FIXED,
         "[randomness.uniforms(1, start + m + i) for i in range(k)]", "[randomness.uniforms(k, start + m)]"),
    Text("logits are the graph's own", FIXED, "return logits[rows].clone()", "return logits[rows]"),
    Text("drafted tokens are the graph's own", FIXED, "tokens.clone(), q.clone()", "tokens, q.clone()"),
    Text("drafted q is the graph's own", FIXED, "tokens.clone(), q.clone()", "tokens.clone(), q"),
    Text("another text's numbers stay in the cache", FIXED, "state.body.cache.zero_()", "state.body.cache"),
    Text("a state of other weights", FIXED, " or state.weights != _addresses(model.model)", ""),
    Text("states never come back", FIXED, "self.free.append, state)", "id, state)"),
    Text("a state lives as long as its text's model", FIXED, "self.body = copy.copy(model)", "self.body = model"),
    Text("tensors of inference mode", FIXED, "with torch.inference_mode(False):", "with torch.no_grad():"),
    Text("graphs without end", FIXED, "if len(self.graphs) >= MOST:", "if len(self.graphs) < 0:"),
    Text("a captured pass that never ran", FIXED, "            graph.replay()\n", ""),
    Text("nothing warms up", FIXED, "with torch.cuda.stream(self.stream):", "while False:"),
    Text("the warm-up does not wait", FIXED, "            self.stream.wait_stream(here)\n", ""),
    Text("nobody waits for the warm-up", FIXED, "            here.wait_stream(self.stream)\n", ""),
    Text("CUDA graphs on any device", FIXED, 'device.type != "cuda"', 'device.type == "none"'),
    Text("each text has a state of its own", OWN, "made.states = self.graphs, self.states", "_ = self.graphs, 0"),
    Text("a drafted block read whole", OWN, "len(unread) + k - 1", "len(unread) + k"),
    Text("an emptied cache keeps its numbers", OWN, "if self.state and not length:", "if False:"),
    Text("a block drafted with randomness of one's own", G, "type(self.randomness) is Randomness and", ""),
    Text("a block drafted beyond the target's width", G, " and self.vocab == self.model.vocab", ""),
    # --- the draft
    Text(
        "draft ignores its sampling",
        G,
        "q = self.sampling.probabilities(logits)\n",
        "q = Sampling().probabilities(logits)\n",
        ("own_draft",),
    ),
    Text(
        "draft's cache keeps its own last token's position",
        G,
        "len(self.text) + n))",
        "len(self.text) + n + 1))",
        (
            "positions",
            "every_token",
        ),
    ),
    Text("draft's cache loses one more", G, "len(self.text) + n))", "len(self.text) + n - 1))", ("trace",)),
    Text(
        "draft reads an accepted token twice",
        G,
        "self.text[self.model.length :]",
        "self.text[max(0, self.model.length - 1) :]",
        (
            "own_draft",
            "trace",
        ),
    ),
    Text(
        "draft's text without the target's token",
        G,
        "torch.cat([self.text, self.drafted[:n], token])",
        "torch.cat([self.text, self.drafted[:n]])",
        (
            "randomness",
            "positions",
        ),
    ),
    Text("draft's context crossed", G, "int(max(0, min(k, self.most - size + 1)))", "k"),
    Text("tracing counts as work", G, "self.model.fed = fed", "pass"),
    Text(
        "tracing leaves its token in the cache",
        G,
        "        self.model.rollback(length)\n        if counts",
        "        if counts",
        ("trace",),
    ),
    # --- heads on the target's hidden states, and what they are taught on
    Text("the head reads the target's last row, not that of the last accepted token", HEADS,
         "self.size + len(tokens), n", "self.size + len(tokens), -1"),
    Text("the head reads the state one token further", HEADS, "hidden[self.row]", "hidden[max(self.row - 1, -1)]"),
    Text("the head begins with the last round's token", HEADS, "self.last, self.size, self.row = token, self",
         "self.last, self.size, self.row = self.last, self"),
    Text("the head reads the text's last token at every step", HEADS, "x = choose(self.logits(s)[0])",
         "choose(self.logits(s)[0])"),
    Text("the head's state does not go on", HEADS,
         "s = self.step(s, x)\n            x =", "s = self.step(h, x)\n            x ="),
    Text("the head's favourite, judged with the soft q", HEADS, "None if self.head.certain or not", "None if not"),
    Text("what the heads drew, handed over as certain", HEADS, "None if self.head.certain or not distributions",
         "None if distributions or not distributions"),
    Text("a head's q without the draft's temperature", HEADS, "self.sampling.probabilities(logits)",
         "logits.softmax(-1)"),
    Text("a head's draws all at one position", HEADS, "self.size + len(distributions))", "self.size)"),
    Text("all positions from the first head", HEADS, "choose(self.at(i, h)[0])", "choose(self.at(0, h)[0])"),
    Text("a head for another target", HEADS, "if head is None or not (", "if head is None and not ("),
    Text("a head loses the embedding's scale", HEADS, "10 * self.target[0]", "self.target[0]"),
    Text("lessons one position too early", HEADS, "ahead = 1", "ahead = 0"),
    Text("an exit's lessons one position too late", HEADS, "ahead = 0", "ahead = 1"),
    Text("lessons with a token too few before it", LESSONS, "t[:, None] + 1 + along])\n            total",
         "t[:, None] + along])\n            total"),
    Text("the token of the lesson is the one before", LESSONS, "at[:, j] + 1]", "at[:, j]]"),
    Text("every batch of lessons is the same text", LESSONS, "1, generator=g)\n            ids", "1, generator="
         "torch.Generator().manual_seed(end))\n            ids"),
    Text("KL turned round", LESSONS, "kl_div(q, p, log_target", "kl_div(p, q, log_target"),
    Text("the shipped head for any target of its shape", SHIPPED, "or not torch.allclose", "and not torch.allclose"),
    # --- our own forward pass of GPT-2
    Text("a token sees the one after it", OWN, "triu_(start + 1)", "triu_(start + 2)"),
    Text("a token does not see itself", OWN, "triu_(start + 1)", "triu_(start)"),
    Text("the mask forgets what the cache holds", OWN, "triu_(start + 1)", "triu_(1)"),
    Text("positions from 0 in each block", OWN, "self.positions[start:end]", "self.positions[: end - start]"),
    Text("keys and values swapped", OWN, "for i in (0, 1))", "for i in (1, 0))"),
    Text("a cache that grows loses what it holds", OWN,
         "if self.cache is not None:", "if self.cache is not None and self.length < 0:"),
    Text("a cache that grows loses its last token", OWN, "cache[:, :, :, : self.cache.shape[3]] = self.cache",
         "cache[:, :, :, : self.length - 1] = self.cache[:, :, :, : self.length - 1]"),
    Text("attention not scaled by layer", "plain_gpt2", "attention.scaling", "attention.head_dim**-0.5"),
    Text("the second norm is the first", OWN, "*block.norm_2", "*block.norm_1"),
    Text("the residual stream is cut at the attention", OWN, "x = x + _affine(h.transpose", "x = _affine(h.transpose"),
    Text("the head's biases are dropped", OWN, "self.head = (model.lm_head.weight, model.lm_head.bias)",
         "self.head = (model.lm_head.weight, None)"),
    Text("the head is the embedding", OWN, "self.head = (model.lm_head.weight, ", "self.head = (self.embedding, "),
    Text("the first rows are kept", OWN, "x[-keep:]", "x[:keep]"),
    Text("every activation is GELU", "plain_gpt2",
         "if type(mlp.act) in tanh_gelus() else mlp.act", "if mlp.act else None"),
    Text("the last norm has another epsilon", OWN, "*self.final)", "*self.final[:2], 1e-5)"),
    Text("a pass of which few rows are kept is counted twice", OWN, "        check_fed(self, ids, keep, parents)\n",
         "        check_fed(self, ids, keep, parents)\n        self.length += keep or 0\n"),
    # --- block verification
    Text("a block's weights not clipped at each position", V, "(weights[-1] * ratio.squeeze()).clamp(max=1)",
         "weights[-1] * ratio.squeeze()", ("rule_of_blocks", "loop_of_blocks")),
    Text("a block ends at the first position that fails", V, "(passed * torch.arange(k + 1, device=p.device)).amax()",
         "passed.int().cumprod(0).sum() - 1", ("rule_of_blocks", "loop_of_blocks")),
    Text("a block's residual without its weight", V, "w.unsqueeze(1) * p - torch", "p - torch",
         ("rule_of_blocks",)),
    Text("a block's threshold is its weight", V, "torch.where(rest > 0, z / rest, 1)", "w",
         ("rule_of_blocks", "loop_of_blocks")),
    Text("a block's last token judged as if more came", V, "(0, 0, 0, 1))).clamp", "(0, 0, 0, 1), value=1)).clamp",
         ("rule_of_blocks", "rule_references")),
    Text("a block takes a uniform of exactly 0", V, "uniforms < h[1:]", "uniforms <= h[1:]", ("rule_zero",)),
    Text("one uniform for a whole block", V, "uniforms < h[1:]", "uniforms[:1] < h[1:]", ("rule_of_blocks",)),
    Text("a block said to go token by token", V, "verify_block.token_by_token = False", "pass"),
    # --- shared noise
    Text("the target's clocks are those of the next position", NOISE, "position + torch.arange(k + 1",
         "position + 1 + torch.arange(k + 1", ("shared_noise",)),
    Text("tokens are counted that agree after one that does not", NOISE, "(own[:k] == drafted).cumprod(0).sum()",
         "(own[:k] == drafted).sum()", ("shared_noise",)),
    Text("the token that was the first to disagree comes", NOISE, "own.index_select(0, n.view(1)), 1)",
         "own[:1], 1)", ("shared_noise",)),
    Text("the same noise for every seed", NOISE, "_mixed(positions + self.key)", "_mixed(positions)", ("clocks",)),
    Text("the same clock for every token", NOISE, ".unsqueeze(1) + tokens", ".unsqueeze(1) + 0 * tokens",
         ("clocks",)),
    Text("clocks that are uniforms", NOISE, "-torch.log1p(-u.clamp(2.0**-54, 1 - 2.0**-24))", "u", ("clocks",)),
    Text("the race is won by the slowest", NOISE, "clocks / p, torch.inf).argmin(1)", "clocks / p, 0).argmax(1)",
         ("clocks",)),
    Text("neighbouring seeds have common noise", NOISE, "int(_mixed(torch.tensor(signed)))", "signed",
         ("clocks",)),
    Text("shared noise under any rule", "arguments", "elif own is not None and rule != own:", "elif False:"),
    # --- trees: the rule, the pass, the round
    Text("candidates judged by what was there before", T, "torch.where(tried, residual(left, q[i]), left)", "left",
         ("tree_rule", "tree_of_one_branch", "tree_loop")),
    Text("the walk goes on from the node before", T, "torch.where(accepted, p[i + 1], ", "torch.where(accepted, p[i], ",
         ("tree_rule", "tree_loop", "tree_ends")),
    Text("siblings tried after one was accepted", T, "tried = here == parent",
         "tried = (here == parent) | (parent < 0)", ("tree_rule", "tree_trace")),
    Text("siblings see each other", T, "seen[i, : at + 1] = True", "seen[i, : row + 1] = True",
         ("tree_places", "tree_trace", "tree_loop")),
    Text("positions are rows", T, "positions.append(at + depth)", "positions.append(row)",
         ("tree_places", "tree_trace", "tree_greedy")),
    Text("a node does not see the text", T, "seen[i, : at + 1] = True", "seen[i, at] = True",
         ("tree_places", "tree_trace")),
    Text("the first rows are kept, not the path's", W, "self.target.keep_rows(self.size, done.path[:n])",
         "self.target.keep_rows(self.size, list(range(n)))", ("tree_trace", "tree_loop")),
    Text("the draft is told of the first nodes", W, "path=done.path[:n]", "path=list(range(n))", ("tree_trace",)),
    Text("a tree under the text's last token but one", W, "*(self.size + parent for", "*(self.size - 1 + parent for",
         ("tree_trace", "tree_loop")),
    Text("a path's length not counted", W, "else n.sum()", "else 0", ("tree_positions",)),
    Text("a path to a leaf is not called whole", W, "n == k if path is None else (path[-1] if path else -1) not in "
         "self.parents", "n == k", ("tree_trace", "tree_ends")),
    Text("a path goes on behind its end", W, "path = path and path[: stop + 1]", "path = path", ("tree_ends",)),
    Text("keys are kept, values are not", C, "(t.index_select(-2, at) for t in (layer.keys, layer.values))",
         "(layer.keys.index_select(-2, at), layer.values)", ("tree_trace", "tree_loop")),
    Text("our own pass keeps the first rows", OWN,
         "        self.cache[:, :, :, length:end] = self.cache.index_select(3, kept)\n", "", ("tree_trace_own",)),
    Text("our own pass counts rows as positions", OWN, "self.positions[to_device(at, self.device)]",
         "self.positions[start:end]", ("tree_trace_own",)),
    Text("a tree is read before its rule is refused", "arguments", "        rule.refuse_trees()\n", "        pass\n"),
    Text("a node may be its own parent", "answers", "-1 <= parent < i for", "-1 <= parent <= i for"),
    Text("more rows are kept than there are", T, "if not 0 <= length <= model.length or", "if length < 0 or"),
    Text("a window of rows goes unnoticed", T, 'far = far or "local" in', 'far = far or "none" in'),
    Text("a cache that counts its rows is not told", C, "self.cache.crop(len(kept) - held)",
         "[setattr(x, n, getattr(x, n)[..., : len(kept), :]) for x in self.cache.layers for n in ('keys', 'values')]"),
    Text("a tree's positions wait for the device", C, "devices.to_device(positions[None], self.device)",
         "torch.tensor([positions.tolist()], device=self.device)"),
    Text("shared noise waits for the device", NOISE, "torch.full((), position, device=p.device)",
         "torch.as_tensor(position, device=p.device)"),
    # --- a drafter of trees
    Text("siblings drawn from the last to the first", BRANCH, "[i for i in children if parents[i] == node]",
         "[i for i in children[::-1] if parents[i] == node]", ("tree_trace",)),
    Text("candidates drawn again", BRANCH, "if self.siblings == WITHOUT:", "if False:", ("tree_trace",)),
    Text("drawn without replacement, judged as if independent", BRANCH,
         "            q[i] = left / left.sum()\n            tokens[i] = self.randomness.draw(q[i], ",
         "            q[i] = distribution\n            tokens[i] = self.randomness.draw(left / left.sum(), ",
         ("tree_trace",)),
    Text("the favourite twice", BRANCH, "distribution.topk(len(nodes)).indices.split(1)",
         "(distribution.topk(1).indices,) * len(nodes)", ("tree_trace",)),
    Text("a tree's tokens drawn for one position", BRANCH, "self.size + depth)", "self.size)", ("tree_positions",)),
    Text("the draft keeps its first nodes", BRANCH, "for i in path if i in self.rows]",
         "for i, _ in zip(self.rows, [i for i in path if i in self.rows])]", ("tree_trace",)),
    Text("the draft keeps nothing of its tree", BRANCH, "for i in path if i in self.rows]", "for i in []]",
         ("tree_work",)),
    Text("every node grows from the end of the text", BRANCH, "torch.stack([self.states[i] for i in above])",
         "torch.stack([self.states[-1] for i in above])", ("tree_with_head",)),
    Text("the state of a node by its depth", BRANCH, "path[-1] + 1 if path else 0", "len(path)", ("tree_with_head",)),
    Text("a tree for a target that reads chains", BRANCH, "        target.refuse_tree()\n", ""),
    Text("more candidates than there are tokens", BRANCH, "> target.vocab:\n            raise ValueError(f\"{most}",
         "> 10**9:\n            raise ValueError(f\"{most}"),
    # --- prompt lookup
    Text("the end of the text matches itself", LOOKUP, SEARCHED, JOINED + SEARCHED.replace(JOINED, ""), ("lookup",)),
    Text("the first match instead of the latest", LOOKUP, "self.after[tuple(self.text[-n:])] = len(self.text)",
         "self.after.setdefault(tuple(self.text[-n:]), len(self.text))", ("lookup",)),
    Text("the shortest match first", LOOKUP, "range(self.longest, self.shortest - 1, -1)",
         "range(self.shortest, self.longest + 1)", ("lookup",)),
    Text("matches shorter than allowed", LOOKUP, "range(self.longest, self.shortest - 1, -1)",
         "range(self.longest, 0, -1)", ("lookup",)),
    Text("accepted tokens never join the text that is searched", LOOKUP, "        self.read(tokens)",
         "        self.read(tokens[-1:])", ("lookup",)),
    Text("a copy from one token further on", LOOKUP, "range(start, start + k)", "range(start + 1, start + k)",
         ("lookup",)),
    Text("a copy of what matched", LOOKUP, "range(start, start + k)", "range(start - 1, start + k - 1)", ("lookup",)),
    Text("a copy that ends with the text", LOOKUP, "range(start, start + k)",
         "range(start, min(start + k, len(self.text)))", ("lookup",)),
    Text("past the end the copy repeats its last token", LOOKUP, "drafted[at - len(self.text)]", "drafted[-1]",
         ("lookup",)),
    Text("any order of sizes goes", LOOKUP, "if self.shortest > self.longest:", "if False:"),
    # --- the first layers
    Text("drafted tokens go early to one position", EARLY, "self.layers, ahead=i)", "self.layers, ahead=0)",
         ("early_exit",)),
    Text("the draft begins before the text's last token", EARLY, "self.last, self.size = token, ",
         "self.last, self.size = self.last, ", ("early_exit",)),
    Text("the draft's positions stand still after a round", EARLY, "self.size + len(tokens)", "self.size + 1",
         ("early_exit_positions",)),
    Text("one position for all that the first layers draft", EARLY, "self.size + i)", "self.size)",
         ("early_exit_positions",)),
    Text("one layer more", EARLY, "feed_early(unread, self.layers", "feed_early(unread, self.layers + 1",
         ("early_exit",)),
    Text("the head without the last norm", EARLY, "self.target.score(x) if",
         "torch.nn.functional.linear(x, *self.target.head) if", ("early_exit",)),
    Text("the first layers ignore the sampling", EARLY, "self.sampling.probabilities(logits[-1])",
         "logits[-1].softmax(-1)", ("early_exit",)),
    Text("the trained head is left out", EARLY, "if self.head is None else self.head", "if True else self.head"),
    Text("the early pass is the whole pass", EARLY, "self.target.feed_early(unread, self.layers, ahead=i)",
         "self.target.feed_early(unread, len(self.target.blocks), ahead=i)", ("early_exit",)),
    Text("more layers than there are go through", EARLY, "if self.layers > most:", "if False:"),
    Text("the model of the first layers changes the model's configuration", EARLY, "copy.deepcopy(model.config)",
         "model.config"),
    Text("the model of the first layers takes the model's own apart", EARLY, "dict(part._modules), config",
         "part._modules, config"),
    Text("the draft runs a forward put into the model", EARLY, '    vars(shell).pop("forward", None)\n', ""),
    Text("hooks see the draft's passes", EARLY, 'if "hooks" in name', "if False"),
    Text("of a compiled model all layers draft", EARLY, "model, given = inside(model), kept", "given = kept"),
    Text("early rows are lost when the cache grows", OWN, "cache[:, :, :, : self.cache.shape[3]] = self.cache",
         "cache[:, :, :, : self.length] = self.cache[:, :, :, : self.length]"),
    Text("what goes through early counts as read", OWN,
         "return self._by_slices(ids, start, end, None, layers=layers)",
         "self.fed += len(ids)\n        return self._by_slices(ids, start, end, None, layers=layers)", ("early_exit",)),
    Text("what goes through early does not see the draft before it", OWN,
         "start, end = self.length + ahead, self.length + ahead + len(ids)",
         "start, end = self.length + (ahead > 0), self.length + (ahead > 0) + len(ids)", ("early_exit",)),
    # --- the pair as folders
    Text("other programs draw from the likeliest 50", EXPORT, '"top_k": 0', '"top_k": 50'),
    Text("a folder does not speak of top-k", EXPORT, ', "top_k": 0', ""),
    Text("an exported model is greedy unless told", EXPORT, '"do_sample": True, ', ""),
    Text("an exported model loads in 16 bit", EXPORT, '"dtype": "float32"', '"dtype": "float16"'),
    Text("exported weights stay in 16 bit", EXPORT, "x.float()", "x"),
    Text("an export does not name its architecture", EXPORT, '"architectures": ["GPT2LMHeadModel"], ', ""),
    Text("every folder gets the target", EXPORT, "source = TINY / name", 'source = TINY / "target"'),
    Text("an export beside what is there", "files", "    if there:\n", "    if False:\n"),
    Text("an export into what came meanwhile", "files", "os.rename(part, above / part.name)",
         "shutil.copytree(part, above / part.name, dirs_exist_ok=True)"),
    Text("half an export stays where the other half failed", "files", "shutil.rmtree(path, ignore_errors=True)",
         "pass"),
    Text("folders that were made stay where an export failed", "files", "path.rmdir()", "pass"),
    # --- devices, threads and copies
    Text("what comes from a GPU is read before it is there", "devices",
         "non_blocking=x.is_cpu and device.type not in READ_LATE", "non_blocking=device.type not in READ_LATE"),
    Text("copies to MPS are not waited for", "devices", " and device.type not in READ_LATE", ""),
    Text("a second thread waited for around the passes", "devices",
         'alone = hasattr(model, "on_many_threads") and model.device.type == "cpu"', "alone = False"),
    Text("a second thread waited for in a small softmax", "devices", "x.numel() < 2**15", "x.numel() < 0"),
    Text("the first uniforms lie on the host", S, "torch.empty(0, device=self.device)", "torch.empty(0)"),
    Text("a uniform in 64 bits rounds up to 1", S, ".clamp(max=1 - 2**-24)", ""),
    Text("a copy of a model shares its cache", C, ' | {"cache": copy.deepcopy(self.cache)}', ""),
    # --- batches: what each test sees of them is in `test_batches`
    *BATCHES,
    *SERVER,
)  # fmt: skip
FAULTS = (*SEAMS, *TEXTS)
