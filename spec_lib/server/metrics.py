"""Counters and histograms of the server, as Prometheus reads them.

The names are vLLM's behind the prefix `spec_lib_`, so that one query serves both; a counter of rejected draft tokens is
ours, since alpha = accepted / (accepted + rejected), which vLLM's "acceptance rate", accepted / drafted, is not.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter

from ..records import Round

TYPE = "text/plain; version=0.0.4; charset=utf-8"
SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.25, 0.5, 0.75, 1, 2.5, 5, 7.5, 10, 20, 40, 80, 160)
HELP = {
    "spec_decode_num_drafts": "Drafts that were verified, one a round of a text",
    "spec_decode_num_draft_tokens": "Tokens in these drafts",
    "spec_decode_num_accepted_tokens": "Draft tokens that the target accepted",
    "spec_decode_num_rejected_tokens": "Draft tokens that the target rejected, token by token: one at most a draft",
    "generation_tokens": "Tokens that were written",
    "prompt_tokens": "Tokens of the prompts, once for each text",
}
TIMES = {
    "time_to_first_token_seconds": "From the request to the first token of a text",
    "inter_token_latency_seconds": "From token to token, each round's time shared by its tokens",
    "e2e_request_latency_seconds": "From the request to the end of a text",
}


class Histogram:
    """How many of the observed seconds lie below each bound, and their sum."""

    def __init__(self):
        self.counts, self.sum = [0] * (len(SECONDS) + 1), 0.0

    def observe(self, seconds: float, times: int = 1) -> None:
        self.counts[bisect_left(SECONDS, seconds)] += times
        self.sum += seconds * times


class Metrics:
    """All that is counted; written by the engine's thread alone, read by whoever asks."""

    def __init__(self):
        self.totals, self.positions, self.finished = Counter(), Counter(), Counter()
        self.times = {name: Histogram() for name in TIMES}

    def round(self, done: Round, tokens: int) -> None:
        """One round of a text, of which `tokens` were written: fewer than it has where a stop string ends them."""
        accepted = min(done.accepted, tokens)
        self.totals["spec_decode_num_drafts"] += len(done.drafted) > 0
        self.totals["spec_decode_num_draft_tokens"] += len(done.drafted)
        self.totals["spec_decode_num_accepted_tokens"] += accepted
        rejected = done.token_by_token and done.origin == "resampled" and tokens > done.accepted
        self.totals["spec_decode_num_rejected_tokens"] += rejected
        self.totals["generation_tokens"] += tokens
        self.positions.update(range(accepted))

    def text(self, running: int, waiting: int) -> str:
        """In Prometheus' text format."""
        lines = []

        def family(name: str, kind: str, help: str, samples) -> None:
            lines.append(f"# HELP spec_lib_{name} {help}.\n# TYPE spec_lib_{name} {kind}")
            lines.extend(f"spec_lib_{name}{rest} {value}" for rest, value in samples)

        family("num_requests_running", "gauge", "Texts that are being written", [("", running)])
        family("num_requests_waiting", "gauge", "Texts that wait for a slot", [("", waiting)])
        for name, words in HELP.items():
            family(f"{name}_total", "counter", words, [("", self.totals[name])])
        places = [(f'{{position="{i}"}}', self.positions[i]) for i in sorted(self.positions)]
        words = "Draft tokens that the target accepted, by their position in the draft"
        family("spec_decode_num_accepted_tokens_per_pos_total", "counter", words, places)
        ends = [(f'{{finished_reason="{why}"}}', self.finished[why]) for why in ("stop", "length", "abort", "error")]
        family("request_success_total", "counter", "Texts that ended, by the reason", ends)
        for name, words in TIMES.items():
            family(name, "histogram", words, _buckets(self.times[name]))
        return "\n".join(lines) + "\n"


def _buckets(histogram: Histogram):
    below = 0
    for bound, count in zip((*SECONDS, "+Inf"), histogram.counts, strict=True):
        below += count
        yield f'_bucket{{le="{bound}"}}', below
    yield from (("_sum", histogram.sum), ("_count", below))
