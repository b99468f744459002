"""Connections that do nothing, answers that nobody reads, and the end of the server: all within bounds of time.

The bounds are shortened here; `test_command` waits for the real ones after SIGTERM.
"""

import asyncio
import contextlib
import json
import logging
import socket
import threading

import pytest

import spec_lib as sl
from spec_lib.server import app
from spec_lib.server import serving as served
from spec_lib.server.asked import Limits
from spec_lib.server.worker import Worker
from tests.helpers.models import tiny_gpt2
from tests.helpers.served import JSON, PATH, PATIENCE, Scripted, events, read_all, read_until, serving, until
from tests.helpers.tokenizers import Numbers

HEAD = f"POST {PATH} HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n"


@pytest.fixture(scope="module")
def pair():
    return sl.Pair(tiny_gpt2(0), tiny_gpt2(1), Numbers())


def engine(length: int = 50, **options):
    return lambda: Scripted([i % 29 + 1 for i in range(length)], **options)


def test_half_a_body_is_408(pair, monkeypatch):
    monkeypatch.setattr(app, "BODY_SECONDS", 0.3)
    with serving(pair, engine=engine()) as server:
        for body in (b"", b'{"prompt": '):
            with socket.create_connection(("127.0.0.1", server.port), timeout=PATIENCE) as opened:
                opened.sendall(f"{HEAD}content-length: 100\r\n\r\n".encode() + body)
                head, _, said = read_all(opened).partition("\r\n\r\n")  # the server closes
            assert head.startswith("HTTP/1.1 408 ") and "did not come within 0.3 seconds" in said
            assert json.loads(said)["error"]["type"] == "invalid_request_error"
        assert server.post(prompt=[1])[0] == 200


@pytest.mark.parametrize("before", ["", "GET /health HTTP/1.1\r\nhost: localhost\r\n\r\n"], ids=["first", "second"])
@pytest.mark.parametrize("half", ["", "GET / HTTP/1.1\r\nhost: loc"], ids=["nothing", "half a header"])
def test_a_header_that_does_not_come_closes_the_connection(pair, monkeypatch, half, before):
    """uvicorn waits for it for ever."""
    monkeypatch.setattr(served, "HEADER_SECONDS", 0.3)
    with serving(pair, engine=engine()) as server:
        with socket.create_connection(("127.0.0.1", server.port), timeout=PATIENCE) as opened:
            opened.sendall(before.encode())
            if before:
                read_until(opened, "ok")
            opened.sendall(half.encode())
            assert read_all(opened) == ""
        assert server.ask("GET", "/health")[0] == 200


def test_a_text_may_take_longer_than_a_header(pair, monkeypatch):
    monkeypatch.setattr(served, "HEADER_SECONDS", 0.2)
    pause = threading.Event()
    with serving(pair, engine=engine(9, turn=lambda: pause.wait(0.2))) as server:
        assert server.stream(prompt=[1], max_tokens=9)[-1]["choices"][0]["finish_reason"] == "length"


def test_an_answer_that_nobody_reads_is_given_up(pair, monkeypatch):
    """Where the buffers of the network are full, the connection is closed after a while, and the texts go with it."""
    monkeypatch.setattr(served, "UNREAD_SECONDS", 0.3)
    big = sl.Pair(tiny_gpt2(0, context=9000), tiny_gpt2(1), Numbers())
    with serving(big, engine=engine(8000, size=1, slots=16), small=True) as server:
        body = json.dumps({"prompt": [1], "max_tokens": 8000, "n": 16, "stream": True}).encode()
        with server.open(body):
            until(lambda: server.counted("request_success_total", finished_reason="abort") == 16, "it goes on")
        until(lambda: server.idle() and not server.worker.open, "rows are left")


def test_an_answer_that_is_read_on_is_not_given_up(pair, monkeypatch):
    """The bound is on a standstill, and ends with it: a slow reader gets the whole answer."""
    resume, over = served.Bounded.resume_writing, []
    monkeypatch.setattr(
        served.Bounded, "resume_writing", lambda self: (resume(self), over.append(self.unread_timer.cancelled()))
    )
    big = sl.Pair(tiny_gpt2(0, context=9000), tiny_gpt2(1), Numbers())
    with (
        serving(big, engine=engine(8000, size=1), small=True) as server,
        server.asking(prompt=[1], max_tokens=8000, stream=True) as opened,
    ):
        until(lambda: server.worker.metrics.totals["generation_tokens"] == 8000, "it does not get on")
        read_until(opened, "[DONE]")
        assert over and all(over)


