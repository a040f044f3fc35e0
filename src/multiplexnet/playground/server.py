"""The server: a page, its files, and the questions that it asks, on this machine alone.

It listens on 127.0.0.1. A request must name that address as its host, or a page elsewhere could reach it under a name
of its own (DNS rebinding), and come from the playground's own page or from no page at all.
"""

from __future__ import annotations

import asyncio
import json
import socket
import sys
import threading
import webbrowser
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import uvicorn
from starlette.applications import Starlette
from starlette.requests import ClientDisconnect, Request
from starlette.responses import FileResponse, JSONResponse, PlainTextResponse, Response
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from multiplexnet.errors import QuestionError
from multiplexnet.playground.pool import USUAL, Limits, Worker
from multiplexnet.playground.questions import ANSWERS

__all__ = ["application", "serve"]

ADDRESS = "127.0.0.1"
STATIC = Path(__file__).parent / "static"
LARGEST_BODY = 400_000
BODY_SECONDS = 10
HEADERS = {
    "content-security-policy": "default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline'; "
    "connect-src 'self'; img-src 'self' data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "cache-control": "no-cache",
}
KIND_OF = {
    question: kind for kind, questions in ANSWERS.items() for question in questions
}


class _OnlyFromHere:
    """Refuses what does not come from this machine's own page, before anything else looks at it.

    Args:
        app: what answers the rest.
        port: where the server listens.
    """

    def __init__(self, app: ASGIApp, port: int) -> None:
        self._app = app
        self._hosts = {f"{name}:{port}" for name in (ADDRESS, "localhost")}
        self._origins = {f"http://{host}" for host in self._hosts}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
            return
        problem = self._problem(scope)
        if problem is None:
            await self._app(scope, receive, _with_headers(send))
        elif scope["type"] == "http":
            await PlainTextResponse(problem, status_code=403)(
                scope, receive, _with_headers(send)
            )
        else:
            await send({"type": "websocket.close", "code": 1008})

    def _problem(self, scope: Scope) -> str | None:
        """Why the request is refused."""
        given = [
            (name.decode("latin-1"), value.decode("latin-1").lower())
            for name, value in scope["headers"]
        ]
        hosts = [value for name, value in given if name == "host"]
        if scope["type"] != "http":
            return "the playground speaks HTTP alone\n"
        if len(hosts) != 1 or hosts[0] not in self._hosts:
            return f"this is the playground of another address: open http://{min(self._hosts)}/\n"
        if any(value not in self._origins for name, value in given if name == "origin"):
            return "only the playground's own page may ask\n"
        sites = [value for name, value in given if name == "sec-fetch-site"]
        if scope["method"] not in ("GET", "HEAD") and any(
            site != "same-origin" for site in sites
        ):
            return "only the playground's own page may ask\n"
        return None


def _with_headers(send: Send) -> Send:
    async def sent(message: Message) -> None:
        if message["type"] == "http.response.start":
            added = [(name.encode(), value.encode()) for name, value in HEADERS.items()]
            message = {**message, "headers": [*message.get("headers", ()), *added]}
        await send(message)

    return sent


def application(port: int, limits: Limits = USUAL) -> ASGIApp:
    """The playground as an ASGI application.

    Args:
        port: where it will listen; requests must name it.
        limits: what one question may cost.
    """
    workers = {kind: Worker(kind, limits) for kind in ANSWERS}

    @asynccontextmanager
    async def running(app: Starlette) -> AsyncIterator[None]:
        for worker in workers.values():
            worker.start()
        try:
            yield
        finally:
            for worker in workers.values():
                await worker.stop()

    async def ask(request: Request) -> Response:
        question = request.path_params["question"]
        if question not in KIND_OF:
            return _refused(
                404,
                f"there is no question {question[:40]!r}; there are {', '.join(KIND_OF)}",
            )
        if (
            request.headers.get("content-type", "").partition(";")[0].strip()
            != "application/json"
        ):
            return _refused(415, "a question is sent as application/json")
        try:
            fields = _fields(await asyncio.wait_for(_body(request), BODY_SECONDS))
        except QuestionError as error:
            return _refused(400, str(error))
        except TimeoutError:
            return _refused(
                408, f"the question did not arrive within {BODY_SECONDS} seconds"
            )
        except ClientDisconnect:
            return Response(status_code=499)
        answer = await _while_connected(
            request, workers[KIND_OF[question]].ask(question, fields)
        )
        return Response(status_code=499) if answer is None else JSONResponse(answer)

    async def page(request: Request) -> Response:
        return FileResponse(STATIC / "index.html")

    routes = [
        Route("/", page),
        Route("/ask/{question}", ask, methods=["POST"]),
        Mount("/static", StaticFiles(directory=STATIC)),
    ]
    return _OnlyFromHere(Starlette(routes=routes, lifespan=running), port)


def _refused(status: int, message: str) -> Response:
    return JSONResponse(
        {"error": {"kind": "refused", "message": message}}, status_code=status
    )


async def _body(request: Request) -> bytes:
    body = b""
    async for chunk in request.stream():
        body += chunk
        if len(body) > LARGEST_BODY:
            raise QuestionError(f"a question has at most {LARGEST_BODY:,} bytes")
    return body


def _fields(body: bytes) -> Any:
    try:
        return json.loads(body)
    except (ValueError, RecursionError):
        raise QuestionError("a question is one JSON document") from None


async def _while_connected(
    request: Request, work: Awaitable[dict[str, Any]]
) -> dict[str, Any] | None:
    """The answer, or ``None`` once the page has gone; then the work is ended as well."""
    answer = asyncio.ensure_future(work)
    gone = asyncio.ensure_future(_gone(request))
    try:
        await asyncio.wait({answer, gone}, return_when=asyncio.FIRST_COMPLETED)
        return answer.result() if answer.done() else None
    finally:
        for task in (answer, gone):
            task.cancel()


async def _gone(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass


def serve(
    port: int,
    *,
    limits: Limits = USUAL,
    browser: bool = True,
    told: Callable[[str], None] = print,
) -> None:
    """Serve the playground until it is interrupted.

    Args:
        port: where to listen on 127.0.0.1; 0 takes any that is free.
        limits: what one question may cost.
        browser: whether to open the page.
        told: is given the address of the page once it can be opened.

    Raises:
        QuestionError: the port is taken.
    """
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    if sys.platform != "win32":
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    with listener:
        try:
            listener.bind((ADDRESS, port))
        except OSError as error:
            raise QuestionError(
                f"port {port} cannot be used ({error.strerror or error}): choose one with --port (0: any that is free)"
            ) from None
        listener.listen(64)
        port = listener.getsockname()[1]
        address = f"http://{ADDRESS}:{port}/"
        told(address)
        if browser:
            threading.Timer(0.5, webbrowser.open, [address]).start()
        settings = uvicorn.Config(
            application(port, limits), log_level="warning", access_log=False, ws="none", server_header=False,
            limit_concurrency=64, timeout_keep_alive=10, timeout_graceful_shutdown=2,
        )  # fmt: skip
        uvicorn.Server(settings).run(sockets=[listener])
