"""`python -m spec_lib check`: is the sampler exact on this device, and should it pay there?  Minutes, no network.

Exactness is tried in `device_exact`.  Cost is measured at GPT-2's real shapes with random weights: a pass takes as
long whatever the weights are.  But how much is accepted depends on them, so speed-ups at an acceptance rate that real
pairs have are predictions, and called so.  Notebooks 08 and 09.
"""

from __future__ import annotations

import datetime
import gc
from collections.abc import Callable
from statistics import median
from time import perf_counter

import torch

from . import benchmark, timing
from .device_exact import Finding, exactness, random_gpt2, reason, work
from .pairs import Pair, one_thread
from .theory import walltime_improvement

# (layers, width, heads); the first of each is the draft, the others are targets.
REAL = {"distilgpt2": (6, 768, 12), "gpt2": (12, 768, 12), "gpt2-medium": (24, 1024, 16),
        "gpt2-large": (36, 1280, 20), "gpt2-xl": (48, 1600, 25)}  # fmt: skip
SMALL = {"1x64": (1, 64, 2), "4x128": (4, 128, 4), "8x128": (8, 128, 4)}  # the same question in seconds on a CPU
CLASS = ("gpt2-large", "8x128")  # the pair that a recording is of, where it was measured
COUNTS, GAMMAS, ALPHAS = (1, 2, 3, 5, 9), (1, 2, 4, 8), (0.6, 0.7, 0.8)  # each count is a gamma + 1


# --- speed ----------------------------------------------------------------------------------------------------------


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


def measure(target: str, draft: str, shapes: dict, device, dtype: torch.dtype, progress: Callable) -> dict:
    """v(n), c, bytes, and all arms side by side of a pair with random weights, as a recording holds them."""
    vocab = 50257 if shapes is REAL else 2048
    models = [random_gpt2(shapes[n], vocab, device, dtype, seed) for seed, n in enumerate((target, draft))]
    if shapes is not REAL:
        for model in models:
            one_thread(model)
    prompts = {"numbers": " ".join(map(str, range(16)))}
    name = f"{target} with {draft}, random weights, {str(dtype)[6:]}"
    pair = Pair(*models, Numbers(vocab), name=name, prompts=prompts)
    progress(f"{name}: single passes")
    v = {role: timing.pass_seconds(m, COUNTS, runs=10) for role, m in (("target", pair.target), ("draft", pair.draft))}
    found = {"pair": name, "target": target, "small": shapes is not REAL, "memory": timing.memory(pair)}
    found["v"] = {role: {str(n): benchmark.rounded(s) for n, s in times.items()} for role, times in v.items()}
    found["c"] = benchmark.rounded(timing.cost_ratio(pair, new=16, runs=3))
    setting = benchmark.Setting(gamma=4, new=32)
    found["comparison"] = benchmark.compare(pair, setting, 3, say=lambda text: progress(f"{name}: {text}"))
    return found


def costs(found: dict) -> tuple[float, dict[int, float]]:
    """c, and v(n) / v(1) of the target, from the medians of a measurement."""
    times = {int(n): median(seconds) for n, seconds in found["v"]["target"].items()}
    return median(found["c"]), {n: t / times[1] for n, t in times.items()}


def predicted(found: dict, alpha: float) -> tuple[float, int]:
    """The largest speed-up over GAMMAS that the measured c and v promise at this acceptance rate, and its gamma."""
    c, v = costs(found)
    return max((walltime_improvement(alpha, gamma, c, v.__getitem__), gamma) for gamma in GAMMAS)


def a_round(found: dict) -> tuple[float, float]:
    """Time of a round at gamma 4 in plain tokens: measured, and as the formula has it, 4 c + v(5) / v(1)."""
    rows, (c, v) = {row["arm"]: row for row in benchmark.rows(found["comparison"])}, costs(found)
    plain, fast = rows[benchmark.TARGET], rows["speculative, google"]
    return fast["tokens_per_pass"] * fast["seconds"] / plain["seconds"], 4 * c + v[5]


