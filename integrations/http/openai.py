"""The OpenAI API: chat completions, completions and models."""

from __future__ import annotations

import secrets
import time
from collections.abc import AsyncIterator, Iterator, Sequence
from functools import partial
from itertools import chain
from typing import Any

from fastapi import APIRouter, Request
from sse_starlette import ServerSentEvent
from starlette.responses import Response
from transformers.convert_slow_tokenizer import bytes_to_unicode

from specedit import __version__
from specedit.decoding.encode import decode_text, encode_raw
from specedit.decoding.statistics import Statistics
from specedit.integrations.http.delivery import STREAMED, event, streamed, whole
from specedit.integrations.http.errors import DOCUMENTED, ApiError
from specedit.integrations.http.fields import (
    JsonRoute,
    Service,
    check_model,
    client_of,
    vocabulary_of,
)
from specedit.integrations.http.log import id_of, note
from specedit.integrations.http.runner import Begin, Runner
from specedit.integrations.http.schemas import (
    MOST_ANSWERS,
    ChatChoice,
    ChatCompletion,
    ChatRequest,
    Completing,
    Completion,
    CompletionRequest,
    LegacyLogprobs,
    Likely,
    Logprobs,
    MessageOut,
    Model,
    Models,
    TextChoice,
    TokenLogprob,
    Usage,
)
from specedit.integrations.http.steps import Step, Token
from specedit.integrations.http.toolcalls import ToolCall, ToolCalls
from specedit.results import Generation

router = APIRouter(route_class=JsonRoute, responses=DOCUMENTED)

_IMPOSSIBLE = -9999.0  # JSON has no infinity; OpenAI's API writes this
_LEGACY_TOKENS = 16  # what OpenAI's completions give when nobody says how many


# Choices: what both ways of delivery are made from.


class ChatReply:
    """One choice of a chat, as changes ("deltas") that add up to its message."""

    kind = "chat.completion"

    def __init__(self, runner: Runner, body: ChatRequest) -> None:
        names = {tool.function.name for tool in body.tools or []} if body.tool_choice != "none" else set()
        self._calls = ToolCalls(names) if names else None
        self._called = 0
        self._write = partial(_likely, runner.editor.tokenizer)
        self.logprobs = bool(body.logprobs)

    def begin(self) -> dict[str, Any]:
        return {"delta": {"role": "assistant", "content": ""}, "logprobs": None, "finish_reason": None}

    def take(self, step: Step) -> Iterator[dict[str, Any]]:
        deltas = self._deltas(self._calls.push(step.text) if self._calls else iter([step.text]))
        logprobs = self._logprobs_of(step) if self.logprobs else None
        if logprobs and not deltas:
            deltas = [{}]  # part of a call's text: its tokens are not lost
        for delta in deltas:
            yield {"delta": delta, "logprobs": logprobs, "finish_reason": None}
            logprobs = None

    def end(self, generation: Generation) -> Iterator[dict[str, Any]]:
        for delta in self._deltas(self._calls.end() if self._calls else iter([])):
            yield {"delta": delta, "logprobs": None, "finish_reason": None}
        reason = generation.finish_reason
        if self._called and reason == "stop":
            reason = "tool_calls"
        yield {"delta": {}, "logprobs": None, "finish_reason": reason}

    def _deltas(self, parts: Iterator[str | ToolCall]) -> list[dict[str, Any]]:
        deltas: list[dict[str, Any]] = []
        for part in parts:
            if isinstance(part, str):
                deltas.append({"content": part})
                continue
            function = {"name": part.name, "arguments": part.arguments}
            call = {"index": self._called, "id": part.id, "type": "function", "function": function}
            deltas.append({"tool_calls": [call]})
            self._called += 1
        return deltas

    def _logprobs_of(self, step: Step) -> Logprobs | None:
        content = [
            TokenLogprob(
                **self._write(token.id, token.logprob),
                top_logprobs=[self._write(*likely) for likely in token.top],
            )
            for token in step.tokens
            if token.begins
        ]
        return {"content": content, "refusal": None} if content else None

    @staticmethod
    def whole(index: int, changes: list[dict[str, Any]]) -> ChatChoice:
        """What the changes of a chat's choice add up to."""
        deltas = [change["delta"] for change in changes]
        calls = [call for delta in deltas for call in delta.get("tool_calls", [])]
        content = "".join(delta.get("content", "") for delta in deltas)
        message: MessageOut = {"role": "assistant", "content": content, "refusal": None}
        if calls:
            message["tool_calls"] = [
                {"id": call["id"], "type": "function", "function": call["function"]} for call in calls
            ]
            message["content"] = content if content.strip() else None
        seen = [change["logprobs"]["content"] for change in changes if change["logprobs"]]
        return {
            "index": index,
            "message": message,
            "logprobs": {"content": [*chain.from_iterable(seen)], "refusal": None} if seen else None,
            "finish_reason": changes[-1]["finish_reason"],
        }


