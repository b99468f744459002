"""Measure a trained pair on held-out text and print the table that its model card holds.

    python -m spec_lib.tiny.measure stories.txt --pair my_pair

The file must be the one that the pair was trained on: the held-out stories are found by their place in it.
Times are of one machine in one run; the two loops alternate, and only their ratio travels.
"""

from __future__ import annotations

import argparse
import platform
from pathlib import Path
from statistics import median
from time import perf_counter

import torch

from .. import Sampling, autoregressive, speculative, summarize, walltime_improvement
from ..cache import CachedModel
from ..pairs import TINY, _quietly
from .train import DRAFTS, SHAPES, held_out_loss, read_stories, split, to_ids

PROMPTS, PROMPT, NEW, GAMMA = 200, 32, 64, 4


def seconds(call) -> float:
    started = perf_counter()
    call()
    return perf_counter() - started


def prompts_from(held: torch.Tensor, count: int) -> list[torch.Tensor]:
    """`count` prompts of 32 tokens, evenly spread over the held-out text: each (1, 32)."""
    step = (len(held) - PROMPT) // count
    return [held[i * step : i * step + PROMPT][None] for i in range(count)]


def acceptance(target, draft, prompts: list[torch.Tensor], temperature: float):
    """The summary of all rounds over all prompts, gamma 4."""
    rounds = []
    for i, ids in enumerate(prompts):
        g = speculative(target, draft, ids, NEW, gamma=GAMMA, sampling=Sampling(temperature), generator=i, trace=True)
        for r in g.rounds:
            r.p = r.q = None  # 200 texts of laws would fill the memory
        rounds += g.rounds
    return summarize(rounds)


@torch.no_grad()
def pass_costs(target, ids: torch.Tensor, counts=(1, 2, 3, 4, 5, 6, 7, 9)) -> dict[int, float]:
    """v(n): median seconds of a target pass over n tokens behind 64 others."""
    cached = CachedModel(target)
    cached.feed(ids[0, :64])
    found = {}
    for n in counts:
        times = []
        for _ in range(40):
            times.append(seconds(lambda n=n: cached.feed(ids[0, 64 : 64 + n])))
            cached.rollback(64)
        found[n] = median(times[5:])
    return found


def measure(folder: Path, stories_file: Path, prompts: int = PROMPTS) -> str:
    """The table as Markdown."""
    from transformers import PreTrainedTokenizerFast

    models = {name: _quietly(folder / name).eval() for name in ("target", *DRAFTS)}
    tokenizer = PreTrainedTokenizerFast.from_pretrained(folder / "target")
    held_stories = split(read_stories(stories_file))[1]
    held = to_ids(held_stories, tokenizer)
    characters = sum(map(len, held_stories)) / len(held)
    target, texts = models["target"], prompts_from(held, prompts)
    lines = [
        f"Measured on {platform.machine()}, {torch.get_num_threads()} thread(s) set and one used, torch "
        f"{torch.__version__}, float32; {prompts} held-out prompts of {PROMPT} tokens, {NEW} new tokens each, "
        f"gamma {GAMMA}. alpha is accepted / (accepted + rejected); c is the draft's loop over the target's loop.",
        "",
        "| model | layers x width | parameters | held-out loss, nats a token (a character) | alpha, T = 1 "
        "| mean overlap, T = 1 | alpha, T = 0 | c |",
        "|---|---|---|---|---|---|---|---|",
    ]
    few = texts[: min(24, len(texts))]

    def loop(model, number: int, ids: torch.Tensor) -> float:
        return seconds(lambda: autoregressive(model, ids, NEW, generator=number))

    for name, model in models.items():
        loss = held_out_loss(model, held)
        row = f"| {name} | {SHAPES[name][0]} x {SHAPES[name][1]} | {sum(p.numel() for p in model.parameters()):,} "
        row += f"| {loss:.2f} ({loss / characters:.2f}) "
        if name == "target":
            row += "| | | | 1 |"
        else:
            warm, cold = (acceptance(target, model, texts, t) for t in (1.0, 0.0))
            pairs = [(loop(model, i, ids), loop(target, i, ids)) for i, ids in enumerate(few)][1:]
            c = median(a / b for a, b in pairs)
            row += f"| {warm.alpha:.3f} | {warm.mean_overlap:.3f} | {cold.alpha:.3f} | {c:.3f} |"
            if name == "medium":
                alpha, cost = warm.alpha, c
        lines.append(row)
        print(row, flush=True)

    v = pass_costs(target, held[None, :128])
    lines += ["", "v(n), a target pass over n tokens in milliseconds: "]
    lines[-1] += ", ".join(f"v({n}) = {1000 * t:.2f}" for n, t in v.items())
    print(lines[-1], flush=True)
    lines += ["", "Default draft, temperature 1, alternating with the cached plain loop:", ""]
    lines += ["| gamma | times as fast | predicted from alpha, c and v | tokens a pass |", "|---|---|---|---|"]
    for gamma in range(1, 7):
        plain = fast = 0.0
        rounds = []
        for i, ids in enumerate(texts[:60]):
            plain += loop(target, i, ids)
            started = perf_counter()
            g = speculative(target, models["medium"], ids, NEW, gamma=gamma, generator=i)
            fast += perf_counter() - started
            rounds += g.rounds
        predicted = walltime_improvement(alpha, gamma, cost, lambda n: v[n] / v[1])
        lines.append(f"| {gamma} | {plain / fast:.2f} | {predicted:.2f} | {summarize(rounds).tokens_per_pass:.2f} |")
        print(lines[-1], flush=True)
    lines += ["", "Samples at temperature 0.7, top_p 0.9:", ""]
    for i in range(5):
        ids = torch.tensor([tokenizer("Once upon a time")["input_ids"]])
        g = speculative(
            target, models["medium"], ids, 90, sampling=Sampling(0.7, top_p=0.9), generator=i, eos_token_id=0
        )
        lines.append("> " + tokenizer.decode(g.ids[0]).replace("\n\n", "\n> \n> ").replace("<|endoftext|>", "") + "\n")
    return "\n".join(lines)


def main(argv: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m spec_lib.tiny.measure", description=__doc__.split("\n")[0])
    parser.add_argument("text", type=Path, help="the text file that the pair was trained on")
    parser.add_argument("--pair", type=Path, default=TINY, help="the folder with target, small, medium and large")
    parser.add_argument("--prompts", type=int, default=PROMPTS)
    args = parser.parse_args(argv)
    if not args.text.is_file():
        parser.error(f"there is no file {args.text}")
    print("\n" + measure(args.pair, args.text, args.prompts))


if __name__ == "__main__":
    main()
