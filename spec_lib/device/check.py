"""All checks of a device in turn, the verdict in words, and what of it is kept as a recording."""

from __future__ import annotations

import gc
from collections.abc import Callable
from dataclasses import asdict, dataclass
from time import perf_counter

import torch

from .. import benchmark
from ..devices import single_thread
from . import own, speed
from .exact import Finding, exactness, reason, work
from .speed import ALPHAS, GAMMA, Timed

RECORDED = ("gpt2-large", "8x128")  # the targets that a recording is of, where one of them was timed


@dataclass
class Result:
    """Whether the device is exact, the lines of the verdict, and the pairs that were timed."""

    exact: bool
    lines: list[str]
    pairs: list[Timed]


def run(
    device: torch.device,
    dtypes: list[torch.dtype] | None = None,
    full: bool = False,
    seconds: float = 240,
    say: Callable[[str], object] = print,
    progress: Callable[[str], object] = lambda text: None,
) -> Result:
    """Everything, each part told to `say` as it is done.

    dtypes: of the timings; None: float32, on a GPU float16 too.  full: the real shapes on a CPU as well.
    seconds: shapes that would not be done by then are left out.
    """
    started, timed = perf_counter(), []
    if device.type == "cuda" and device.index is None:
        device = torch.device("cuda", torch.cuda.current_device())
    dtypes = dtypes or [torch.float32, torch.float16][: 1 if device.type == "cpu" else 2]
    shapes = speed.REAL if full or device.type != "cpu" else speed.SMALL
    say(machine_line(device))

    def told(finding: Finding, bad: str) -> Finding:
        say(f"  {'ok' if finding.good else bad:5} {finding.text}")
        return finding

    with single_thread():  # matrices so small that a second one is only waited for: see `devices.one_thread`
        say("\nExact? Small random pairs on the device, against what the target alone would write")
        exact = [told(finding, "WRONG") for finding in exactness(device, progress)]
        say("\nThe work of a round")
        counted = [told(work(device, rule), "MORE") for rule in ("google", "deepmind")]
        captured = []  # of CUDA graphs, which nobody uses who does not ask for them
        say(
            f"\nOur own forward pass of GPT-2{'' if device.type == 'cuda' else ' (CUDA graphs are tried on CUDA only)'}"
        )
        for way in own.ways(device):
            right = captured if way == own.GRAPHS else exact
            right += [told(finding, "WRONG") for finding in own.exactness(device, way, progress)]
            counted.append(told(own.work(device, way), "MORE"))
    kind = "the shapes of GPT-2" if shapes is speed.REAL else "small shapes (--full: those of GPT-2)"
    say(f"\nSpeed: {kind}, random weights")
    draft, *targets = shapes
    pace = 0.0  # seconds for each layer and column of the last target
    for target, dtype in ((target, dtype) for target in targets for dtype in dtypes):
        name, size, begun = f"{target}, {str(dtype)[6:]}", shapes[target][0] * shapes[target][1], perf_counter()
        if begun - started + pace * size > seconds:
            say(f"{name}: left out, it would not be done within {seconds:.0f} seconds")
            continue
        try:
            found = speed.measure(target, draft, shapes, device, dtype, progress)
        except AssertionError as error:  # a variant that writes too few tokens or too many
            exact.append(told(Finding(False, f"{name}: {error}"), "WRONG"))
        except (RuntimeError, MemoryError, ValueError) as error:  # of one shape: the others may still do
            say(f"{name}: left out, {reason(error)}")
        else:
            timed.append(found)
            say(f"{found.pair} ({perf_counter() - begun:.0f} s)\n{speed.report(found)}")
            pace = (perf_counter() - begun) / size
        gc.collect()
        if device.type == "cuda":
            torch.cuda.empty_cache()
    lines = verdict(exact, counted, timed, captured)
    say(f"\nVerdict, after {perf_counter() - started:.0f} seconds\n" + "\n".join(f"  {line}" for line in lines))
    return Result(all(finding.good for finding in exact), lines, timed)


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


def verdict(
    exact: list[Finding], counted: list[Finding], timed: list[Timed], captured: list[Finding] | None = None
) -> list[str]:
    """In words: is it exact, and which pair should pay, at which gamma, or why not."""
    wrong = sum(not finding.good for finding in exact)
    lines = [f"NOT exact on this device: {wrong} of {len(exact)} checks failed, those marked WRONG above."]
    if not wrong:
        lines = ["Exact on this device, as far as these checks can see."]
    if captured:
        right = all(finding.good for finding in captured)
        lines.append(
            "With CUDA graphs too: GPT2(model, graphs=True) can be used here."
            if right
            else "CUDA graphs do NOT do what they must here: leave graphs=True out. Nothing else uses them."
        )
    if not all(finding.good for finding in counted):
        lines.append("It is slower than it need be: a round does more work than the algorithm asks for (MORE above).")
    for found in timed:
        (formula, gamma), (c, v) = found.predicted(ALPHAS[1]), found.costs()
        took, expected = found.a_round()  # a round's drawing, verifying and rolling back are not in the formula
        gain = formula * min(1, expected / took)
        why = f"a pass over {GAMMA + 1} tokens costs {v[GAMMA + 1]:.2f} of one over 1"
        if GAMMA * c > v[GAMMA + 1] - 1:  # of the two costs of a round, the larger
            why = f"a draft token costs {c:.2f} of one of the target's"
        pays = "should pay" if gain > 1.1 else "should hardly pay" if gain > 1 else "should not pay"
        words = f"{found.pair}: {pays}, {gain:.2f} times as fast at gamma {gamma}"
        lines.append(words + ("." if gain > 1.1 else f": {why}."))
    if timed:
        slower = [took / formula for took, formula in (found.a_round() for found in timed)]
        lines += [
            f"These are predictions, from c and v measured here, at an acceptance rate alpha of {ALPHAS[1]}, divided",
            f"by what a round took beyond c and v, where it took more: up to {max(slower):.2f} times as long.",
            "They are of transformers' forward pass; our own, which `generate` takes for GPT-2, has a line of its own.",
        ]
    else:
        lines.append("Whether it pays is not known: nothing was timed.")
    return lines


def recording(result: Result, device: torch.device) -> benchmark.Recording:
    """A result of `run` for the notebooks: the pair of `RECORDED` where it was timed, else the last one that was.

    `check` holds the verdict and all pairs.  ValueError where nothing was timed.
    """
    if not result.pairs:
        raise ValueError("nothing was timed, so nothing is recorded: give it more --seconds, or another --device")
    found = next((timed for timed in result.pairs if timed.target in RECORDED), result.pairs[-1])
    measured = {"v": found.v, "c": found.c, "memory": found.memory, "comparison": found.comparison}
    return benchmark.Recording.here(found.pair, device, found.threads, **measured, check=asdict(result))
