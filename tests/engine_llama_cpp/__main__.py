"""llama.cpp serves the embedded pair, and is compared with spec_lib: `python -m tests.engine_llama_cpp [FOLDER]`.

By hand, as `tests.engine_vllm`, whose expected side it uses: xllamacpp (34 MB, llama.cpp's own server in a wheel) goes
into FOLDER (build/engine_llama_cpp), the pair is exported and converted, and a table printed.  Some minutes.
"""

from __future__ import annotations

import datetime
import json
import random
import re
import socket
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import torch

from spec_lib import __main__ as cli
from spec_lib import benchmark
from spec_lib.pairs import inside
from tests.engine_vllm.__main__ import p_text
from tests.engine_vllm.environment import pip
from tests.engine_vllm.ours import NEW, SEEDS, Exact, Ours
from tests.helpers.paths import ROOT

HERE, SAMPLES, LEVEL = Path(__file__).parent, 4000, 1e-4
PACKAGES = ("xllamacpp==2026.10.11549", "gguf==0.19.0", "safetensors")
COUNTED = re.compile(r"^llamacpp:spec_decode_num_(\w+)_total(?:\{.*?\})? (\S+)$", re.M)


class Server:
    def __init__(self, port: int):
        self.address, self.seeds = f"http://127.0.0.1:{port}", random.Random(0)

    def complete(self, prompt: list[int], tokens: int, temperature: float, seed: int) -> list[int]:
        """A continuation up to its end: its default sampler would cut the distribution."""
        asked = {"prompt": prompt, "n_predict": tokens, "temperature": temperature, "seed": seed, "return_tokens": True}
        asked |= {"samplers": ["temperature"], "top_k": 0, "top_p": 1.0, "min_p": 0.0}
        data, headers = json.dumps(asked).encode(), {"Content-Type": "application/json"}
        with urllib.request.urlopen(
            urllib.request.Request(f"{self.address}/completion", data, headers), timeout=120
        ) as a:
            return json.load(a)["tokens"]

    def all(self, prompts: list[list[int]], tokens: int, temperature: float, at_once: int = 8) -> list[list[int]]:
        seeds = [self.seeds.randrange(2**32 - 1) for _ in prompts]
        with ThreadPoolExecutor(at_once) as pool:
            return list(pool.map(lambda ids, seed: self.complete(ids, tokens, temperature, seed), prompts, seeds))

    def counters(self) -> dict[str, float]:
        with urllib.request.urlopen(f"{self.address}/metrics", timeout=60) as answer:
            return {name: float(value) for name, value in COUNTED.findall(answer.read().decode())}


@contextmanager
def serving(python: Path, folder: Path, how: str | None) -> Iterator[Server]:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    models = [folder / "target.gguf", *([folder / "medium.gguf", how] if how else [])]
    with (folder / f"{how}.log").open("w") as log:
        command = [python, HERE / "serve.py", str(port), *models]
        process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, text=True)
    try:
        if not any(line.strip() == "up" for line in process.stdout):
            raise RuntimeError(f"llama.cpp did not start; see {folder / f'{how}.log'}")
        yield Server(port)
    finally:
        process.stdin.close()  # it ends by that, also where this process is killed
        try:
            process.wait(20)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def rates(after: dict[str, float], before: dict[str, float]) -> str:
    """accepted / drafted, and tokens per target pass; nothing where nothing was drafted."""
    more = {name: after[name] - before.get(name, 0) for name in after}
    if not more.get("drafts"):
        return "|"
    accepted = more["accepted_tokens"]
    return f"{accepted / more['draft_tokens']:.3f} | {1 + accepted / more['drafts']:.2f}"


def margins(ours: Ours, texts: list[list[int]]) -> str:
    """Where greedy texts part: by how much the target's logit for our token is above that for theirs."""
    found = []
    for ids, own, text in zip(ours.prompts, ours.greedy, texts, strict=True):
        at = next((i for i, (a, b) in enumerate(zip(own, text, strict=False)) if a != b), None)
        if at is not None:
            with torch.no_grad():
                logits = inside(ours.pair.target)(torch.tensor([ids + own[:at]])).logits[0, -1]
            found.append(f"{float(logits[own[at]] - logits[text[at]]):.4f}")
    return f", the others part where two logits differ by {' '.join(found)}" if found else ""


def main(arguments: list[str]) -> int:
    folder = Path(arguments[0] if arguments else ROOT / "build" / "engine_llama_cpp").resolve()
    python, pair = folder / "venv" / "bin" / "python", folder / "pair"
    if not python.exists():
        folder.mkdir(parents=True, exist_ok=True)
        subprocess.run([sys.executable, "-m", "venv", folder / "venv"], check=True)
    if not pip(python, *PACKAGES):
        raise SystemExit("xllamacpp could not be installed; pip's words are above")
    if not pair.exists() and cli.main(["export", str(pair), "--draft", "medium"]):
        return 2
    for name in ("target", "medium"):
        subprocess.run([python, HERE / "to_gguf.py", pair / name, folder / f"{name}.gguf"], check=True)
    ours, exact, control = Ours(), Exact(1.0, SAMPLES), Exact(0.9, SAMPLES)
    machine = benchmark.machine(ours.pair.device)
    print(f"{PACKAGES[0]}; {machine}, one thread, {datetime.date.today():%d %B %Y}")
    print("| draft | greedy texts equal | accepted / drafted, T = 0 | tokens per target pass | the same two, T = 1 | "
          "| first token | second given first | first three | control T = 0.9, at most |")  # fmt: skip
    print("|" + " --- |" * 10, flush=True)
    wrong = []
    for how in (None, "greedy", "probabilistic"):
        with serving(python, folder, how) as server:
            start = server.counters()
            greedy = server.all(ours.prompts, NEW, 0.0, at_once=1)
            same = sum(a == b[: len(a)] for a, b in zip(greedy, ours.greedy, strict=True))
            middle = server.counters()
            server.all([ids for ids in ours.prompts for _ in range(SEEDS)], NEW, 1.0)
            end = server.counters()
            texts = [(text + [0, 0, 0])[:3] for text in server.all([exact.prompt] * SAMPLES, 3, 1.0)]
        tests, far = exact.tests(texts), control.tests(texts)
        cells = [
            how or "none",
            f"{same} of {len(greedy)}{margins(ours, greedy)}",
            rates(middle, start),
            rates(end, middle),
        ]
        cells += [f"{p_text(t.p_value)} ({t.statistic:,.0f} on {t.d})" for t in tests.values()]
        cells.append(p_text(max(t.p_value for t in far.values())))
        print("| " + " | ".join(cells) + " |", flush=True)
        if min(t.p_value for t in tests.values()) < LEVEL or max(t.p_value for t in far.values()) > LEVEL:
            wrong.append(f"{how}: the distribution is not the target's, or the control was not told apart")
    for name, asked in (("T = 0", (0, True)), ("T = 1, greedy draft", (1, True)), ("T = 1, q drawn", (1, False))):
        own = ours.accepts(*asked)
        rates_of_ours = f"{own.share:.3f} of the draft accepted, {own.tokens_per_pass:.2f} tokens per target pass"
        print(f"spec_lib, {name}: {rates_of_ours}, alpha {own.alpha:.3f}")
    print("\n".join(wrong) if wrong else "All as it should be.")
    return 1 if wrong else 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
