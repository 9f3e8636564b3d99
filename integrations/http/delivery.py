"""Getting answers to the client: whole, or as server-sent events. Who leaves frees the place."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Coroutine
from contextlib import suppress
from typing import Any, TypeVar

from fastapi import Request
from sse_starlette import EventSourceResponse, ServerSentEvent
from sse_starlette.sse import AppStatus
from starlette.responses import Response

from specedit.integrations.http.errors import ApiError, compact, json_response
from specedit.integrations.http.runner import Answers

T = TypeVar("T")

# For the OpenAPI document.
STREAMED: dict[int | str, dict[str, Any]] = {
    200: {"content": {"text/event-stream": {}}, "description": "With stream: true, events"}
}

# When the server stops, the runner says when each stream ends: not the library, at once.
AppStatus.disable_automatic_graceful_drain()


async def whole(request: Request, answers: Answers, body: Coroutine[Any, Any, dict]) -> Response:
    """What `body` makes of the answers, when they are there."""
    task = asyncio.ensure_future(body)
    try:
        if not await _unless_gone(request, task):
            return Response(status_code=499)
        return json_response(task.result())
    finally:
        task.cancel()
        answers.cancel()


async def streamed(
    request: Request, answers: Answers, events: AsyncIterator[ServerSentEvent], ping: float
) -> Response:
    """The events as they come.

    The status is sent with the first event, so that what goes wrong before has an honest one; or after `ping`
    seconds, with the first of the comments that keep the connection alive.
    """
    head: asyncio.Task[ServerSentEvent] = asyncio.ensure_future(anext(events))
    try:
        gone = not await _unless_gone(request, head, ping)
        if head.done():
            head.result()
    except BaseException:
        gone = True
        raise
    finally:
        if gone:
            head.cancel()
            answers.cancel()
    if gone:
        return Response(status_code=499)
    return EventSourceResponse(
        _all(answers, head, events),
        sep="\n",
        ping=ping,
        ping_message_factory=lambda: ServerSentEvent(comment="still working", sep="\n"),
    )


def event(data: Any, name: str | None = None) -> ServerSentEvent:
    """An event with JSON, or with a word as it is."""
    return ServerSentEvent(data if isinstance(data, str) else compact(data), event=name, sep="\n")


async def _all(
    answers: Answers, head: asyncio.Task[ServerSentEvent], events: AsyncIterator[ServerSentEvent]
) -> AsyncIterator[ServerSentEvent]:
    try:
        yield await head
        async for later in events:
            yield later
    except ApiError as error:  # too late for a status
        yield event(error.body())
    finally:
        head.cancel()
        answers.cancel()


async def _unless_gone(request: Request, task: asyncio.Future[T], timeout: float | None = None) -> bool:
    """Wait for the task, so long at most; False if the client has left first."""
    leaving = asyncio.ensure_future(_left(request))
    both: set[asyncio.Future[Any]] = {task, leaving}
    try:
        await asyncio.wait(both, timeout=timeout, return_when=asyncio.FIRST_COMPLETED)
        return task.done() or not leaving.done()
    finally:
        leaving.cancel()
        with suppress(asyncio.CancelledError):
            await leaving


async def _left(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass
