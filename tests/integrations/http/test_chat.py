"""Chats, through the real client."""

import json

import openai
import pytest

from specedit import Sampling

ASK = [{"role": "user", "content": "Say it again: one two three"}]


def chunks_of(served, **options):
    return list(served.openai.chat.completions.create(model="default", messages=ASK, stream=True, **options))


def test_answer(serve, replay):
    served = serve(replay("one two three"))
    reply = served.openai.chat.completions.create(model="default", messages=ASK)
    assert reply.choices[0].message.content == "one two three"
    assert reply.choices[0].message.role == "assistant"
    assert reply.choices[0].finish_reason == "stop"
    assert reply.model == served.openai.models.list().data[0].id == "replay"


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"temperature": 1, "seed": 5},
        {"temperature": 1, "seed": 5, "n": 3},
        {"logprobs": True, "top_logprobs": 3},
        {"stop": ["e", "xyz"]},
        {"prediction": {"type": "content", "content": "x = 1\n"}, "presence_penalty": 0.5},
        {"extra_body": {"specedit": {"speculate": False}}},
    ],
    ids=str,
)
def test_streaming_gives_the_same(small, options):
    options = {"max_tokens": 40} | options
    whole = small.openai.chat.completions.create(model="default", messages=ASK, **options)
    chunks = chunks_of(small, **options)
    for choice in whole.choices:
        mine = [c.choices[0] for c in chunks if c.choices[0].index == choice.index]
        assert "".join(part.delta.content or "" for part in mine) == choice.message.content
        assert [part.finish_reason for part in mine if part.finish_reason] == [choice.finish_reason]
        content = [entry for part in mine if part.logprobs for entry in part.logprobs.content]
        assert content == (choice.logprobs.content if choice.logprobs else [])


def test_chunks_are_typed_right(serve, replay):
    served = serve(replay("one two"))
    with served.http.stream(
        "POST", "/v1/chat/completions", json={"messages": ASK, "stream": True}
    ) as response:
        assert response.headers["content-type"].startswith("text/event-stream")
        lines = [line for line in response.iter_lines() if line]
    assert lines[-1] == "data: [DONE]"
    chunks = [json.loads(line.removeprefix("data: ")) for line in lines[:-1]]
    assert len({chunk["id"] for chunk in chunks}) == 1
    assert {chunk["object"] for chunk in chunks} == {"chat.completion.chunk"}
    assert all(isinstance(chunk["created"], int) for chunk in chunks)
    assert chunks[0]["choices"][0]["delta"] == {"role": "assistant", "content": ""}
    assert None not in [value for chunk in chunks for value in chunk["choices"][0]["delta"].values()]
    assert [chunk["choices"][0]["finish_reason"] for chunk in chunks][-1] == "stop"
    assert not any("usage" in chunk for chunk in chunks)


@pytest.mark.parametrize("wanted", [True, False, None])
def test_streamed_usage(serve, replay, wanted):
    served = serve(replay("one two three"))
    options = {} if wanted is None else {"include_usage": wanted}
    chunks = chunks_of(served, stream_options=options)
    usages = [chunk.usage for chunk in chunks if chunk.usage]
    assert len(usages) == bool(wanted)
    if wanted:
        whole = served.openai.chat.completions.create(model="default", messages=ASK)
        assert chunks[-1].choices == []
        assert usages[0].completion_tokens == whole.usage.completion_tokens


def test_accepted_tokens_are_part_of_completion_tokens(serve, replay):
    served = serve(replay("one two three"))
    reply = served.openai.chat.completions.create(
        model="default",
        messages=[{"role": "user", "content": "Hi"}],
        prediction={"type": "content", "content": "one two three four"},
    )
    usage = reply.usage
    assert usage.completion_tokens == len("one two three") + 1  # one token a byte, and the end
    assert 0 < usage.completion_tokens_details.accepted_prediction_tokens <= usage.completion_tokens
    assert usage.completion_tokens_details.rejected_prediction_tokens > 0
    assert usage.total_tokens == usage.prompt_tokens + usage.completion_tokens


def test_what_was_asked_before_is_cached(small):
    ask = [{"role": "user", "content": "Something long enough to be worth keeping: " + "abc " * 50}]
    first, second = (
        small.openai.chat.completions.create(model="default", messages=ask, max_tokens=4).usage
        for _ in range(2)
    )
    assert first.prompt_tokens == second.prompt_tokens
    assert second.prompt_tokens_details.cached_tokens > first.prompt_tokens_details.cached_tokens


