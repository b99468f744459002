"""Loops side by side, and one factor varied at a time.

Every variant writes the same number of new tokens after the same prompts.  They take turns within an evaluation, in an
order that rotates; the first evaluation warms up and is not counted; a GPU is waited for before each look at the
clock.  Raw seconds and counts are kept, and `rows` derives every figure from them.  Notebook 09.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

import torch

from ..decoding import autoregressive, speculative
from ..numbers import at_least_one
from ..pairs import TINY_DRAFTS, Pair, load_pair
from ..records import Round, summarize
from . import assisted
from .measured import Counts, Measurement, Variant
from .settings import (
    DRAFT,
    FACTORS,
    FAST,
    GOOGLE,
    MORE,
    OWN,
    OWN_DRAFT,
    OWN_TARGET,
    RULES,
    TARGET,
    THEIRS,
    VARIANTS,
    Plug,
    Setting,
    own_setting,
    prompts_for,
)
from .timing import clock, pass_seconds, rotated, rounded


def compare(
    pair: Pair,
    setting: Setting | None = None,
    runs: int = 50,
    variants: Sequence[str] = VARIANTS,
    say: Callable[[str], object] = lambda text: None,
    plugs: Mapping[str, Plug] = MORE,
) -> Measurement:
    """`runs` evaluations of the variants side by side at one setting: raw seconds and counts, for `rows` and `table`.

    variants: the variants to time, of `ALL` and plugs.  Our loops run on the pair's models as they are: on
    transformers' forward passes, unless `pair.fast()` is given.  Those of `FAST` and `MORE` run on `pair.fast()`, and
    `THEIRS` on the models inside.  One of `MORE` that this pair cannot have gets a note instead of seconds.
    say: is told about the progress.  ValueError before any work where `prompts_for` or `Setting` refuses, or runs < 1;
    AssertionError where a variant did not write exactly `setting.new` tokens.  The caller's random state is restored.
    The passes for v(n) are timed where a prediction needs them: with the target, the draft and a speculative loop on
    the same forward passes among the variants.
    """
    setting, runs, variants = setting or Setting(), at_least_one("runs", runs), list(variants)
    prompts, gpu = prompts_for(pair, setting, variants, plugs), pair.device.type == "cuda"
    kept = {variant: Variant(own_setting(setting, variant, plugs).gamma) for variant in variants}
    fast = set(variants) & {*FAST, *MORE} and pair.fast()
    on = {variant: fast if variant in FAST or variant in MORE else pair for variant in variants}
    for variant in set(variants) & set(plugs):
        _plug_in(on, variant, plugs[variant], kept[variant])
    texts: dict[str, dict] = {variant: {} for variant in variants}  # each new text -> its number
    with torch.random.fork_rng([pair.device] if gpu else []):  # transformers draws from the global generator
        for variant in variants:
            if kept[variant].note is None:
                _warm_up(on[variant], own_setting(setting, variant, plugs), variant, prompts[0], kept[variant])
        for i in range(runs):
            say(f"evaluation {i + 1} of {runs}")
            for variant in rotated(variants, i):
                if kept[variant].note is None:
                    ids = prompts[i % len(prompts)]
                    _evaluate(on[variant], setting, variant, ids, i + 1, kept[variant], texts[variant], gpu)
    vs: list[dict[int, list[float]]] = []
    for on_these, rules, models in (({TARGET, DRAFT}, {*RULES}, pair), ({OWN_TARGET, OWN_DRAFT}, {OWN}, fast)):
        vs.append({})
        if on_these <= set(variants) and rules & set(variants):
            n = setting.gamma + 1  # the pass that verifies a draft, in mid-text, beside one over one token
            context = max(ids.shape[1] for ids in prompts) + (setting.new - n) // 2
            vs[-1] = {n: rounded(seconds) for n, seconds in pass_seconds(models.target, (1, n), context).items()}
    return Measurement(pair.name, setting, runs, vs[0], kept, own_v=vs[1])


class _Plugged(NamedTuple):
    """The models on which a variant with a plug runs, its drafter made once, and the plug."""

    target: object
    draft: object
    device: torch.device
    plug: Plug


def _plug_in(on: dict, variant: str, plug: Plug, kept: Variant) -> None:
    """Make the variant's drafter, or note why there is none for this pair."""
    pair = on[variant]
    try:
        on[variant] = _Plugged(pair.target, plug.draft(pair), pair.device, plug)
    except ValueError as error:
        _only_some(variant, error, kept)


def _warm_up(pair: Pair | _Plugged, setting: Setting, variant: str, ids: torch.Tensor, kept: Variant) -> None:
    """One text that is not counted.  It also finds out at which gamma transformers can be measured, if at all."""
    least = min(setting.gamma, 3) if variant in THEIRS else setting.gamma  # 5.15 crashes at a fixed 4 or more
    for gamma in sorted({setting.gamma, least}, reverse=True):
        try:
            _write(pair, replace(setting, gamma=gamma), variant, ids, 0)
        except Exception as error:
            _only_some(variant, error, kept)
        else:
            kept.gamma, kept.note = gamma, None
            return


