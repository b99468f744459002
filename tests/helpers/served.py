"""Servers on loopback for the tests of `spec_lib.server`, in this process or in one of their own, and plain clients.

Every wait is bounded by PATIENCE, which no healthy server needs.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import re
import signal
import socket
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import torch

from spec_lib import Round
from tests.helpers.paths import ROOT

PATIENCE = 60
JSON = {"content-type": "application/json"}
PATH = "/v1/completions"


def until(holds, said: str, patience: float = PATIENCE):
    """Waits for a condition and returns its value."""
    end = time.monotonic() + patience
    while not (value := holds()):
        assert time.monotonic() < end, f"waited {patience} s in vain: {said}"
        time.sleep(0.01)
    return value


class Client:
    """Plain HTTP to a port of this machine."""

    def __init__(self, port: int):
        self.port, self.url = port, f"http://127.0.0.1:{port}"

    def ask(self, method: str, path: str, body=None, headers=JSON) -> tuple[int, dict, str]:
        """(status, headers, text) of one request."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=PATIENCE)
        try:
            connection.request(method, path, body, dict(headers) if body is not None else {})
            answer = connection.getresponse()
            return answer.status, {k.lower(): v for k, v in answer.getheaders()}, answer.read().decode("utf-8")
        finally:
            connection.close()

    def post(self, **fields) -> tuple[int, dict]:
        """(status, answer) of a request for completions."""
        status, _, text = self.ask("POST", PATH, json.dumps(fields))
        return status, json.loads(text)

    def text(self, **fields) -> str:
        status, answer = self.post(**fields)
        assert status == 200, answer
        return answer["choices"][0]["text"]

    def stream(self, **fields) -> list[dict]:
        """The chunks of a streamed answer, which has to be complete."""
        status, headers, text = self.ask("POST", PATH, json.dumps({**fields, "stream": True}))
        assert status == 200 and headers["content-type"].startswith("text/event-stream"), text
        *chunks, last = events(text)
        assert last == "[DONE]"
        return chunks

    def metrics(self) -> dict[str, float]:
        """Each sample of /metrics by its name with its labels."""
        status, headers, text = self.ask("GET", "/metrics")
        assert status == 200 and headers["content-type"].startswith("text/plain; version=0.0.4")
        return dict(samples(text))

    def counted(self, name: str, **labels: str) -> float:
        inside = ",".join(f'{k}="{v}"' for k, v in labels.items())
        return self.metrics()[f"spec_lib_{name}{{{inside}}}" if labels else f"spec_lib_{name}"]

    def idle(self) -> bool:
        return self.counted("num_requests_running") + self.counted("num_requests_waiting") == 0

    @contextlib.contextmanager
    def open(self, body: bytes, head: str | None = None) -> Iterator[socket.socket]:
        """A connection on which this has been sent: a request for completions, or what `head` begins."""
        head = head or f"POST {PATH} HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n"
        with socket.create_connection(("127.0.0.1", self.port), timeout=PATIENCE) as opened:
            opened.sendall(f"{head}content-length: {len(body)}\r\n\r\n".encode() + body)
            yield opened

    def asking(self, **fields):
        """`open` with a request for completions."""
        return self.open(json.dumps(fields).encode())


def samples(text: str) -> Iterator[tuple[str, float]]:
    """The samples of Prometheus' text format; AssertionError where a family lacks its help or its type."""
    family = None
    for line in text.splitlines():
        if line.startswith("# HELP "):
            family = line.split(" ")[2]
            assert len(line.split(" ", 3)[3]) > 10
        elif line.startswith("# TYPE "):
            assert line.split(" ")[2] == family and line.split(" ")[3] in ("counter", "gauge", "histogram")
        else:
            found = re.fullmatch(r'([a-z_:0-9]+)(\{[a-z_]+="[^"]*"\})? ([-+.e0-9]+)', line)
            assert found and found[1].startswith(family), line
            yield found[1] + (found[2] or ""), float(found[3])


def events(text: str) -> list:
    """The data of server-sent events, parsed; "[DONE]" as it is."""
    assert text.endswith("\n\n")
    blocks = text[:-2].split("\n\n")
    assert all(block.startswith("data: ") and "\n" not in block for block in blocks)
    data = [block.removeprefix("data: ") for block in blocks]
    return [d if d == "[DONE]" else json.loads(d) for d in data]


def reset(opened: socket.socket) -> None:
    """Closes a connection with RST: what a client that crashed leaves behind."""
    opened.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    opened.close()


def read_all(opened: socket.socket) -> str:
    """All that comes until the server closes, headers too."""
    parts = []
    with contextlib.suppress(ConnectionResetError):
        while part := opened.recv(65536):
            parts.append(part)
    return b"".join(parts).decode("utf-8", "replace")


def read_until(opened: socket.socket, words: str, said: str = "") -> str:
    """What comes until these words have, after what was `said`; AssertionError where the connection ends before."""
    while words not in said:
        part = opened.recv(65536)
        assert part, f"{words!r} did not come: {said[-500:]!r}"
        said += part.decode("utf-8", "replace")
    return said


# ---------------------------------------------------------------------------------------------------------- servers


class Inside(Client):
    """A server in this process, with its worker at hand."""

    def __init__(self, port: int, worker, server):
        super().__init__(port)
        self.worker, self.pair, self.server = worker, worker.pair, server

    def end(self) -> None:
        """As SIGTERM would: in a thread there are no signals."""
        self.server.should_exit = True


