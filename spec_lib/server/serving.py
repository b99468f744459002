"""uvicorn, with the bounds that it leaves to a proxy in front of it, and with last words.

Without bounds on connections half a header, or an answer that nobody reads, stays open for ever.  At SIGTERM uvicorn
waits a while for answers and then breaks off without a word, which a client takes for the end of the text.
"""

from __future__ import annotations

import asyncio
import logging

import uvicorn
from starlette.types import Receive, Scope, Send
from uvicorn.protocols.http.h11_impl import H11Protocol

from .app import make_app
from .asked import Limits
from .refusals import busy
from .replies import refusal
from .worker import Worker

MOST = 256  # connections that are served; as many more are told that there are too many, others are closed unheard
HEADER_SECONDS, UNREAD_SECONDS = 30, 60
LAST_WORDS, GRACE = 4, 5  # seconds after SIGTERM until texts that are not done end with an error, and until the end


class Bounded(H11Protocol):
    """A connection that is closed where a request does not come, or its answer is not read, in time."""

    header_timer: asyncio.TimerHandle | None = None
    unread_timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:
        super().connection_made(transport)
        if len(self.connections) > 2 * MOST:
            transport.abort()
        elif len(self.connections) > MOST:
            self.app = _too_many
        self._wait_for_header()

    def on_response_complete(self) -> None:
        self._wait_for_header()  # of the next request, which may be here already
        super().on_response_complete()

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        for timer in (self.header_timer, self.unread_timer):
            if timer is not None:
                timer.cancel()

    def pause_writing(self) -> None:
        super().pause_writing()
        self.unread_timer = self.loop.call_later(UNREAD_SECONDS, self.transport.abort)

    def resume_writing(self) -> None:
        super().resume_writing()
        if self.unread_timer is not None:
            self.unread_timer.cancel()

    def _wait_for_header(self) -> None:
        if self.header_timer is not None:
            self.header_timer.cancel()
        self.header_timer = self.loop.call_later(HEADER_SECONDS, self._no_header, self.cycle)

    def _no_header(self, before) -> None:
        if self.cycle is before:  # no request has come since
            self.transport.abort()


async def _too_many(scope: Scope, receive: Receive, send: Send) -> None:
    error = busy(f"{MOST} connections are open and no more are served: ask again in a moment", 503)
    error.headers["connection"] = "close"
    await refusal(error)(scope, receive, send)


class Server(uvicorn.Server):
    """A server of one `Worker`.  ready: called once, when it listens."""

    def __init__(self, worker: Worker, limits: Limits, host: str = "127.0.0.1", ready=lambda: None):
        self.worker, self.ready = worker, ready
        options = {"log_level": "warning", "access_log": False, "server_header": False, "proxy_headers": False}
        options |= {"http": Bounded, "ws": "none", "lifespan": "on", "timeout_graceful_shutdown": GRACE}
        super().__init__(uvicorn.Config(make_app(worker, limits, host), host=host, **options))

    async def startup(self, sockets=None) -> None:
        await super().startup(sockets)
        if self.started:
            try:
                self.ready()
            except BaseException:  # nobody reads what it prints, say: the application ends as after SIGTERM
                await self.shutdown(sockets)
                raise

    async def shutdown(self, sockets=None) -> None:
        error = busy("the server is being stopped", 503)
        asyncio.get_running_loop().call_later(LAST_WORDS, self.worker.end_all, error)
        await super().shutdown(sockets)
        if self.force_exit:  # Ctrl-C again: uvicorn then leaves out the application's end, and with it the thread's
            logging.getLogger("uvicorn.error").setLevel(
                logging.CRITICAL
            )  # each answer that is broken off would be told
            self.worker.stop()
