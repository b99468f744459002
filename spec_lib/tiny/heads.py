"""Train the embedded target's recurrent head on what the target itself writes, and print the table of its card.

    python -m spec_lib.tiny.heads --out my_head

Two to three minutes of writing and as much of training on one core.  `spec_lib.drafters.shipped_head(target, folder)`
loads the head.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from statistics import mean, stdev

import torch

from .. import Sampling, load_pair, speculative
from ..drafters import Lessons, RecurrentHead, overlaps, train
from ..drafters.shipped import FILE, save_head, shipped_head
from ..files import writable
from ..numbers import at_least_one

TEXTS, HELD, STEPS = 512, 48, 6000


def tokens_per_pass(target, draft, prompts: list[torch.Tensor], new: int = 64, **options) -> tuple[float, float]:
    """Tokens per target pass, full rounds only: the mean over texts, one after each prompt (1, m), and its standard
    error."""
    found = []
    for seed, ids in enumerate(prompts):
        rounds = speculative(target, draft, ids, new, generator=seed, **options).rounds
        found.append(mean(len(r.tokens) for r in rounds if not r.cut))
    return mean(found), stdev(found) / len(found) ** 0.5


def main(argv: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m spec_lib.tiny.heads", description=__doc__.split("\n")[0])
    parser.add_argument("--out", type=Path, required=True, help="folder for the head")
    parser.add_argument("--texts", type=int, default=TEXTS, help="texts of 256 tokens to learn from")
    parser.add_argument("--steps", type=int, default=STEPS, help="of training, about 30 milliseconds each")
    args = parser.parse_args(argv)
    try:  # before the minutes of training, not after
        at_least_one("--texts", args.texts), at_least_one("--steps", args.steps), writable(args.out / FILE)
    except ValueError as error:
        parser.error(str(error))
    pair = load_pair("tiny")
    start = torch.zeros(1, 1, dtype=torch.int64)  # the token that begins a story
    lessons, held = Lessons.written(pair.target, start, args.texts + HELD).split(HELD)
    save_head(train(RecurrentHead(pair.target), lessons, args.steps), args.out)
    head = shipped_head(pair.target, args.out)
    print(f"overlap by position on {HELD} texts that were held out: "
          + ", ".join(f"{x:.3f}" for x in overlaps(head, held)) + "\n")  # fmt: skip
    print("| tokens per target pass | T = 1, gamma 4 | gamma 8 | T = 0, gamma 4 | gamma 8 |\n|---|---|---|---|---|")
    # At temperature 0 a prompt has one text only: there, the beginnings of texts that the target wrote.
    prompts = {1.0: [pair.encode(text) for text in pair.prompts.values()] * 8, 0.0: list(held.ids[:24, None, :16])}
    for name, draft, rule in (
        ("medium draft", pair.draft, "google"),
        ("medium draft, rule block", pair.draft, "block"),
        ("head", head, "google"),
        ("head, rule block", head, "block"),
    ):
        cells = [
            tokens_per_pass(pair.target, draft, texts, gamma=gamma, rule=rule, sampling=Sampling(temperature))
            for temperature, texts in prompts.items()
            for gamma in (4, 8)
        ]
        print(f"| {name} | " + " | ".join(f"{m:.2f} +- {error:.2f}" for m, error in cells) + " |", flush=True)


if __name__ == "__main__":
    main()