def test_a_client_that_leaves_is_no_error_of_the_server(pair, caplog):
    """It happens all the time: nothing of it belongs in the log."""
    log, pause = logging.getLogger("uvicorn.error"), threading.Event()
    with serving(pair, engine=engine(50, size=1, turn=lambda: pause.wait(0.05))) as server:
        log.addHandler(caplog.handler)
        with server.asking(prompt=[1], max_tokens=50, stream=True) as opened:
            read_until(opened, "data: ")
        until(lambda: server.counted("request_success_total", finished_reason="abort") == 1, "it is written on")
    log.removeHandler(caplog.handler)
    assert not caplog.records


def test_connections_are_bounded(pair, monkeypatch):
    """Those beyond the bound are told so, in JSON; those beyond twice the bound are closed; then all is as before."""
    monkeypatch.setattr(served, "MOST", 4)
    with serving(pair, engine=engine()) as server, contextlib.ExitStack() as stack:
        connect = lambda: stack.enter_context(  # noqa: E731
            socket.create_connection(("127.0.0.1", server.port), timeout=PATIENCE)
        )
        idle = [connect() for _ in range(4)]
        until(lambda: server.ask("GET", "/health")[0] == 503, "a fifth connection is served")
        status, headers, text = server.ask("POST", PATH, b'{"prompt": [1]}')
        assert (
            status == 503 and headers["retry-after"] == "1" and "4 connections" in json.loads(text)["error"]["message"]
        )
        idle[0].sendall(b"GET /health HTTP/1.1\r\nhost: localhost\r\n\r\n")  # the first four are served
        read_until(idle[0], '"ok"')
        more = [connect() for _ in range(8)]
        assert sum(_closed(opened) for opened in more) == 4
        stack.close()
        until(lambda: server.ask("GET", "/health")[0] == 200, "the bound stays")


def _closed(opened: socket.socket) -> bool:
    opened.settimeout(0.5)
    try:
        return opened.recv(1) == b""
    except ConnectionResetError:
        return True
    except TimeoutError:
        return False


@pytest.mark.parametrize("stuck", [False, True], ids=["slow", "stuck"])
def test_at_the_end_a_text_is_never_cut_in_silence(pair, monkeypatch, stuck):
    """A short text is completed; one that is too long, and one that waits, end with an error, and then the connection.

    Also where the engine hangs in a step.
    """
    monkeypatch.setattr(served, "LAST_WORDS", 0.6)
    begin, go, made, said = threading.Event(), threading.Event(), [], {}

    def turn():
        begin.wait(PATIENCE)
        go.wait(PATIENCE if stuck and len(made[0].rows[0].rounds) == 2 else 0.02)

    def slow():
        made.append(Scripted([i % 29 + 1 for i in range(5000)], 2, slots=3, turn=turn))
        return made[-1]

    big = sl.Pair(tiny_gpt2(0, context=6000), tiny_gpt2(1), Numbers())
    asked = {"long": (5000, True), "whole": (5000, False), "short": (12, True), "later": (5000, True)}
    with serving(big, engine=slow) as server, contextlib.ExitStack() as stack:
        opened = {}
        for name, (new, stream) in {**asked, "never": (5000, True)}.items():
            opened[name] = stack.enter_context(server.asking(prompt=[1], max_tokens=new, stream=stream))
            until(lambda count=len(opened): len(server.worker.open) == count, "it is not taken")  # noqa: B008
        begin.set()
        read_until(opened["long"], "data: ")
        server.end()
        for name, connection in opened.items():
            said[name] = read_all(connection)
        go.set()
    for name in ("whole", "never"):  # of which nothing had been sent
        head, _, body = said[name].partition("\r\n\r\n")
        assert head.startswith("HTTP/1.1 503 ") and "being stopped" in json.loads(body)["error"]["message"], name
    for name in ("long", "later")[: 1 if stuck else 2]:
        chunks = [json.loads(line[6:]) for line in said[name].splitlines() if line.startswith("data: {")]
        assert "being stopped" in chunks[-1]["error"]["message"] and "[DONE]" not in said[name]
        assert said[name].endswith("\r\n0\r\n\r\n")  # the error is its last event, and as HTTP it is complete
    assert stuck or "[DONE]" in said["short"]


