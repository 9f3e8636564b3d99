"""What comes in over the OpenAI API, and what goes out."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field, model_validator
from pydantic_core import from_json
from typing_extensions import NotRequired, TypedDict

from specedit.integrations.http.fields import Content, Drawing, NonEmpty, TokenId, Tuning, Wire, text_of

MOST_ANSWERS = 16


# What comes in.


class Extras(Tuning):
    """Fields of ours, under the key `specedit`."""

    references: list[str] = Field(
        default_factory=list, max_length=64, description="Other texts that the answer may repeat."
    )
    language: str = Field(
        default="", max_length=40, description="Of the prediction, as written after a code fence."
    )


class Prediction(Wire):
    type: Literal["content"]
    content: Content


class StreamOptions(Wire):
    include_usage: bool | None = None
    include_obfuscation: Any = Field(None, description="Ignored.")


class Completing(Drawing):
    """What chats and completions have in common."""

    n: int | None = Field(None, ge=1, le=MOST_ANSWERS)
    stream_options: StreamOptions | None = None
    prediction: Prediction | None = Field(None, description="What the answer will be, roughly.")
    specedit: Extras | None = None
    user: Any = Field(None, description="Ignored, as are the fields below.")
    metadata: Any = None
    store: Any = None
    service_tier: Any = None
    safety_identifier: Any = None
    prompt_cache_key: Any = None
    prompt_cache_retention: Any = None

    @property
    def usage_streamed(self) -> bool:
        return bool(self.stream_options and self.stream_options.include_usage)

    @property
    def extras(self) -> Extras:
        return self.specedit or Extras()

    @property
    def predicted(self) -> str | None:
        return (text_of(self.prediction.content) if self.prediction else "") or None


class CalledFunction(Wire):
    name: NonEmpty
    arguments: str = Field(description="A JSON object, written out.")

    @model_validator(mode="after")
    def _is_object(self) -> CalledFunction:
        self.decoded()
        return self

    def decoded(self) -> dict[str, Any]:
        arguments = from_json(self.arguments or "{}", allow_inf_nan=False)
        if not isinstance(arguments, dict):
            raise ValueError("the arguments must be a JSON object")
        return arguments


class CalledTool(Wire):
    id: str
    type: Literal["function"]
    function: CalledFunction


class Message(Wire):
    role: Literal["system", "developer", "user", "assistant", "tool"]
    content: Content | None = None
    name: str | None = None
    tool_calls: list[CalledTool] | None = None
    tool_call_id: str | None = None
    refusal: Any = Field(None, description="Ignored, as are the fields below: answers come back with them.")
    annotations: Any = None
    audio: None = None
    function_call: None = None
    reasoning_content: Any = None

    @model_validator(mode="after")
    def _says_something(self) -> Message:
        if self.content is None and self.role != "assistant":
            raise ValueError(f"a message with the role {self.role} needs a content")
        return self

    def for_template(self) -> dict[str, Any]:
        """As chat templates take it."""
        message: dict[str, Any] = {
            "role": "system" if self.role == "developer" else self.role,
            "content": text_of(self.content),
        }
        if self.tool_calls:
            message["tool_calls"] = [
                {
                    "id": call.id,
                    "type": "function",
                    "function": {"name": call.function.name, "arguments": call.function.decoded()},
                }
                for call in self.tool_calls
            ]
        named = {"name": self.name, "tool_call_id": self.tool_call_id}
        return message | {key: value for key, value in named.items() if value is not None}


class Function(Wire):
    name: str = Field(pattern="^[a-zA-Z0-9_.-]{1,64}$")
    description: str | None = None
    parameters: dict[str, Any] | None = None
    strict: bool | None = Field(None, description="Ignored: arguments are JSON, not held to the schema.")


class Tool(Wire):
    type: Literal["function"]
    function: Function


class JsonSchema(Wire):
    name: str = Field(pattern="^[a-zA-Z0-9_-]{1,64}$")
    description: str | None = None
    json_schema: dict[str, Any] = Field(default_factory=dict, alias="schema")
    strict: bool | None = Field(None, description="Answers always are.")


class ResponseFormat(Wire):
    type: Literal["text", "json_object", "json_schema"]
    json_schema: JsonSchema | None = None

    @model_validator(mode="after")
    def _has_schema(self) -> ResponseFormat:
        if (self.type == "json_schema") is not (self.json_schema is not None):
            raise ValueError("json_schema goes with the type json_schema, and only with it")
        return self

    @property
    def followed(self) -> dict[str, Any] | None:
        """The schema that the answer fulfils."""
        if self.json_schema:
            return self.json_schema.json_schema
        return {"type": "object"} if self.type == "json_object" else None


class ChatRequest(Completing):
    messages: list[Message] = Field(min_length=1, max_length=10_000, fail_fast=True)
    max_completion_tokens: int | None = Field(None, ge=1, lt=2**31)
    logprobs: bool | None = None
    top_logprobs: int | None = Field(None, ge=0, le=20)
    tools: list[Tool] | None = Field(None, max_length=256)
    tool_choice: Literal["none", "auto"] | None = None
    response_format: ResponseFormat | None = None
    parallel_tool_calls: Any = Field(None, description="Ignored.")

    @model_validator(mode="after")
    def _agrees(self) -> ChatRequest:
        if len({self.max_tokens, self.max_completion_tokens} - {None}) > 1:
            raise ValueError("max_tokens and max_completion_tokens differ: give one of them")
        if self.top_logprobs and not self.logprobs:
            raise ValueError("top_logprobs needs logprobs: true")
        calls = self.tools and self.tool_choice != "none"
        if calls and self.response_format and self.response_format.followed:
            raise ValueError("response_format with JSON and tools exclude each other: give one of them")
        return self


class CompletionRequest(Completing):
    prompt: (
        str
        | Annotated[list[TokenId], Field(min_length=1, fail_fast=True)]
        | Annotated[list[NonEmpty], Field(min_length=1, max_length=MOST_ANSWERS, fail_fast=True)]
        | Annotated[
            list[Annotated[list[TokenId], Field(min_length=1)]],
            Field(min_length=1, max_length=MOST_ANSWERS),
        ]
    ) = Field(description="Text, in which control tokens count as such, or token ids; or several of either.")
    logprobs: int | None = Field(None, ge=0, le=5)
    echo: Literal[False] | None = None
    suffix: Literal[""] | None = None
    best_of: Literal[1] | None = None

    @property
    def prompts(self) -> list[Any]:
        """Each a text or token ids."""
        several = isinstance(self.prompt, list) and not isinstance(self.prompt[0], int)
        return list(self.prompt) if several else [self.prompt]


# What goes out. Keys that do not apply are absent: typed clients refuse null in some of them.


class PromptDetails(TypedDict):
    cached_tokens: int


class CompletionDetails(TypedDict):
    accepted_prediction_tokens: int
    rejected_prediction_tokens: int


class Usage(TypedDict):
    """Accepted tokens are part of completion_tokens; rejected ones are not."""

    prompt_tokens: int
    completion_tokens: int
    total_tokens: int
    prompt_tokens_details: PromptDetails
    completion_tokens_details: CompletionDetails


class FunctionOut(TypedDict):
    name: str
    arguments: str


class ToolCallOut(TypedDict):
    index: NotRequired[int]
    id: str
    type: Literal["function"]
    function: FunctionOut


class Likely(TypedDict):
    token: str
    logprob: float
    bytes: list[int] | None


class TokenLogprob(Likely):
    top_logprobs: list[Likely]


class Logprobs(TypedDict):
    content: list[TokenLogprob] | None
    refusal: None


class MessageOut(TypedDict):
    role: Literal["assistant"]
    content: str | None
    refusal: None
    tool_calls: NotRequired[list[ToolCallOut]]


class ChatChoice(TypedDict):
    index: int
    message: MessageOut
    logprobs: Logprobs | None
    finish_reason: Literal["stop", "length", "tool_calls"]


class ChatCompletion(TypedDict):
    id: str
    object: Literal["chat.completion"]
    created: int
    model: str
    system_fingerprint: str
    choices: list[ChatChoice]
    usage: Usage


class LegacyLogprobs(TypedDict):
    tokens: list[str]
    token_logprobs: list[float]
    top_logprobs: list[dict[str, float]]
    text_offset: list[int]


class TextChoice(TypedDict):
    index: int
    text: str
    logprobs: LegacyLogprobs | None
    finish_reason: Literal["stop", "length"]


class Completion(TypedDict):
    id: str
    object: Literal["text_completion"]
    created: int
    model: str
    system_fingerprint: str
    choices: list[TextChoice]
    usage: Usage


class Model(TypedDict):
    id: str
    object: Literal["model"]
    created: int
    owned_by: str


class Models(TypedDict):
    object: Literal["list"]
    data: list[Model]
