"""Errors in the shape of OpenAI's API, whoever finds them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from pydantic import BaseModel
from starlette.exceptions import HTTPException
from starlette.responses import Response

_ADVICE = {
    404: "There is nothing at this path: see /openapi.json for what there is.",
    405: "This path does not take that method: see /openapi.json for what it takes.",
}


class ApiError(HTTPException):
    """What the client is told instead of an answer.

    Args:
        status: of HTTP.
        message: one sentence that says what to do.
        param: the request's field that is at fault.
        code: a word that programs can tell it by.
    """

    def __init__(
        self,
        status: int,
        message: str,
        param: str | None = None,
        code: str | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(status, message, headers)
        self.param = param
        self.code = code

    def body(self) -> dict[str, Any]:
        kind = {429: "rate_limit_error"}.get(self.status_code, "invalid_request_error")
        if self.status_code >= 500:
            kind = "server_error"
        return {
            "error": {"message": self.detail, "type": kind, "param": self.param, "code": self.code},
        }

    def response(self) -> Response:
        return json_response(self.body(), self.status_code, self.headers)


class ErrorDetail(BaseModel):
    message: str
    type: str
    param: str | None
    code: str | None


class ErrorBody(BaseModel):
    """What every error looks like."""

    error: ErrorDetail


# For the OpenAPI document. "default" also tells FastAPI that its own form of error never appears.
DOCUMENTED: dict[int | str, dict[str, Any]] = {
    "default": {"model": ErrorBody, "description": "What is wrong, and what to do"}
}


def compact(value: Any) -> str:
    """JSON in one line of ASCII, which no text can break."""
    return json.dumps(value, separators=(",", ":"))


def json_response(value: Any, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    return Response(compact(value), status, headers, "application/json")


def install(app: FastAPI) -> None:
    """Let every error of this app have OpenAI's shape."""

    @app.exception_handler(HTTPException)
    async def on_http(_: Request, error: HTTPException) -> Response:
        if not isinstance(error, ApiError):
            message = _ADVICE.get(error.status_code, f"{error.detail}.")
            error = ApiError(error.status_code, message, headers=error.headers)
        return error.response()

    @app.exception_handler(RequestValidationError)
    async def on_validation(_: Request, error: RequestValidationError) -> Response:
        return refusal(error).response()

    @app.exception_handler(Exception)
    async def on_bug(_: Request, error: Exception) -> Response:
        return ApiError(500, "The server failed on this request; its log says where.").response()


def refusal(error: RequestValidationError) -> ApiError:
    """Name the field that is wrong. Where a value has several forms, that is the deepest one."""
    found = [(_path(entry["loc"][1:], error.body, entry["type"]), entry) for entry in error.errors()]
    # Of the forms that a value may have, the one whose type is right says what is wrong.
    path, entry = max(found, key=lambda pair: (len(pair[0]), not pair[1]["type"].endswith("_type")))
    if not path and entry["type"] == "value_error":  # fields that do not go together
        said = str(entry["ctx"]["error"])
        return ApiError(400, f"{said}.", said.split()[0], "invalid_value")
    if not path:
        return ApiError(
            400,
            "The request cannot be read: send a JSON object that /openapi.json describes, with Content-Type: "
            "application/json.",
        )
    param = ".".join(map(str, path))
    if entry["type"] == "extra_forbidden":
        return ApiError(400, f"{param} is not supported: leave it out.", param, "unknown_parameter")
    message = str(entry["ctx"]["error"]) if entry["type"] == "value_error" else entry["msg"]
    return ApiError(400, f"{param}: {message}.", param, "invalid_value")


def _path(location: tuple[int | str, ...], value: Any, kind: str) -> list[int | str]:
    """Where in the request an error is. Pydantic also names the forms that it tried: they are left out."""
    path: list[int | str] = []
    for number, part in enumerate(location, start=1):
        in_list = isinstance(value, list) and isinstance(part, int) and part < len(value)
        if in_list or (isinstance(value, dict) and part in value):
            value = value[part]
            path.append(part)
        elif kind == "missing" and number == len(location):
            path.append(part)
    return path
