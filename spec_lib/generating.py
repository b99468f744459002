"""The command `generate`: a text, and on request how it came about and how fast."""

from __future__ import annotations

import argparse
import math
import os
import secrets
import sys

from .options import load, needs_own_pass, on_own_pass, refuse_pair, setting_of


def generate(args: argparse.Namespace) -> int:
    """Write a text, and on request how it came about and how fast."""
    from . import Randomness, Sampling, speculative_rounds, summarize
    from .numbers import at_least_one
    from .pairs import ends
    from .plots import ansi_text, origins, pieces

    # Everything that can be refused without a model is refused before one is loaded.
    sampling = Sampling(args.temperature, args.top_k, args.top_p)
    at_least_one("--gamma", args.gamma), at_least_one("--max-new-tokens", args.max_new_tokens)
    Randomness(args.seed)
    plug, args.seed = plugged(args), seed_of(args)
    if args.compare:
        setting_of(args)
    if args.drafter != "model":
        if args.draft is not None:
            raise ValueError(f"--drafter {args.drafter} drafts without a draft model: leave out --draft {args.draft}")
        if args.target not in (None, "tiny"):
            args.draft = args.target  # in the place of a draft model; loaded once
    refuse_pair(args)
    pair = load(args)
    fast = on_own_pass(args, pair)
    pair = fast or pair
    ids = pair.encode(args.prompt)
    options = {
        "gamma": args.gamma,
        "rule": plug.rule,
        "sampling": sampling,
        "eos_token_id": None if args.ignore_eos else ends(pair),
        "generator": None if args.seed is None else plug.randomness(args.seed),
    }
    rounds = speculative_rounds(pair.target, plug.draft(pair), ids, args.max_new_tokens, **options)
    colour = args.verbose and coloured()

    done = []

    def emitted():  # tokens with their origins, as the rounds come
        for r in rounds:
            done.append(r)
            yield from zip(r.tokens, origins([r]), strict=True)

    print(ansi_text(args.prompt, "prompt", colour), end="", flush=True)
    for text, origin in pieces(pair, ids, emitted()):
        print(ansi_text(text, origin, colour), end="", flush=True)
    print()
    if args.verbose:
        print(*account(pair, ids.shape[1], done, colour), sep="\n")
        s = summarize(done)
        print(f"{rate(s, done)}, {s.tokens_per_pass:.2f} tokens per target pass")
        if args.noise == "shared":
            print(f"shared noise: plain decoding writes this same text with the noise of seed {args.seed}")
        print(f"forward pass: {'our own (spec_lib.GPT2)' if fast else 'of transformers'}")
    if args.compare:
        print(comparison(args, pair))
    return 0


def coloured() -> bool:
    """Whether standard output takes colours, asked in Python's own order."""
    said = os.environ.get
    wished = not said("NO_COLOR") and (bool(said("FORCE_COLOR")) or said("TERM") != "dumb")
    return wished and (bool(said("FORCE_COLOR")) or sys.stdout.isatty())


def plugged(args: argparse.Namespace):
    """The `benchmark.Plug` that the options name; ValueError where they do not go together."""
    from . import SharedNoise, benchmark

    needs_own_pass(args)
    if args.noise == "shared" and args.rule is not None:
        raise ValueError(f"--noise shared has a rule of its own: leave out --rule {args.rule}")
    randomness = {"randomness": SharedNoise} if args.noise == "shared" else {}
    return benchmark.Plug(benchmark.DRAFTERS[args.drafter], args.rule, **randomness)


def seed_of(args: argparse.Namespace) -> int | None:
    """The seed that was given; shared noise has none but its seed, so that a new one is made up for each text."""
    return secrets.randbelow(2**63) if args.seed is None and args.noise == "shared" else args.seed


def account(pair, position: int, rounds: list, colour: bool):
    """Lines: what each origin means and how many tokens had it, and each rejection.  position: of the first token."""
    from .plots import MEANING, SHAPE, ansi_text, origins, visible

    names = origins(rounds)
    for name in MEANING:
        if name in names:
            face = f" ({SHAPE[name]})" if colour else ""
            yield f"{ansi_text(name, name, colour)}{face}: {MEANING[name]}, {names.count(name)}"
    for i, r in enumerate(rounds, 1):
        if r.rejected is not None:
            rejected, resampled = (visible(pair.decode([t])) for t in (r.rejected, r.token))
            yield f"round {i}, position {position + r.accepted}: rejected {rejected}, wrote {resampled}"
        position += len(r.tokens)


def rate(s, rounds: list) -> str:
    """The acceptance rate of a `Summary`, or why there is none."""
    if not all(r.token_by_token for r in rounds):
        ended = f"{s.rejected} round{'' if s.rejected == 1 else 's'} ended by a rejection"
        return f"acceptance rate not defined where a block is verified as a whole ({s.accepted} accepted, {ended})"
    if math.isnan(s.alpha):
        return "acceptance rate not defined: no draft token was verified"
    return f"acceptance rate {s.alpha:.2f} ({s.accepted} accepted, {s.rejected} rejected)"


def comparison(args: argparse.Namespace, pair, runs: int = 5) -> str:
    """Plain decoding and the speculative loop in turn, several texts each, through any end: tokens a second."""
    from dataclasses import replace

    from . import benchmark

    here = replace(pair, prompts={"given": args.prompt})  # a prompt may also be the name of one of the pair's own
    asked, plug = "speculative, as asked", plugged(args)
    found = benchmark.compare(here, setting_of(args), runs, (benchmark.TARGET, asked), plugs={asked: plug})
    plain, fast = benchmark.rows(found)
    return (
        f"{runs} texts of {args.max_new_tokens} tokens each on this machine, both on the same forward passes: plain "
        f"{plain.tokens_per_second:.0f} tokens/s, speculative {fast.tokens_per_second:.0f} tokens/s, "
        f"{fast.speedup:.2f} times as fast"
    )
