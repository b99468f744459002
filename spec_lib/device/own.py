"""Is our own forward pass of GPT-2 right on this device, and how long does it take?  `GPT2`, and with CUDA graphs.

What `exact` asks of the loop with transformers' models is asked again with ours, and the logits are compared first.
Derived in notebook 13.
"""

from __future__ import annotations

import copy
import functools
from collections.abc import Callable, Iterator
from statistics import median

import torch

from .. import benchmark
from ..cache import CachedModel
from ..gpt2 import GPT2
from ..sampling import Randomness, Sampling
from . import exact
from .exact import Finding

OWN, GRAPHS = "own forward pass", "with CUDA graphs"
POSITIONS, DTYPES = 600, (torch.float32, torch.float16)  # two whole buckets of the cache, and a part of one
BLOCKS = ((0, 1), (0, 5), (3, 2), (0, 3), (1, 1), (0, 24), (6, 5))  # (forget, read), over and over


def ways(device: torch.device) -> dict[str, bool | str]:
    """The ways to run our forward pass on this device: name -> the argument `graphs`."""
    return {OWN: False, GRAPHS: True} if device.type == "cuda" else {OWN: False}


def exactness(
    device: torch.device, way: str, progress: Callable[[str], object] = lambda text: None
) -> Iterator[Finding]:
    """Each check as it is done, for one of the `ways`: logits, greedy texts, the output distribution, both rules."""
    few, many, graphs = exact.tiny(3), exact.tiny(31), ways(device)[way]
    prompts = torch.randint(31, (exact.PROMPTS, 5), generator=torch.Generator().manual_seed(1))

    def made(models):
        return [GPT2(model, graphs=graphs) for model in exact.moved(models, device)]

    checks = {
        "logits": lambda: _logits(device, graphs),
        "greedy": lambda: exact._greedy(*made(many), prompts, "google"),
        "distribution": lambda: exact._distribution(few[0], *made(few)),
        "rule deepmind": lambda: exact._same_texts(*made(few)),
    }
    yield from exact.findings({f"{way}, {name}": check for name, check in checks.items()}, progress)


def work(device: torch.device, way: str) -> Finding:
    """The work of a round under the rule "google", in one of the `ways`."""
    try:
        return exact.work(
            device, "google", watched=functools.partial(exact.OwnWatched, graphs=ways(device)[way]), way=f"{way}, "
        )
    except Exception as error:  # as in `exact.findings`
        return Finding(False, f"{way}, rule google: {exact.reason(error)}")


@torch.no_grad()
def _logits(device: torch.device, graphs: bool | str) -> tuple[bool, str]:
    """How far from the same weights in float64: ours at most half as far again as transformers' own."""
    network = exact.random_gpt2((2, 32, 2), 31, "cpu", seed=4, positions=POSITIONS, spread=0.25)
    text = torch.randint(31, (POSITIONS,), generator=torch.Generator().manual_seed(2))
    good, said = True, []
    for dtype in DTYPES:
        (there,) = exact.moved([network], device, dtype)
        reference = copy.deepcopy(there).cpu().double()(text[None]).logits[0]  # (POSITIONS, vocab)
        try:
            theirs, ours = (_distance(m, text, reference) for m in (CachedModel(there), GPT2(there, graphs=graphs)))
        except RuntimeError as error:
            if dtype == torch.float32 or not ("implement" in str(error) or "support" in str(error)):
                raise
            said.append(f"{str(dtype)[6:]} left out, not done by this device")
            continue
        allowed = 1.5 * theirs + torch.finfo(dtype).eps * float(reference.abs().max())
        good &= ours <= allowed
        said.append(f"{str(dtype)[6:]} {ours:.1e} (transformers' own {theirs:.1e}, allowed {allowed:.1e})")
    return good, (
        f"of {POSITIONS} positions, fed in blocks with rollbacks; a logit's largest distance from float64 (the largest "
        f"logit is {float(reference.abs().max()):.1f}): {'; '.join(said)}"
    )


def _distance(model, text: torch.Tensor, reference: torch.Tensor) -> float:
    """The largest difference of a logit, of the text read in BLOCKS until the context is full; NaN where one is."""
    ids, found, step = text.to(model.device), [], 0
    while model.length < POSITIONS:
        forget, read = BLOCKS[step % len(BLOCKS)] if step else (0, 7)
        model.rollback(model.length - forget)
        logits = model.feed(ids[model.length : model.length + read])
        found.append((logits.cpu().double() - reference[model.length - len(logits) : model.length]).abs().max())
        step += 1
    return float(torch.stack(found).max())


def seconds(
    network: torch.nn.Module, graphs: bool | str, counts: tuple[int, ...], k: int, runs: int = 10
) -> tuple[dict[int, list[float]], list[float]]:
    """v(n), seconds of each pass over n new tokens; and those of drafting k tokens, divided by k: in one graph where it
    has one, else those of a pass over one token."""
    v = benchmark.pass_seconds(GPT2(network, graphs=graphs), counts, runs=runs)
    model, sampling, randomness = GPT2(network, graphs=graphs), Sampling(), Randomness(0, network.device)
    ids = torch.arange(65, device=model.device) % model.vocab
    model.feed(ids[:64], 1)
    if model.draft_block(ids[64:], k, sampling, randomness) is None:
        return v, v[1]
    found = []
    for _ in range(runs):
        model.rollback(64)
        found.append(benchmark.clock(lambda: model.draft_block(ids[64:], k, sampling, randomness), model.device) / k)
    return v, found


def costs(target: dict[int, list[float]], draft: list[float]) -> tuple[float, dict[int, float]]:
    """c, and v(n) / v(1) of the target, from the medians: what `theory.predict` takes."""
    times = {n: median(found) for n, found in target.items()}
    return median(draft) / times[1], {n: t / times[1] for n, t in times.items()}
