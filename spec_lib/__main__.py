"""The command line: `python -m spec_lib generate "Once upon a time" -v`."""

from __future__ import annotations

import argparse
import os
import sys

SUBJECT = "python -m spec_lib generate"


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
    g.add_argument("--target", help='hub id or folder, or "tiny" (the embedded pair); default: as load_pair() chooses')
    g.add_argument(
        "--draft", help="hub id or folder that shares the target's vocabulary; of tiny: small, medium, large"
    )
    g.add_argument("--gamma", type=int, default=4, help="draft tokens a round (default 4)")
    g.add_argument(
        "--rule",
        choices=["google", "deepmind"],
        default="google",
        help="how drafts are judged: all at once (Leviathan et al.) or one after the other (Chen et al.); the same "
        "text either way (default google)",
    )
    g.add_argument("--temperature", type=float, default=1.0, help="0 is greedy (default 1)")
    g.add_argument("--top-k", type=int, help="draw from the k likeliest tokens only (default: all)")
    g.add_argument("--top-p", type=float, help="draw from the likeliest tokens that hold this mass (default: all)")
    g.add_argument("--max-new-tokens", type=int, default=100, help="length of the continuation (default 100)")
    g.add_argument("--seed", type=int, help="a number that makes the text repeatable (default: another text each time)")
    g.add_argument("--device", help="cuda, mps or cpu; default: a GPU where there is one")
    g.add_argument("--dtype", choices=["float32", "bfloat16", "float16"], help="of the weights (default float32)")
    g.add_argument("--ignore-eos", action="store_true", help="go on where the model would end the text")
    g.add_argument("--compare", action="store_true", help="also time plain decoding, and print the speed-up")
    g.add_argument("-v", "--verbose", action="store_true", help="colour tokens by origin and list each rejection")
    return top


def main(argv: list[str] | None = None) -> int:
    args = parser().parse_args(argv)
    if hasattr(sys.stdout, "reconfigure"):
        sys.stdout.reconfigure(errors="replace")  # a terminal may lack a character that a model writes
    try:
        return generate(args)
    except BrokenPipeError:  # the reader of our output has gone: nothing to say, and nobody to say it to
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 141
    except (ValueError, OSError) as error:
        print(f"{SUBJECT}: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        return 130


def generate(args: argparse.Namespace) -> int:
    from . import Sampling, load_pair, speculative_rounds, summarize
    from .pairs import check_choice
    from .plots import MEANING, SHAPE, ansi_text, origins, pieces, visible

    # Everything that can be judged without a model is judged before one is loaded.
    sampling = Sampling(args.temperature, args.top_k, args.top_p)
    if args.gamma < 1:
        raise ValueError(f"--gamma must be at least 1, got {args.gamma}")
    if args.max_new_tokens < 1:
        raise ValueError(f"--max-new-tokens must be at least 1, got {args.max_new_tokens}")
    target = "tiny" if args.target is None and args.draft in ("small", "medium", "large") else args.target
    if target is not None or args.draft is not None:
        check_choice(target, args.draft)
    pair = load_pair(target, args.draft, device=args.device, dtype=args.dtype)
    ids = pair.encode(args.prompt)
    options = {
        "gamma": args.gamma,
        "rule": args.rule,
        "sampling": sampling,
        "eos_token_id": None if args.ignore_eos else pair.tokenizer.eos_token_id,
        "generator": args.seed,
    }
    rounds = speculative_rounds(pair.target, pair.draft, ids, args.max_new_tokens, **options)
    colour = args.verbose and sys.stdout.isatty() and not os.environ.get("NO_COLOR")
    colour = colour or (args.verbose and bool(os.environ.get("FORCE_COLOR")))

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
        names = origins(done)
        for name in MEANING:
            if name in names:
                face = f" ({SHAPE[name]})" if colour else ""
                print(f"{ansi_text(name, name, colour)}{face}: {MEANING[name]}, {names.count(name)}")
        position = ids.shape[1]
        for i, r in enumerate(done, 1):
            if r.rejected is not None:
                rejected, replaced = (visible(pair.decode([t])) for t in (r.rejected, r.token))
                print(f"round {i}, position {position + r.accepted}: rejected {rejected}, wrote {replaced}")
            position += len(r.tokens)
        s = summarize(done)
        print(
            f"acceptance rate {s.alpha:.2f} ({s.accepted} accepted, {s.rejected} rejected), "
            f"{s.tokens_per_pass:.2f} tokens per target pass"
        )
    if args.compare:
        print(compare(pair, ids, args.max_new_tokens, sampling, args.gamma, args.rule))
    return 0


def compare(pair, ids, new: int, sampling, gamma: int, rule: str, runs: int = 5) -> str:
    """Both loops in turn, several texts each, without EOS: tokens a second, and their ratio."""
    from . import autoregressive, speculative
    from .timing import clock

    def seconds(write) -> float:
        return clock(write, pair.device)

    plain, fast = [], []
    for seed in range(runs + 1):
        plain.append(seconds(lambda: autoregressive(pair.target, ids, new, sampling, generator=seed)))  # noqa: B023
        fast.append(
            seconds(
                lambda: speculative(
                    pair.target,
                    pair.draft,
                    ids,
                    new,
                    gamma=gamma,
                    rule=rule,
                    sampling=sampling,
                    generator=seed,  # noqa: B023
                )
            )
        )
    a, b = sum(plain[1:]), sum(fast[1:])  # the first of each warms up
    return (
        f"{runs} texts of {new} tokens each on this machine: plain {runs * new / a:.0f} tokens/s, speculative "
        f"{runs * new / b:.0f} tokens/s, {a / b:.2f} times as fast"
    )


if __name__ == "__main__":
    raise SystemExit(main())
