"""What vLLM's HTTP server makes of `prediction`: without this, it reads the field and drops it."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Mapping, MutableMapping
from hashlib import sha256
from typing import Any

from rapidfuzz.distance import LCSseq

from specedit.integrations.rows import logger

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]

_ANSWERED = ("/chat/completions", "/completions")
_EVENT = b"data: "


class Predictions:
    """ASGI middleware: hands predictions to `SpecEditProposer`, and counts what became of them.

    Of a request's body it takes `prediction` (a text or text parts, as OpenAI has it) and `specedit`
    (`references`, `language`), and puts them where the proposer reads them. Into the usage of the answer come
    `accepted_prediction_tokens` and `rejected_prediction_tokens`: how many tokens of the prediction appear in
    the completion, in order, and how many do not (vLLM tells nobody which drafts of a request were
    accepted). Everything else passes as it is.
    """

    def __init__(self, app: App) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        asked = scope["type"] == "http" and scope["method"] == "POST" and scope["path"].endswith(_ANSWERED)
        if not asked:
            return await self.app(scope, receive, send)
        whole = await _body(receive)
        if whole is None:
            return None  # the client is gone
        body = _object(whole)
        prediction = _text(body.pop("prediction", None))
        extras = body.pop("specedit", None)
        extras = extras if isinstance(extras, dict) else {}
        if body:
            given = body.get("vllm_xargs")
            known = {
                "specedit_prediction": prediction,
                "specedit_references": _texts(extras.get("references")),
                "specedit_language": _text(extras.get("language")),
                "specedit_client": _client(scope),
            }
            # Whose a request is, its sender does not choose.
            body["vllm_xargs"] = {
                **(given if isinstance(given, dict) else {}),
                **{name: value for name, value in known.items() if value},
            }
            whole = json.dumps(body).encode()
        headers = [(name, value) for name, value in scope["headers"] if name != b"content-length"]
        scope = {**scope, "headers": [*headers, (b"content-length", b"%d" % len(whole))]}
        if prediction:
            send = _Counting(self.app, scope, body, prediction, send)
        return await self.app(scope, _replayed(whole, receive), send)


class _Counting:
    """Sends an answer on, with the prediction's tokens counted in its usage."""

    def __init__(self, app: App, scope: Scope, asked: dict[str, Any], prediction: str, send: Send) -> None:
        self._app, self._scope, self._asked, self._send = app, scope, asked, send
        self._prediction = prediction
        self._start: Message = {}
        self._streams = False
        self._rest = b""  # of a stream, what is not sent yet
        self._parts: list[bytes] = []  # of an answer that comes whole
        self._texts = dict[int, str]()  # of a stream, by choice

    async def __call__(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self._start = message
            kinds = [value for name, value in message["headers"] if name.lower() == b"content-type"]
            self._streams = any(kind.startswith(b"text/event-stream") for kind in kinds)
            if self._streams:
                await self._send(message)
            return
        if message["type"] != "http.response.body":
            return await self._send(message)
        more = message.get("more_body", False)
        if self._streams:
            *lines, self._rest = (self._rest + message.get("body", b"")).split(b"\n")
            ready = b"".join([await self._counted(self._line, line) + b"\n" for line in lines])
            if not more:
                ready += self._rest
            return await self._send({**message, "body": ready})
        self._parts.append(message.get("body", b""))
        if not more:
            whole = await self._counted(self._whole, b"".join(self._parts))
            headers = [pair for pair in self._start["headers"] if pair[0].lower() != b"content-length"]
            length = (b"content-length", b"%d" % len(whole))
            await self._send({**self._start, "headers": [*headers, length]})
            await self._send({**message, "body": whole})

    async def _counted(self, count: Callable[[bytes], Awaitable[bytes]], part: bytes) -> bytes:
        """A part of the answer with the count in it. No answer is lost because it could not be counted."""
        try:
            return await count(part)
        except Exception:
            logger.exception("specedit could not count a prediction's tokens")
            return part

    async def _whole(self, answer: bytes) -> bytes:
        said = _object(answer)
        if self._start["status"] != 200 or not said.get("usage"):
            return answer
        await self._count(said, {choice["index"]: _written(choice) for choice in said["choices"]})
        return json.dumps(said, ensure_ascii=False).encode()

    async def _line(self, line: bytes) -> bytes:
        """A line of a stream of events as it is to be sent."""
        chunk = _object(line.removeprefix(_EVENT)) if line.startswith(_EVENT) else {}
        for choice in chunk.get("choices", ()):
            index = choice["index"]
            self._texts[index] = self._texts.get(index, "") + _written(choice)
        if not chunk.get("usage") or chunk["choices"]:
            return line
        await self._count(chunk, self._texts)
        return _EVENT + json.dumps(chunk, ensure_ascii=False).encode()

    async def _count(self, answer: dict[str, Any], texts: Mapping[int, str]) -> None:
        predicted = await self._tokens(self._prediction)
        accepted = rejected = 0
        for text in texts.values():
            common = LCSseq.similarity(predicted, await self._tokens(text))
            accepted, rejected = accepted + common, rejected + len(predicted) - common
        details = answer["usage"].get("completion_tokens_details") or {}
        answer["usage"]["completion_tokens_details"] = details | {
            "accepted_prediction_tokens": accepted,
            "rejected_prediction_tokens": rejected,
        }

    async def _tokens(self, text: str) -> list[int]:
        """Token ids of a text, by the server's own /tokenize."""
        asked = {"prompt": text, "add_special_tokens": False}
        if isinstance(self._asked.get("model"), str):
            asked["model"] = self._asked["model"]
        body, answered = json.dumps(asked).encode(), bytearray()
        headers = [pair for pair in self._scope["headers"] if pair[0] != b"content-length"]

        async def take(message: Message) -> None:
            answered.extend(message.get("body", b""))

        scope = {
            **self._scope,
            "path": "/tokenize",
            "raw_path": b"/tokenize",
            "headers": [*headers, (b"content-length", b"%d" % len(body))],
            "state": dict(self._scope.get("state", {})),
        }
        # vLLM drops what a request asked for as soon as its sender is gone: this one stays.
        await self._app(scope, _replayed(body, asyncio.Event().wait), take)
        return list(_object(bytes(answered)).get("tokens", []))


async def _body(receive: Receive) -> bytes | None:
    """The whole body of a request, or None if its sender left."""
    whole, more = bytearray(), True
    while more:
        message = await receive()
        if message["type"] == "http.disconnect":
            return None
        whole += message.get("body", b"")
        more = message.get("more_body", False)
    return bytes(whole)


def _replayed(body: bytes, receive: Callable[[], Awaitable[Any]]) -> Receive:
    """Gives a body once, and then what else there is to receive."""
    given = False

    async def replay() -> Message:
        nonlocal given
        if given:
            return await receive()
        given = True
        return {"type": "http.request", "body": body, "more_body": False}

    return replay


def _object(data: bytes) -> dict[str, Any]:
    """A JSON object, or an empty one if this is none: vLLM itself says what is wrong with a request."""
    try:
        found = json.loads(data)
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def _text(given: object) -> str:
    """The text of a prediction or of its content; "" if there is none."""
    if isinstance(given, dict):
        given = given.get("content")
    if isinstance(given, list):
        given = "".join(_text(part.get("text")) for part in given if isinstance(part, dict))
    return given if isinstance(given, str) else ""


def _texts(given: object) -> list[str]:
    return [text for text in given if isinstance(text, str)] if isinstance(given, list) else []


def _written(choice: Mapping[str, Any]) -> str:
    """What a choice, or a piece of one, says."""
    said = choice.get("message") or choice.get("delta") or {}
    return said.get("content") or choice.get("text") or ""


def _client(scope: Scope) -> str:
    """Who sends a request, by its API key."""
    keys = [value for name, value in scope["headers"] if name in (b"authorization", b"x-api-key")]
    return sha256(b" ".join(keys)).hexdigest()[:16]
