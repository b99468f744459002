"""The engine's thread: it alone touches models, caches and tensors, and hands what comes to the event loop.

The first half of `Worker` belongs to the event loop, the second to the thread; what both see is the inbox under its
lock, each row's flag `cancelled`, and the events that are handed over.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple

import torch

from ..pairs import ends
from ..sampling import Sampling
from .metrics import Metrics
from .refusals import Refused, busy
from .text import Text

LOG = logging.getLogger("uvicorn.error")
FAILED = "the engine failed while this text was written and was started anew: ask again"


class Event(NamedTuple):
    """What became of a row in one round: its pieces (text, origin), and the counts of `Text` so far.

    rejected: None under a rule that does not go token by token, whose rejections say nothing of single tokens.
    finish: "stop" or "length" in the last event, or error: why there is no more."""

    row: Row
    pieces: list[tuple[str, str]] = []
    tokens: int = 0
    accepted: int = 0
    rejected: int | None = 0
    finish: str | None = None
    error: Refused | None = None


@dataclass(eq=False, repr=False)  # its events hold it again
class Row:
    """One text that somebody asked for; what comes of it goes into `events`, which a request's rows share.

    cancelled: nobody waits for it any more.  Set by the event loop, heard by the engine's thread before each round."""

    ids: list[int]
    max_tokens: int
    sampling: Sampling
    seed: int
    stop: tuple[str, ...]
    index: int
    events: asyncio.Queue
    cancelled: bool = False
    arrived: float = field(default_factory=time.monotonic)
    seen: float | None = None  # when its last token was written
    text: Text | None = None


class Worker(threading.Thread):
    """make_engine: a new `batch.Engine` for this pair.  texts: how many may be in work and waiting."""

    def __init__(self, pair, make_engine: Callable, texts: int):
        super().__init__(name="spec_lib engine", daemon=True)
        self.pair, self.make_engine, self.texts, self.eos = pair, make_engine, texts, ends(pair)
        self.metrics, self.lock, self.inbox = Metrics(), threading.Condition(), []
        self.open: set[Row] = set()  # of the event loop: until the engine's thread has said how they ended
        self.engine, self.rows, self.events, self.closed, self.ending = None, {}, [], False, None

    # ------------------------------------------------------------------------------------------- in the event loop

    def begin(self) -> None:
        self.loop = asyncio.get_running_loop()
        self.start()

    def submit(self, rows: list[Row]) -> None:
        """Rows to write; Refused where there is no room for all of them."""
        if self.ending:
            raise self.ending.with_traceback(None)  # else it would hold those of all that were told
        if len(self.open) + len(rows) > self.texts:
            raise busy(f"{len(self.open)} texts are in work or waiting, and {self.texts} can be: ask again in a moment")
        self.open.update(rows)
        with self.lock:
            self.inbox += rows
            self.lock.notify()

    def end_all(self, why: Refused) -> None:
        """Every text that is not done ends with this error, at once, and no other begins."""
        self.ending = why
        for row in self.open:
            row.cancelled = True
            row.events.put_nowait(Event(row, error=why))

    def stop(self) -> None:
        """The thread ends after its round."""
        with self.lock:
            self.closed = True
            self.lock.notify()
        self.join(1)

    def waiting(self) -> int:
        engine = self.engine
        return len(self.inbox) + (engine.waiting if engine else 0)

    def running(self) -> int:
        engine = self.engine
        return engine.running if engine else 0

    def _hand_over(self, events: list[Event]) -> None:
        for event in events:
            if event.finish or event.error:
                self.open.discard(event.row)
            event.row.events.put_nowait(event)

    # ----------------------------------------------------------------------------------------- in the engine's thread

    def run(self) -> None:
        try:
            self._work()
        finally:
            if not self.closed:  # nobody is to wait for what does not come
                why = Refused(503, "the engine has ended: the server has to be started anew", code="engine_failed")
                self.loop.call_soon_threadsafe(self.end_all, why)

    def _work(self) -> None:
        while True:
            with self.lock:
                self.lock.wait_for(lambda: self.inbox or self.rows or self.closed)
                new, self.inbox = self.inbox, []
            if self.closed:
                return
            try:
                self._admit(new)
                self._leave()
                for request, done in self.engine.step() if self.rows else ():
                    self._round(*self.rows[id(request)], done)
            except Exception as error:  # of the engine itself: it cannot be trusted any more, the server lives
                LOG.error("The engine failed", exc_info=error)
                ended = {event.row for event in self.events if event.finish or event.error}
                for row in {*new, *(row for _, row in self.rows.values())} - ended:
                    self._end(row, "error", Event(row, error=Refused(500, FAILED, code="engine_failed")))
                self.engine, self.rows = None, {}
            events, self.events = self.events, []
            if events:
                with contextlib.suppress(RuntimeError):  # the loop has ended
                    self.loop.call_soon_threadsafe(self._hand_over, events)

    def _admit(self, new: list[Row]) -> None:
        self.engine = self.engine or self.make_engine()
        for row in new:
            try:
                ids = torch.tensor([row.ids], dtype=torch.int64, device=self.pair.device)
                options = {"sampling": row.sampling, "eos_token_id": self.eos, "generator": row.seed}
                request = self.engine.submit(ids, row.max_tokens, **options)
            except ValueError as error:
                self._end(row, "error", Event(row, error=Refused(400, str(error))))
                continue
            row.text = Text(self.pair, ids, row.stop)
            self.rows[id(request)] = request, row
            self.metrics.totals["prompt_tokens"] += len(row.ids)

    def _leave(self) -> None:
        """Rows that nobody waits for make room."""
        for key, (request, row) in list(self.rows.items()):
            if row.cancelled:
                self.engine.cancel(request)
                self._end(row, "abort", Event(row, error=Refused(499, "the client left")))
                del self.rows[key]

    def _round(self, request, row: Row, done) -> None:
        """One round of a text; None: it failed alone."""
        if done is None:
            error = Refused(500, f"this text failed: {request.error}", code="text_failed")
            self._end(row, "error", Event(row, error=error))
            del self.rows[id(request)]
            return
        text, before, now = row.text, row.text.tokens, time.monotonic()
        pieces = text.feed(done, request.stop_reason)
        new = text.tokens - before
        self.metrics.round(done, new)
        if row.seen is None:
            self.metrics.times["time_to_first_token_seconds"].observe(now - row.arrived)
        else:
            self.metrics.times["inter_token_latency_seconds"].observe((now - row.seen) / new, new)
        row.seen = now
        rejected = text.rejected if done.token_by_token else None
        event = Event(row, pieces, text.tokens, text.accepted, rejected, text.finish)
        if text.finish is None:
            self.events.append(event)
            return
        if request.stop_reason is None:  # a stop string: the engine would go on
            self.engine.cancel(request)
        self._end(row, text.finish, event)
        del self.rows[id(request)]

    def _end(self, row: Row, reason: str, event: Event) -> None:
        self.metrics.finished[reason] += 1
        self.metrics.times["e2e_request_latency_seconds"].observe(time.monotonic() - row.arrived)
        self.events.append(event)
