"""The command `serve`: everything that can be refused is, then the pair is loaded, then uvicorn serves it."""

from __future__ import annotations

import argparse
import contextlib
import errno
import os
import socket
import sys
from collections.abc import Iterator

from ..numbers import at_least_one
from ..options import load, on_own_pass, refuse_pair

LOOPBACK = ("127.", "::1")


def serve(args: argparse.Namespace) -> int:
    """Serve a pair until Ctrl-C or SIGTERM.  ValueError or OSError, in one sentence, for what cannot be served."""
    at_least_one("--gamma", args.gamma), at_least_one("--slots", args.slots)
    if args.waiting < 0:
        raise ValueError(f"--waiting, the texts that may wait for a slot, must be at least 0, got {args.waiting}")
    if args.name is not None and not args.name.strip():
        raise ValueError("--name, what clients call the model, must not be empty")
    refuse_pair(args)
    try:
        import starlette  # noqa: F401
        import uvicorn  # noqa: F401
    except ModuleNotFoundError as error:
        raise ValueError(f"serving needs the package {error.name}: pip install starlette uvicorn") from None
    with listening(args.host, args.port) as listener:
        pair = load(args)
        run(on_own_pass(args, pair) or pair, listener, args)
    return 0


def run(pair, listener: socket.socket, args: argparse.Namespace) -> None:
    from ..batch import Engine
    from ..cache import as_model
    from .asked import Limits
    from .serving import Server
    from .worker import Worker

    def engine() -> Engine:
        return Engine(pair.target, pair.draft, slots=args.slots, gamma=args.gamma, rule=args.rule)

    engine()  # what it refuses is said before anybody connects
    target, texts = as_model(pair.target), args.slots + args.waiting
    limits = Limits(args.name or pair.name.split(" ")[0], target.max_length, target.vocab, texts)
    address, port = listener.getsockname()[:2]

    def ready() -> None:
        shown = f"[{address}]" if ":" in address else address
        if not address.startswith(LOOPBACK):
            print("Everybody who reaches this machine can use it: there is no password.", file=sys.stderr)
        print(f"Serving {pair.name} as {limits.name!r} on http://{shown}:{port} (Ctrl-C ends it)", flush=True)

    Server(Worker(pair, engine, texts), limits, args.host, ready).run(sockets=[listener])


@contextlib.contextmanager
def listening(host: str, port: int) -> Iterator[socket.socket]:
    """A socket at this address, which nobody else can have meanwhile.  ValueError where there is none to be had."""
    if not 0 <= port < 2**16:
        raise ValueError(f"--port must be 0 (any free one) to 65535, got {port}")
    try:
        family, kind, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
    except (OSError, UnicodeError):
        raise ValueError(f"--host {host!r} is no address of this machine, nor a name of one") from None
    with socket.socket(family, kind) as listener:
        if os.name == "posix":
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # a server that has just ended is no matter
        try:
            listener.bind(address)
        except OSError as error:
            taken = error.errno == errno.EADDRINUSE
            why = "is taken: name another, or 0 for any free one" if taken else f"cannot be had: {error.strerror}"
            raise ValueError(f"port {port} of {host} {why}") from None
        yield listener
