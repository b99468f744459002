"""The clock: one call, one pass, one loop; and what two models and their caches weigh.

Derived in notebooks 02 (the clock, v(n), c) and 09 (the time breakdown).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from statistics import mean
from time import perf_counter

import torch

from ..cache import as_model
from ..decoding import autoregressive, speculative, speculative_rounds
from ..numbers import as_int, at_least_one
from ..pairs import Pair, inside


def rounded(seconds: Iterable[float]) -> list[float]:
    """To four digits, as they are stored: no clock is better than that."""
    return [float(f"{x:.4g}") for x in seconds]


def clock(call: Callable[[], object], device: torch.device | str | None = None) -> float:
    """Seconds of one call; a GPU has finished its work before and after.  device: None waits for any GPU there is."""
    _wait(device)
    started = perf_counter()
    call()
    _wait(device)
    return perf_counter() - started


def _wait(device) -> None:
    if (device is None or torch.device(device).type != "cpu") and torch.accelerator.is_available():
        torch.accelerator.synchronize(device)


def rotated(things: Sequence, run: int) -> list:
    """The things in the order of this run, which rotates: A B C, B C A, C A B.

    None is always the first or the last.  Most turns leave each after the same other: what one call leaves in a cache
    is there for the next.
    """
    first = run % len(things) if things else 0
    return [*things[first:], *things[:first]]


def in_turn(
    calls: Mapping[str, Callable[[], object]], runs: int = 5, device: torch.device | str | None = None
) -> dict[str, list[float]]:
    """Seconds of each call, `runs` times each: in turn, in an order that rotates; one turn more, first, warms up.

    calls: {name: call}.  device: as for `clock`.  ValueError for fewer than one run.  Notebook 00.
    """
    names, times = list(calls), {name: [] for name in calls}
    for i in range(at_least_one("runs", runs) + 1):
        for name in rotated(names, i):
            times[name].append(clock(calls[name], device))
    return {name: seconds[1:] for name, seconds in times.items()}


@torch.no_grad()
def pass_seconds(model, counts: Sequence[int], context: int = 64, runs: int = 20) -> dict[int, list[float]]:
    """v(n): seconds of `runs` passes over n new tokens after `context` others in the KV cache, for each n in counts.

    All counts take their turn within a run, in an order that rotates, so that a slow spell of the machine meets them
    all, and none is always the first; one turn warms up.  model: a transformers model, or a model of our
    protocol.  ValueError for a count below 1, or for more positions than the model has.  Derived in notebook 02.
    """
    counts, runs = [as_int(n) or 0 for n in counts], at_least_one("runs", runs)
    if not counts or min(counts) < 1:
        raise ValueError(f"counts must be whole numbers of at least 1, got {counts}")
    cached = as_model(model)
    if cached.max_length is not None and context + max(counts) > cached.max_length:
        raise ValueError(f"{context} + {max(counts)} tokens are more than the model's {cached.max_length} positions")
    ids = torch.arange(context + max(counts), device=cached.device) % cached.vocab  # any tokens: each takes as long
    if context:
        cached.feed(ids[:context], 1)
    times: dict[int, list[float]] = {n: [] for n in counts}
    for i in range(runs + 1):
        for n in rotated(counts, i):
            new = ids[context : context + n]
            times[n].append(clock(lambda new=new: cached.feed(new), cached.device))
            cached.rollback(context)
    return {n: seconds[1:] for n, seconds in times.items()}


def cost_ratio(pair: Pair, context: int = 64, new: int = 32, runs: int = 7) -> list[float]:
    """c of each run: the draft's own cached loop over the target's, `new` tokens after a prompt of `context`.

    The two loops swap their order from run to run; one run warms up.  The prompt is of any tokens but the models'
    padding, which a prompt must not begin with.  ValueError for fewer than one run.  Derived in notebook 02.
    """
    models, found = (pair.draft, pair.target), []
    padding = {getattr(as_model(model), "padding", None) for model in models}
    known = [x for x in range(min(len(pair.tokenizer), context + 2)) if x not in padding]
    ids = torch.tensor([known[i % len(known)] for i in range(context)])[None]
    for seed in range(at_least_one("runs", runs) + 1):  # the first warms up
        spent = {}
        for i in rotated((0, 1), seed):
            spent[i] = clock(lambda m=models[i], seed=seed: autoregressive(m, ids, new, generator=seed), pair.device)
        found.append(spent[0] / spent[1])
    return found[1:]


class Clocked:
    """A model that notes in `spent` the seconds of each of its passes.  model: as `as_model` takes it."""

    def __init__(self, model, spent: list[float]):
        self.inside, self.spent = as_model(model), spent

    def __getattr__(self, name: str):
        if name == "draft_block":  # its passes are to be timed one by one
            raise AttributeError(name)
        return getattr(self.inside, name)

    def fresh(self) -> Clocked:
        return Clocked(self.inside, self.spent)

    def feed(self, ids: torch.Tensor, keep: int | None = None) -> torch.Tensor:
        logits = []
        self.spent.append(clock(lambda: logits.append(self.inside.feed(ids, keep)), self.device))
        return logits[0]


def time_breakdown(
    pair: Pair, ids: torch.Tensor, gammas: Sequence[int] = (0, 4), new: int = 60, runs: int = 5
) -> dict[int, dict[str, float]]:
    """Where the time of a text goes: for each gamma, mean seconds of {"prompt", "target", "draft", "rest"}, "rounds".

    prompt: the first pass of each model, over the prompt ids, (1, length).  target, draft: all their other passes.
    rest: everything else (drawing, verifying, rolling back, bookkeeping), which no formula in passes knows.  gamma 0
    is plain decoding, whose rounds are its passes after the prompt.  Over `runs` texts of `new` tokens; the gammas take
    turns in an order that rotates; one more text each warms up.  ValueError for a count out of range or a prompt of
    one token.  On a GPU the clock waits for each pass, so that nothing overlaps as it otherwise would.  Notebook 09.
    """
    gammas = [as_int(gamma) for gamma in gammas]
    if not gammas or any(gamma is None or not 0 <= gamma < at_least_one("new", new) for gamma in gammas):
        raise ValueError(f"gammas must be whole numbers from 0 to {new} - 1 (the new tokens less one), got {gammas}")
    if ids.shape[-1] < 2:
        raise ValueError(
            "the time breakdown needs a prompt of at least two tokens: the passes over it are listed by themselves"
        )
    texts: dict[int, list[dict]] = {gamma: [] for gamma in gammas}
    for run in range(at_least_one("runs", runs) + 1):
        for gamma in rotated(gammas, run):
            texts[gamma].append(_breakdown_of_a_text(pair, ids, gamma, new, run))
    return {gamma: {part: mean(t[part] for t in found[1:]) for part in found[0]} for gamma, found in texts.items()}


def _breakdown_of_a_text(pair: Pair, ids: torch.Tensor, gamma: int, new: int, seed: int) -> dict[str, float]:
    spent, written = ([], []), []
    target, draft = (Clocked(model, s) for model, s in zip((pair.target, pair.draft), spent, strict=True))

    def write():
        if gamma:
            written.extend(speculative(target, draft, ids, new, gamma=gamma, generator=seed).rounds)
        else:
            written.extend(autoregressive(target, ids, new, generator=seed).tokens[1:])

    total = clock(write, pair.device)
    parts = {"prompt": sum(sum(s[:1]) for s in spent), "target": sum(spent[0][1:]), "draft": sum(spent[1][1:])}
    return {**parts, "rest": total - sum(parts.values()), "rounds": len(written)}


def first_token(pair: Pair, ids: torch.Tensor, gamma: int = 4, runs: int = 5) -> dict[str, list[float]]:
    """Time to first token, seconds from the prompt, ids (1, length): the target's one token; the first round's tokens.

    The two swap their order from run to run; one run warms up.
    """

    def plain(seed):
        autoregressive(pair.target, ids, 1, generator=seed)

    def first_round(seed):
        next(speculative_rounds(pair.target, pair.draft, ids, gamma + 1, gamma=gamma, generator=seed))

    calls = {"target alone": plain, "speculative": first_round}
    times: dict[str, list[float]] = {name: [] for name in calls}
    for seed in range(at_least_one("runs", runs) + 1):  # the first warms up
        for name in rotated(list(calls), seed):
            times[name].append(clock(lambda name=name, seed=seed: calls[name](seed), pair.device))
    return {name: seconds[1:] for name, seconds in times.items()}


@torch.no_grad()
def memory(pair: Pair, tokens: int = 1000) -> dict[str, int]:
    """Bytes of both models' weights, and of both KV caches once they hold `tokens` tokens: counted, not measured."""
    found = {}
    for name, model in (("target", inside(pair.target)), ("draft", inside(pair.draft))):
        found[f"{name} weights"] = sum(p.numel() * p.element_size() for p in model.parameters())
        cached = as_model(model)
        cached.feed(torch.zeros(1, dtype=torch.int64, device=cached.device))
        kept = [t for layer in cached.cache.layers for t in (layer.keys, layer.values)]  # of one token
        found[f"{name} cache"] = tokens * sum(t.numel() * t.element_size() for t in kept)
    return found
