"""The middleware in front of a small ASGI application that answers as vLLM does."""

import json

import httpx
import pytest
from fastapi import FastAPI, Request
from fastapi.responses import JSONResponse, StreamingResponse

from specedit.integrations.vllm import Predictions

ANSWER = "one two five"


@pytest.fixture
def asked():
    """The bodies that arrived."""
    return []


@pytest.fixture
def client(asked):
    app = FastAPI()

    @app.post("/tokenize")
    async def tokenize(request: Request):
        words = (await request.json())["prompt"].split()
        return {"tokens": [] if await request.is_disconnected() else [hash(word) for word in words]}

    @app.post("/v1/chat/completions")
    async def chat(request: Request):
        body = await request.json()
        asked.append(body)
        if body.get("stream"):
            return StreamingResponse(stream(), media_type="text/event-stream")
        if "messages" not in body:
            return JSONResponse({"error": {"message": "messages"}}, status_code=400)
        choice = {"index": 0, "message": {"role": "assistant", "content": ANSWER}}
        return {"choices": [choice], "usage": {"completion_tokens": 3}}

    async def stream():
        for word in ANSWER.split(" "):
            piece = {"choices": [{"index": 0, "delta": {"content": f"{word} "}}]}
            yield f"data: {json.dumps(piece)}\n\n"
        yield 'data: {"choices": [], "usage": {"completion_tokens": 3}}\n\ndata: [DONE]\n\n'

    transport = httpx.ASGITransport(app=Predictions(app))
    return httpx.AsyncClient(transport=transport, base_url="http://vllm")


def post(client, body, **options):
    import anyio

    return anyio.run(lambda: client.post("/v1/chat/completions", json=body, **options))


MESSAGES = {"messages": [{"role": "user", "content": "count"}]}
PREDICTED = {"prediction": {"type": "content", "content": "one two three four"}}
COUNTED = {"accepted_prediction_tokens": 2, "rejected_prediction_tokens": 2}


def test_a_prediction_goes_where_the_proposer_reads_it(client, asked):
    parts = {"prediction": {"type": "content", "content": [{"type": "text", "text": "one"}]}}
    extras = {"specedit": {"references": ["two"], "language": "python"}, "vllm_xargs": {"mine": 1}}
    post(client, MESSAGES | parts | extras)
    (body,) = asked
    given = body.pop("vllm_xargs")
    assert body == MESSAGES
    assert given.pop("specedit_client")
    assert given == {
        "mine": 1,
        "specedit_prediction": "one",
        "specedit_references": ["two"],
        "specedit_language": "python",
    }


def test_usage_says_what_became_of_a_prediction(client):
    answer = post(client, MESSAGES | PREDICTED).json()
    assert answer["choices"][0]["message"]["content"] == ANSWER
    assert answer["usage"] == {"completion_tokens": 3, "completion_tokens_details": COUNTED}


def test_so_does_that_of_a_stream(client):
    lines = post(client, MESSAGES | PREDICTED | {"stream": True}).text.split("\n\n")
    assert json.loads(lines[-3][6:])["usage"]["completion_tokens_details"] == COUNTED
    assert lines[-2:] == ["data: [DONE]", ""]


def test_what_asks_for_nothing_passes_as_it_is(client):
    answer = post(client, MESSAGES).json()
    assert answer["usage"] == {"completion_tokens": 3}


def test_the_server_says_itself_what_is_wrong(client):
    assert post(client, PREDICTED).status_code == 400


def test_an_answer_that_cannot_be_counted_is_not_lost(client, monkeypatch):
    async def fails(self, text):
        raise RuntimeError("no /tokenize here")

    monkeypatch.setattr("specedit.integrations.vllm.predictions._Counting._tokens", fails)
    answer = post(client, MESSAGES | PREDICTED).json()
    assert answer["choices"][0]["message"]["content"] == ANSWER
    lines = post(client, MESSAGES | PREDICTED | {"stream": True}).text.split("\n\n")
    assert lines[-2:] == ["data: [DONE]", ""]


def test_json_that_is_too_deep_is_left_to_the_server(client, asked):
    import anyio

    body = b'{"a": ' + b"[" * 100_000 + b"]" * 100_000 + b"}"
    headers = {"content-type": "application/json"}
    with pytest.raises(RecursionError):  # this small server's own
        anyio.run(lambda: client.post("/v1/chat/completions", content=body, headers=headers))


def test_keys_tell_clients_apart_whatever_they_claim(client, asked):
    for key in ("a", "a", "b"):
        claimed = {"vllm_xargs": {"specedit_client": "somebody else"}}
        post(client, MESSAGES | claimed, headers={"Authorization": f"Bearer {key}"})
    first, again, other = (body["vllm_xargs"]["specedit_client"] for body in asked)
    assert first == again != other
    assert "somebody else" not in (first, other)
