"""Calls of tools, with speculation, streaming and not."""

import json

import pytest

from specedit.integrations.http.toolcalls import ToolCall, ToolCalls

CALL = '<tool_call>\n{"name": "read", "arguments": {"path": "a.py", "lines": [1, 2]}}\n</tool_call>'
TOOL = {
    "type": "function",
    "function": {
        "name": "read",
        "parameters": {"type": "object", "properties": {"path": {"type": "string"}}},
    },
}
ASK = [{"role": "user", "content": f"Read a.py. Calls look like {CALL}"}]


def ask(served, **options):
    return served.openai.chat.completions.create(model="default", messages=ASK, tools=[TOOL], **options)


def test_call(serve, knows_tools):
    reply = ask(serve(knows_tools(f"I read it.\n{CALL}\n{CALL}")))
    message = reply.choices[0].message
    assert reply.choices[0].finish_reason == "tool_calls"
    assert message.content == "I read it.\n"
    assert [call.function.name for call in message.tool_calls] == ["read", "read"]
    assert json.loads(message.tool_calls[0].function.arguments) == {"path": "a.py", "lines": [1, 2]}
    assert len({call.id for call in message.tool_calls}) == 2


def test_a_call_alone_has_no_content(serve, knows_tools):
    assert ask(serve(knows_tools(CALL))).choices[0].message.content is None


def test_streamed_calls_come_whole_and_once(serve, knows_tools):
    prediction = {"type": "content", "content": CALL}  # with drafts that are right and wrong
    chunks = list(ask(serve(knows_tools(f"Yes. {CALL}\n{CALL}")), stream=True, prediction=prediction))
    deltas = [chunk.choices[0].delta for chunk in chunks]
    calls = [call for delta in deltas for call in delta.tool_calls or []]
    assert [call.index for call in calls] == [0, 1]
    assert [json.loads(call.function.arguments)["path"] for call in calls] == ["a.py", "a.py"]
    assert "".join(delta.content or "" for delta in deltas) == "Yes. "
    assert chunks[-1].choices[0].finish_reason == "tool_calls"


@pytest.mark.parametrize(
    "answer",
    [
        '<tool_call>{"name": "write", "arguments": {}}</tool_call>',
        '<tool_call>{"name": "read", "arguments": </tool_call>',
        '<tool_call>{"name": ["read"], "arguments": {}}</tool_call>',
        '<tool_call>{"name": "read", "arguments": NaN}</tool_call>',
        "<tool_call>",
        "a <tool",
    ],
)
def test_what_is_no_call_stays_text(serve, knows_tools, answer):
    reply = ask(serve(knows_tools(answer)))
    assert reply.choices[0].message.content == answer
    assert reply.choices[0].message.tool_calls is None
    assert reply.choices[0].finish_reason == "stop"


@pytest.mark.parametrize("size", [1, 7, 1000])
def test_an_argument_may_have_the_closing_tag_in_it(size):
    written = '<tool_call>{"name": "read", "arguments": {"path": "</tool_call>", "n": 1}}</tool_call>\nand'
    calls = ToolCalls({"read"})
    parts = [p for at in range(0, len(written), size) for p in calls.push(written[at : at + size])]
    call, *text = [*parts, *calls.end()]
    assert json.loads(call.arguments) == {"path": "</tool_call>", "n": 1}
    assert "".join(text) == "and"


@pytest.mark.parametrize("size", [1, 2, 3, 7, 1000])
def test_pieces_of_any_size(size):
    calls, text = ToolCalls({"read"}), f"a < b <tool_call {CALL}\n\n{CALL} and <tool_ca"
    parts = [p for at in range(0, len(text), size) for p in calls.push(text[at : at + size])]
    parts += calls.end()
    assert "".join(p for p in parts if isinstance(p, str)) == "a < b <tool_call and <tool_ca"
    assert sum(isinstance(p, ToolCall) for p in parts) == 2


def test_the_last_closing_tag_may_be_missing(serve, knows_tools):
    assert ask(serve(knows_tools(CALL.removesuffix("\n</tool_call>")))).choices[0].message.tool_calls


def test_no_call_when_none_is_wanted(serve, knows_tools):
    reply = ask(serve(knows_tools(CALL)), tool_choice="none")
    assert reply.choices[0].message.content == CALL


def test_results_go_back(serve, knows_tools):
    served = serve(knows_tools(CALL))
    message = ask(served).choices[0].message
    result = {"role": "tool", "tool_call_id": message.tool_calls[0].id, "content": "print()"}
    served.openai.chat.completions.create(
        model="default", messages=[*ASK, message.model_dump(), result], tools=[TOOL]
    )


def test_a_model_that_knows_no_tools(serve, replay):
    served = serve(replay("x"))
    reply = served.http.post("/v1/chat/completions", json={"messages": ASK, "tools": [TOOL]})
    assert reply.status_code == 400
    assert "tools" in reply.json()["error"]["message"]
