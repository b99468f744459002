"""A vLLM server as a process of ours: started, asked, and ended with all that it started."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import time
import urllib.request
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

START, ANSWER = 400, 300  # seconds at most
COUNTED = re.compile(r'^vllm:spec_decode_num_(\w+?)_total\{.*?(?:position="(\d+)")?\} (\S+)$', re.M)


@dataclass(frozen=True)
class Server:
    address: str

    def complete(self, prompt: list[int], tokens: int, temperature: float, n: int = 1) -> list[list[int]]:
        """n continuations, as token ids."""
        asked = {
            "model": "tiny",
            "prompt": prompt,
            "max_tokens": tokens,
            "temperature": temperature,
            "n": n,
            "ignore_eos": True,
            "return_token_ids": True,
        }
        data = json.dumps(asked).encode()
        request = urllib.request.Request(f"{self.address}/v1/completions", data, {"Content-Type": "application/json"})
        with urllib.request.urlopen(request, timeout=ANSWER) as answer:
            choices = json.load(answer)["choices"]
        return [choice["token_ids"] for choice in choices]

    def complete_all(self, prompts: list[list[int]], *args, at_once: int = 1, **options) -> list[list[list[int]]]:
        """`complete` for each prompt, `at_once` of them at a time."""
        with ThreadPoolExecutor(at_once) as pool:
            return list(pool.map(lambda prompt: self.complete(prompt, *args, **options), prompts))

    def counters(self) -> Counter:
        """drafts, draft_tokens, accepted_tokens, and accepted_tokens_per_pos at "0", "1" ... since the start."""
        with urllib.request.urlopen(f"{self.address}/metrics", timeout=ANSWER) as answer:
            found = COUNTED.findall(answer.read().decode())
        return Counter({at or name: int(float(value)) for name, at, value in found})


@contextmanager
def serving(python: Path, pair: Path, log: Path, speculation: dict | None, cure: Path | None) -> Iterator[Server]:
    """A server of pair/target.  cure: the plugin's folder; without it, the package as it was installed."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    start = [python.with_name("vllm"), "serve", pair / "target"]
    if cure is None:  # `vllm serve` does not start
        start = [python, "-m", "vllm.entrypoints.openai.api_server", "--model", pair / "target"]
    options = ["--served-model-name", "tiny", "--host", "127.0.0.1", "--port", str(port)]
    options += ["--dtype", "float32", "--max-model-len", "1024", "--enforce-eager"]
    options += ["--speculative-config", json.dumps(speculation)] if speculation else []
    with log.open("w") as file:
        process = subprocess.Popen(
            [*start, *options],
            stdin=subprocess.DEVNULL,
            stdout=file,
            stderr=subprocess.STDOUT,
            env=surroundings(python, log.parent, cure),
            start_new_session=True,  # its processes are one group, which is ended as a whole
        )
    try:
        address = f"http://127.0.0.1:{port}"
        wait_until_up(process, address, log)
        yield Server(address)
    finally:
        end(process)


def surroundings(python: Path, folder: Path, cure: Path | None) -> dict[str, str]:
    """The variables that vLLM needs on a CPU, and those that keep it from writing and asking elsewhere."""
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("PYTHON", "VLLM_", "OMP_", "LD_PRELOAD"))}
    openmp = sorted(python.parents[1].glob("lib*/libiomp5.so"))  # without it speculation is slow, it says
    return kept | {
        "PYTHONPATH": str(cure or ""),
        "LD_PRELOAD": str(openmp[0]) if openmp else "",
        "OMP_NUM_THREADS": "1",
        "VLLM_CPU_OMP_THREADS_BIND": "nobind",
        "VLLM_CPU_KVCACHE_SPACE": "1",  # GiB
        "VLLM_NO_USAGE_STATS": "1",
        "DO_NOT_TRACK": "1",
        "HF_HUB_OFFLINE": "1",
        "VLLM_CACHE_ROOT": str(folder / "cache"),
        "VLLM_CONFIG_ROOT": str(folder / "config"),
    }


def wait_until_up(process: subprocess.Popen, address: str, log: Path) -> None:
    """RuntimeError where it ends, or is not up in time."""
    until = time.monotonic() + START
    while time.monotonic() < until:
        if process.poll() is not None:
            raise RuntimeError(f"vLLM ended with code {process.returncode}: {last_line(log)} (all of it: {log})")
        try:
            with urllib.request.urlopen(f"{address}/health", timeout=5):
                return
        except OSError:
            time.sleep(0.5)
    raise RuntimeError(f"vLLM is not up after {START} s; see {log}")


def last_line(log: Path) -> str:
    """The last that it said."""
    return ([line for line in log.read_text("utf-8", errors="replace").split("\n") if line.strip()] or ["nothing"])[-1]


def end(process: subprocess.Popen) -> None:
    """Asked to end, and after a while made to, with every process of its group."""
    for wish, patience in ((signal.SIGTERM, 20), (signal.SIGKILL, 20)):
        try:
            os.killpg(process.pid, wish)
        except ProcessLookupError:
            break
        until = time.monotonic() + patience
        while time.monotonic() < until and alive(process):
            time.sleep(0.2)
    process.wait()


def alive(process: subprocess.Popen) -> bool:
    """Whether anything of the group still runs."""
    process.poll()
    try:
        os.killpg(process.pid, 0)
    except ProcessLookupError:
        return False
    return True
