"""`python -m spec_lib serve`: refusals in one sentence before anything is loaded, and the end by a signal."""

import builtins
import os
import signal
import socket
import subprocess
import sys
import time
from contextlib import ExitStack

import pytest

import spec_lib as sl
from spec_lib import __main__ as cli
from spec_lib import pairs
from spec_lib.options import parser
from tests.helpers.models import tiny_gpt2
from tests.helpers.paths import ROOT
from tests.helpers.served import read_all, read_until, started, until
from tests.helpers.tokenizers import Numbers

ONCE = "Once upon a time"


@pytest.fixture
def nothing_loads(monkeypatch):
    def load(*a, **k):
        raise AssertionError("a model was loaded")

    monkeypatch.setattr(sl, "load_pair", load)
    monkeypatch.setattr(pairs, "load_pair", load)


def refused(capsys, *arguments: str) -> str:
    try:
        code = cli.main(["serve", *arguments])
    except SystemExit as stop:  # argparse's way out
        code = stop.code
    out, err = capsys.readouterr()
    assert code == 2 and out == "" and len(err.strip().split("\n")) == 1
    return err


@pytest.mark.parametrize(
    "arguments, named",
    [
        (["--gamma", "0"], "--gamma must be a whole number of at least 1, got 0"),
        (["--slots", "0"], "--slots must be a whole number of at least 1, got 0"),
        (["--waiting", "-1"], "--waiting, the texts that may wait for a slot, must be at least 0, got -1"),
        (["--port", "65536"], "--port must be 0 (any free one) to 65535, got 65536"),
        (["--port", "-1"], "--port must be"),
        (["--port", "web"], "invalid int value: 'web'"),
        (["--host", "no such host"], "--host 'no such host' is no address"),
        (["--host", ""], "--host '' is no address"),
        (["--host", "203.0.113.7", "--port", "0"], "port 0 of 203.0.113.7 cannot be had"),
        (["--name", " "], "--name, what clients call the model, must not be empty"),
        (["--rule", "other"], "invalid choice: 'other'"),
        (["--forward", "other"], "invalid choice: 'other'"),
        (["--target", "a/b/c", "--draft", "x"], "'a/b/c' is neither a folder here nor a model id"),
        (["--target", "tiny", "--draft", "huge"], "there is no 'huge'"),
    ],
)
def test_bad_options_end_in_one_sentence_before_anything_is_loaded(arguments, named, capsys, nothing_loads):
    assert named in refused(capsys, *arguments)


def test_a_port_that_is_taken_is_said_before_anything_is_loaded(capsys, nothing_loads):
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        assert f"port {port} of 127.0.0.1 is taken" in refused(capsys, "--port", str(port))


@pytest.mark.parametrize("name", ["starlette", "uvicorn"])
def test_what_is_missing_is_named_with_the_way_to_get_it(name, capsys, monkeypatch, nothing_loads):
    real = builtins.__import__

    def without(module, *rest):
        if module == name:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
        return real(module, *rest)

    monkeypatch.setattr(builtins, "__import__", without)
    assert f"serving needs the package {name}: pip install starlette uvicorn" in refused(capsys, "--port", "0")


def test_the_rest_of_the_command_needs_neither():
    """starlette and uvicorn are an extra of the package: all else works without them."""
    code = "import sys; import spec_lib.__main__; sys.exit(any(m in sys.modules for m in ('starlette', 'uvicorn')))"
    assert subprocess.run([sys.executable, "-c", code], cwd=cli.Path(cli.__file__).parents[1]).returncode == 0


def test_a_pair_that_the_engine_refuses_is_said_before_anybody_connects(capsys, monkeypatch):
    pair = sl.Pair(tiny_gpt2(0), tiny_gpt2(1), Numbers())
    monkeypatch.setattr(sl, "load_pair", lambda *a, **k: pair)
    monkeypatch.setattr("spec_lib.batch.Engine", lambda *a, **k: (_ for _ in ()).throw(ValueError("it has a window")))
    assert "it has a window" in refused(capsys, "--port", "0")


def test_the_name_of_the_model_is_the_targets():
    args = parser().parse_args(["serve"])
    assert (args.slots, args.waiting, args.gamma, args.host, args.port) == (8, 64, 4, "127.0.0.1", 8000)


