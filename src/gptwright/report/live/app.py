"""The live page's server: what it answers to which address.

    /                   the page
    /assets/NAME        its scripts and styles
    /events[?run=ID]    server-sent events: the list of runs, and one run with its curves, when they change
    POST /diagnose      a pasted log and config → the diagnosis, as `diagnose --json` prints it

An event is sent at most three times a second and only when something changed; a comment every 15 seconds
keeps a quiet connection open and finds out that a page is gone.
"""

import asyncio
import json
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from importlib import resources

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from gptwright.report.assets import CHART_SCRIPTS, STYLE, asset
from gptwright.report.live.board import TICK_SECONDS, Board
from gptwright.report.live.guard import App, Door, Guard
from gptwright.report.live.pasted import diagnose_pasted
from gptwright.report.live.stream import Stream

SCRIPT, STYLE_SHEET = "text/javascript; charset=utf-8", "text/css; charset=utf-8"
# The charts and their style are the report's.
SHARED_ASSETS = {**dict.fromkeys(CHART_SCRIPTS, SCRIPT), STYLE: STYLE_SHEET}
ASSETS = {"watch.css": STYLE_SHEET, "watch.js": SCRIPT, "pasted.js": SCRIPT}
# A browser opens one connection a page; more than this is not a person.
MOST_PAGES = 32
QUIET_SECONDS = 15.0


def live_app(board: Board, door: Door) -> App:
    """The whole application, behind its door."""

    @asynccontextmanager
    async def at_work(_: Starlette) -> AsyncIterator[None]:
        async with board.at_work():
            yield

    pages = Pages(board, door)
    routes = [
        Route("/", pages.page),
        Route("/assets/{name}", pages.asset),
        Route("/events", pages.events),
        Route("/diagnose", pages.diagnose, methods=["POST"]),
    ]
    return Guard(Starlette(routes=routes, lifespan=at_work), door)


class Pages:
    """The answers."""

    def __init__(self, board: Board, door: Door) -> None:
        self.board = board
        self.door = door
        self.open = 0

    async def page(self, _: Request) -> Response:
        """The page; the token in it is what lets it send a log."""
        html = _asset("index.html").replace("{{token}}", self.door.token)
        return Response(html, media_type="text/html; charset=utf-8")

    async def asset(self, request: Request) -> Response:
        """One of the page's own files."""
        name = request.path_params["name"]
        if name in SHARED_ASSETS:
            return Response(asset(name), media_type=SHARED_ASSETS[name])
        if name in ASSETS:
            return Response(_asset(name), media_type=ASSETS[name])
        return Response("there is no such file", status_code=404, media_type="text/plain")

    async def diagnose(self, request: Request) -> Response:
        """The diagnosis of a pasted log."""
        try:
            document = json.loads(await request.body())
        except (ValueError, RecursionError):
            return Response("the request is no JSON", status_code=400, media_type="text/plain")
        return JSONResponse(await diagnose_pasted(self.board.diagnoser, document))

    async def events(self, request: Request) -> Response:
        """The stream of changes."""
        if self.open >= MOST_PAGES:
            return Response("too many pages are open", status_code=503, media_type="text/plain")
        return StreamingResponse(
            self._events(request.query_params.get("run")), media_type="text/event-stream"
        )

    async def _events(self, viewed: str | None) -> AsyncIterator[str]:
        self.open += 1
        try:
            async with self.board.page(viewed):
                stream = Stream(self.board, viewed)
                quiet_since = time.monotonic()
                while not self.board.closing:
                    news = stream.news()
                    for event in news:
                        yield event
                    now = time.monotonic()
                    if news:
                        quiet_since = now
                    elif now - quiet_since > QUIET_SECONDS:
                        quiet_since = now
                        yield ": still here\n\n"
                    await asyncio.sleep(TICK_SECONDS)
        finally:
            self.open -= 1


def _asset(name: str) -> str:
    return (resources.files("gptwright.report.live") / "assets" / name).read_text("utf-8")
