"""The edit API: rewrite a text as an instruction says, or merge an abbreviated edit into it."""

from __future__ import annotations

import secrets
import time
from collections.abc import AsyncIterator, Callable
from dataclasses import asdict
from functools import partial
from typing import Any, Literal

from fastapi import APIRouter, Request
from pydantic import Field
from sse_starlette import ServerSentEvent
from starlette.responses import Response
from typing_extensions import TypedDict

from specedit.integrations.http.delivery import STREAMED, event, streamed, whole
from specedit.integrations.http.errors import DOCUMENTED
from specedit.integrations.http.fields import (
    Drawing,
    JsonRoute,
    NonEmpty,
    Service,
    Tuning,
    Wire,
    check_model,
    client_of,
    vocabulary_of,
)
from specedit.integrations.http.log import id_of, note
from specedit.integrations.http.runner import Runner
from specedit.integrations.http.steps import Step
from specedit.results import EditResult

router = APIRouter(route_class=JsonRoute, responses=DOCUMENTED)

_MERGE = (
    "Merge the edit below into this file and leave out nothing. In the edit, comments such as "
    "`... existing code ...` stand for code of the file that stays exactly as it is: write that code, not "
    "the comment."
)


class RewriteRequest(Drawing, Tuning):
    text: str = Field(description="The file, whole.")
    instruction: NonEmpty
    name: str = Field("", max_length=4096, description="Of the file; its ending tells the language.")
    path: str = Field("", max_length=4096, description="The same for those who have a path. It is not read.")
    references: dict[str, str] = Field(
        default_factory=dict, max_length=64, description="Other texts to show the model, by name."
    )


class ApplyRequest(Wire):
    """As Relace's API has it."""

    initial_code: str
    edit_snippet: NonEmpty = Field(description="New code; comments stand for what stays as it is.")
    instruction: str | None = Field(None, description="What the edit is meant to do.")
    stream: bool | None = None
    model: str | None = None
    path: str = Field("", max_length=4096, description="Of the file; its ending tells the language.")
    relace_metadata: Any = Field(None, description="Ignored.")


class ProblemOut(TypedDict):
    """Why the answer should not be taken. Line 0 is the whole text."""

    line: int
    message: str


class Rewrite(TypedDict):
    id: str
    object: Literal["rewrite"]
    created: int
    model: str
    text: str
    diff: str
    finish_reason: Literal["stop", "length"]
    problems: list[ProblemOut]
    usable: bool
    stats: dict[str, Any]


class ApplyUsage(TypedDict):
    prompt_tokens: int
    completion_tokens: int
    total_tokens: int


class Applied(TypedDict):
    """Relace's answer, and ours beside it. With problems, do not take the code."""

    mergedCode: str
    usage: ApplyUsage
    diff: str
    finish_reason: Literal["stop", "length"]
    problems: list[ProblemOut]
    usable: bool
    stats: dict[str, Any]


@router.post("/v1/rewrite", response_model=Rewrite, responses=STREAMED)
async def rewrite(body: RewriteRequest, request: Request, runner: Service) -> Response:
    """The text as the instruction wants it. Nothing is read from disk or written to it.

    With `stream`, events: `piece` as the text grows, with its tokens, who guessed each, and the guesses that
    were wrong; `hunk` for each part of the diff; and `result`.
    """
    check_model(runner, body.model)
    (sampling,) = body.sampling(body, vocabulary_of(runner))
    begin = partial(
        runner.editor.stream_rewrite,
        body.text,
        body.instruction,
        name=body.name or body.path,
        references=body.references,
        client=client_of(request),
        sampling=sampling,
        stop=body.stops,
        max_new_tokens=body.max_tokens,
        speculate=body.speculate,
    )
    about = {
        "id": f"rewrite-{secrets.token_hex(12)}",
        "object": "rewrite",
        "created": int(time.time()),
        "model": runner.name,
    }
    return await _deliver(request, runner, begin, body.stream, lambda result: about | _said(result))


@router.post("/v1/code/apply", response_model=Applied, responses=STREAMED)
async def apply(body: ApplyRequest, request: Request, runner: Service) -> Response:
    """Merge an edit that abbreviates what it leaves alone. With `stream`, the events of `/v1/rewrite`."""
    check_model(runner, body.model)
    asked = [_MERGE, body.instruction or "", f"<edit>\n{body.edit_snippet}\n</edit>"]
    begin = partial(
        runner.editor.stream_rewrite,
        body.initial_code,
        "\n\n".join(part for part in asked if part),
        said=body.instruction or "",
        name=body.path,
        client=client_of(request),
    )

    def said(result: EditResult) -> dict[str, Any]:
        stats = result.stats
        usage = {
            "prompt_tokens": stats.prompt_tokens,
            "completion_tokens": stats.tokens,
            "total_tokens": stats.prompt_tokens + stats.tokens,
        }
        ours = _said(result)
        return {"mergedCode": ours.pop("text"), "usage": usage, **ours}

    return await _deliver(request, runner, begin, body.stream, said)


def _said(result: EditResult) -> dict[str, Any]:
    return {
        "text": result.text,
        "diff": result.diff,
        "finish_reason": result.finish_reason,
        "problems": [asdict(problem) for problem in result.problems],
        "usable": result.usable,
        "stats": result.stats.as_dict(),
    }


async def _deliver(
    request: Request,
    runner: Runner,
    begin: Callable[[], Any],
    stream: bool | None,
    said: Callable[[EditResult], dict[str, Any]],
) -> Response:
    answers = runner.start([begin], traced=bool(stream), request=id_of(request))

    async def assembled() -> dict[str, Any]:
        (result,) = [what async for _, what in answers if isinstance(what, EditResult)]
        return _noted(request, result, said)

    async def events() -> AsyncIterator[ServerSentEvent]:
        async for _, what in answers:
            if isinstance(what, Step):
                yield event(_piece(what), "piece")
            elif isinstance(what, EditResult):
                for hunk in _hunks(what.diff):
                    yield event({"text": hunk}, "hunk")
                yield event(_noted(request, what, said), "result")

    if stream:
        return await streamed(request, answers, events(), runner.settings.ping)
    return await whole(request, answers, assembled())


def _noted(
    request: Request, result: EditResult, said: Callable[[EditResult], dict[str, Any]]
) -> dict[str, Any]:
    stats = result.stats
    note(
        request,
        prompt_tokens=stats.prompt_tokens,
        cached_tokens=stats.cached_tokens,
        completion_tokens=stats.tokens,
        accepted_tokens=stats.accepted_tokens,
    )
    return said(result)


def _piece(step: Step) -> dict[str, Any]:
    return {
        "text": step.text,
        "tokens": [{"text": token.text, "source": token.source} for token in step.tokens if token.text],
        "rejected": [asdict(rejected) for rejected in step.rejected],
    }


def _hunks(diff: str) -> list[str]:
    """The parts of a diff, each with its @@ line."""
    hunks: list[str] = []
    for line in diff.splitlines(keepends=True):
        if line.startswith("@@ "):
            hunks.append("")
        if hunks:
            hunks[-1] += line
    return hunks
