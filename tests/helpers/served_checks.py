"""What a server does right, as plain functions: on planted faults of it they have to fail, within seconds."""

from __future__ import annotations

import threading

import torch

import spec_lib as sl
from spec_lib import Round
from spec_lib.server import serving as _whole  # noqa: F401  (all of the server is there to be broken)
from spec_lib.server import text as streamed
from spec_lib.server.asked import NEUTRAL
from tests.helpers.models import float_pair
from tests.helpers.served import Scripted, read_until, serving, until
from tests.helpers.tokenizers import Bytes, Numbers

PROMPT = torch.tensor([[72, 105]])
SAID = "the most beautiful garden, na\u00efve \u2615 and \U0001f409\nthe water"
STOPS = ((), (" beautiful",), ("\n",), ("e n", "garden,"), ("beautifully", "beautiful g"), ("absent",), ("\u2615 an",))


def rounds(tokens: list[int], sizes: list[int]) -> list[Round]:
    """The tokens as rounds of these sizes in turn: all but the last of each were accepted."""
    found, at = [], 0
    while at < len(tokens):
        new = tokens[at : at + sizes[len(found) % len(sizes)]]
        drafted = torch.tensor([*new[:-1], 0], dtype=torch.int64)
        found.append(Round(drafted, len(new) - 1, new[-1], "resampled"))
        at += len(new)
    return found


def sent(
    data: bytes, stop: tuple[str, ...] = (), sizes=(1,), reason: str = "length"
) -> tuple[list[str], streamed.Text]:
    """What is sent after each round of a text of these bytes, and the text."""
    text, parts = streamed.Text(Bytes(), PROMPT, stop), []
    every = rounds(list(data), list(sizes))
    for i, done in enumerate(every):
        parts.append("".join(piece for piece, _ in text.feed(done, reason if i == len(every) - 1 else None)))
        if text.finish:
            break
    return parts, text


def cut(text: str, stop: tuple[str, ...]) -> tuple[str, int]:
    """The text before the stop string that was complete first, and how many bytes were needed to know it."""
    for end in range(len(text) + 1):
        at = [text.find(s, 0, end) for s in stop if s in text[:end]]
        if at:
            return text[: min(at)], len(text[:end].encode())
    return text, len(text.encode())


def check_served_text() -> None:
    """Characters come whole, stop strings are cut and never sent, and the tokens are counted up to there."""
    for stop in STOPS:
        want, needed = cut(SAID, stop)
        for sizes in ((1,), (4,), (2, 5)):
            parts, text = sent(SAID.encode(), stop, sizes)
            assert "".join(parts) == want and text.tokens == needed, (stop, sizes, parts)
            assert text.finish == ("stop" if any(s in SAID for s in stop) else "length")
    parts, text = sent(b"the end.", ("xyz",), (3,), "eos")
    assert ("".join(parts), text.tokens, text.finish) == ("the end", 8, "stop")


def _pair() -> sl.Pair:
    return sl.Pair(*float_pair(), Numbers())


def check_served_answers() -> None:
    """Seeds, samplings, refusals, usage and metrics of one server with an engine that writes what it is told."""
    made = []

    def engine():
        made.append(Scripted(range(1, 25), 4))
        return made[-1]

    with serving(_pair(), engine=engine) as server:
        status, answer = server.post(prompt=[[1, 2], [3]], n=2, seed=5, max_tokens=24, temperature=1)
        assert status == 200 and [choice["finish_reason"] for choice in answer["choices"]] == ["length"] * 4
        assert [seed for *_, seed in made[0].asked] == [5, 6, 7, 8]
        logits = torch.arange(31.0) / 10
        for _, _, sampling, _ in made[0].asked:
            assert torch.equal(sampling.probabilities(logits), logits.softmax(-1)), sampling
        done = [r for request in made[0].done for r in request.rounds]
        s, usage = sl.summarize(done), answer["usage"]
        assert s.rejected > 4 and abs(s.alpha - s.share) > 0.1
        details = usage["completion_tokens_details"]
        assert list(details.values()) == [s.accepted, s.rejected] and usage["completion_tokens"] == s.emitted
        for name, value in [("draft_tokens", s.drafted), ("accepted_tokens", s.accepted), ("drafts", s.passes),
                            ("rejected_tokens", s.rejected)]:  # fmt: skip
            assert server.counted(f"spec_decode_num_{name}_total") == value, name
        for field in NEUTRAL:
            status, answer = server.post(prompt=[1], **{field: 0.25})
            assert status == 400 and answer["error"]["param"] == field, field


def check_served_strangers() -> None:
    """Clients that leave or are too many, an engine that fails, the end: nothing is written for nobody, or cut
    in silence."""
    go, lost = threading.Event(), threading.Event()

    def turn():
        go.wait(0.02)
        if lost.is_set():
            lost.clear()
            raise RuntimeError("the device is lost")

    with serving(_pair(), slots=1, waiting=2, engine=lambda: Scripted([5] * 60, 1, slots=1, turn=turn)) as server:
        finished = lambda why: server.counted("request_success_total", finished_reason=why)  # noqa: E731
        for stream in (True, False):
            with server.asking(prompt=[1], max_tokens=60, stream=stream):
                until(lambda: server.counted("num_requests_running") == 1, "nothing is written")
                assert server.post(prompt=[1], n=3)[0] == 429  # there is room for two
        until(lambda: finished("abort") + finished("length") == 2, "they are written on")
        assert finished("abort") == 2
        for why in (lost.set, lambda: server.worker.loop.call_soon_threadsafe(server.worker.end_all, _stopped())):
            with server.asking(prompt=[1], max_tokens=60, stream=True) as opened:
                said = read_until(opened, "data: ")
                why()
                said = read_until(opened, "\r\n0\r\n\r\n", said)
            assert '{"error":' in said and "[DONE]" not in said
            until(server.idle, "it is written on")


def _stopped():
    from spec_lib.server.refusals import busy

    return busy("the server is being stopped", 503)
