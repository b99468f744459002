"""What the command line understands, and what follows from it before a model is loaded."""

from __future__ import annotations

import argparse
import sys


class Parser(argparse.ArgumentParser):
    def error(self, message: str):
        """One sentence and exit code 2."""
        print(f"{self.prog}: {message} (try --help)", file=sys.stderr)
        raise SystemExit(2)


def parser() -> argparse.ArgumentParser:
    top = Parser(prog="python -m spec_lib", description="Speculative sampling from the command line.")
    commands = top.add_subparsers(dest="command", required=True, metavar="COMMAND", parser_class=Parser)
    g = commands.add_parser("generate", help="continue a text speculatively")
    g.add_argument("prompt", help="the text to continue")
    _add_pair(g)
    _add_sampling(g, "length of the continuation (default 100)")
    g.add_argument(
        "--drafter",
        choices=["model", "ngram", "exit", "head"],
        default="model",
        help="what drafts: the draft model; ngram: what followed the text's last tokens when they stood in it before "
        "(prompt lookup); exit: the target's first two thirds of its layers; head: the small network that was trained "
        "on the embedded target's hidden states (exit and head need our own forward pass; default model)",
    )
    g.add_argument(
        "--rule",
        choices=["google", "deepmind", "block"],
        help="how draft tokens are verified: all at once (Leviathan et al.) or one after the other (Chen et al.), with "
        "the same text either way; block: as a whole (Sun et al.), which accepts more of the same draft (default "
        "google)",
    )
    g.add_argument(
        "--noise",
        choices=["shared", "independent"],
        default="independent",
        help="shared: draft and target draw with the same random numbers at each position, and a draft token is "
        "accepted where it is the one that the target draws; the text is then that of plain decoding with the same "
        "noise, whatever drafts (default independent)",
    )
    g.add_argument("--seed", type=int, help="a number that makes the text repeatable (default: another text each time)")
    g.add_argument("--ignore-eos", action="store_true", help="go on where the model would end the text")
    _add_forward(g, "writes the text")
    g.add_argument("--compare", action="store_true", help="also time plain decoding, and print the speed-up")
    g.add_argument("-v", "--verbose", action="store_true", help="colour tokens by origin and list each rejection")

    b = commands.add_parser("bench", help="time the loops side by side, or one factor at a time")
    _add_pair(b)
    _add_sampling(b, "length of each text (default 100; of a sweep of batch 64)")
    b.set_defaults(gamma=None, max_new_tokens=None)  # which a sweep of batch sizes has others for
    b.add_argument(
        "--runs", type=int, help="evaluations, warm-up not counted (default 50; of a sweep 10 at each value)"
    )
    b.add_argument(
        "--forward",
        choices=["own", "transformers"],
        help="transformers: leave out the variants on our own forward pass (spec_lib.GPT2), which are timed beside the "
        "others where the pair is GPT-2; own: refuse a pair that is not",
    )
    b.add_argument(
        "--more",
        action="store_true",
        help="also time other drafters and rules on our own forward pass: block verification, shared noise, prompt "
        "lookup, early exit, and for the embedded target a trained head and its trees of 16 draft tokens",
    )
    b.add_argument("--prompt", help="a text, or the name of one of the pair's prompts (default: all of these in turn)")
    b.add_argument(
        "--sweep",
        metavar="FACTOR",
        help="gamma, length, temperature, prompt or draft: vary this one; batch: how many texts are written at once, "
        "at gammas 1, 2, 4 and 6 unless --gamma names one, on our own forward pass where the pair is GPT-2 (the "
        "embedded pair takes four to five minutes of one core)",
    )
    b.add_argument("--values", nargs="+", metavar="VALUE", help="of the sweep; default: its usual ones")
    b.add_argument(
        "--out",
        default="bench",
        help="writes OUT.json, OUT.csv and OUT.png, replacing them (one such ending of OUT is taken off); in a folder "
        "bench.json and so on (default bench)",
    )

    r = commands.add_parser("record", help="one JSON of this machine's timings, which the notebooks replay")
    _add_pair(r)
    r.add_argument("--runs", type=int, default=10, help="evaluations at each setting (default 10)")
    r.add_argument("--out", help="the JSON file; default: notebooks/recordings/MACHINE-PAIR.json")

    k = commands.add_parser("check", help="is it exact on this device, and should it pay? minutes, no network")
    _add_device(k, "a GPU where there is one", "of the timings (default float32, on a GPU float16 too)")
    k.add_argument("--full", action="store_true", help="GPT-2's shapes on a CPU too: many minutes, 10 GB of memory")
    k.add_argument(
        "--seconds", type=int, default=240, help="shapes that would not be done by then are left out (default 240)"
    )
    k.add_argument(
        "--record",
        nargs="?",
        const="",
        metavar="FILE",
        help="keep it for the notebooks; without FILE in notebooks/recordings/MACHINE-check.json",
    )

    e = commands.add_parser("export", help="write the embedded pair as Hugging Face folders, which other engines load")
    e.add_argument("folder", metavar="FOLDER", help="a new or empty folder, for FOLDER/target, FOLDER/medium and so on")
    e.add_argument("--target", help="only tiny, the embedded pair, has to be exported")
    e.add_argument("--draft", help="only this draft beside the target: small, medium or large (default: all three)")

    s = commands.add_parser("serve", help="an HTTP server for OpenAI's clients, and a page that streams")
    _add_pair(s)
    s.add_argument("--gamma", type=int, default=4, help="draft tokens a round (default 4)")
    s.add_argument(
        "--rule",
        choices=["google", "deepmind", "block"],
        help="how draft tokens are verified, as in generate (default google)",
    )
    _add_forward(s, "writes the texts")
    s.add_argument("--slots", type=int, default=8, help="texts that are written at the same time (default 8)")
    s.add_argument("--waiting", type=int, default=64, help="texts that may wait for a slot; more get 429 (default 64)")
    s.add_argument(
        "--host", default="127.0.0.1", help="the address to listen on (default 127.0.0.1: this machine only)"
    )
    s.add_argument("--port", type=int, default=8000, help="0 takes a free one, which is printed (default 8000)")
    s.add_argument("--name", help="what clients call the model (default: the target's name)")
    return top


