"""Many texts at once: each pass of a model is over all of them, and each text is written as if it were alone.

A round of a batch is a round of each of its texts, whose draft passes run in lockstep and whose verification is one
pass of the target.  What a round means stands in `writer`, where a text alone is written; here is what several share:
the passes, the one wait for the device, and the slots.  Derived in notebook 12.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Sequence

import torch

from . import arguments, protocols
from .devices import threads_of
from .drafting import ModelDrafter, NoDraft, as_drafter
from .numbers import at_least_one
from .protocols import Draft
from .records import Round
from .request import Request
from .row_models import as_rows
from .rows import Row
from .sampling import Sampling
from .writer import Writer


class Engine:
    """Continuous batching: texts come and go, and each step is one round of all that have a slot.

    target, draft, gamma, rule, trace: as in `speculative_rounds`, but both models must be able to read several texts in
    one pass (`sl.GPT2`; transformers' with position arguments, such as GPT-2 and those with rotary embeddings).  A
    drafter that is no model has a session for each text.  draft None: nothing is drafted, plain decoding of a batch.
    slots: texts written at the same time, at least 1; others wait.  `step` until `running` and `waiting` are 0.
    Each text is what `speculative` writes alone with its seed, rounds included, up to rounding: a pass over several
    texts adds in another order (notebook 12).  The passes are shared; drawing and verification go text by text.
    Not for several threads.  ValueError for what it cannot work with.
    """

    def __init__(
        self,
        target: torch.nn.Module | protocols.Model,
        draft: torch.nn.Module | protocols.Model | protocols.Drafter | None,
        *,
        slots: int = 8,
        gamma: int | Callable[[list[Round]], int] = 4,
        rule: str | protocols.Rule | None = None,
        trace: bool | Iterable[str] = False,
    ):
        self.slots = at_least_one("slots", slots)
        arguments.a_gamma(gamma), arguments.a_rule(rule, None)
        drafter = NoDraft() if draft is None else as_drafter(draft)
        self.gamma, self.rule = (lambda rounds: 0) if draft is None else gamma, rule
        self.trace = arguments.a_trace(trace)
        self.target, self.drafter = as_rows(target, self.slots), drafter
        self.draft = as_rows(drafter.model, self.slots, "draft") if type(drafter) is ModelDrafter else None
        if self.draft is None:
            arguments.can_draft_in_a_batch(drafter, Row(self.target))
        self.texts, self.queue, self.broken = [], deque(), False  # texts[i] has slot i

    @property
    def running(self) -> int:
        """Texts that have a slot."""
        return len(self.texts)

    @property
    def waiting(self) -> int:
        """Texts that wait for one."""
        return len(self.queue)

    def submit(
        self,
        ids: torch.Tensor,
        max_new_tokens: int,
        *,
        sampling: Sampling | None = None,
        draft_sampling: Sampling | None = None,
        eos_token_id: int | list[int] | None = None,
        generator: torch.Generator | int | protocols.Randomness | None = None,
        attention_mask: torch.Tensor | None = None,
    ) -> Request:
        """Put a text into the queue: what becomes of it is seen in the `Request`, at the end its `generation()`.

        Arguments and ValueErrors are those of `speculative_rounds`; two texts at a time cannot share a generator.
        """
        self._usable()
        views = [Row(rows) for rows in (self.target, self.draft) if rows is not None]
        drafter = self.drafter if self.draft is None else ModelDrafter(views[1])
        writer = Writer(views[0], drafter, ids, max_new_tokens, self.gamma, self.rule, sampling, draft_sampling,
                        eos_token_id, generator, self.trace, attention_mask)  # fmt: skip
        arguments.own_source(writer, [text.writer for text in (*self.texts, *self.queue)])
        request = Request(writer, views)
        if request.stop_reason is None:
            self.queue.append(request)
        return request

    def cancel(self, request: Request) -> None:
        """Write no more of this text.  Between two steps; nothing happens where it has ended.

        ValueError within a step, and for what this engine's `submit` did not return.
        """
        if isinstance(request, Request) and request.stop_reason is not None:
            return
        self._usable()
        if request in self.queue:
            self.queue.remove(request)
            request.end("cancelled")
        elif request in self.texts:
            self._free(request, "cancelled")
        else:
            raise ValueError(f"cancel takes what this engine's submit returned, got another {type(request).__name__}")

    def step(self) -> list[tuple[Request, Round | None]]:
        """One round of each text that has a slot, after waiting ones were given the free slots: (text, its round).

        None in the place of a round: something was wrong with this text alone, its `error`.  [] where there is nothing
        to do.  Any other exception ends all texts: the engine then refuses more.
        """
        self._usable()
        self.broken = True  # until the step is through
        try:
            with torch.no_grad(), threads_of(self.target)():
                self._admit()
                done = self._round()
                for request, _ in done:
                    if request.stop_reason is not None:
                        self._free(request, request.stop_reason)
        except BaseException:  # Ctrl-C too
            for request in (*self.texts, *self.queue):
                request.end("error")
            self.texts.clear(), self.queue.clear()
            raise
        self.broken = False
        return done

    def _usable(self) -> None:
        if self.broken:
            raise ValueError(
                "a step of this engine is running, or one was interrupted or failed: submit and cancel between two "
                "steps, and after a failure make a new Engine"
            )

    def _admit(self) -> None:
        """Give free slots to waiting texts, whose prompts are read one by one."""
        while self.queue and len(self.texts) < self.slots:
            request, slot = self.queue.popleft(), len(self.texts)
            for view in request.views:
                view.rows.clear(slot)
                view.slot = slot
            request.attempt(self._start, request)
            self.texts.append(request)

    def _start(self, request: Request) -> None:
        request.writer.start()
        shared = [text for text in self.texts if getattr(text.writer, "session", None) is request.writer.session]
        for text in (*shared, request) if shared else ():  # the earlier one goes on with the later one's session
            text.attempt(_refuse_session)

    def _round(self) -> list[tuple[Request, Round | None]]:
        """Draft, score, verify and roll back, as `Writer` does for one text."""
        texts, parts = list(self.texts), []
        read = self._drafted(texts)
        if any(map(len, read)):
            logits = self.target.feed(0, read)
            parts = [text.attempt(text.writer.verify, rows) for text, rows in zip(texts, logits, strict=True)]
        whole = [part for part in parts if part is not None]
        seen = torch.cat(whole).tolist() if whole else []  # the one wait for the device
        for text, part in zip(texts, parts, strict=False):
            if part is not None:
                text.attempt(text.settle, seen[: len(part)])
                del seen[: len(part)]
        return [(text, None if text.error else text.rounds[-1]) for text in texts]

    def _drafted(self, texts: Sequence[Request]) -> list[torch.Tensor]:
        """What the target has to read of each text, (k + 1,); (0,) of one that failed."""
        nothing = torch.zeros(0, dtype=torch.int64, device=self.target.model.device)
        asked = [text.attempt(text.writer.ask) for text in texts]
        if self.draft is None:
            read = [text.attempt(_proposed, text.writer, k) for text, k in zip(texts, asked, strict=True)]
        else:
            drafts = self._in_lockstep(texts, asked, nothing)
            read = [text.attempt(text.writer.take, draft) for text, draft in zip(texts, drafts, strict=True)]
        return [nothing if ids is None else ids for ids in read]

    def _in_lockstep(self, texts: Sequence[Request], asked: Sequence, nothing: torch.Tensor) -> list[Draft | None]:
        """`ModelSession.propose` for all texts: a pass of the draft model over all of them for each position."""
        sessions = [getattr(text.writer, "session", None) for text in texts]  # None: its start failed
        rooms = [text.attempt(lambda s=s, k=k: s.begin(k)) for text, s, k in zip(texts, sessions, asked, strict=True)]
        for i in range(max((room or 0 for room in rooms), default=0)):
            busy = [text.error is None and i < room for text, room in zip(texts, rooms, strict=True)]
            if not any(busy):
                break
            ids = [s.readable(s.reading) if on else nothing for s, on in zip(sessions, busy, strict=True)]
            for text, s, on, logits in zip(texts, sessions, busy, self.draft.feed(0, ids, keep=1), strict=True):
                if on:
                    text.attempt(s.add, logits[-1])
        return [text.attempt(lambda s=s: s.end()) for text, s in zip(texts, sessions, strict=True)]

    def _free(self, request: Request, reason: str) -> None:
        """It ends, and its slot becomes free: the last text moves there, so that those in use stay together."""
        slot, last = self.texts.index(request), self.texts.pop()
        if last is not request:
            for view in last.views:
                view.rows.move(view.slot, slot)
                view.slot = slot
            self.texts[slot] = last
        request.end(reason)


def _proposed(writer: Writer, k: int) -> torch.Tensor:
    """What the target has to read of a text whose drafter is no model, as `Writer.draft`."""
    read = writer.take(writer.session.propose(k))
    # Sessions may hand out one and the same memory, which the next one fills before this draft is verified.
    writer.given, writer.q = (None if held is None else held.clone() for held in (writer.given, writer.q))
    return read


def _refuse_session() -> None:
    raise ValueError("the drafter's start gave one session to two texts: let it make a new one for each")