@pytest.mark.parametrize(
    "content",
    ["one two three", [{"type": "text", "text": "one "}, {"type": "text", "text": "two three"}], "", []],
)
def test_prediction_forms(serve, replay, content):
    reply = serve(replay("one two three")).openai.chat.completions.create(
        model="default",
        messages=[{"role": "user", "content": "Hi"}],
        prediction={"type": "content", "content": content},
    )
    assert reply.choices[0].message.content == "one two three"
    accepted = reply.usage.completion_tokens_details.accepted_prediction_tokens
    assert (accepted > 8) == bool(content)  # every other letter is guessed anyway: there are so few


@pytest.mark.parametrize(
    "limits",
    [
        {"max_tokens": 3},
        {"max_completion_tokens": 3},
        {"max_tokens": 3, "max_completion_tokens": 3},
        {"max_tokens": 3, "max_completion_tokens": None},
    ],
)
def test_limits(serve, replay, limits):
    reply = serve(replay("one two three")).http.post("/v1/chat/completions", json={"messages": ASK, **limits})
    assert reply.json()["choices"][0]["message"]["content"] == "one"
    assert reply.json()["choices"][0]["finish_reason"] == "length"


def test_several_answers_have_seeds_of_their_own(small):
    options = {"messages": ASK, "model": "default", "temperature": 1.5, "seed": 3, "max_tokens": 12}
    one = small.openai.chat.completions.create(**options)
    several = small.openai.chat.completions.create(n=3, **options)
    texts = [choice.message.content for choice in several.choices]
    assert texts[0] == one.choices[0].message.content
    assert len(set(texts)) == 3
    assert several.usage.prompt_tokens == one.usage.prompt_tokens


def test_logprobs_of_bytes(serve, replay):
    reply = serve(replay("é")).openai.chat.completions.create(
        model="default", messages=ASK, logprobs=True, top_logprobs=2
    )
    content = reply.choices[0].logprobs.content
    assert [entry.bytes for entry in content] == [[0xC3], [0xA9]]
    assert all(len(entry.top_logprobs) == 2 for entry in content)
    assert all(entry.logprob <= 0 for entry in content)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("frobnicate", 1),
        ("response_format", {"type": "xml"}),
        ("response_format", {"type": "json_schema"}),
        ("tool_choice", "required"),
        ("temperature", 3),
        ("temperature", "0"),
        ("temperature", 1e-9),
        ("logit_bias", {"999999": 1}),
        ("logit_bias", {"a": 1}),
        ("n", 0),
        ("max_tokens", 0),
        ("stop", [""]),
        ("audio", {}),
        ("specedit", {"frobnicate": 1}),
        ("seed", 2**70),
        ("reasoning_effort", "high"),
    ],
)
def test_what_is_not_supported_is_named(small, field, value):
    reply = small.http.post("/v1/chat/completions", json={"messages": ASK, "max_tokens": 2, field: value})
    error = reply.json()["error"]
    assert reply.status_code == 400
    assert error["param"].startswith(field)
    assert error["type"] == "invalid_request_error"
    assert field in error["message"]


def test_a_part_that_is_no_text_is_named(small):
    content = [{"type": "text", "text": "What is it?"}, {"type": "image_url", "image_url": {"url": "x"}}]
    reply = small.http.post("/v1/chat/completions", json={"messages": [{"role": "user", "content": content}]})
    assert reply.status_code == 400
    assert reply.json()["error"]["param"].startswith("messages.0.content.1")


@pytest.mark.parametrize(
    ("body", "param", "says"),
    [
        ({"stop": ["a"] * 17}, "stop", "at most 16"),
        ({"top_logprobs": 2}, "top_logprobs", "needs logprobs"),
        ({"logprobs": True, "top_logprobs": 21}, "top_logprobs", "20"),
    ],
)
def test_what_is_wrong_is_said_of_the_form_that_was_meant(small, body, param, says):
    error = small.http.post("/v1/chat/completions", json={"messages": ASK, **body}).json()["error"]
    assert error["param"] == param
    assert says in error["message"]


def test_limits_that_differ(small):
    body = {"messages": ASK, "max_tokens": 3, "max_completion_tokens": 4}
    reply = small.http.post("/v1/chat/completions", json=body)
    assert reply.status_code == 400
    assert "max_completion_tokens" in reply.json()["error"]["message"]


