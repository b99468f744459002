"""Measure a trained pair on held-out text and print the table that its model card holds.

    python -m spec_lib.tiny.measure stories.txt --pair my_pair

The file must be the one that the pair was trained on: the held-out stories are found by their position in it.
Acceptance is counted by several processes at once; then, alone, times are taken.  They are of one machine in one
run; the two loops alternate, and only their ratio travels.
"""

from __future__ import annotations

import argparse
import os
import platform
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from statistics import median

import torch
import torch.nn.functional as F

from .. import Pair, Sampling, speculative, summarize
from ..benchmark import DRAFT, FAST, GOOGLE, OWN, TARGET, Setting, cost_ratio, pass_seconds, rows, sweep
from ..pairs import TINY, load_gpt2
from .shapes import CONTEXT, DRAFTS, SHAPES
from .stories import in_a_row, plain_half, read_stories, split, to_ids

PROMPTS, PROMPT, NEW, GAMMA = 200, 32, 64, 4


def prompts_from(held: torch.Tensor, count: int) -> list[torch.Tensor]:
    """`count` prompts of 32 tokens, evenly spread over the held-out text: each (1, 32)."""
    step = (len(held) - PROMPT) // count
    return [held[i * step : i * step + PROMPT][None] for i in range(count)]


def acceptance(folder: Path, draft: str, prompts: list[torch.Tensor], temperature: float):
    """The summary of all rounds over all prompts, gamma 4; runs in a process of its own."""
    torch.set_num_threads(1)
    target, model = (load_gpt2(folder / name).eval() for name in ("target", draft))
    rounds = []
    for i, ids in enumerate(prompts):
        options = {"gamma": GAMMA, "sampling": Sampling(temperature), "generator": i, "trace": {"overlap"}}
        rounds += speculative(target, model, ids, NEW, **options).rounds
    return summarize(rounds)


@torch.no_grad()
def held_out_loss(model, held: torch.Tensor, most: int = 200) -> float:
    """Nats a token, over windows of the whole context."""
    losses = []
    for start in range(0, min(len(held) - CONTEXT - 1, most * CONTEXT), CONTEXT):
        row = held[start : start + CONTEXT + 1]
        losses.append(F.cross_entropy(model(input_ids=row[None, :-1], use_cache=False).logits[0], row[1:]))
    return torch.stack(losses).mean().item()


def speed(pair: Pair, runs: int) -> list[str]:
    """v(n), and the table of the speed-up at each gamma, measured and predicted, on the pair's own prompts.

    On transformers' forward passes and on our own, in turn.
    """
    lines = ["v(n), a target pass over n tokens in milliseconds:", ""]
    for whose, target in (("transformers", pair.target), ("our own", pair.fast().target)):
        v = {n: median(times) for n, times in pass_seconds(target, (1, 2, 3, 4, 5, 6, 7, 9), runs=35).items()}
        lines.append(f"- {whose}: " + ", ".join(f"v({n}) = {1000 * t:.2f}" for n, t in v.items()))
    lines += [
        "",
        "Default draft, temperature 1, alternating with the cached plain loop on the same forward passes:",
        "",
        "| gamma | tokens per target pass | times as fast, transformers' pass | predicted from alpha, c and v "
        "| times as fast, our own pass | predicted |",
        "|---|---|---|---|---|---|",
    ]
    for measured in sweep(pair, "gamma", range(1, 7), Setting(new=NEW), runs, (TARGET, DRAFT, GOOGLE, *FAST)):
        found = {row.variant: row for row in rows(measured)}
        speeds = [f"{x.over_plain:.2f} | {x.predicted:.2f}" for x in (found[GOOGLE], found[OWN])]
        lines.append(f"| {measured.value} | {found[GOOGLE].tokens_per_pass:.2f} | {' | '.join(speeds)} |")
    print("\n".join(lines), flush=True)
    return lines


def measure(folder: Path, stories_file: Path, prompts: int = PROMPTS) -> str:
    """The table as Markdown."""
    from transformers import PreTrainedTokenizerFast

    models = {name: load_gpt2(folder / name).eval() for name in ("target", *DRAFTS)}
    tokenizer = PreTrainedTokenizerFast.from_pretrained(folder / "target")
    stories, held_stories = split(read_stories(stories_file))
    everything = in_a_row(to_ids(held_stories, tokenizer))
    held = in_a_row(plain_half(stories, held_stories, tokenizer)[1])
    characters = len(tokenizer.decode(held)) / len(held)
    target, texts = models["target"], prompts_from(held, prompts)
    with ProcessPoolExecutor(os.cpu_count(), mp_context=get_context("spawn")) as pool:
        jobs = {(name, t): pool.submit(acceptance, folder, name, texts, t) for name in DRAFTS for t in (1.0, 0.0)}
        found = {which: job.result() for which, job in jobs.items()}
    lines = [
        f"Measured on {platform.machine()}, {torch.get_num_threads()} thread(s) set and one used, torch "
        f"{torch.__version__}, float32; {prompts} prompts of {PROMPT} tokens from held-out plain stories, {NEW} new "
        f"tokens each, gamma {GAMMA}. alpha is accepted / (accepted + rejected); c is the draft's loop over the "
        f"target's loop. Over all held-out stories, plain or not, the target loses "
        f"{held_out_loss(target, everything):.2f} nats a token.",
        "",
        "| model | layers x width | parameters | held-out loss, nats a token (a character) | alpha, T = 1 "
        "| mean overlap, T = 1 | alpha, T = 0 | c | c, our own pass |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    few = {str(i): tokenizer.decode(ids[0]) for i, ids in enumerate(texts[: max(4, min(24, prompts // 8))])}
    pairs = {name: Pair(target, models[name], tokenizer, prompts=few) for name in DRAFTS}  # for the times

    for name, model in models.items():
        loss = held_out_loss(model, held)
        row = f"| {name} | {SHAPES[name][0]} x {SHAPES[name][1]} | {sum(p.numel() for p in model.parameters()):,} "
        row += f"| {loss:.2f} ({loss / characters:.2f}) "
        if name == "target":
            row += "| | | | 1 | 1 |"
        else:
            warm, cold = found[name, 1.0], found[name, 0.0]
            c, own = (median(cost_ratio(p, PROMPT, NEW, len(few))) for p in (pairs[name], pairs[name].fast()))
            row += f"| {warm.alpha:.3f} | {warm.mean_overlap:.3f} | {cold.alpha:.3f} | {c:.3f} | {own:.3f} |"
        lines.append(row)
        print(row, flush=True)

    lines += ["", *speed(pairs["medium"], len(few))]
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
