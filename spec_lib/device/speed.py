"""What a round costs on this device: pairs of GPT-2's shapes with random weights.

A pass takes as long whatever the weights are.  But how much is accepted depends on them, so speed-ups at an acceptance
rate that real pairs have are predictions, and called so.  Notebooks 08 and 09.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from statistics import median

import torch

from .. import benchmark
from ..devices import one_thread
from ..pairs import Pair
from ..theory import predict, round_cost
from . import own
from .exact import random_gpt2, reason

# (layers, width, heads); the first of each is the draft, the others are targets.
REAL = {"distilgpt2": (6, 768, 12), "gpt2": (12, 768, 12), "gpt2-medium": (24, 1024, 16),
        "gpt2-large": (36, 1280, 20), "gpt2-xl": (48, 1600, 25)}  # fmt: skip
SMALL = {"1x64": (1, 64, 2), "4x128": (4, 128, 4), "8x128": (8, 128, 4)}  # the same question in seconds on a CPU
GAMMA = 4  # of the texts that are timed
COUNTS, GAMMAS, ALPHAS = (1, 2, 3, 5, 9), (1, 2, 4, 8), (0.6, 0.7, 0.8)  # each count is a gamma + 1
GOOGLE = "speculative, google"


class Numbers:
    """A tokenizer for models that never learnt a language: a text is the numbers of its tokens."""

    bos_token_id = eos_token_id = None

    def __init__(self, vocab: int):
        self.vocab = vocab

    def __len__(self) -> int:
        return self.vocab

    def __call__(self, text: str, **_) -> dict:
        return {"input_ids": [int(x) for x in text.split()]}

    def decode(self, ids, **_) -> str:
        return " ".join(map(str, ids))


@dataclass
class Timed:
    """The costs of one pair, as a recording holds them.

    pair: its name.  target: the name of the target's shape.  threads: of the CPU, as its models use them.  v: role ->
    n -> seconds of each pass over n tokens.  c: the cost ratio of each run.  memory: bytes.  comparison: all variants.
    own: the same pair on our own forward pass, way -> [v of the target, the draft's seconds a token]; or why not.
    """

    pair: str
    target: str
    threads: int
    v: dict[str, dict[int, list[float]]]
    c: list[float]
    memory: dict[str, int]
    comparison: benchmark.Measurement
    own: dict[str, list | str] = field(default_factory=dict)

    def costs(self) -> tuple[float, dict[int, float]]:
        """c, and v(n) / v(1) of the target, from the medians."""
        times = {n: median(seconds) for n, seconds in self.v["target"].items()}
        return median(self.c), {n: t / times[1] for n, t in times.items()}

    def predicted(self, alpha: float) -> tuple[float, int]:
        """The largest speed-up over GAMMAS that c and v promise at this acceptance rate, and its gamma."""
        return best(alpha, *self.costs())

    def a_round(self) -> tuple[float, float]:
        """Time of a round at GAMMA in plain tokens: as it was measured, and as c and v have it."""
        rows = {row.variant: row for row in benchmark.rows(self.comparison)}
        plain, fast = rows[benchmark.TARGET], rows[GOOGLE]
        per_pass = fast.tokens / fast.passes  # of all rounds, as the seconds are
        return per_pass * fast.seconds / plain.seconds, round_cost(GAMMA, *self.costs())


def best(alpha: float, c: float, v: dict[int, float]) -> tuple[float, int]:
    """The largest speed-up over GAMMAS at this acceptance rate, and its gamma."""
    return max((predict(alpha, gamma, c, v), gamma) for gamma in GAMMAS)


def measure(target: str, draft: str, shapes: dict, device, dtype: torch.dtype, progress: Callable) -> Timed:
    """Time a pair of these shapes with random weights.  progress: is told what is being done."""
    vocab, small = (50257, False) if shapes is REAL else (2048, True)
    models = [random_gpt2(shapes[n], vocab, device, dtype, seed) for seed, n in enumerate((target, draft))]
    if small:
        for model in models:
            one_thread(model)
    prompts = {"numbers": " ".join(map(str, range(16)))}
    name = f"{target} with {draft}, random weights, {str(dtype)[6:]}"
    pair = Pair(*models, Numbers(vocab), name=name, prompts=prompts)
    progress(f"{name}: single passes")
    v = {role: benchmark.pass_seconds(m, COUNTS, runs=10) for role, m in zip(("target", "draft"), models, strict=True)}
    return Timed(
        name,
        target,
        1 if small else torch.get_num_threads(),
        {role: {n: benchmark.rounded(seconds) for n, seconds in times.items()} for role, times in v.items()},
        benchmark.rounded(benchmark.cost_ratio(pair, new=16, runs=3)),
        benchmark.memory(pair),
        benchmark.compare(
            pair, benchmark.Setting(gamma=GAMMA, new=32), 3, say=lambda text: progress(f"{name}: {text}")
        ),
        {way: _own(models, graphs, progress, f"{name}: {way}") for way, graphs in own.ways(device).items()},
    )


def _own(models: list[torch.nn.Module], graphs: bool | str, progress: Callable, text: str) -> list | str:
    progress(text)
    try:
        (v, _), (_, draft) = (own.seconds(model, graphs, COUNTS, GAMMA) for model in models)
    except (RuntimeError, MemoryError, ValueError) as error:  # what was measured before it stays
        return reason(error)
    return [{n: benchmark.rounded(found) for n, found in v.items()}, benchmark.rounded(draft)]


def _own_line(way: str, found: list | str) -> str:
    if isinstance(found, str):
        return f"{way}: left out, {found}"
    c, v = own.costs(*found)
    gain, gamma = best(ALPHAS[1], c, v)
    return (
        f"{way}: a pass over 1 token: {1e3 * median(found[0][1]):.2f} ms; over {GAMMA + 1}: {v[GAMMA + 1]:.2f} times "
        f"that; a draft token: {1e3 * median(found[1]):.2f} ms, c {c:.2f}; times as fast as its own plain decoding, "
        f"predicted: {gain:.2f} at alpha {ALPHAS[1]} (gamma {gamma})"
    )


def report(found: Timed) -> str:
    """What was timed, in lines."""
    (c, v), (took, formula) = found.costs(), found.a_round()
    rows = {row.variant: row for row in benchmark.rows(found.comparison)}
    target, draft = (1e3 / rows[name].tokens_per_second for name in (benchmark.TARGET, benchmark.DRAFT))
    weights = [f"{found.memory[role + ' weights'] / 2**20:,.0f}" for role in ("target", "draft")]
    peak = max(row.peak or 0 for row in rows.values()) / 2**20
    predictions = [f"{gain:.2f} at alpha {a} (gamma {g})" for a in ALPHAS for gain, g in [found.predicted(a)]]
    return "\n  ".join([
        f"  a token: target {target:.2f} ms, draft {draft:.2f} ms; c {c:.2f}",
        f"memory: weights {' + '.join(weights)} MiB, peak {f'{peak:,.0f} MiB' if peak else 'not measured here'}",
        f"a pass over 1 token: {1e3 * median(found.v['target'][1]):.2f} ms; over "
        + ", ".join(f"{n}: {v[n]:.2f}" for n in COUNTS[1:]) + " times that",
        f"a round at gamma {GAMMA} took as long as {took:.2f} tokens of plain decoding; "
        f"the formula predicts {formula:.2f}",
        "times as fast, predicted: " + ", ".join(predictions),
        *(_own_line(way, found) for way, found in found.own.items()),
        f"measured with these random weights, whose alpha of {rows[GOOGLE].alpha:.2f} says nothing about real pairs:",
        *("  " + line for line in benchmark.table(found.comparison).split("\n")),
    ])  # fmt: skip
