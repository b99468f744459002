"""The command `bench`: measure, print the table, and write JSON, CSV and the figure."""

from __future__ import annotations

import argparse
import os
from pathlib import Path

from .options import load, needs_own_pass, on_own_pass, refuse_pair, setting_of


def bench(args: argparse.Namespace) -> int:
    """Measure, print the table, and write JSON, CSV and the figure: all of them or none."""
    return _bench_batches(args) if args.sweep == "batch" else _bench_texts(args)


def _bench_texts(args: argparse.Namespace) -> int:
    """One text at a time: all loops side by side, or one factor varied."""
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


def _bench_batches(args: argparse.Namespace) -> int:
    """Several texts at once: batch sizes and gammas."""
    import io

    import matplotlib

    from . import benchmark, plots
    from .batch import Engine
    from .files import progress, save, writable
    from .numbers import at_least_one

    runs = at_least_one("--runs", 10 if args.runs is None else args.runs)
    what = batches_of(args)
    refuse_pair(args)
    files = {kind: writable(path) for kind, path in bench_files(args.out).items()}
    pair = load(args)
    if args.forward == "transformers" or not benchmark.can_be_fast(pair):
        Engine(pair.target, pair.draft)  # refuses a pair that reads one text at a time
    matplotlib.use("Agg")  # needs no screen
    measured = benchmark.batch_sweep(on_own_pass(args, pair) or pair, **what, runs=runs, say=progress)
    words, picture = benchmark.batch_words(measured), io.BytesIO()
    plots.plot_batches(measured, f"{words[0]}: {pair.name} on {measured.machine}", save=picture)
    texts = {"json": measured.to_json(), "csv": benchmark.batch_csv(measured), "png": picture.getvalue()}
    save({files[kind]: text for kind, text in texts.items()})  # before a word is printed: the reader may be gone
    progress("")
    print(benchmark.batch_table(measured), "", *words, f"Timed in {measured.timed}.", sep="\n")
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


def batches_of(args: argparse.Namespace) -> dict:
    """What `benchmark.batch_sweep` is called with, but for the pair, the runs and where to; ValueError out of range."""
    from .benchmark import BATCH_GAMMAS, BATCH_NEW, BATCH_SIZES
    from .benchmark.batches import checked
    from .sampling import Sampling

    if args.more:
        raise ValueError("--sweep batch has no --more: it times the pair's draft model")
    try:
        sizes = [int(x) for x in args.values] if args.values else BATCH_SIZES
    except ValueError:
        raise ValueError(f"--values of batch must be whole numbers, got {' '.join(args.values)}") from None
    found = {
        "sizes": sizes,
        "gammas": BATCH_GAMMAS if args.gamma is None else [args.gamma],
        "new": BATCH_NEW if args.max_new_tokens is None else args.max_new_tokens,
        "sampling": Sampling(args.temperature, args.top_k, args.top_p),
        "prompt": args.prompt,
    }
    checked(**found)
    return found


def sweep_values(args: argparse.Namespace, setting) -> list | None:
    """The values of a sweep in their own types, each tried on the setting."""
    from dataclasses import replace

    from .benchmark import FACTORS

    if args.sweep is None:
        if args.values:
            raise ValueError("--values are those of a --sweep: name its factor")
        return None
    if args.sweep not in FACTORS:
        raise ValueError(f"--sweep varies one of {', '.join(FACTORS)}, batch, got {args.sweep!r}")
    field, usual = FACTORS[args.sweep]
    kind = {"gamma": int, "length": int, "temperature": float}.get(args.sweep, str)
    try:
        values = [kind(x) for x in args.values] if args.values else None
    except ValueError:
        raise ValueError(f"--values of {args.sweep} must be numbers, got {' '.join(args.values)}") from None
    for x in (values or usual or []) if field else []:
        replace(setting, **{field: x})
    return values