class TextReply:
    """One choice of a completion, as changes that add up to it."""

    kind = "text_completion"

    def __init__(self, runner: Runner, body: CompletionRequest) -> None:
        self._tokenizer = runner.editor.tokenizer
        self.logprobs = body.logprobs is not None
        self._offset = 0

    def begin(self) -> dict[str, Any] | None:
        return None

    def take(self, step: Step) -> Iterator[dict[str, Any]]:
        logprobs = self._logprobs_of(step.tokens) if self.logprobs else None
        yield {"text": step.text, "logprobs": logprobs, "finish_reason": None}

    def end(self, generation: Generation) -> Iterator[dict[str, Any]]:
        yield {"text": "", "logprobs": None, "finish_reason": generation.finish_reason}

    def _logprobs_of(self, tokens: list[Token]) -> LegacyLogprobs:
        said: LegacyLogprobs = {"tokens": [], "token_logprobs": [], "top_logprobs": [], "text_offset": []}
        for token in tokens:
            if token.begins:
                said["tokens"].append(decode_text(self._tokenizer, [token.id]))
                said["token_logprobs"].append(_finite(token.logprob))
                said["top_logprobs"].append(
                    {decode_text(self._tokenizer, [id]): _finite(logprob) for id, logprob in token.top}
                )
                said["text_offset"].append(self._offset)
            self._offset += len(token.text)
        return said

    @staticmethod
    def whole(index: int, changes: list[dict[str, Any]]) -> TextChoice:
        """What the changes of a completion's choice add up to."""
        seen = [change["logprobs"] for change in changes if change["logprobs"]]
        joined: LegacyLogprobs | None = None
        if seen:
            joined = {
                "tokens": [*chain.from_iterable(part["tokens"] for part in seen)],
                "token_logprobs": [*chain.from_iterable(part["token_logprobs"] for part in seen)],
                "top_logprobs": [*chain.from_iterable(part["top_logprobs"] for part in seen)],
                "text_offset": [*chain.from_iterable(part["text_offset"] for part in seen)],
            }
        return {
            "index": index,
            "text": "".join(change["text"] for change in changes),
            "logprobs": joined,
            "finish_reason": changes[-1]["finish_reason"],
        }


# The endpoints.


@router.post("/v1/chat/completions", response_model=ChatCompletion, responses=STREAMED)
async def chat(body: ChatRequest, request: Request, runner: Service) -> Response:
    """Answer a chat, in one piece or as server-sent events."""
    messages = [message.for_template() for message in body.messages]
    tools = []
    if body.tools and body.tool_choice != "none":
        tools = [tool.model_dump(exclude_unset=True) for tool in body.tools]
    options = _options(body, request) | {
        "max_new_tokens": body.max_completion_tokens or body.max_tokens,
        "logprobs": bool(body.logprobs),
        "top_logprobs": body.top_logprobs or 0,
        "tools": tools,
        "json_schema": body.response_format.followed if body.response_format else None,
    }
    check_model(runner, body.model)
    begins: list[Begin] = [
        partial(runner.editor.stream, messages, sampling=sampling, **options)
        for sampling in body.sampling(body.extras, vocabulary_of(runner), body.n or 1)
    ]
    replies = [ChatReply(runner, body) for _ in begins]
    return await _deliver(body, request, runner, begins, replies)


@router.post("/v1/completions", response_model=Completion, responses=STREAMED)
async def complete(body: CompletionRequest, request: Request, runner: Service) -> Response:
    """Go on from a text or a run of token ids, in one piece or as server-sent events."""
    check_model(runner, body.model)
    editor, vocabulary = runner.editor, vocabulary_of(runner)
    samplings = body.sampling(body.extras, vocabulary, body.n or 1)
    if len(body.prompts) * len(samplings) > MOST_ANSWERS:
        raise ApiError(400, f"prompt and n ask for more than {MOST_ANSWERS} answers: ask for fewer.", "n")
    options = _options(body, request) | {
        "max_new_tokens": body.max_tokens or _LEGACY_TOKENS,
        "logprobs": body.logprobs is not None,
        "top_logprobs": body.logprobs or 0,
    }

    def begin(prompt: str | list[int], sampling: Any) -> Any:
        if isinstance(prompt, str):
            editor.check_size([{"content": prompt}])
            prompt = encode_raw(editor.tokenizer, prompt)
        if any(token >= vocabulary for token in prompt):
            raise ApiError(400, f"prompt takes token ids from 0 to {vocabulary - 1}.", "prompt")
        return editor.stream(prompt, sampling=sampling, **options)

    begins: list[Begin] = [
        partial(begin, prompt, sampling) for prompt in body.prompts for sampling in samplings
    ]
    replies = [TextReply(runner, body) for _ in begins]
    return await _deliver(body, request, runner, begins, replies)


