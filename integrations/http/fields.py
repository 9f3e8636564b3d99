"""Fields that several kinds of requests share."""

from __future__ import annotations

import secrets
from typing import Annotated, Any, Literal

from fastapi import Depends, Request
from fastapi.routing import APIRoute
from pydantic import BaseModel, ConfigDict, Field
from pydantic_core import from_json
from starlette.responses import Response

from specedit.integrations.http.errors import ApiError
from specedit.integrations.http.runner import Runner
from specedit.types import Sampling, SpecEditError

_ALIASES = {"default", "specedit", "auto"}
_SEEDS = 2**63
_KEYS = 10_000


class Wire(BaseModel):
    """JSON as it is written: "1" is no number, and what is not known is refused."""

    model_config = ConfigDict(extra="forbid", strict=True, allow_inf_nan=False)


class TextPart(Wire):
    type: Literal["text"]
    text: str
    cache_control: Any = Field(None, description="Ignored: the longest common beginning is kept anyway.")


Content = str | Annotated[list[TextPart], Field(fail_fast=True)]
NonEmpty = Annotated[str, Field(min_length=1)]
TokenId = Annotated[int, Field(ge=0, lt=2**31)]


def text_of(content: Content | None) -> str:
    return content if isinstance(content, str) else "".join(part.text for part in content or [])


class Tuning(Wire):
    """What OpenAI's API has no fields for."""

    speculate: bool = Field(default=True, description="False decodes plainly.")
    top_k: int = Field(default=0, ge=0, lt=2**31, description="Keep the k most likely tokens; 0 keeps all.")
    min_p: float = Field(default=0, ge=0, le=1)
    repetition_penalty: float = Field(default=1, ge=0.1, le=10)


class Drawing(Wire):
    """How tokens are drawn, and when to stop."""

    model: str | None = Field(None, description="The served model or one of its aliases; may be left out.")
    stream: bool | None = None
    temperature: float | None = Field(None, ge=0, le=2, description="0, greedy, if left out.")
    top_p: float | None = Field(None, gt=0, le=1)
    seed: int | None = Field(None, ge=-_SEEDS, lt=_SEEDS, description="A random one if left out.")
    presence_penalty: float | None = Field(None, ge=-2, le=2)
    frequency_penalty: float | None = Field(None, ge=-2, le=2)
    logit_bias: (
        dict[Annotated[str, Field(pattern="^[0-9]{1,9}$")], Annotated[float, Field(ge=-100, le=100)]] | None
    ) = None
    max_tokens: int | None = Field(None, ge=1, lt=2**31)
    stop: NonEmpty | Annotated[list[NonEmpty], Field(max_length=16, fail_fast=True)] | None = None

    @property
    def stops(self) -> list[str]:
        return [self.stop] if isinstance(self.stop, str) else self.stop or []

    def sampling(self, tuning: Tuning, vocabulary: int, count: int = 1) -> list[Sampling]:
        """For so many answers. The first is what the seed gives alone, and each other has a seed of its own.

        Raises:
            ApiError: there is no such token, or the temperature is too near 0.
        """
        bias = {int(token): value for token, value in (self.logit_bias or {}).items()}
        if any(token >= vocabulary for token in bias):
            raise ApiError(400, f"logit_bias takes token ids from 0 to {vocabulary - 1}.", "logit_bias")
        seed = secrets.randbelow(_SEEDS) if self.seed is None else self.seed % (2 * _SEEDS)
        try:
            return [
                Sampling(
                    temperature=self.temperature or 0,
                    top_k=tuning.top_k,
                    top_p=self.top_p or 1,
                    min_p=tuning.min_p,
                    repetition_penalty=tuning.repetition_penalty,
                    presence_penalty=self.presence_penalty or 0,
                    frequency_penalty=self.frequency_penalty or 0,
                    logit_bias=bias,
                    seed=seed + number,
                )
                for number in range(count)
            ]
        except SpecEditError as error:
            raise ApiError(400, str(error), str(error).split(" ")[0]) from error


class JsonRoute(APIRoute):
    """Reads bodies more strictly than Python does: no NaN, no half characters, no endless nesting."""

    def get_route_handler(self):
        handle = super().get_route_handler()

        async def strict(request: Request) -> Response:
            return await handle(_Strict(request.scope, request.receive))

        return strict


class _Strict(Request):
    async def json(self) -> Any:
        try:
            body = from_json(await self.body(), allow_inf_nan=False)
        except ValueError as error:
            raise ApiError(400, f"The body is no JSON: {error}.", code="invalid_json") from error
        if _is_wide(body):
            raise ApiError(400, f"The body has an object of more than {_KEYS} keys: send fewer.")
        return body


def _is_wide(value: Any) -> bool:
    """Whether there is an object with so many keys that to name all that are wrong would take seconds."""
    todo = [value]
    while todo:
        value = todo.pop()
        if isinstance(value, dict):
            if len(value) > _KEYS:
                return True
            todo += value.values()
        elif isinstance(value, list) and value and not isinstance(value[0], int):
            todo += value
    return False


def runner_of(request: Request) -> Runner:
    """Who answers this request."""
    return request.app.state.runner


Service = Annotated[Runner, Depends(runner_of)]


def client_of(request: Request) -> str:
    """Whose memory this request may use: a digest of the key it came with, "" without."""
    return request.scope["state"]["client"]


def check_model(runner: Runner, model: str | None) -> None:
    """Raises ApiError if another model is asked for than there is."""
    if model is not None and model not in {runner.name, runner.full_name, *_ALIASES}:
        raise ApiError(
            404, f'This server has no such model: ask for "{runner.name}".', "model", "model_not_found"
        )


def vocabulary_of(runner: Runner) -> int:
    """Token ids are below this."""
    return len(runner.editor.tokenizer)