@contextlib.contextmanager
def serving(
    pair, slots: int = 4, waiting: int = 16, gamma: int = 4, engine=None, host: str = "127.0.0.1", small: bool = False
) -> Iterator[Inside]:
    """A server of this pair in this process.  engine: makes another engine than `batch.Engine`.  small: the network's
    buffers."""
    from spec_lib.batch import Engine
    from spec_lib.cache import as_model
    from spec_lib.server.asked import Limits
    from spec_lib.server.serving import Server
    from spec_lib.server.worker import Worker

    made = engine or (lambda: Engine(pair.target, pair.draft, slots=slots, gamma=gamma))
    target, ready = as_model(pair.target), threading.Event()
    worker = Worker(pair, made, slots + waiting)
    limits = Limits("tiny", target.max_length, target.vocab, slots + waiting)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        if small:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
        server = Server(worker, limits, host, ready.set)
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]}, daemon=True)
        thread.start()
        try:
            assert ready.wait(PATIENCE)
            yield Inside(listener.getsockname()[1], worker, server)
        finally:
            server.should_exit = True
            thread.join(PATIENCE)
            assert not thread.is_alive() and not worker.is_alive()


class Process(Client):
    """A server in a process of its own, started by the command."""

    def __init__(self, port: int, process: subprocess.Popen):
        super().__init__(port)
        self.process, self.proc = process, Path(f"/proc/{process.pid}")

    def left_open(self) -> tuple[int, int]:
        """(threads, file descriptors)."""
        return len(list((self.proc / "task").iterdir())), len(list((self.proc / "fd").iterdir()))

    def memory(self) -> float:
        """Resident, in MB."""
        return int(re.search(r"VmRSS:\s+(\d+) kB", (self.proc / "status").read_text())[1]) / 1024


@contextlib.contextmanager
def started(folder: Path, *options: str) -> Iterator[Process]:
    """`python -m spec_lib serve` on a free port, ended at last however it goes."""
    environment = {**os.environ, "SPEC_PAIR": "tiny", "HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1"}
    environment |= {"PYTHONPATH": str(ROOT), "PYTHONUNBUFFERED": "1"}
    log = folder / "server.txt"
    with log.open("w", encoding="utf-8") as lines:
        command = [sys.executable, "-m", "spec_lib", "serve", "--port", "0", *options]
        # Shells let what runs in the background ignore Ctrl-C, these tests too; the server must not inherit that.
        heed = (lambda: signal.signal(signal.SIGINT, signal.SIG_DFL)) if os.name == "posix" else None
        process = subprocess.Popen(command, cwd=folder, env=environment, stdout=lines, stderr=lines, preexec_fn=heed)

    def port():
        said = log.read_text("utf-8")
        assert process.poll() is None, said
        return re.search(r"Serving .* on http://127\.0\.0\.1:(\d+) ", said)

    try:
        yield Process(int(until(port, "the server does not start", 100)[1]), process)
    finally:
        if process.poll() is None:
            process.send_signal(signal.SIGKILL)
        process.wait()


# ------------------------------------------------------------------------------------------------ an engine for tests


class Scripted:
    """An engine with the interface of `batch.Engine` that writes one given text, whatever it is asked.

    tokens: of the text, `size` a round, the last of each round the target's own, in every other round after a draft
    token that was rejected and one that was not looked at.  turn: called in each step; what it raises comes out of it.
    fail: the round in which each text fails alone.
    """

    def __init__(self, tokens, size: int = 3, slots: int = 4, eos: bool = False, turn=lambda: None, fail: int = -1):
        self.tokens, self.size, self.slots, self.eos, self.turn, self.fail = list(tokens), size, slots, eos, turn, fail
        self.queue, self.rows, self.asked, self.done = [], [], [], []

    running = property(lambda self: len(self.rows))
    waiting = property(lambda self: len(self.queue))

    def submit(self, ids, max_new_tokens, sampling=None, eos_token_id=None, generator=None):
        request = type("Request", (), {})()
        request.ids, request.rounds, request.stop_reason, request.error = ids, [], None, None
        request.most = min(max_new_tokens, len(self.tokens))
        request.given = 0
        self.asked.append((ids.tolist()[0], max_new_tokens, sampling, generator))
        self.queue.append(request)
        return request

    def cancel(self, request) -> None:
        for where in (self.queue, self.rows):
            if request in where:
                where.remove(request)
                request.stop_reason = "cancelled"

    def step(self):
        while self.queue and len(self.rows) < self.slots:
            self.rows.append(self.queue.pop(0))
        self.turn()
        done = []
        for request in list(self.rows):
            at = request.given
            new = self.tokens[at : min(at + self.size, request.most)]
            if len(request.rounds) == self.fail:
                request.error, request.stop_reason, new = ValueError("the target's logits are NaN"), "error", None
            else:
                request.given += len(new)
                rejected = [0, 0] if len(request.rounds) % 2 else []
                origin = "resampled" if rejected else "bonus" if len(new) > 1 else "plain"
                drafted = torch.tensor([*new[:-1], *rejected], dtype=torch.int64)
                new = Round(drafted, len(new) - 1, new[-1], origin)
                request.rounds.append(new)
                if request.given == request.most:
                    request.stop_reason = "eos" if self.eos and request.most == len(self.tokens) else "length"
            if request.stop_reason:
                self.rows.remove(request)
                self.done.append(request)
            done.append((request, new))
        return done
