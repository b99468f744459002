"""The command line: `python -m spec_lib generate "Once upon a time" -v`, `bench`, `record` and `check`."""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path


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
    g.add_argument("--ignore-eos", action="store_true", help="go on where the model would end the text")
    g.add_argument("--compare", action="store_true", help="also time plain decoding, and print the speed-up")
    g.add_argument("-v", "--verbose", action="store_true", help="colour tokens by origin and list each rejection")

    b = commands.add_parser("bench", help="time the loops side by side, or one factor at a time")
    _add_pair(b)
    b.add_argument(
        "--runs", type=int, help="evaluations, warm-up not counted (default 50; of a sweep 10 at each value)"
    )
    b.add_argument("--gamma", type=int, default=4, help="draft tokens a round (default 4)")
    b.add_argument("--max-new-tokens", type=int, default=100, help="length of each text (default 100)")
    b.add_argument("--temperature", type=float, default=1.0, help="0 is greedy (default 1)")
    b.add_argument("--top-k", type=int, help="draw from the k likeliest tokens only (default: all)")
    b.add_argument("--top-p", type=float, help="draw from the likeliest tokens that hold this mass (default: all)")
    b.add_argument("--prompt", help="a text, or the name of one of the pair's prompts (default: all of these in turn)")
    b.add_argument("--sweep", metavar="FACTOR", help="gamma, length, temperature, prompt or draft: vary this one")
    b.add_argument("--values", nargs="+", metavar="VALUE", help="of the sweep; default: its usual ones")
    b.add_argument(
        "--out",
        default="bench",
        help="writes OUT.json, OUT.csv and OUT.png, replacing them; in a folder bench.json and so on (default bench)",
    )

    r = commands.add_parser("record", help="one JSON of this machine's timings, which the notebooks replay")
    _add_pair(r)
    r.add_argument("--runs", type=int, default=10, help="evaluations at each setting (default 10)")
    r.add_argument("--out", help="the JSON file; default: notebooks/recordings/MACHINE-PAIR.json")

    k = commands.add_parser("check", help="is it exact on this device, and should it pay? minutes, no network")
    _add_place(k, "of the timings (default float32, on a GPU float16 too)")
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
    return top


def _add_pair(p: argparse.ArgumentParser) -> None:
    p.add_argument("--target", help='hub id or folder, or "tiny" (the embedded pair); default: as load_pair() chooses')
    p.add_argument(
        "--draft", help="hub id or folder that shares the target's vocabulary; of tiny: small, medium, large"
    )
    _add_place(p, "of the weights (default float32)")


def _add_place(p: argparse.ArgumentParser, dtype_help: str) -> None:
    p.add_argument("--device", help="cuda, mps or cpu; default: a GPU where there is one")
    p.add_argument("--dtype", choices=["float32", "bfloat16", "float16"], help=dtype_help)


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


def check_pair(args: argparse.Namespace) -> None:
    """Refuse a pair that cannot be one, before anything is loaded."""
    from .pairs import TINY_DRAFTS, check_choice

    if args.target is None and args.draft in TINY_DRAFTS:
        args.target = "tiny"
    if args.target is not None or args.draft is not None:
        check_choice(args.target, args.draft)


def load(args: argparse.Namespace, draft: str | None = None):
    from . import load_pair

    return load_pair(args.target, draft or args.draft, device=args.device, dtype=args.dtype)


def generate(args: argparse.Namespace) -> int:
    from . import Randomness, Sampling, speculative_rounds, summarize
    from .plots import MEANING, SHAPE, ansi_text, origins, pieces, visible

    # Everything that can be judged without a model is judged before one is loaded.
    sampling = Sampling(args.temperature, args.top_k, args.top_p)
    if args.gamma < 1:
        raise ValueError(f"--gamma must be at least 1, got {args.gamma}")
    if args.max_new_tokens < 1:
        raise ValueError(f"--max-new-tokens must be at least 1, got {args.max_new_tokens}")
    Randomness(args.seed)
    check_pair(args)
    pair = load(args)
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
        plain.append(seconds(lambda: autoregressive(pair.target, ids, new, sampling=sampling, generator=seed)))  # noqa: B023
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


