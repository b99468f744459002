"""The command line: `python -m spec_lib generate "Once upon a time" -v` and other commands (`--help` lists them)."""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

from .exporting import export
from .generating import generate
from .options import load, needs_own_pass, on_own_pass, parser, refuse_pair, setting_of, sweep_values
from .server.command import serve


def main(argv: list[str] | None = None) -> int:
    args = parser().parse_args(argv)
    if sys.stdout is None:  # started with its output closed
        sys.stdout = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115
    if hasattr(sys.stdout, "reconfigure"):
        sys.stdout.reconfigure(errors="replace")  # a terminal may lack a character that a model writes
    try:
        commands = {"generate": generate, "bench": bench, "record": record, "check": check, "serve": serve}
        commands |= {"export": export}
        return commands[args.command](args)
    except BrokenPipeError:  # the reader of our output has gone: nothing to say, and nobody to say it to
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 141
    except (ValueError, OSError) as error:
        print(f"python -m spec_lib {args.command}: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        return 130


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
    more = tuple(benchmark.MORE) if args.more else ()
    if args.sweep == "gamma":  # a tree's gamma is its own number of nodes
        more = tuple(name for name in more if benchmark.MORE[name].gamma is None)
    for name in more:
        benchmark.own_setting(setting, name)
    needs_own_pass(args)
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
        variants = (benchmark.TARGET, benchmark.DRAFT, benchmark.GOOGLE, *(benchmark.FAST if own else ()), *more)
        measured = benchmark.sweep(pair, args.sweep, values, setting, runs, variants, progress)
        words = ["\n".join([benchmark.table(m), *benchmark.in_words(m)]) for m in measured]
        tables = [f"{args.sweep} {m.value}\n{text}\n" for m, text in zip(measured, words, strict=True)]
        found = {f"{pair.name} on {machine}": measured}
        plots.plot_sweep(found, f"Speed-up against {args.sweep}", args.sweep, save=picture)
    else:
        variants = (*(benchmark.ALL if own else benchmark.VARIANTS), *more)
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