def test_json_that_fulfils_a_schema(small):
    schema = {
        "type": "object",
        "properties": {"size": {"enum": ["small", "large"]}},
        "required": ["size"],
        "additionalProperties": False,
    }
    reply = small.openai.chat.completions.create(
        model="default",
        messages=ASK,
        response_format={"type": "json_schema", "json_schema": {"name": "size", "schema": schema}},
        prediction={"type": "content", "content": '{"size": "large"}'},
    )
    assert json.loads(reply.choices[0].message.content)["size"] in ("small", "large")
    assert reply.choices[0].finish_reason == "stop"


@pytest.mark.parametrize("stream", [True, False])
def test_json_without_a_schema(small, stream):
    asked = {"messages": ASK, "response_format": {"type": "json_object"}, "max_tokens": 40, "stream": stream}
    asked["logit_bias"] = {str(small.runner.editor.tokenizer.convert_tokens_to_ids("}")): 30}
    reply = small.openai.chat.completions.create(model="default", **asked)
    texts = (
        [c.choices[0].delta.content or "" for c in reply] if stream else [reply.choices[0].message.content]
    )
    assert isinstance(json.loads("".join(texts)), dict)


def test_a_schema_that_cannot_be_followed(small):
    form = {"type": "json_schema", "json_schema": {"name": "x", "schema": {"type": "nonsense"}}}
    reply = small.http.post("/v1/chat/completions", json={"messages": ASK, "response_format": form})
    assert reply.status_code == 400
    assert "cannot be followed" in reply.json()["error"]["message"]


def test_what_clients_send_along_is_fine(small):
    small.openai.chat.completions.create(
        model="specedit",
        messages=ASK,
        max_tokens=2,
        user="me",
        metadata={"a": "b"},
        store=False,
        service_tier="auto",
        parallel_tool_calls=True,
        n=1,
        response_format={"type": "text"},
        seed=None,
    )


def test_an_answer_can_be_sent_back(small):
    first = small.openai.chat.completions.create(model="default", messages=ASK, max_tokens=3)
    small.openai.chat.completions.create(
        model="default",
        messages=[*ASK, first.choices[0].message.model_dump(), {"role": "user", "content": "Again"}],
        max_tokens=3,
    )


def test_every_setting_reaches_the_sampler(serve, replay, monkeypatch):
    editor, seen = replay("x"), []
    stream = editor.stream
    monkeypatch.setattr(editor, "stream", lambda *a, **o: seen.append(o["sampling"]) or stream(*a, **o))
    openai_has = {
        "temperature": 0.5,
        "top_p": 0.9,
        "seed": 7,
        "presence_penalty": 0.25,
        "frequency_penalty": -0.25,
        "logit_bias": {"3": 2.0},
    }
    ours = {"top_k": 5, "min_p": 0.1, "repetition_penalty": 1.5}
    body = {"messages": ASK, **openai_has, "specedit": ours}
    assert serve(editor).http.post("/v1/chat/completions", json=body).status_code == 200
    assert seen == [Sampling(**openai_has | ours | {"logit_bias": {3: 2.0}})]


def test_a_model_can_be_asked_about(serve, replay):
    models = serve(replay("x"), name="mine").openai.models
    assert models.retrieve("mine").owned_by == "specedit"
    with pytest.raises(openai.NotFoundError):
        models.retrieve("theirs")


def test_another_model(small):
    with pytest.raises(openai.NotFoundError) as caught:
        small.openai.chat.completions.create(model="gpt-4o", messages=ASK)
    assert caught.value.code == "model_not_found"


def test_a_prompt_that_is_too_long(serve, replay):
    reply = serve(replay("x", max_length=10)).http.post("/v1/chat/completions", json={"messages": ASK})
    assert reply.status_code == 400
    assert "context" in reply.json()["error"]["message"]


@pytest.mark.parametrize(
    "body",
    [
        b"{",
        b"",
        b"[]",
        b'{"messages": [{"role": "user", "content": "\\ud800"}]}',
        b'{"messages": [{"role": "user", "content": "x"}], "temperature": NaN}',
        b'{"messages": [{"role": "user", "content": "x"}], "seed": ' + b"9" * 5000 + b"}",
        b'{"messages": [{"role": "user", "content": "x"}], "metadata": ' + b"[" * 9999 + b"]" * 9999 + b"}",
        b'{"\\ud800": 1}',
        b"\xff",
    ],
    ids=range(9),
)
def test_broken_bodies(small, body):
    reply = small.http.post(
        "/v1/chat/completions", content=body, headers={"content-type": "application/json"}
    )
    assert reply.status_code == 400
    assert reply.json()["error"]["message"].endswith(".")