@pytest.mark.parametrize("stream", [False, True])
def test_a_text_that_fails_alone_leaves_the_others(pair, stream):
    """NaN in one text: it ends with the reason, in a stream as its last event."""
    made = []

    def failing():
        made.append(Scripted(range(1, 30), 2, fail=3))
        return made[-1]

    with serving(pair, engine=failing) as server:
        fields = {"prompt": [1], "max_tokens": 12, "stream": stream}
        status, _, text = server.ask("POST", PATH, json.dumps(fields), JSON)
        error = (events(text)[-1] if stream else json.loads(text))["error"]
        assert status == (200 if stream else 500) and "NaN" in error["message"] and error["code"] == "text_failed"
        assert server.post(prompt=[1], max_tokens=6)[0] == 200
        assert len(made) == 1  # the engine is the same


def test_an_engine_that_cannot_be_made_again(pair):
    """Each request is told so, and the server lives."""

    def none():
        raise MemoryError("no room")

    with serving(pair, engine=none) as server:
        for _ in range(2):
            status, answer = server.post(prompt=[1])
            assert status == 500 and answer["error"]["type"] == "server_error"
        assert server.ask("GET", "/health")[0] == 200 and server.idle()


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_a_thread_that_ends_leaves_nobody_waiting(pair):
    """It should not; then texts end with an error, and /health says so."""

    def turn():
        raise SystemExit

    with serving(pair, engine=engine(turn=turn)) as server:
        for stream in (False, True):
            status, _, text = server.ask("POST", PATH, json.dumps({"prompt": [1], "stream": stream}))
            assert status == 503 and "engine has ended" in json.loads(text)["error"]["message"]
        until(lambda: server.ask("GET", "/health")[0] == 503, "the server says that it is well")


def test_the_thread_ends_with_the_application_whatever_ends_that(pair):
    worker = Worker(pair, engine(), 1)
    made = app.make_app(worker, Limits("tiny", 64, 31, 1))

    async def fails():
        async with made.router.lifespan_context(made):
            raise KeyError("of uvicorn")

    with pytest.raises(KeyError):
        asyncio.run(fails())
    worker.join(PATIENCE)
    assert not worker.is_alive()


def test_the_names_of_this_machine():
    """Where every address is listened on, those who come use any of them, or the machine's name."""
    here = socket.gethostname().lower()
    for host, good, bad in [
        ("127.0.0.1", ["localhost:8000", "127.0.0.1", "[::1]:1"], ["10.0.0.1", "evil.example"]),
        ("10.0.0.1", ["localhost", "10.0.0.1:80"], ["10.0.0.2", "evil.example"]),
        ("lab.example", ["LAB.example:80", "localhost"], ["evil.example", "x.lab.example"]),
        ("0.0.0.0", ["10.0.0.1:80", "[fe80::1]", "localhost", here], ["evil.example", "10.0.0.1.evil.example", ""]),
        ("::", ["10.0.0.1:80", "[::1]:80"], ["evil.example", "[::1", "[evil.example]"]),
    ]:
        trusted = app.TrustedHost(None, host).trusted
        assert all(map(trusted, good)) and not any(map(trusted, bad)), host


def test_what_the_engine_refuses_is_the_clients_error(pair):
    """Such as a prompt that begins with padding: said in the engine's own sentence."""

    class Choosy(Scripted):
        def submit(self, ids, *rest, **options):
            if ids[0, 0] == 7:
                raise ValueError("the prompt begins with the padding token 7")
            return super().submit(ids, *rest, **options)

    with serving(pair, engine=lambda: Choosy(range(9))) as server:
        status, answer = server.post(prompt=[[7], [1]])
        assert status == 400 and "padding token 7" in answer["error"]["message"]
        assert server.post(prompt=[1], max_tokens=3)[0] == 200


def test_texts_are_asked_of_the_engine_as_they_were_asked_of_the_server(pair):
    made = []

    def noting():
        made.append(Scripted(range(9)))
        return made[-1]

    with serving(pair, engine=noting) as server:
        server.post(prompt=[[1, 2], [3]], n=2, seed=5, temperature=0.5, top_p=0.9, top_k=7, max_tokens=3)
        server.post(prompt=[4])
    assert [ids for ids, *_ in made[0].asked] == [[1, 2], [1, 2], [3], [3], [4]]
    assert [new for _, new, *_ in made[0].asked] == [3] * 4 + [16]
    assert {s for _, _, s, _ in made[0].asked[:4]} == {sl.Sampling(0.5, 7, 0.9)}
    assert made[0].asked[4][2].temperature == 1
    assert [seed for *_, seed in made[0].asked[:4]] == [5, 6, 7, 8]