def _only_some(variant: str, error: Exception, kept: Variant) -> None:
    """Note that a variant of transformers failed, or one of `MORE` was refused, and go on; any other error is raised
    again."""
    if variant in THEIRS:
        kept.note = f"not measurable here ({type(error).__name__})"
    elif variant in MORE and isinstance(error, ValueError):
        kept.note = f"not for this pair: {error}"
    else:
        raise error
    kept.seconds, kept.text, kept.counts = [], [], []


class Written(NamedTuple):
    """What one text left: new tokens, target passes, accepted and rejected draft tokens; its rounds; the tokens."""

    tokens: int
    passes: int
    accepted: int = 0
    rejected: int = 0
    rounds: Sequence[Round] = ()
    ids: torch.Tensor | None = None


def _evaluate(
    pair: Pair | _Plugged, setting: Setting, variant: str, ids: torch.Tensor, seed: int, kept: Variant, texts: dict,
    gpu: bool,
) -> None:  # fmt: skip
    """One evaluation of one variant, added to what is kept of it.  texts: the variant's so far, by number."""
    written: list[tuple] = []
    if gpu:
        torch.cuda.reset_peak_memory_stats(pair.device)
    torch.manual_seed(seed)
    mine = replace(setting, gamma=kept.gamma)
    try:
        seconds = clock(lambda: written.append(_write(pair, mine, variant, ids, seed)), pair.device)
    except Exception as error:
        return _only_some(variant, error, kept)
    found = Written(*written[0])
    assert found.tokens == setting.new, f"{variant} wrote {found.tokens} tokens instead of {setting.new}"
    kept.seconds += rounded([seconds])
    kept.passes, kept.accepted = kept.passes + found.passes, kept.accepted + found.accepted
    kept.rejected += found.rejected
    if found.rounds:  # counted here, not under the clock
        kept.counts.append(Counts.of(found.rounds, kept.gamma))
        kept.token_by_token &= all(r.token_by_token for r in found.rounds)
    if found.ids is not None:
        text = (*ids[0].tolist(), *found.ids.tolist())
        kept.text.append(texts.setdefault(text, len(texts)))
    if gpu:
        kept.peak = max(kept.peak or 0, torch.cuda.max_memory_allocated(pair.device))


def _write(pair: Pair | _Plugged, setting: Setting, variant: str, ids: torch.Tensor, seed: int) -> Written:
    """Write with one variant, past any end-of-text.  pair: of the models on which it runs."""
    variant = FAST.get(variant, variant)
    if variant in THEIRS:
        text, passes = assisted.generate(pair, setting, ids, assisted=variant == THEIRS[1])
        return Written(len(text), passes, ids=text)
    options = {"sampling": setting.sampling, "generator": seed}
    if variant in RULES or isinstance(pair, _Plugged):
        plug = pair.plug if isinstance(pair, _Plugged) else Plug(rule=RULES[variant])
        options |= {"rule": plug.rule, "gamma": setting.gamma, "generator": plug.randomness(seed)}
        g = speculative(pair.target, pair.draft, ids, setting.new, **options)
        s = summarize(g.rounds)
        return Written(s.emitted, s.passes, s.accepted, s.rejected, g.rounds, g.tokens)
    g = autoregressive(pair.target if variant == TARGET else pair.draft, ids, setting.new, **options)
    return Written(len(g.tokens), len(g.tokens), ids=g.tokens)


def sweep(
    pair: Pair,
    factor: str,
    values: Sequence | dict[str, Pair] | None = None,
    setting: Setting | None = None,
    runs: int = 10,
    variants: Sequence[str] = (TARGET, DRAFT, GOOGLE),
    say: Callable[[str], object] = lambda text: None,
) -> list[Measurement]:
    """One factor varied around one setting: `compare` at each value, which every result holds as `value`.

    factor: gamma | length | temperature | prompt | draft.  values: None takes those of `FACTORS`; those of "draft" are
    pairs by name.  ValueError, before the first measurement, where one of them would be refused.
    """
    if factor not in FACTORS:
        raise ValueError(f"a sweep varies one of {', '.join(FACTORS)}, got {factor!r}")
    setting, (field, usual), runs = setting or Setting(), FACTORS[factor], at_least_one("runs", runs)
    if factor == "draft":
        if values is None and not pair.name.startswith("tiny"):
            raise ValueError(f"the drafts to compare must be named: which others fit {pair.name} is not known here")
        values = values or {name: load_pair("tiny", name, device=pair.device) for name in TINY_DRAFTS}
        points = [(name, other, setting) for name, other in values.items()]
    else:
        points = [(x, pair, replace(setting, **{field: x})) for x in values or usual or pair.prompts]
    for _, other, at in points:
        prompts_for(other, at, variants)
    return [
        replace(compare(other, at, runs, variants, lambda text, x=x: say(f"{factor} {x}: {text}")), value=x)
        for x, other, at in points
    ]
