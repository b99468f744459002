"""What strangers do to a server: floods, bodies that are none, clients that leave, that never read or never finish.

One server in a process of its own, as the command starts it, in float32 with 8 slots and 64 that may wait.
"""

import contextlib
import gzip
import json
import re
import select
import socket
import sys
import threading
import time

import pytest

import spec_lib as sl
from tests.helpers.served import JSON, PATH, PATIENCE, events, read_all, read_until, reset, started, until
from tests.server.test_asked import BODIES

ONCE = "Once upon a time"  # the greedy text after it goes on and on; a sampled one may end at any token
linux = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="looks into /proc")


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    with started(tmp_path_factory.mktemp("server"), "--target", "tiny") as server:
        assert server.text(prompt=ONCE, max_tokens=4)
        yield server
        assert server.process.poll() is None  # whatever was done to it


@pytest.fixture(autouse=True)
def unharmed(server):
    """After each test nothing runs, and a good request is answered."""
    yield
    until(server.idle, "texts are still written")
    assert server.text(prompt=ONCE, max_tokens=4, seed=1)


def at_once(count: int, ask) -> list:
    """ask(i) from as many threads, and what each returned."""
    found, threads = [None] * count, []
    for i in range(count):
        threads.append(threading.Thread(target=lambda i=i: found.__setitem__(i, ask(i)), daemon=True))
        threads[-1].start()
    for thread in threads:
        thread.join(PATIENCE)
    assert not any(thread.is_alive() for thread in threads), "a client hangs"
    return found


def test_bodies_that_are_no_request(server):
    """Each is 400 with a sentence; what is merely odd is answered."""
    bodies = {
        **BODIES,
        "half a surrogate": b'{"prompt": "\\ud800"}',
        "half a surrogate as model": b'{"prompt": "a", "model": "\\ud800"}',
        "a seed of 2^64": b'{"prompt": "a", "seed": 18446744073709551616}',
        "true as a number": b'{"prompt": "a", "max_tokens": true}',
        "an id out of range": b'{"prompt": [2048]}',
        "an empty stop string": b'{"prompt": "a", "stop": ""}',
        "no prompt": b"{}",
        "an unknown field": b'{"prompt": "a", "max_tokens": 2, "unknown": [1]}',
    }
    assert len(bodies) > 20
    for name, body in bodies.items():
        status, headers, text = server.ask("POST", PATH, body)
        error = json.loads(text)["error"]
        assert status == (404 if "model" in name else 400), name
        assert headers["content-type"] == "application/json" and error["type"] == "invalid_request_error", name
        assert 10 < len(error["message"]) < 300 and "\n" not in error["message"], name
    odd = {
        "an empty prompt": b'{"prompt": "", "max_tokens": 2}',
        "NUL": b'{"prompt": "\\u0000a", "max_tokens": 2}',
        "emoji": '{"prompt": "\U0001f409", "max_tokens": 2}'.encode(),
        "a key twice": b'{"prompt": "a", "max_tokens": 1, "max_tokens": 2}',
        "a byte order mark": b'\xef\xbb\xbf{"prompt": "a", "max_tokens": 2}',
        "UTF-16": '{"prompt": "a", "max_tokens": 2}'.encode("utf-16"),
    }
    for name, body in odd.items():
        status, _, text = server.ask("POST", PATH, body)
        assert status == 200 and json.loads(text)["usage"]["completion_tokens"] == 2, name


def test_a_body_that_is_too_long_is_not_read(server):
    with server.open(b"", f"POST {PATH} HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n"
                          "content-length: 10000000\r\nx: ") as opened:  # fmt: skip
        said = read_all(opened)
    assert (
        said.startswith("HTTP/1.1 413 ") and "longer than" in json.loads(said.split("\r\n\r\n")[1])["error"]["message"]
    )


def test_a_body_without_a_length_is_read_to_the_bound(server):
    """800 KB in chunks: less than 64 KB are sent when the answer is there."""
    head = f"POST {PATH} HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n"
    head += "transfer-encoding: chunked\r\n\r\n"
    with socket.create_connection(("127.0.0.1", server.port), timeout=PATIENCE) as opened:
        opened.sendall(head.encode())
        sent = 0
        while sent < 800_000:
            sent += 4096
            opened.sendall(b"1000\r\n" + b" " * 4096 + b"\r\n")
            if select.select([opened], [], [], 0.05)[0]:
                break
        said = read_all(opened)
    assert said.startswith("HTTP/1.1 413 ") and sent < 64_000