def report(found: dict) -> str:
    """A measurement in lines."""
    (_, v), (took, formula), rows = costs(found), a_round(found), benchmark.rows(found["comparison"])
    target, draft = (1e3 / row["tokens_per_second"] for row in rows[:2])
    alpha = next(row["alpha"] for row in rows if row["alpha"] is not None)
    weights = [f"{found['memory'][role + ' weights'] / 2**20:,.0f}" for role in ("target", "draft")]
    peak = max(row["peak"] or 0 for row in rows) / 2**20
    guesses = [f"{gain:.2f} at alpha {a} (gamma {g})" for a in ALPHAS for gain, g in [predicted(found, a)]]
    return "\n  ".join([
        f"  a token: target {target:.2f} ms, draft {draft:.2f} ms; c {costs(found)[0]:.2f}",
        f"memory: weights {' + '.join(weights)} MiB, peak {f'{peak:,.0f} MiB' if peak else 'not measured here'}",
        f"a pass over 1 token: {1e3 * median(found['v']['target']['1']):.2f} ms; over "
        + ", ".join(f"{n}: {v[n]:.2f}" for n in COUNTS[1:]) + " times that",
        f"a round at gamma 4 took the time of {took:.2f} plain tokens, by the formula {formula:.2f}",
        "times as fast, predicted: " + ", ".join(guesses),
        f"measured with these random weights, whose alpha of {alpha:.2f} says nothing about real pairs:",
        *("  " + line for line in benchmark.table(found["comparison"]).split("\n")),
    ])  # fmt: skip


# --- all of it ------------------------------------------------------------------------------------------------------


def machine_line(device: torch.device) -> str:
    """What the figures are of: the device, the versions, the threads."""
    import transformers

    parts = [benchmark.machine(device) + ("" if device.type in ("cpu", "cuda") else f", {device}")]
    if device.type == "cuda":
        card = torch.cuda.get_device_properties(device)
        parts[0] += f", {card.total_memory / 2**30:.1f} GiB, compute capability {card.major}.{card.minor}"
        parts.append(f"CUDA {torch.version.cuda}")
    parts += [f"torch {torch.__version__}", f"transformers {transformers.__version__}"]
    return " | ".join([*parts, f"{torch.get_num_threads()} CPU thread(s)"])


def run(
    device: torch.device,
    dtypes: list[torch.dtype] | None = None,
    full: bool = False,
    seconds: float = 240,
    say: Callable[[str], object] = print,
    progress: Callable[[str], object] = lambda text: None,
) -> dict:
    """Everything, each part told to `say` as it is done: {"exact", "lines" of the verdict, "pairs" measured}.

    dtypes: of the timings; None: float32, on a GPU float16 too.  full: the real shapes on a CPU as well.
    seconds: shapes that would not be done by then are left out.
    """
    started, results = perf_counter(), []
    if device.type == "cuda" and device.index is None:
        device = torch.device("cuda", torch.cuda.current_device())
    dtypes = dtypes or [torch.float32, torch.float16][: 1 if device.type == "cpu" else 2]
    shapes = REAL if full or device.type != "cpu" else SMALL
    say(machine_line(device))

    def told(finding: Finding, bad: str) -> Finding:
        say(f"  {'ok' if finding.good else bad:5} {finding.text}")
        return finding

    say("\nExact? Small random pairs on the device, against what the target alone would write")
    exact = [told(finding, "WRONG") for finding in exactness(device, progress)]
    say("\nThe work of a round")
    counted = [told(work(device, rule), "MORE") for rule in ("google", "deepmind")]
    kind = "the shapes of GPT-2" if shapes is REAL else "small shapes (--full: those of GPT-2)"
    say(f"\nSpeed: {kind}, random weights")
    draft, *targets = shapes
    pace = 0.0  # seconds for each layer and column of the last target
    for target, dtype in ((target, dtype) for target in targets for dtype in dtypes):
        name, size, begun = f"{target}, {str(dtype)[6:]}", shapes[target][0] * shapes[target][1], perf_counter()
        if begun - started + pace * size > seconds:
            say(f"{name}: left out, it would not be done within {seconds:.0f} seconds")
            continue
        try:
            found = measure(target, draft, shapes, device, dtype, progress)
        except AssertionError as error:  # an arm that writes too few tokens or too many
            exact.append(told(Finding(False, f"{name}: {error}"), "WRONG"))
        except (RuntimeError, MemoryError, ValueError) as error:  # of one shape: the others may still do
            say(f"{name}: left out, {reason(error)}")
        else:
            results.append(found)
            say(f"{found['pair']} ({perf_counter() - begun:.0f} s)\n{report(found)}")
            pace = (perf_counter() - begun) / size
        gc.collect()
        if device.type == "cuda":
            torch.cuda.empty_cache()
    lines = verdict(exact, counted, results)
    say(f"\nVerdict, after {perf_counter() - started:.0f} seconds\n" + "\n".join(f"  {line}" for line in lines))
    return {"exact": all(finding.good for finding in exact), "lines": lines, "pairs": results}


