"""A LangChain chat model that a local specedit server answers for.

ChatSpecEdit().invoke(f"Rename load to read_config:\n{old}", prediction=old)
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import cached_property
from typing import Any

from langchain_core.callbacks import CallbackManagerForLLMRun
from langchain_core.language_models import LanguageModelInput
from langchain_core.language_models.chat_models import BaseChatModel, generate_from_stream
from langchain_core.messages import AIMessage, AIMessageChunk, BaseMessage, convert_to_openai_messages
from langchain_core.messages.ai import UsageMetadata
from langchain_core.messages.tool import tool_call_chunk
from langchain_core.output_parsers import BaseOutputParser, JsonOutputParser, PydanticOutputParser
from langchain_core.outputs import ChatGenerationChunk, ChatResult
from langchain_core.runnables import Runnable
from langchain_core.tools import BaseTool
from langchain_core.utils.function_calling import convert_to_openai_function, convert_to_openai_tool
from openai import OpenAI
from openai.types import CompletionUsage
from openai.types.chat import ChatCompletionChunk
from pydantic import BaseModel, SecretStr

from specedit.integrations.agents.asking import BASE_URL, hints, reaching


class ChatSpecEdit(BaseChatModel):
    """Answers come from `specedit serve`, with tools, streaming and structured output.

    What is given here holds for every call; `invoke`, `stream` and `bind` take the same and more, such as
    `prediction`, for one.

    Attributes:
        model: "default" is the one that the server has.
        base_url: of the server, with /v1.
        api_key: if the server asks for one.
        temperature: 0, greedy, if left out.
        max_tokens: the longest answer.
        seed: for sampling.
        prediction: what the answer will be, roughly: the file that is to be rewritten.
        references: other texts that it may repeat; without these and a prediction, the server takes the files
            that the messages show.
        language: of the prediction or the first reference, as written after a code fence.
    """

    model: str = "default"
    base_url: str = BASE_URL
    api_key: SecretStr = SecretStr("none")
    temperature: float | None = None
    max_tokens: int | None = None
    seed: int | None = None
    prediction: str = ""
    references: tuple[str, ...] = ()
    language: str = ""

    @cached_property
    def client(self) -> OpenAI:
        # A model on a small machine may take longer than the client would wait before it asks once more.
        return OpenAI(base_url=self.base_url, api_key=self.api_key.get_secret_value(), timeout=None)

    @property
    def _llm_type(self) -> str:
        return "specedit"

    @property
    def _identifying_params(self) -> dict[str, Any]:
        return {"base_url": self.base_url, "model": self.model, **self._drawing()}

    def _drawing(self) -> dict[str, Any]:
        return {"temperature": self.temperature, "max_tokens": self.max_tokens, "seed": self.seed}

    def _generate(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: CallbackManagerForLLMRun | None = None,
        **kwargs: Any,
    ) -> ChatResult:
        # Who reads a stream and goes away frees its place at the server at once.
        return generate_from_stream(self._stream(messages, stop, run_manager, **kwargs))

    def _stream(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: CallbackManagerForLLMRun | None = None,
        **kwargs: Any,
    ) -> Iterator[ChatGenerationChunk]:
        asked: dict[str, Any] = {"stop": stop, **self._drawing(), **kwargs}
        told = hints(
            asked.pop("prediction", self.prediction),
            asked.pop("references", self.references),
            asked.pop("language", self.language),
        )
        asked = {name: value for name, value in asked.items() if value is not None} | told
        asked |= {"model": self.model, "messages": convert_to_openai_messages(messages)}
        asked |= {"stream": True, "stream_options": {"include_usage": True}}
        with reaching(self.client), self.client.chat.completions.create(**asked) as chunks:
            for chunk in chunks:
                part = ChatGenerationChunk(message=_message(chunk))
                if run_manager and part.text:
                    run_manager.on_llm_new_token(part.text, chunk=part)
                yield part

    def bind_tools(
        self,
        tools: Sequence[dict[str, Any] | type | Callable | BaseTool],
        *,
        tool_choice: str | None = None,
        **kwargs: Any,
    ) -> Runnable[LanguageModelInput, AIMessage]:
        """Let the model call these. It cannot be made to: the server takes "auto" and "none"."""
        described = [convert_to_openai_tool(tool) for tool in tools]
        return self.bind(tools=described, tool_choice=tool_choice, **kwargs)

    def with_structured_output(
        self, schema: dict[str, Any] | type, *, include_raw: bool = False, **kwargs: Any
    ) -> Runnable[LanguageModelInput, dict[str, Any] | BaseModel]:
        """Answers that fulfil a schema: the server holds the model to it, unless a limit cuts the answer.

        Args:
            schema: a pydantic class, whose objects then come, or a TypedDict or JSON schema, for dicts.
            include_raw: is not offered.
            kwargs: as for `bind`.
        """
        if include_raw:
            raise NotImplementedError(
                "include_raw is not offered: bind response_format and read the message."
            )
        function = convert_to_openai_function(schema, strict=True)
        wanted = {"name": function["name"], "schema": function["parameters"]}
        parser: BaseOutputParser = JsonOutputParser()
        if isinstance(schema, type) and issubclass(schema, BaseModel):
            parser = PydanticOutputParser(pydantic_object=schema)
        return self.bind(response_format={"type": "json_schema", "json_schema": wanted}, **kwargs) | parser


def _message(chunk: ChatCompletionChunk) -> AIMessageChunk:
    """One part of an answer. The last one has no choices and says what it all took."""
    if not chunk.choices:
        return AIMessageChunk(content="", usage_metadata=_usage(chunk.usage) if chunk.usage else None)
    choice = chunk.choices[0]
    calls = []
    for call in choice.delta.tool_calls or []:
        name, arguments = (call.function.name, call.function.arguments) if call.function else (None, None)
        calls.append(tool_call_chunk(name=name, args=arguments, id=call.id, index=call.index))
    ended = {"finish_reason": choice.finish_reason, "model_name": chunk.model}
    return AIMessageChunk(
        content=choice.delta.content or "",
        tool_call_chunks=calls,
        response_metadata=ended if choice.finish_reason else {},
    )


def _usage(usage: CompletionUsage) -> UsageMetadata:
    read, written = usage.prompt_tokens_details, usage.completion_tokens_details
    guesses: Any = {  # keys of ours, which LangChain allows and its type does not know
        "accepted_prediction": (written and written.accepted_prediction_tokens) or 0,
        "rejected_prediction": (written and written.rejected_prediction_tokens) or 0,
    }
    return UsageMetadata(
        input_tokens=usage.prompt_tokens,
        output_tokens=usage.completion_tokens,
        total_tokens=usage.total_tokens,
        input_token_details={"cache_read": (read and read.cached_tokens) or 0},
        output_token_details=guesses,
    )
