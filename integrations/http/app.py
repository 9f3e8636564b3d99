"""The app: routes, errors, checks and the log around them."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from fastapi import FastAPI
from prometheus_client import CONTENT_TYPE_LATEST
from starlette.responses import Response
from starlette.types import ASGIApp

from specedit import __version__
from specedit.integrations.http import edits, errors, openai
from specedit.integrations.http.fields import Service
from specedit.integrations.http.guard import guarded
from specedit.integrations.http.log import RequestLog
from specedit.integrations.http.runner import Runner

_PAGE = Path(__file__).with_name("page.html")
# The page has all it needs in itself, and nobody may put it into a frame.
_SEALED = {
    "Content-Security-Policy": "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; "
    "connect-src 'self'; form-action 'none'; base-uri 'none'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Cache-Control": "no-cache",
}


def create_app(runner: Runner) -> ASGIApp:
    """The server's app, for uvicorn or any other ASGI server. Ends the runner's answers when it stops."""

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        yield
        await runner.close()

    app = FastAPI(
        title="specedit",
        version=__version__,
        description="Rewrites code and answers chats by exact speculative decoding.",
        lifespan=lifespan,
        docs_url=None,  # its page needs assets from elsewhere
        redoc_url=None,
        redirect_slashes=False,
    )
    app.state.runner = runner
    page = _PAGE.read_bytes()
    errors.install(app)
    app.include_router(openai.router)
    app.include_router(edits.router)

    @app.get("/", include_in_schema=False)
    async def root() -> Response:
        """A page to try the server with."""
        return Response(page, media_type="text/html", headers=_SEALED)

    @app.head("/health", include_in_schema=False)
    @app.get("/health", responses=errors.DOCUMENTED)
    async def health(runner: Service) -> dict[str, Any]:
        """Whether the server takes requests, and how busy it is."""
        if runner.closing:
            raise errors.ApiError(503, "The server is stopping: try again when it is back.", code="stopping")
        return {
            "status": "ok",
            "version": __version__,
            "model": runner.name,
            "running": runner.running,
            "waiting": runner.waiting,
        }

    @app.get("/metrics", response_class=Response, responses={200: {"content": {"text/plain": {}}}})
    async def metrics(runner: Service) -> Response:
        """Counts and times for Prometheus."""
        return Response(runner.metrics.render(), media_type=CONTENT_TYPE_LATEST)

    return RequestLog(guarded(app, runner.settings), runner.metrics.count_request)