GOOD = b'{"prompt": "a", "max_tokens": 2}'
START = f"POST {PATH} HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n".encode()
SENT = {  # bytes, and the statuses that they are answered with
    "another protocol": (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n", [400]),
    "HTTP/2": (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", [400, 400]),
    "HTTP/1.0": (START.replace(b"1.1", b"1.0") + b"content-length: 32\r\n\r\n" + GOOD, [200]),
    "no Host": (b"GET /health HTTP/1.1\r\n\r\n", [400]),
    "two hosts": (b"GET /health HTTP/1.1\r\nhost: localhost\r\nhost: evil.example\r\n\r\n", [400]),
    "a negative length": (START + b"content-length: -5\r\n\r\n", [400]),
    "two lengths": (START + b"content-length: 5\r\ncontent-length: 6\r\n\r\nhello", [400]),
    "a chunk that is none": (START + b"transfer-encoding: chunked\r\n\r\nzz\r\n", [400]),
    "long headers": (b"GET /health HTTP/1.1\r\nhost: localhost\r\nx: " + b"a" * 100_000 + b"\r\n\r\n", [200]),
    "many headers": (b"GET /health HTTP/1.1\r\nhost: localhost\r\n" + b"x: 1\r\n" * 3000 + b"\r\n", [200]),
    "a tunnel": (b"CONNECT evil.example:80 HTTP/1.1\r\nhost: localhost\r\n\r\n", [404]),
    "one after the other": ((START + b"content-length: 32\r\n\r\n" + GOOD) * 5, [200] * 5),
    "asks first": (START + b"expect: 100-continue\r\ncontent-length: 32\r\n\r\n" + GOOD, [100, 200]),
}


@pytest.mark.parametrize("name", SENT)
def test_bytes_that_are_odd_http(server, name):
    data, statuses = SENT[name]
    assert len(GOOD) == 32
    with socket.create_connection(("127.0.0.1", server.port), timeout=PATIENCE) as opened:
        opened.sendall(data)
        said = ""
        while len(found := re.findall(r"HTTP/1\.1 (\d+) ", said)) < len(statuses):
            part = opened.recv(65536)
            assert part, said
            said += part.decode("utf-8", "replace")
    assert [int(status) for status in found] == statuses


def test_ways_that_lead_nowhere(server):
    for method, path, status in [
        ("GET", PATH, 405), ("PUT", PATH, 405), ("OPTIONS", PATH, 405), ("POST", "/v1/models", 405),
        ("DELETE", "/", 405), ("GET", "/v1", 404), ("GET", "/v1/completions/", 404), ("GET", "/page.py", 404),
        ("GET", "/../pyproject.toml", 404), ("GET", "/%2e%2e/app.py", 404), ("POST", "/v1/chat/completions", 404),
    ]:  # fmt: skip
        found, headers, text = server.ask(method, path, b"{}" if method in ("POST", "PUT") else None)
        assert (found, headers["content-type"]) == (status, "application/json"), path
        assert json.loads(text)["error"]["message"] and "access-control-allow-origin" not in headers


def test_another_name_for_this_machine_is_refused(server):
    """DNS rebinding: a page's own name leads to 127.0.0.1, and its script may then ask."""
    body = json.dumps({"prompt": "a", "max_tokens": 1}).encode()
    for host, status in [
        ("evil.example", 400), ("localhost.evil.example", 400), ("127.0.0.1.evil.example:80", 400), ("10.0.0.1", 400),
        ("evil.example@localhost", 400), ("localhost/", 400), ("localhost:x", 400), ("[::1", 400), ("", 400),
        ("localhost", 200), (f"127.0.0.1:{server.port}", 200), ("LOCALHOST:1", 200), ("[::1]:80", 200),
    ]:  # fmt: skip
        head = f"POST {PATH} HTTP/1.1\r\nhost: {host}\r\ncontent-type: application/json\r\nconnection: close\r\n"
        with server.open(body, head) as opened:
            assert read_all(opened).startswith(f"HTTP/1.1 {status} "), host


def test_types_that_any_page_may_send_are_refused(server):
    """A browser asks nobody before it sends text or a form elsewhere."""
    for kind in ("text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x", ""):
        assert server.ask("POST", PATH, b'{"prompt": "a"}', {"content-type": kind})[0] == 415
    body, kind = b'{"prompt": "a", "max_tokens": 1}', {"content-type": "Application/JSON; charset=utf-8"}
    assert server.ask("POST", PATH, body, kind)[0] == 200


@pytest.mark.reported
def test_a_compressed_body_is_refused_as_such(server):
    """A body in gzip was read as JSON, and the error was about bytes (Kludex/starlette issue 644, HarperFast/harper
    issue 1438).

    Right: 415, naming the header.  Siblings: other codings, and "identity", which is none.
    """
    body = b'{"prompt": "a", "max_tokens": 1}'
    for coding, sent in (("gzip", gzip.compress(body)), ("GZIP", body), ("br", body), ("zstd", body)):
        status, headers, text = server.ask("POST", PATH, sent, {**JSON, "content-encoding": coding})
        assert (status, headers["accept-encoding"]) == (415, "identity")
        assert "without content-encoding" in json.loads(text)["error"]["message"]
    assert server.ask("POST", PATH, body, {**JSON, "content-encoding": "identity"})[0] == 200


@pytest.mark.reported
def test_who_only_asks_whether_it_lives_may_use_head(server):
    """HEAD was 404 or 405, and monitors ask with it (punkpeye/fastmcp pull request 275, mozilla-it/ctms-api issue
    165).

    Right: status and headers of GET, and no body.  405 where only POST is.
    """
    for path in ("/health", "/v1/models", "/metrics", "/"):
        status, headers, body = server.ask("HEAD", path)
        assert (status, body) == (200, "") and headers["content-type"] == server.ask("GET", path)[1]["content-type"]
    status, headers, body = server.ask("HEAD", PATH)
    assert (status, headers["allow"], body) == (405, "POST", "")


@pytest.mark.parametrize("leave", [socket.socket.close, reset], ids=["FIN", "RST"])
@pytest.mark.parametrize("stream", [True, False], ids=["streamed", "whole"])
def test_a_text_whose_client_left_is_not_written_on(server, stream, leave):
    """Two texts of 900 tokens end within rounds of their client's going."""
    gone = lambda: server.counted("request_success_total", finished_reason="abort")  # noqa: E731
    tokens, left = server.counted("generation_tokens_total"), gone()
    with server.asking(prompt=ONCE, max_tokens=900, temperature=0, n=2, stream=stream) as opened:
        until(lambda: server.counted("generation_tokens_total") > tokens + 10, "nothing is written")
        before = time.monotonic()
        leave(opened)
    until(lambda: gone() == left + 2, "they are written on")
    waited, wasted = time.monotonic() - before, server.counted("generation_tokens_total") - tokens
    print(f"gone after {waited:.2f} s, {wasted:.0f} tokens of 1800")
    assert wasted < 900  # how soon is a matter of milliseconds; on a machine however busy not half of it


def test_a_waiting_text_whose_client_left_is_never_begun(server):
    with contextlib.ExitStack() as stack:
        for _ in range(8):
            stack.enter_context(server.asking(prompt=ONCE, max_tokens=900, temperature=0, stream=True))
        until(lambda: server.counted("num_requests_running") == 8, "not all are written")
        with server.asking(prompt=ONCE, max_tokens=900, temperature=0):
            until(lambda: server.counted("num_requests_waiting") == 1, "nobody waits")
        until(lambda: server.counted("num_requests_waiting") == 0, "it waits still")
        assert server.counted("num_requests_running") == 8


@linux
def test_clients_that_never_read(server):
    """Their texts are written and wait for them; a quick client beside them is served, and memory is bounded."""
    six = {"prompt": ONCE, "max_tokens": 300, "temperature": 0}
    assert server.post(**six, n=6)[0] == 200  # now the cache has its size
    memory, tokens = server.memory(), server.counted("generation_tokens_total")

    def quick() -> float:
        before = time.monotonic()
        assert server.text(prompt=ONCE, max_tokens=24, seed=1)
        return time.monotonic() - before

    alone = quick()
    with contextlib.ExitStack() as stack:
        for _ in range(6):
            stack.enter_context(server.asking(**six, stream=True))
        until(lambda: server.counted("num_requests_running") == 6, "not all are written")
        beside = quick()
        assert server.counted("num_requests_running") == 6  # it was served beside them, not after them
        until(server.idle, "they are not written")
        assert server.counted("generation_tokens_total") == tokens + 6 * 300 + 48
        grown = server.memory() - memory
    print(f"a quick client: {alone:.2f} s alone, {beside:.2f} s beside them; {grown:+.0f} MB")
    assert grown < 50


def test_sixty_four_clients_at_once(server):
    """Each gets its own text, that of its own seed: float32, so that rounding may turn a token of a thousand."""
    pair = sl.load_pair("tiny").fast()
    want = [sl.speculative(pair.target, pair.draft, pair.encode(ONCE), 12, generator=i) for i in range(64)]
    answers = at_once(64, lambda i: server.post(prompt=ONCE, max_tokens=12, seed=i))
    assert [status for status, _ in answers] == [200] * 64
    assert all(answer["choices"][0]["finish_reason"] == "length" for _, answer in answers)
    size = pair.encode(ONCE).shape[1]
    texts = [pair.decode(g.ids).removeprefix(pair.decode(g.ids[:, :size])) for g in want]
    same = sum(answer["choices"][0]["text"] == text for (_, answer), text in zip(answers, texts, strict=True))
    print(f"{same} of 64 texts equal to the text alone")
    assert same >= 56


def test_one_hundred_and_sixty_at_once(server):
    """What finds room is answered, all else is told to come again: nothing hangs, nothing else happens."""
    refused = []

    def ask(i: int):
        body = json.dumps({"prompt": ONCE, "max_tokens": 12, "seed": i, "stream": i % 2 == 0})
        status, headers, text = server.ask("POST", PATH, body)
        if status == 429:
            assert headers["retry-after"] == "1" and json.loads(text)["error"]["code"] == "overloaded"
            refused.append(i)
        elif i % 2:
            assert status == 200 and json.loads(text)["choices"][0]["finish_reason"] == "length"
        else:
            assert status == 200 and events(text)[-1] == "[DONE]"
        return status

    found = at_once(160, ask)
    print(f"{found.count(200)} answered, {found.count(429)} told to come again")
    assert set(found) == {200, 429} and found.count(200) >= 72


def test_a_request_for_more_texts_than_have_room_is_refused_whole(server):
    with contextlib.ExitStack() as stack:
        for _ in range(4):
            stack.enter_context(server.asking(prompt=ONCE, max_tokens=900, temperature=0, n=16))
        until(lambda: server.counted("num_requests_waiting") == 56, "not all wait")
        assert server.post(prompt=ONCE, n=9)[0] == 429
        with server.asking(prompt=ONCE, n=8):
            until(lambda: server.counted("num_requests_waiting") == 64, "eight more have room")
            assert server.post(prompt=ONCE)[0] == 429


@linux
def test_nothing_is_left_behind(server):
    """Threads and descriptors are those of before, after all kinds of clients."""

    def all_kinds() -> None:
        at_once(12, lambda i: server.post(prompt=ONCE, max_tokens=8, seed=i))
        at_once(6, lambda i: server.stream(prompt=ONCE, max_tokens=8, seed=i))
        for leave in (socket.socket.close, reset):
            with server.asking(prompt=ONCE, max_tokens=400, temperature=0, stream=True) as opened:
                read_until(opened, "data: ")
                leave(opened)
        for body in list(BODIES.values())[:6]:
            server.ask("POST", PATH, body)
        with server.open(b"", "GET / HTTP/1.1\r\nhost: loc"):
            pass
        until(server.idle, "texts are still written")

    all_kinds()
    before, memory = server.left_open(), server.memory()
    for _ in range(3):
        all_kinds()
    until(lambda: server.left_open() <= before, f"{before} before, {server.left_open()} now")
    print(f"{before[0]} threads, {before[1]} descriptors, {memory:.0f} and {server.memory():.0f} MB")
    assert server.memory() < memory + 50
