"""A smolagents model that a local specedit server answers for.

agent = ToolCallingAgent(tools=[read_file, write_file], model=SpecEditModel())
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from typing import Any

from smolagents.models import ChatMessage, ChatMessageStreamDelta, MessageRole, OpenAIModel

from specedit.editing.references import File, found_in
from specedit.integrations.agents.asking import BASE_URL, hints, reaching

_OBSERVATION = "Observation:\n"


class SpecEditModel(OpenAIModel):
    """smolagents' own client of OpenAI's API, which also tells the server what tools have read.

    smolagents shows results of tools as words of the user. The server looks for files in results of tools,
    and would not know them as such. The prompt stays as smolagents writes it.

    Args:
        model_id: "default" is the one that the server has.
        api_base: of the server, with /v1.
        api_key: if the server asks for one.
        prediction: what answers will be, roughly, where you know it; may be set between two runs.
        kwargs: those of `smolagents.OpenAIModel`.
    """

    def __init__(
        self,
        model_id: str = "default",
        api_base: str = BASE_URL,
        api_key: str = "none",
        *,
        prediction: str = "",
        client_kwargs: dict[str, Any] | None = None,
        **kwargs: Any,
    ) -> None:
        self.prediction = prediction
        # A model on a small machine may take longer than the client would wait before it asks once more.
        patient = {"timeout": None, **(client_kwargs or {})}
        super().__init__(model_id, api_base, api_key, client_kwargs=patient, **kwargs)

    def generate(self, messages: list[ChatMessage | dict], *args: Any, **kwargs: Any) -> ChatMessage:
        """See `smolagents.Model.generate`."""
        with reaching(self.client):
            return super().generate(messages, *args, **self._told(messages), **kwargs)

    def generate_stream(
        self, messages: list[ChatMessage | dict], *args: Any, **kwargs: Any
    ) -> Generator[ChatMessageStreamDelta]:
        """See `smolagents.OpenAIModel.generate_stream`."""
        with reaching(self.client):
            yield from super().generate_stream(messages, *args, **self._told(messages), **kwargs)

    def _told(self, messages: Sequence[ChatMessage | dict]) -> dict[str, Any]:
        files = files_in(messages)
        told = hints(self.prediction, [file.text for file in files])
        if files and not self.prediction:
            told["extra_body"]["specedit"]["language"] = files[0].language
        # smolagents asks for a call of a tool, which the server cannot force.
        return {"tool_choice": "auto", **told}


def files_in(messages: Sequence[ChatMessage | dict]) -> list[File]:
    """What an answer may repeat: what tools gave back, and files that the messages show. The latest first."""
    chat = []
    for message in messages:
        said = message if isinstance(message, ChatMessage) else ChatMessage.from_dict(message)
        parts = [{"type": "text", "text": said.content}] if isinstance(said.content, str) else said.content
        text = "".join(part.get("text", "") for part in parts or [])
        tool = said.role == MessageRole.TOOL_RESPONSE
        chat.append({"role": "tool" if tool else "user", "content": text.removeprefix(_OBSERVATION)})
    return found_in(chat)