def bench(args: argparse.Namespace) -> int:
    """Measure, print the table, and write JSON, CSV and the figure: all of them or none."""
    import json

    from . import benchmark, plots

    fixed = {"gamma": args.gamma, "new": args.max_new_tokens, "temperature": args.temperature, "top_k": args.top_k}
    setting = benchmark.Setting(**fixed, top_p=args.top_p, prompt=args.prompt)
    runs = benchmark.at_least_one("--runs", (10 if args.sweep else 50) if args.runs is None else args.runs)
    values = sweep_values(args, setting)
    check_pair(args)
    out = Path(args.out, "bench") if args.out.endswith(("/", os.sep)) or os.path.isdir(args.out) else Path(args.out)
    files = {kind: writable(Path(f"{out}.{kind}")) for kind in ("json", "csv", "png")}

    pair = load(args)
    if args.sweep == "draft" and values:
        if args.target is None and not pair.name.startswith("tiny"):
            raise ValueError("--sweep draft with --values needs --target")
        args.target = args.target or "tiny"
        others = {name: load(args, name) for name in values}
        values = {name: type(pair)(pair.target, other.draft, pair.tokenizer, other.draft_tokenizer, other.name,
                                   pair.prompts) for name, other in others.items()}  # fmt: skip
    picture = io_bytes()
    if args.sweep:
        measured = benchmark.sweep(pair, args.sweep, values, setting, runs, say=progress)
        tables = [f"{args.sweep} {m['value']}\n{benchmark.table(m)}\n" for m in measured]
        title = f"{pair.name} on {benchmark.machine(pair.device)}"
        plots.plot_sweep({title: measured}, f"Speed-up against {args.sweep}", args.sweep, save=picture)
    else:
        measured = [benchmark.compare(pair, setting, runs, say=progress)]
        tables = [benchmark.table(measured[0])]
        title = f"{pair.name}, {runs} texts of {setting.new} tokens"
        plots.plot_arms(benchmark.rows(measured[0]), title, save=picture)
    written = {"machine": benchmark.machine(pair.device), "pair": pair.name, "measurements": measured}
    texts = {"json": json.dumps(written), "csv": csv_text(measured), "png": picture.getvalue()}
    save({files[kind]: text for kind, text in texts.items()})  # before a word is printed: the reader may be gone
    progress("")
    print(*tables, sep="\n")
    print("Written: " + ", ".join(str(file) for file in files.values()))
    return 0


def sweep_values(args: argparse.Namespace, setting) -> list | None:
    """The values of a sweep in their own types, each tried on the setting."""
    from dataclasses import replace

    from . import benchmark

    if args.sweep is None:
        if args.values:
            raise ValueError("--values are those of a --sweep: name its factor")
        return None
    if args.sweep not in benchmark.FACTORS:
        raise ValueError(f"--sweep varies one of {', '.join(benchmark.FACTORS)}, got {args.sweep!r}")
    field, usual = benchmark.FACTORS[args.sweep]
    kind = {"gamma": int, "length": int, "temperature": float}.get(args.sweep, str)
    try:
        values = [kind(x) for x in args.values] if args.values else None
    except ValueError:
        raise ValueError(f"--values of {args.sweep} must be numbers, got {' '.join(args.values)}") from None
    for x in (values or usual or []) if field else []:
        replace(setting, **{field: x})
    return values


def record(args: argparse.Namespace) -> int:
    """Write one recording for the notebooks."""
    import json

    from . import benchmark

    benchmark.at_least_one("--runs", args.runs)
    check_pair(args)
    out = writable(Path(args.out)) if args.out else None
    pair = load(args)
    out = out or recording_file(pair.device, pair.name.split(" ")[0])
    found = benchmark.record(pair, args.runs, say=progress)
    progress("")
    save({out: json.dumps(found, ensure_ascii=False) + "\n"})
    print(f"Written: {out}")
    return 0


