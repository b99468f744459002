"""The routes: OpenAI's completions and models, metrics, health, and a page.  Every error is OpenAI's error object."""

from __future__ import annotations

import asyncio
import contextlib
import html
import ipaddress
import re
import socket
import time
from pathlib import Path

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from ..plots import CSS, MEANING, SHAPE
from . import metrics
from .asked import Limits, asked
from .refusals import Refused
from .replies import Completion, as_json, refusal
from .worker import Row, Worker

BODY_SECONDS = 30
LOOPBACK = {"localhost", "127.0.0.1", "::1"}
ANY = {"0.0.0.0", "::"}  # where one listens on every address of the machine
HERE = Path(__file__).parent
TYPES = {".html": "text/html", ".js": "text/javascript", ".css": "text/css"}
# The page is its own three files and nothing else, whatever a model writes into it.
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src data:; connect-src 'self'; frame-ancestors 'none'"
)
NO_CHAT = "these models continue a text and have no chat template: use /v1/completions with a prompt"


def make_app(worker: Worker, limits: Limits, host: str = "127.0.0.1") -> Starlette:
    """The application around a `Worker`, whose thread begins and ends with it.  host: the address it listens on."""
    most = 48 * (limits.context or 2**14)  # bytes of a body: many for each token that the model can read
    born = int(time.time())
    model = {"id": limits.name, "object": "model", "created": born, "owned_by": "spec_lib"}

    async def completions(request: Request) -> Response:
        if request.headers.get("content-type", "").partition(";")[0].strip().lower() != "application/json":
            # A browser lets any page send other types here without asking.
            raise Refused(415, "the body must be JSON, with the header content-type: application/json")
        if request.headers.get("content-encoding", "identity").strip().lower() != "identity":
            why = "the body must not be compressed: send it without content-encoding"
            raise Refused(415, why, accept_encoding="identity")
        wanted = asked(await _body(request, most), worker.pair, limits)
        events, rows = asyncio.Queue(), []
        for index in range(len(wanted.prompts) * wanted.n):
            ids, seed = wanted.prompts[index // wanted.n], wanted.seed + index
            rows.append(Row(ids, wanted.max_tokens, wanted.sampling, seed, wanted.stop, index, events))
        worker.submit(rows)
        return Completion(wanted, rows, events, limits.name)

    async def chat(request: Request) -> Response:
        raise Refused(404, NO_CHAT)

    async def models(request: Request) -> Response:
        name = request.path_params.get("name", limits.name)
        if name != limits.name:
            raise Refused(404, f"that model is not here: ask for {limits.name}", "model", "model_not_found")
        return as_json(model if "name" in request.path_params else {"object": "list", "data": [model]})

    async def numbers(request: Request) -> Response:
        return Response(worker.metrics.text(worker.running(), worker.waiting()), media_type=metrics.TYPE)

    async def health(request: Request) -> Response:
        if not worker.is_alive():
            raise Refused(503, "the engine has ended: the server has to be started anew", code="engine_failed")
        return as_json({"status": "ok"})

    async def page(request: Request) -> Response:
        name = request.url.path.strip("/") or "page.html"
        text = palette() if name == "origins.css" else (HERE / name).read_text("utf-8")
        text = text.replace("<!-- legend -->", legend()) if name == "page.html" else text
        headers = {"content-security-policy": POLICY, "x-content-type-options": "nosniff"}
        return Response(text, headers=headers, media_type=TYPES[Path(name).suffix])

    @contextlib.asynccontextmanager
    async def lifespan(app: Starlette):
        worker.begin()
        try:
            yield
        finally:  # also where uvicorn fails, and cancels this
            worker.stop()

    files = ("/", "/page.js", "/page.css", "/origins.css")
    routes = [
        Route("/v1/completions", completions, methods=["POST"]),
        Route("/v1/chat/completions", chat, methods=["GET", "POST"]),
        Route("/v1/models", models),
        Route("/v1/models/{name:path}", models),
        Route("/metrics", numbers),
        Route("/health", health),
        *(Route(file, page) for file in files),
    ]
    handlers = {Refused: _refused, HTTPException: _http, ClientDisconnect: _gone, 500: _broken}
    names = [Middleware(TrustedHost, host=host)]
    app = Starlette(routes=routes, middleware=names, exception_handlers=handlers, lifespan=lifespan)
    app.router.redirect_slashes = False
    return app


class TrustedHost:
    """Refuses other names for this machine: a page on the network could have its own name lead here (DNS rebinding).

    Where every address is listened on, all addresses and the machine's own name are taken too: those that others
    choose are the danger.
    """

    def __init__(self, app: ASGIApp, host: str):
        self.app, self.addresses = app, host in ANY
        self.names = LOOPBACK | {(socket.gethostname() if self.addresses else host).lower()}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            given = next((value for name, value in scope["headers"] if name == b"host"), b"").decode("latin-1")
            if not self.trusted(given):
                error = Refused(400, "the Host header does not name this server: use its address")
                return await refusal(error)(scope, receive, send)
        await self.app(scope, receive, send)

    def trusted(self, given: str) -> bool:
        found = re.fullmatch(r"(?:\[([0-9a-f:.]+)\]|([^][:@/?#\s]+))(?::\d*)?", given.lower())
        name = found and (found[1] or found[2])
        if name and self.addresses:
            with contextlib.suppress(ValueError):
                return bool(ipaddress.ip_address(name))
        return name in self.names


def palette() -> str:
    """The course's colours and shapes of each origin, as a style sheet."""
    return "\n".join(f".{name} {{{look}}}" for name, look in CSS.items())


def legend() -> str:
    """What they mean, as items of a list."""
    names = ((name, html.escape(MEANING[name])) for name in MEANING)
    return "\n".join(f'<li><span class="{n}" title="{m}">{n}</span> ({SHAPE[n]}): {m}</li>' for n, m in names)


async def _body(request: Request, most: int) -> bytes:
    """The body; Refused where it is too long, announced or not, or does not come."""
    announced = request.headers.get("content-length", "0")
    parts, size = [], int(announced) if announced.isdecimal() else 0
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(BODY_SECONDS):
            if size <= most:
                size = 0
                async for part in request.stream():
                    parts.append(part)
                    size += len(part)
                    if size > most:
                        break
            if size > most:
                raise Refused(413, f"the body is longer than {most} bytes", connection="close")
            return b"".join(parts)
    raise Refused(408, f"the body did not come within {BODY_SECONDS} seconds", connection="close")


async def _refused(request: Request, error: Refused) -> Response:
    return refusal(error)


async def _http(request: Request, error: HTTPException) -> Response:
    """404 and 405."""
    words = {404: "there is nothing at this path", 405: f"this path does not know {request.method}"}
    return refusal(Refused(error.status_code, words.get(error.status_code, error.detail), **(error.headers or {})))


async def _gone(request: Request, error: ClientDisconnect) -> Response:
    return Response()  # nobody is there to read it


async def _broken(request: Request, error: Exception) -> Response:
    return refusal(Refused(500, "the server failed; its own log says why"))