def test_sigterm_while_texts_are_written(tmp_path):
    """Answers that are done in time are complete; the others end with an error after 4 s, and then the process."""
    with started(tmp_path, "--target", "tiny", "--slots", "2", "--name", "a name") as server, ExitStack() as stack:
        assert server.ask("GET", "/v1/models")[2].count("a name") == 1
        ask = lambda **fields: stack.enter_context(  # noqa: E731
            server.asking(prompt=ONCE, temperature=0, **fields)
        )
        long = [ask(max_tokens=1000, n=8, stream=stream) for stream in (True, False)]
        read_until(long[0], "data: ")
        idle = stack.enter_context(socket.create_connection(("127.0.0.1", server.port)))
        server.process.send_signal(signal.SIGTERM)
        began = time.monotonic()
        assert read_all(idle) == ""  # nobody is kept waiting who has not asked
        until(lambda: not connects(server.port), "new clients are taken", 3)
        streamed, whole = read_all(long[0]), read_all(long[1])
        code, waited = server.process.wait(30), time.monotonic() - began
    assert streamed.count("being stopped") == 1 and "[DONE]" not in streamed and streamed.endswith("0\r\n\r\n")
    assert whole.startswith("HTTP/1.1 503 ") and "being stopped" in whole
    assert code == -signal.SIGTERM
    print(f"gone {waited:.1f} s after SIGTERM")
    assert waited > 3  # not before the texts had their chance; the log says nothing of a failure
    log = (tmp_path / "server.txt").read_text("utf-8")
    assert "Traceback" not in log and "as 'a name' on" in log


def test_a_text_that_is_done_in_time_is_complete_after_sigterm(tmp_path):
    with started(tmp_path, "--target", "tiny") as server, ExitStack() as stack:
        short = stack.enter_context(server.asking(prompt=ONCE, max_tokens=60, temperature=0, n=4, stream=True))
        read_until(short, "data: ")
        server.process.send_signal(signal.SIGTERM)
        assert "[DONE]" in read_all(short)
        assert server.process.wait(30) == -signal.SIGTERM


def connects(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), timeout=5).close()
    except OSError:
        return False
    return True


def test_an_idle_server_ends_at_once_with_ctrl_c(tmp_path):
    with started(tmp_path, "--target", "tiny") as server:
        server.process.send_signal(signal.SIGINT)
        assert server.process.wait(30) == 130
    assert "Traceback" not in (tmp_path / "server.txt").read_text("utf-8")


def run(*arguments: str, **options) -> subprocess.CompletedProcess:
    environment = {**os.environ, "SPEC_PAIR": "tiny", "HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1"}
    environment["PYTHONPATH"] = str(ROOT)
    return subprocess.run([sys.executable, *arguments], env=environment, stderr=subprocess.PIPE, text=True, **options)


def test_a_server_whose_first_line_nobody_reads_ends():
    reader, writer = os.pipe()
    os.close(reader)
    try:
        ended = run("-m", "spec_lib", "serve", "--port", "0", stdout=writer, timeout=100)
    finally:
        os.close(writer)
    assert (ended.returncode, ended.stderr) == (141, "")


STUCK = """
import asyncio, time
from spec_lib.server.worker import Row, Worker
from tests.helpers.models import tiny_gpt2
from tests.helpers.tokenizers import Numbers
import spec_lib as sl

async def main():
    {body}

pair = sl.Pair(tiny_gpt2(0), tiny_gpt2(1), Numbers())
worker = Worker(pair, lambda: time.sleep(10_000), 1)
asyncio.run(main())
"""
BODIES = {
    "stopped in the middle of a step": """worker.begin()
    worker.submit([Row([1], 4, sl.Sampling(), 0, (), 0, asyncio.Queue())])
    while worker.inbox: await asyncio.sleep(0.01)
    worker.stop()""",
    "never stopped": """worker.begin()
    raise SystemExit(0)""",
}


@pytest.mark.parametrize("body", BODIES)
def test_the_engines_thread_does_not_keep_the_process(body):
    """It cannot be interrupted, and an error elsewhere may leave nobody to stop it."""
    ended = run("-c", STUCK.format(body=BODIES[body]), timeout=60)
    assert (ended.returncode, ended.stderr) == (0, "")


def test_ctrl_c_twice_ends_at_once_whatever_is_written(tmp_path):
    """uvicorn leaves out the application's end then: the engine's thread would be torn down in the middle of a step."""
    with started(tmp_path, "--target", "tiny") as server, ExitStack() as stack:
        texts = [
            stack.enter_context(server.asking(prompt=ONCE, max_tokens=1000, n=8, stream=stream))
            for stream in (True, False)
        ]
        read_until(texts[0], "data: ")
        server.process.send_signal(signal.SIGINT)
        until(lambda: not connects(server.port), "new clients are taken", 3)
        server.process.send_signal(signal.SIGINT)
        assert server.process.wait(30) == 130
    log = (tmp_path / "server.txt").read_text("utf-8")
    assert "Traceback" not in log and "terminate" not in log
