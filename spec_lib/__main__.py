"""The command line: `python -m spec_lib generate "Once upon a time" -v`, `bench`, `record`, `check`, `serve`."""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

from .benching import bench
from .generating import generate
from .options import load, parser, refuse_pair
from .server.command import serve


def main(argv: list[str] | None = None) -> int:
    args = parser().parse_args(argv)
    if sys.stdout is None:  # started with its output closed
        sys.stdout = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115
    if hasattr(sys.stdout, "reconfigure"):
        sys.stdout.reconfigure(errors="replace")  # a terminal may lack a character that a model writes
    try:
        commands = {"generate": generate, "bench": bench, "record": record, "check": check, "serve": serve}
        return commands[args.command](args)
    except BrokenPipeError:  # the reader of our output has gone: nothing to say, and nobody to say it to
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 141
    except (ValueError, OSError) as error:
        print(f"python -m spec_lib {args.command}: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        return 130


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