def _add_pair(p: argparse.ArgumentParser) -> None:
    p.add_argument("--target", help='hub id or folder, or "tiny" (the embedded pair); default: as load_pair() chooses')
    p.add_argument(
        "--draft", help="hub id or folder that shares the target's vocabulary; of tiny: small, medium, large"
    )
    _add_device(p, "cuda where there is one, and cpu for the embedded pair", "of the weights (default float32)")


def _add_device(p: argparse.ArgumentParser, default: str, dtype_help: str) -> None:
    p.add_argument("--device", help=f"cuda, mps or cpu; default: {default}")
    p.add_argument("--dtype", choices=["float32", "bfloat16", "float16"], help=dtype_help)


def _add_forward(p: argparse.ArgumentParser, used: str) -> None:
    p.add_argument(
        "--forward",
        choices=["own", "transformers"],
        help=f"whose forward pass {used}: our own, of GPT-2 only (spec_lib.GPT2), or transformers' (default: our own "
        "where the pair is GPT-2)",
    )


def _add_sampling(p: argparse.ArgumentParser, length_help: str) -> None:
    p.add_argument("--gamma", type=int, default=4, help="draft tokens a round (default 4)")
    p.add_argument("--temperature", type=float, default=1.0, help="0 is greedy (default 1)")
    p.add_argument("--top-k", type=int, help="draw from the k likeliest tokens only (default: all)")
    p.add_argument("--top-p", type=float, help="draw from the likeliest tokens that hold this mass (default: all)")
    p.add_argument("--max-new-tokens", type=int, default=100, help=length_help)


def refuse_pair(args: argparse.Namespace) -> None:
    """ValueError for a pair that cannot be one, before anything is loaded; a draft of tiny alone means tiny."""
    from .pairs import TINY_DRAFTS, refuse_choice

    if args.target is None and args.draft in TINY_DRAFTS:
        args.target = "tiny"
    if args.target is not None or args.draft is not None:
        refuse_choice(args.target, args.draft)


def load(args: argparse.Namespace, draft: str | None = None):
    """The pair that the arguments name, or the same target with another draft."""
    from . import load_pair

    return load_pair(args.target, draft or args.draft, device=args.device, dtype=args.dtype)


def needs_own_pass(args: argparse.Namespace) -> str | None:
    """The option, if any, that cannot do without our own forward pass; ValueError beside --forward transformers."""
    option = "--more" if getattr(args, "more", False) else None
    if getattr(args, "drafter", None) in ("exit", "head"):
        option = f"--drafter {args.drafter}"
    if option and args.forward == "transformers":
        raise ValueError(f"{option} needs our own forward pass: leave out --forward transformers")
    return option


def on_own_pass(args: argparse.Namespace, pair):
    """The pair on our own forward pass; None where that is not wanted, or (with a line that says so) not possible.

    ValueError where it was asked for by name, or is needed for another option, and is not possible.
    """
    needed = needs_own_pass(args)
    if args.forward == "transformers":
        return None
    try:
        return pair.fast()
    except ValueError as error:
        if needed:
            raise ValueError(f"{needed} needs our own forward pass: {error}") from None
        if args.forward == "own":
            raise
        print(f"On transformers' forward pass: {error}", file=sys.stderr)
        return None


def setting_of(args: argparse.Namespace, prompt: str | None = None):
    """The `benchmark.Setting` of the sampling options; ValueError where they are none."""
    from .benchmark import Setting

    gamma, new = (usual if given is None else given for given, usual in ((args.gamma, 4), (args.max_new_tokens, 100)))
    return Setting(gamma, new, args.temperature, args.top_k, args.top_p, prompt)
