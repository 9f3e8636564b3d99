"""Who may call: hosts, web pages, keys, and how much they may send. Pure ASGI, around the whole app."""

from __future__ import annotations

import asyncio
import hashlib
import hmac
from contextlib import suppress
from urllib.parse import urlsplit

from starlette.datastructures import Headers
from starlette.middleware.cors import CORSMiddleware
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from specedit.integrations.http.errors import ApiError
from specedit.integrations.http.settings import Settings, address_of, is_loopback

_DRAINED_SECONDS = 2
_BODY_SECONDS = 60  # for a whole body to arrive
_OPEN = {"/", "/health"}  # without a key: the page asks for it itself, and a watchdog has none


def guarded(app: ASGIApp, settings: Settings) -> ASGIApp:
    """The app behind all checks, in the order in which a request meets them.

    A browser asks by preflight, and without the key, whether it may send one: CORS comes before the key.
    """
    app = Keys(BodyLimit(app, settings.body), settings.api_keys)
    app = CORSMiddleware(
        app,
        allow_origins=settings.origins,
        allow_methods=["GET", "POST", "OPTIONS"],
        allow_headers=["*"],
        allow_private_network=True,
        expose_headers=["Retry-After", "X-Request-Id"],
    )
    return Callers(app, settings)


class Callers:
    """Refuses requests that a web page sends without leave.

    A page of evil.example whose name is rebound to 127.0.0.1 is same-origin to the browser: only the Host
    header tells. Other pages can send requests blindly: the Origin header tells.
    """

    def __init__(self, app: ASGIApp, settings: Settings) -> None:
        self._app = app
        self._names = {"localhost", settings.host.lower(), *map(str.lower, settings.hosts)}
        self._any_address = not is_loopback(settings.host)  # an address cannot be rebound
        self._origins = set(settings.origins)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and (error := self._objection(Headers(scope=scope))):
            await error.response()(scope, receive, send)
        else:
            await self._app(scope, receive, send)

    def _objection(self, headers: Headers) -> ApiError | None:
        hosts, origins = headers.getlist("host"), headers.getlist("origin")
        if len(hosts) != 1 or len(origins) > 1:
            return ApiError(400, "The request needs one Host header, and at most one Origin.")
        if not self._known(_hostname(hosts[0])):
            return ApiError(
                403,
                "The Host header names another machine: call the server by its address, or start it with "
                "--allow-host and that name.",
                code="host_not_allowed",
            )
        origin = origins[0] if origins else None
        if origin is None or origin in self._origins or "*" in self._origins:
            return None
        if origin.partition("://")[0] in ("http", "https") and origin.partition("://")[2] == hosts[0]:
            return None  # the server's own page
        return ApiError(
            403,
            "This web page may not call the server: start it with --allow-origin and the page's origin.",
            code="origin_not_allowed",
        )

    def _known(self, host: str) -> bool:
        if host in self._names:
            return True
        address = address_of(host)
        return address is not None and (self._any_address or address.is_loopback)


class Keys:
    """Lets in who has one of the keys, and tells the app which (`scope["state"]["client"]`): a digest."""

    def __init__(self, app: ASGIApp, keys: tuple[str, ...]) -> None:
        self._app = app
        self._digests = [_digest(key.encode()) for key in keys]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            scheme, _, key = Headers(scope=scope).get("authorization", "").partition(" ")
            digest = _digest(key.strip().encode("latin-1"))  # as headers are decoded
            # Digests have one length, and all are compared: the time says nothing.
            known = sum([hmac.compare_digest(digest, other) for other in self._digests])
            if self._digests and scope["path"] not in _OPEN and not (known and scheme.lower() == "bearer"):
                error = ApiError(
                    401,
                    "The API key is missing or wrong: send Authorization: Bearer and the key.",
                    code="invalid_api_key",
                    headers={"WWW-Authenticate": "Bearer"},
                )
                await error.response()(scope, receive, send)
                return
            scope.setdefault("state", {})["client"] = digest if known else ""
        await self._app(scope, receive, send)


class BodyLimit:
    """Ends a request whose body grows too large, whether it said so or not, or does not come."""

    def __init__(self, app: ASGIApp, limit: int) -> None:
        self._app = app
        self._limit = limit

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        error = ApiError(
            413,
            f"The body is larger than {self._limit} bytes: send less, or start the server with a larger "
            "--max-body.",
            code="body_too_large",
            headers={"Connection": "close"},  # nobody will read the rest
        )
        said = Headers(scope=scope).get("content-length", "0")
        if said.isdecimal() and int(said[:20]) > self._limit:
            await _drained(receive)
            await error.response()(scope, receive, send)
            return
        late = ApiError(
            408,
            f"The body was not there after {_BODY_SECONDS} seconds: send all of it.",
            code="body_too_late",
            headers={"Connection": "close"},
        )
        seen, whole = 0, False
        clock = asyncio.get_running_loop().time
        end = clock() + _BODY_SECONDS

        async def counted() -> Message:
            nonlocal seen, whole
            if whole:  # what is left to come is that the client goes
                return await receive()
            try:
                message = await asyncio.wait_for(receive(), max(end - clock(), 0))
            except asyncio.TimeoutError:
                raise late from None  # the app answers with it
            whole = not message.get("more_body")
            seen += len(message.get("body", b""))
            if seen > self._limit:
                await _drained(receive)
                raise error
            return message

        await self._app(scope, counted, send)


async def _drained(receive: Receive) -> None:
    """Read on for a moment: who is still sending when the connection is closed never sees the answer."""

    async def read() -> None:
        while (await receive()).get("more_body"):
            pass

    with suppress(asyncio.TimeoutError):
        await asyncio.wait_for(read(), _DRAINED_SECONDS)


def _hostname(host: str) -> str:
    try:
        return (urlsplit(f"//{host}").hostname or "").rstrip(".")
    except ValueError:
        return ""


def _digest(key: bytes) -> str:
    return hashlib.sha256(key).hexdigest()