def recording_file(device, what: str) -> Path:
    """The usual place of a recording, named by the machine and what was recorded; ValueError if not writable."""
    import re

    from . import benchmark

    folder = benchmark.FOLDER if benchmark.FOLDER.parent.is_dir() else Path.cwd()
    name = re.sub(r"[^a-z0-9]+", "-", f"{benchmark.machine(device)} {what}".lower()).strip("-")
    return writable(folder / f"{name}.json")


def check(args: argparse.Namespace) -> int:
    """Exact, and fast?  0 where it is exact, 1 where it is not."""
    import json

    import torch

    from . import benchmark, device_check
    from .pairs import available, find_device

    benchmark.at_least_one("--seconds", args.seconds)
    device = find_device(args.device or next(d for d in ("cuda", "mps", "cpu") if d == "cpu" or available(d)))
    out = None
    if args.record is not None:
        out = writable(Path(args.record)) if args.record else recording_file(device, "check")

    def say(text: str) -> None:
        progress("")
        print(text, flush=True)  # a teacher reads along, through a pipe too

    dtypes = [getattr(torch, args.dtype)] if args.dtype else None
    result = device_check.run(device, dtypes, args.full, args.seconds, say, progress)
    if out and result["exact"]:
        save({out: json.dumps(device_check.recording(result, device)) + "\n"})
        print(f"Written: {out}")
    elif out:
        print("Nothing is recorded: first the sampler has to be exact.")
    return 0 if result["exact"] else 1


def progress(text: str) -> None:
    """One line on a terminal that is written over; nothing elsewhere."""
    if sys.stderr.isatty():
        print(f"\r\x1b[K{text}", end="", file=sys.stderr, flush=True)


def io_bytes():
    """A file in memory for the figure, and a matplotlib that needs no screen."""
    import io

    import matplotlib

    matplotlib.use("Agg")
    return io.BytesIO()


def csv_text(measurements: list[dict]) -> str:
    """A line for each arm of each measurement: the setting, and the figures of `benchmark.rows`."""
    import csv
    import io

    from . import benchmark

    lines = [
        {**m["setting"], "pair": m["pair"], "runs": m["runs"], "value": m.get("value"), **row}
        for m in measurements
        for row in benchmark.rows(m)
    ]
    text = io.StringIO()
    writer = csv.DictWriter(text, list(lines[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(lines)
    return text.getvalue()


def writable(path: Path) -> Path:
    """The path, if a file can be written there; ValueError otherwise."""
    above = next(p for p in path.absolute().parents if p.exists())
    if os.path.isdir(path) or not above.is_dir() or not os.access(above, os.W_OK):
        raise ValueError(f"cannot write {path}: name a file in a folder that is yours")
    try:
        part(path).exists()
    except OSError:
        raise ValueError(
            f"cannot write {path.name[:30]}...: the name is too long, {len(path.name)} characters"
        ) from None
    return path


def part(path: Path) -> Path:
    """Where a file is written before it takes its place."""
    return path.with_name(f".{path.name}.part")


def save(files: dict[Path, str | bytes]) -> None:
    """Write all files or none: each is complete under another name before any takes its place."""
    parts: list[tuple[Path, Path]] = []
    try:
        for path, content in files.items():
            path.parent.mkdir(parents=True, exist_ok=True)
            parts.append((part(path), path))
            parts[-1][0].write_bytes(content.encode("utf-8") if isinstance(content, str) else content)
        for unfinished, path in parts:
            os.replace(unfinished, path)
    finally:
        for unfinished, _ in parts:
            unfinished.unlink(missing_ok=True)


if __name__ == "__main__":
    raise SystemExit(main())
