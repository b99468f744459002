"""The answers to a request for completions: whole, or as server-sent events while the texts are written.

Both stop the texts of a client that has left.  An answer that cannot be completed says so: nothing is cut in silence.
"""

from __future__ import annotations

import asyncio
import json
import time
import uuid

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from .asked import Asked
from .refusals import Refused
from .worker import Event, Row


def as_json(content: dict, status: int = 200, headers: dict[str, str] | None = None) -> Response:
    """An answer in ASCII: what a client sent may hold half a surrogate, which UTF-8 cannot say."""
    return Response(dumped(content), status, headers, "application/json")


def dumped(content: dict) -> str:
    return json.dumps(content, separators=(",", ":"))


def refusal(error: Refused) -> Response:
    return as_json(error.body(), error.status, error.headers)


class Completion(Response):
    """The answer to `asked`, whose texts `rows` write; their events come through one queue."""

    def __init__(self, asked: Asked, rows: list[Row], events: asyncio.Queue, model: str):
        super().__init__()
        self.asked, self.rows, self.events = asked, rows, events
        self.head = {"id": f"cmpl-{uuid.uuid4().hex}", "object": "text_completion", "created": int(time.time())}
        self.head["model"] = model
        self.last: dict[int, Event] = {}  # of each text

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answers, or stops the texts as soon as the client has left."""
        work = asyncio.ensure_future((self.streamed if self.asked.stream else self.whole)(scope, receive, send))
        left = asyncio.ensure_future(_left(receive))
        try:
            await asyncio.wait((work, left), return_when=asyncio.FIRST_COMPLETED)
            if work.done():
                work.result()  # its exception, if it has one
        finally:
            for row in self.rows:
                row.cancelled = True  # no matter to one that is done
            work.cancel(), left.cancel()
            await asyncio.gather(work, left, return_exceptions=True)

    async def next(self) -> Event:
        event = await self.events.get()
        if event.error:
            raise event.error
        self.last[event.row.index] = event
        return event

    def done(self) -> bool:
        return len(self.last) == len(self.rows) and all(event.finish for event in self.last.values())

    async def whole(self, scope: Scope, receive: Receive, send: Send) -> None:
        pieces = [[] for _ in self.rows]
        try:
            while not self.done():
                event = await self.next()
                pieces[event.row.index] += event.pieces
        except Refused as error:
            return await refusal(error)(scope, receive, send)
        choices = [_choice(self.last[row.index], pieces[row.index]) for row in self.rows]
        await as_json({**self.head, "choices": choices, "usage": self.usage()})(scope, receive, send)

    async def streamed(self, scope: Scope, receive: Receive, send: Send) -> None:
        begun = False

        async def say(*chunks: dict | str) -> None:
            nonlocal begun
            if not begun:
                await send({"type": "http.response.start", "status": 200, "headers": EVENTS})
                begun = True
            lines = [chunk if isinstance(chunk, str) else dumped(chunk) for chunk in chunks]
            body = "".join(f"data: {line}\n\n" for line in lines).encode()
            await send({"type": "http.response.body", "body": body, "more_body": True})

        extra = {"usage": None} if self.asked.include_usage else {}
        try:
            while not self.done():
                event = await self.next()
                if event.pieces or event.finish:
                    extra = {"usage": self.usage()} if self.asked.continuous_usage else extra
                    await say({**self.head, "choices": [_choice(event, event.pieces)], **extra})
        except Refused as error:
            if not begun:
                return await refusal(error)(scope, receive, send)
            await say(error.body())
        else:
            last = [{**self.head, "choices": [], "usage": self.usage()}] if self.asked.include_usage else []
            await say(*last, "[DONE]")
        await send({"type": "http.response.body", "body": b""})

    def usage(self) -> dict:
        """The counts so far; alpha = accepted / (accepted + rejected), from any client, where it is defined."""
        read, events = sum(map(len, self.asked.prompts)), self.last.values()
        written = sum(event.tokens for event in events)
        details = {"accepted_prediction_tokens": sum(event.accepted for event in events)}
        rejected = [event.rejected for event in events]
        details["rejected_prediction_tokens"] = None if None in rejected else sum(rejected)
        counts = {"prompt_tokens": read, "completion_tokens": written, "total_tokens": read + written}
        return {**counts, "completion_tokens_details": details}


EVENTS = [
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"cache-control", b"no-cache"),
    (b"x-accel-buffering", b"no"),  # else nginx keeps the events until the text is done
]


def _choice(event: Event, pieces: list[tuple[str, str]]) -> dict:
    """One text, or what came of it: its characters, and in `spec` each piece with its origin."""
    text = "".join(piece for piece, _ in pieces)
    rest = {"logprobs": None, "finish_reason": event.finish, "spec": pieces}
    return {"text": text, "index": event.row.index, **rest}


async def _left(receive: Receive) -> None:
    """Returns when the client has left; its body has been read before."""
    while (await receive())["type"] != "http.disconnect":
        pass