def verdict(exact: list[Finding], counted: list[Finding], results: list[dict]) -> list[str]:
    """In words: is it exact, and which pair should pay, at which gamma, or why not."""
    wrong = sum(not finding.good for finding in exact)
    lines = [f"NOT exact on this device: {wrong} of {len(exact)} checks failed, those marked WRONG above."]
    if not wrong:
        lines = ["Exact on this device, as far as these checks can see."]
    if not all(finding.good for finding in counted):
        lines.append("It is slower than it need be: a round does more work than the algorithm asks for (MORE above).")
    for found in results:
        (formula, gamma), (c, v) = predicted(found, ALPHAS[1]), costs(found)
        took, expected = a_round(found)  # a round's drawing, judging and rolling back are not in the formula
        gain = formula * min(1, expected / took)
        why = f"a pass over 5 tokens costs {v[5]:.2f} of one over 1"
        if 4 * c > v[5] - 1:  # of the two prices of a round, the larger
            why = f"a draft token costs {c:.2f} of one of the target's"
        pays = "should pay" if gain > 1.1 else "should hardly pay" if gain > 1 else "should not pay"
        words = f"{found['pair']}: {pays}, {gain:.2f} times as fast at gamma {gamma}"
        lines.append(words + ("." if gain > 1.1 else f": {why}."))
    if results:
        slower = [took / formula for took, formula in map(a_round, results)]
        lines += [
            f"These are predictions, from c and v measured here, at an acceptance rate alpha of {ALPHAS[1]}, divided",
            f"by what a round took beyond c and v, where it took more: up to {max(slower):.2f} times as long.",
        ]
    else:
        lines.append("Whether it pays is not known: nothing was timed.")
    return lines


def recording(result: dict, device: torch.device) -> dict:
    """A result of `run` for the notebooks: the pair of the class where it was measured, else the last one that was.

    "check" holds the verdict and all pairs.  ValueError where nothing was timed.
    """
    import transformers

    if not result["pairs"]:
        raise ValueError("nothing was timed, so nothing is recorded: give it more --seconds, or another --device")
    found = next((p for p in result["pairs"] if p["target"] in CLASS), result["pairs"][-1])
    return {
        "machine": benchmark.machine(device),
        "device": f"{device.type}, {1 if found['small'] else torch.get_num_threads()} CPU thread(s)",
        "torch": torch.__version__,
        "transformers": transformers.__version__,
        "date": datetime.date.today().isoformat(),
        **{key: found[key] for key in ("pair", "v", "c", "memory", "comparison")},
        "check": result,
    }
