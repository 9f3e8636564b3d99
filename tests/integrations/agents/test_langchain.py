"""LangChain with our chat model, against the local server."""

import asyncio
import json

import pytest

pytest.importorskip("langchain_core")

from langchain_core.messages import HumanMessage, ToolMessage
from langchain_core.tools import tool
from pydantic import BaseModel

from specedit.integrations.agents.langchain import ChatSpecEdit
from specedit.types import SpecEditError

OLD = "def load(path):\n    return open(path).read()\n\n\nprint(load('a'))\n"
NEW = OLD.replace("load", "read_config")


@tool
def read_file(name: str) -> str:
    """Read a file."""
    return OLD


class Point(BaseModel):
    x: int
    y: int


@pytest.fixture
def chat(serve, script):
    """chat(*answers, **options): the model, of a server that gives these answers."""
    return lambda *answers, **options: ChatSpecEdit(base_url=f"{serve(script(*answers)).url}/v1", **options)


def test_invoke(chat):
    message = chat("Hello.").invoke("Hi")
    assert message.content == "Hello."
    assert message.response_metadata["finish_reason"] == "stop"
    assert message.usage_metadata["output_tokens"] == len("Hello.") + 1


def test_stream(chat):
    parts = list(chat("One two three.").stream([("system", "Count."), ("user", "Go.")]))
    assert "".join(part.content for part in parts) == "One two three."
    assert len([part for part in parts if part.content]) > 1


def test_asynchronously(chat):
    assert asyncio.run(chat("Hello.").ainvoke("Hi")).content == "Hello."


def test_a_prediction_for_one_call_or_all(chat):
    plain, once, always = chat(NEW), chat(NEW), chat(NEW, prediction=OLD)
    right = [
        model.usage_metadata["output_token_details"]["accepted_prediction"]
        for model in (plain.invoke("Go."), once.invoke("Go.", prediction=OLD), always.invoke("Go."))
    ]
    assert right[0] < min(right[1:])  # how many more is the planner's choice, which times its steps


def test_references(chat):
    plain, told = chat(OLD).invoke("Go."), chat(OLD, references=["x = 1\n", OLD]).invoke("Go.")
    right = [
        message.usage_metadata["output_token_details"]["accepted_prediction"] for message in (plain, told)
    ]
    assert right[0] < right[1]


def test_a_tool_is_called_and_its_result_goes_back(chat, call):
    model = chat(f"I look.\n{call('read_file', name='a.py')}", NEW).bind_tools([read_file])
    asked = HumanMessage("Rename load to read_config in a.py.")
    message = model.invoke([asked])
    assert message.content == "I look.\n"
    assert [(made["name"], made["args"]) for made in message.tool_calls] == [("read_file", {"name": "a.py"})]
    result = read_file.invoke(message.tool_calls[0])
    assert isinstance(result, ToolMessage)
    assert model.invoke([asked, message, result]).content == NEW


def test_structured_output(chat):
    model = chat('{"x": 1, "y": 2}').with_structured_output(Point)
    assert model.invoke("Where?") == Point(x=1, y=2)


def test_structured_output_by_a_schema(chat):
    schema = Point.model_json_schema()
    answer = {"x": 1, "y": 2}
    assert chat(json.dumps(answer)).with_structured_output(schema).invoke("Where?") == answer


def test_options_of_one_call(chat):
    assert chat("One two three.").invoke("Count.", stop=[" three"], max_tokens=100).content == "One two"
    assert (
        chat("One two three.", max_tokens=3).invoke("Count.").response_metadata["finish_reason"] == "length"
    )


def test_without_a_server_it_says_what_to_do():
    with pytest.raises(SpecEditError, match="specedit serve"):
        ChatSpecEdit(base_url="http://127.0.0.1:9/v1").invoke("Hi")