@router.get("/v1/models")
async def models(runner: Service) -> Models:
    """The model that this server has."""
    return {"object": "list", "data": [_model(runner)]}


@router.get("/v1/models/{model:path}")
async def model(model: str, runner: Service) -> Model:
    """The same, by its name or an alias."""
    check_model(runner, model)
    return _model(runner)


def _model(runner: Runner) -> Model:
    return {"id": runner.name, "object": "model", "created": runner.created, "owned_by": "specedit"}


def _options(body: Completing, request: Request) -> dict[str, Any]:
    """For `SpecEditor.stream`, what both endpoints pass on."""
    return {
        "prediction": body.predicted,
        "references": body.extras.references,
        "language": body.extras.language,
        "client": client_of(request),
        "stop": body.stops,
        "speculate": body.extras.speculate,
    }


async def _deliver(
    body: Completing,
    request: Request,
    runner: Runner,
    begins: list[Begin],
    replies: Sequence[Any],  # `ChatReply`s or `TextReply`s
) -> Response:
    kind = replies[0].kind
    prefix = "chatcmpl" if kind.startswith("chat") else "cmpl"
    about = {
        "id": f"{prefix}-{secrets.token_hex(12)}",
        "created": int(time.time()),
        "model": runner.name,
        "system_fingerprint": f"specedit-{__version__}",
    }
    answers = runner.start(begins, traced=replies[0].logprobs, request=id_of(request))

    stats: dict[int, Statistics] = {}

    async def changes() -> AsyncIterator[tuple[int, dict]]:
        begun = set()
        async for index, what in answers:
            if index not in begun and (first := replies[index].begin()):
                yield index, first
            begun.add(index)
            if not isinstance(what, Step):
                stats[index] = what.stats
            for change in replies[index].take(what) if isinstance(what, Step) else replies[index].end(what):
                yield index, change

    async def assembled() -> dict[str, Any]:
        gathered: list[list[dict]] = [[] for _ in begins]
        async for index, change in changes():
            gathered[index].append(change)
        choices = [reply.whole(index, gathered[index]) for index, reply in enumerate(replies)]
        return {**about, "object": kind, "choices": choices, "usage": _usage(request, stats, body.n or 1)}

    async def chunks() -> AsyncIterator[ServerSentEvent]:
        chunk = {**about, "object": f"{kind}.chunk" if prefix == "chatcmpl" else kind}
        async for index, change in changes():
            yield event({**chunk, "choices": [{"index": index, **change}]})
        usage = _usage(request, stats, body.n or 1)
        if body.usage_streamed:
            yield event({**chunk, "choices": [], "usage": usage})
        yield event("[DONE]")

    if body.stream:
        return await streamed(request, answers, chunks(), runner.settings.ping)
    return await whole(request, answers, assembled())


def _usage(request: Request, stats: dict[int, Statistics], each: int) -> Usage:
    """Of all choices together. A prompt counts once, though it has so many answers."""
    prompts = [stats[index] for index in range(0, len(stats), each)]
    prompt = sum(one.prompt_tokens for one in prompts)
    cached = sum(one.cached_tokens for one in prompts)
    total = sum(stats.values(), Statistics())
    note(
        request,
        prompt_tokens=prompt,
        cached_tokens=cached,
        completion_tokens=total.tokens,
        accepted_tokens=total.accepted_tokens,
    )
    return {
        "prompt_tokens": prompt,
        "completion_tokens": total.tokens,
        "total_tokens": prompt + total.tokens,
        "prompt_tokens_details": {"cached_tokens": cached},
        "completion_tokens_details": {
            "accepted_prediction_tokens": total.accepted_tokens,
            "rejected_prediction_tokens": total.rejected_tokens,
        },
    }


def _likely(tokenizer: Any, token: int, logprob: float | None) -> Likely:
    text = decode_text(tokenizer, [token])
    return {"token": text, "logprob": _finite(logprob), "bytes": _bytes(tokenizer, token, text)}


def _finite(logprob: float | None) -> float:
    return max(logprob if logprob is not None else _IMPOSSIBLE, _IMPOSSIBLE)


def _bytes(tokenizer: Any, token: int, text: str) -> list[int] | None:
    """A token's bytes; None for part of a character, where the tokenizer does not write out its bytes."""
    if "\ufffd" not in text:
        return list(text.encode())
    letters = tokenizer.convert_ids_to_tokens(token)
    if letters.startswith("<0x") and letters.endswith(">"):
        return [int(letters[1:-1], 16)]
    known = {letter: byte for byte, letter in bytes_to_unicode().items()}
    return [known[letter] for letter in letters] if all(letter in known for letter in letters) else None
