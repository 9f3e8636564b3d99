"""Structured logs: one JSON object a line, and nothing of what people wrote."""

from __future__ import annotations

import json
import logging
import secrets
import sys
import traceback
from collections.abc import Callable
from time import perf_counter
from typing import Any

from starlette.datastructures import MutableHeaders
from starlette.requests import Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send

_log = logging.getLogger("specedit.http")


class JsonFormatter(logging.Formatter):
    """Of an exception it keeps the kind and the lines of code, as its message may quote the request. What
    torch says is kept: it tells of memory and kernels.
    """

    def format(self, record: logging.LogRecord) -> str:
        entry: dict[str, Any] = {
            "time": self.formatTime(record, "%Y-%m-%dT%H:%M:%S%z"),
            "level": record.levelname.lower(),
            "event": record.getMessage(),
            **getattr(record, "fields", {}),
        }
        if record.exc_info and record.exc_info[1]:
            error = record.exc_info[1]
            entry["error"] = type(error).__name__
            if isinstance(error, RuntimeError):
                entry["said"] = str(error)[:500]
            entry["at"] = [
                f"{frame.filename}:{frame.lineno} {frame.name}"
                for frame in traceback.extract_tb(error.__traceback__)[-12:]
            ]
        return json.dumps(entry)


def to_stderr() -> None:
    """Send our log lines and uvicorn's to standard error."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonFormatter())
    for name in ("specedit.http", "uvicorn"):
        logger = logging.getLogger(name)
        logger.handlers, logger.propagate = [handler], False
        logger.setLevel(logging.INFO)


def id_of(request: Request) -> str:
    """What its log line and its answer call it."""
    return str(request.scope["state"]["log"]["id"])


def note(request: Request, **fields: Any) -> None:
    """Say this in the request's log line. No texts of the client's."""
    request.scope["state"]["log"].update(fields)


class RequestLog:
    """One line a request, and an id by which the client can ask about it. Pure ASGI.

    Args:
        count: told the path and status of every request; paths that there are not are "other".
    """

    def __init__(self, app: ASGIApp, count: Callable[[str, int], None]) -> None:
        self._app = app
        self._count = count

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        began, status = perf_counter(), 499  # as nginx says that the client has left
        fields: dict[str, Any] = {"id": secrets.token_hex(8), "method": scope["method"]}
        scope.setdefault("state", {})["log"] = fields

        async def noted(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                MutableHeaders(scope=message)["X-Request-Id"] = fields["id"]
            await send(message)

        try:
            await self._app(scope, receive, noted)
        finally:
            path = getattr(scope.get("route"), "path", "other")
            self._count(path, status)
            fields |= {"path": path, "status": status, "seconds": round(perf_counter() - began, 4)}
            _log.info("request", extra={"fields": fields})
