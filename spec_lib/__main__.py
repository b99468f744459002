"""The command line: `python -m spec_lib generate "Once upon a time" -v`, `bench`, `record` and `check`."""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

from .options import load, on_own_pass, parser, refuse_pair, setting_of, sweep_values


def main(argv: list[str] | None = None) -> int:
    args = parser().parse_args(argv)
    if sys.stdout is None:  # started with its output closed
        sys.stdout = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115
    if hasattr(sys.stdout, "reconfigure"):
        sys.stdout.reconfigure(errors="replace")  # a terminal may lack a character that a model writes
    try:
        return {"generate": generate, "bench": bench, "record": record, "check": check}[args.command](args)
    except BrokenPipeError:  # the reader of our output has gone: nothing to say, and nobody to say it to
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 141
    except (ValueError, OSError) as error:
        print(f"python -m spec_lib {args.command}: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        return 130


def generate(args: argparse.Namespace) -> int:
    """Write a text, and on request how it came about and how fast."""
    from . import Randomness, Sampling, speculative_rounds, summarize
    from .numbers import at_least_one
    from .plots import MEANING, SHAPE, ansi_text, origins, pieces, visible

    # Everything that can be refused without a model is refused before one is loaded.
    sampling = Sampling(args.temperature, args.top_k, args.top_p)
    at_least_one("--gamma", args.gamma), at_least_one("--max-new-tokens", args.max_new_tokens)
    Randomness(args.seed)
    if args.compare:
        setting_of(args)
    refuse_pair(args)
    pair = load(args)
    fast = on_own_pass(args, pair)
    pair = fast or pair
    ids = pair.encode(args.prompt)
    options = {
        "gamma": args.gamma,
        "rule": args.rule,
        "sampling": sampling,
        "eos_token_id": None if args.ignore_eos else ends(pair),
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
                rejected, resampled = (visible(pair.decode([t])) for t in (r.rejected, r.token))
                print(f"round {i}, position {position + r.accepted}: rejected {rejected}, wrote {resampled}")
            position += len(r.tokens)
        s = summarize(done)
        print(
            f"acceptance rate {s.alpha:.2f} ({s.accepted} accepted, {s.rejected} rejected), "
            f"{s.tokens_per_pass:.2f} tokens per target pass"
        )
        print(f"forward pass: {'our own (spec_lib.GPT2)' if fast else 'of transformers'}")
    if args.compare:
        print(comparison(args, pair))
    return 0


def ends(pair) -> list[int] | None:
    """The tokens that end a text: the tokenizer's, and all that the target's generation_config lists."""
    from .pairs import inside

    target = inside(pair.target)
    listed = getattr(getattr(target, "generation_config", None), "eos_token_id", None)
    listed = listed if isinstance(listed, (list, tuple)) else [listed]
    vocab = target.config.get_text_config().vocab_size
    found = {e for e in [pair.tokenizer.eos_token_id, *listed] if e is not None and 0 <= e < vocab}
    return sorted(found) or None


def comparison(args: argparse.Namespace, pair, runs: int = 5) -> str:
    """Plain decoding and the speculative loop in turn, several texts each, through any end: tokens a second."""
    from dataclasses import replace

    from . import benchmark

    here = replace(pair, prompts={"given": args.prompt})  # a prompt may also be the name of one of the pair's own
    rule = next(variant for variant, rule in benchmark.RULES.items() if rule == args.rule)
    plain, fast = benchmark.rows(benchmark.compare(here, setting_of(args), runs, (benchmark.TARGET, rule)))
    return (
        f"{runs} texts of {args.max_new_tokens} tokens each on this machine, both on the same forward passes: plain "
        f"{plain.tokens_per_second:.0f} tokens/s, speculative {fast.tokens_per_second:.0f} tokens/s, "
        f"{fast.speedup:.2f} times as fast"
    )


def bench(args: argparse.Namespace) -> int:
    """Measure, print the table, and write JSON, CSV and the figure: all of them or none."""
    import io
    import json
    from dataclasses import asdict, replace

    import matplotlib

    from . import benchmark, plots
    from .files import progress, save, writable
    from .numbers import at_least_one

    setting = setting_of(args, args.prompt)
    runs = at_least_one("--runs", (10 if args.sweep else 50) if args.runs is None else args.runs)
    values = sweep_values(args, setting)
    refuse_pair(args)
    files = {kind: writable(path) for kind, path in bench_files(args.out).items()}

    pair = load(args)
    if args.sweep == "draft" and values:
        if args.target is None and not pair.name.startswith("tiny"):
            raise ValueError("--sweep draft with --values needs --target")
        args.target = args.target or "tiny"
        others = {name: load(args, name) for name in values}
        shared = {"target": pair.target, "tokenizer": pair.tokenizer, "prompts": pair.prompts}
        values = {name: replace(other, **shared) for name, other in others.items()}
    pairs = values.values() if args.sweep == "draft" and values else [pair]
    own = all(on_own_pass(args, each) for each in pairs)  # one table: where one of them cannot, none does
    matplotlib.use("Agg")  # needs no screen
    picture, machine = io.BytesIO(), benchmark.machine(pair.device)
    if args.sweep:
        variants = (benchmark.TARGET, benchmark.DRAFT, benchmark.GOOGLE) + (tuple(benchmark.FAST) if own else ())
        measured = benchmark.sweep(pair, args.sweep, values, setting, runs, variants, progress)
        words = ["\n".join([benchmark.table(m), *benchmark.in_words(m)]) for m in measured]
        tables = [f"{args.sweep} {m.value}\n{text}\n" for m, text in zip(measured, words, strict=True)]
        found = {f"{pair.name} on {machine}": measured}
        plots.plot_sweep(found, f"Speed-up against {args.sweep}", args.sweep, save=picture)
    else:
        variants = benchmark.ALL if own else benchmark.VARIANTS
        measured = [benchmark.compare(pair, setting, runs, variants, progress)]
        tables = [benchmark.table(measured[0]), *benchmark.in_words(measured[0])]
        title = f"{pair.name}, {runs} texts of {setting.new} tokens"
        plots.plot_variants(benchmark.rows(measured[0]), title, save=picture)
    written = {"machine": machine, "pair": pair.name, "measurements": [asdict(m) for m in measured]}
    texts = {"json": json.dumps(written), "csv": benchmark.csv_text(measured), "png": picture.getvalue()}
    save({files[kind]: text for kind, text in texts.items()})  # before a word is printed: the reader may be gone
    progress("")
    print(*tables, sep="\n")
    print("Written: " + ", ".join(str(file) for file in files.values()))
    return 0


def bench_files(out: str) -> dict[str, Path]:
    """The three files of `bench --out`: OUT with each ending in place of its own, or "bench" in a folder."""
    if not out.strip():
        raise ValueError("--out must name a file or a folder, got an empty name")
    path = Path(out, "bench") if out.endswith(("/", os.sep)) or os.path.isdir(out) else Path(out)
    kinds = ("json", "csv", "png")
    if path.suffix.lower().lstrip(".") in kinds:
        path = path.with_suffix("")
    return {kind: path.with_name(f"{path.name}.{kind}") for kind in kinds}


def record(args: argparse.Namespace) -> int:
    """Write one recording for the notebooks."""
    from . import benchmark
    from .files import progress, save, writable
    from .numbers import at_least_one

    at_least_one("--runs", args.runs)
    refuse_pair(args)
    if args.out is not None and not args.out.strip():
        raise ValueError("--out must name a file, got an empty name")
    out = writable(Path(args.out)) if args.out else None
    pair = load(args)
    out = out or benchmark.recording_file(pair.device, pair.name.split(" ")[0])
    found = benchmark.record(pair, args.runs, say=progress)
    progress("")
    save({out: found.to_json()})
    print(f"Written: {out}")
    return 0


def check(args: argparse.Namespace) -> int:
    """Exact, and fast?  0 where it is exact, 1 where it is not."""
    import torch

    from . import benchmark, device
    from .devices import available, find_device
    from .files import progress, save, writable
    from .numbers import at_least_one

    at_least_one("--seconds", args.seconds)
    here = find_device(args.device or next(d for d in ("cuda", "mps", "cpu") if d == "cpu" or available(d)))
    out = None
    if args.record is not None:
        out = writable(Path(args.record)) if args.record else benchmark.recording_file(here, "check")

    def say(text: str) -> None:
        progress("")
        print(text, flush=True)  # a teacher reads along, through a pipe too

    dtypes = [getattr(torch, args.dtype)] if args.dtype else None
    result = device.run(here, dtypes, args.full, args.seconds, say, progress)
    if out and result.exact:
        save({out: device.recording(result, here).to_json()})
        print(f"Written: {out}")
    elif out:
        print("Nothing is recorded: first the sampler has to be exact.")
    return 0 if result.exact else 1


if __name__ == "__main__":
    raise SystemExit(main())
