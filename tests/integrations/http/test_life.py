"""Clients that leave, queues that are full, models that fail, servers that stop."""

import json
import logging
import socket
import subprocess
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import httpx
import openai
import pytest

from specedit.integrations.http.log import JsonFormatter

ASK = {"messages": [{"role": "user", "content": "Hi"}]}
# Plainly, so that it goes on for long enough to be left.
ENDLESS = {
    "prompt": "x = 1\n" * 4,
    "max_tokens": 60000,
    "stream": True,
    "specedit": {"speculate": False},
}


def until(condition, seconds=20):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it did not happen"
        time.sleep(0.01)


@pytest.fixture
def behind():
    """behind(call, ...): a future of the call, made in another thread."""
    with ThreadPoolExecutor(32) as pool:
        yield pool.submit


def test_who_leaves_frees_the_row(small):
    with small.http.stream("POST", "/v1/completions", json=ENDLESS) as response:
        next(response.iter_text())
        until(lambda: small.runner.editor.rows == 1)
    until(lambda: small.runner.editor.rows == small.runner.running == 0)


def test_curl_that_is_killed_frees_the_row(small):
    command = ["curl", "-sN", f"{small.url}/v1/completions", "--json", json.dumps(ENDLESS)]
    curl = subprocess.Popen(command, stdout=subprocess.PIPE)
    assert curl.stdout.readline()
    curl.kill()
    curl.wait()
    until(lambda: small.runner.editor.rows == small.runner.running == 0)


@pytest.mark.parametrize("stream", [True, False])
def test_who_leaves_before_the_first_token(serve, gated, stream):
    served = serve(gated)
    with pytest.raises(httpx.ReadTimeout):
        served.http.post("/v1/chat/completions", json=ASK | {"stream": stream}, timeout=0.5)
    time.sleep(0.2)
    gated.target.gate.set()
    until(lambda: not served.runner.running)
    assert gated.target.calls < 5  # of some two hundred
    assert served.http.post("/v1/chat/completions", json=ASK).status_code == 200


def test_who_leaves_the_queue_is_never_run(serve, gated, behind):
    served = serve(gated)
    first = behind(served.http.post, "/v1/chat/completions", json=ASK)
    until(lambda: gated.target.calls)
    with pytest.raises(httpx.ReadTimeout):
        served.http.post("/v1/chat/completions", json=ASK, timeout=0.3)
    until(lambda: not served.runner.waiting)
    gated.target.gate.set()
    assert first.result().status_code == 200
    assert 'specedit_answers_total{outcome="cancelled"} 1.0' in served.http.get("/metrics").text


def test_more_answers_than_there_will_ever_be_room_for(serve, gated):
    served = serve(gated, waiting=1)
    reply = served.http.post("/v1/chat/completions", json=ASK | {"n": 3})
    assert reply.status_code == 400
    assert reply.json()["error"]["param"] == "n"


def test_a_request_that_is_never_finished_does_not_hold_the_server(serve, replay):
    served = serve(replay("x"), grace=60)
    address = served.url.removeprefix("http://").split(":")
    with socket.create_connection((address[0], int(address[1]))) as half:
        half.sendall(b"POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n\r\n{")
        time.sleep(0.2)
        served.server.should_exit = True
        until(lambda: served.runner.closing and not served.server.server_state.connections)


def test_a_full_queue(serve, gated, behind):
    served = serve(gated, waiting=1)
    accepted = [behind(served.http.post, "/v1/chat/completions", json=ASK) for _ in range(2)]
    until(lambda: served.runner.waiting == 1)
    with pytest.raises(openai.RateLimitError) as caught:
        served.openai.chat.completions.create(model="default", **ASK)
    assert int(caught.value.response.headers["retry-after"]) > 0
    health = served.http.get("/health").json()
    assert (health["running"], health["waiting"]) == (1, 1)
    gated.target.gate.set()
    assert [reply.result().status_code for reply in accepted] == [200, 200]


def test_a_long_prefill_is_kept_alive(serve, gated, behind):
    served = serve(gated, ping=0.2)
    opening = threading.Timer(0.9, gated.target.gate.set)
    opening.start()
    # The client gives up after half a second without a byte.
    with served.http.stream(
        "POST", "/v1/chat/completions", json=ASK | {"stream": True}, timeout=0.5
    ) as reply:
        text = "".join(reply.iter_text())
    assert text.startswith(": still working\n\n")
    assert text.endswith("data: [DONE]\n\n")


@pytest.mark.parametrize("stream", [True, False])
def test_a_failure_is_that_requests_alone(serve, gated, stream, caplog):
    served = serve(gated)
    gated.target.gate.set()
    gated.target.broken = True
    with pytest.raises(openai.InternalServerError, match="the server's log") as failure:
        served.openai.chat.completions.create(model="default", stream=stream, **ASK)
    [line] = [json.loads(JsonFormatter().format(r)) for r in caplog.records if r.levelname == "ERROR"]
    assert line["id"] == failure.value.response.headers["x-request-id"]
    assert line["said"] == "CUDA error: out of cake"
    gated.target.broken = False
    assert served.http.post("/v1/chat/completions", json=ASK).status_code == 200


def test_a_failure_in_mid_stream_is_an_event(serve, gated):
    served = serve(gated)
    gated.target.gate.set()
    stream = served.openai.chat.completions.create(model="default", stream=True, **ASK)
    next(stream)
    gated.target.gate.clear()
    gated.target.broken = True
    gated.target.gate.set()
    with pytest.raises(openai.APIError, match="the server's log"):
        list(stream)


def test_sixteen_clients_get_their_own_answers(small, behind):
    def body(number):
        lines = "".join(f"marker_{number}_{line} = {line}\n" for line in range(1 + number % 7))
        return {
            "prompt": lines,
            "max_tokens": 20 + 5 * number,
            "temperature": 1,
            "seed": number,
            "specedit": {"references": [lines]},
        }

    def whole(number):
        return small.http.post("/v1/completions", json=body(number)).json()["choices"][0]["text"]

    def streamed(number):
        chunks = small.openai.completions.create(
            model="default", stream=True, extra_body=body(number), prompt=body(number)["prompt"]
        )
        return "".join(chunk.choices[0].text for chunk in chunks)

    def leaving(number):
        with small.http.stream("POST", "/v1/completions", json=body(number) | {"stream": True}) as response:
            next(response.iter_text())

    ways = [whole, streamed, whole, leaving]
    alone = [whole(number) for number in range(16)]
    together = [behind(ways[number % 4], number) for number in range(16)]
    for number, answer in enumerate(together):
        assert answer.result() in (alone[number], None)
    assert len({*alone}) == 16
    editor = small.runner.editor
    until(lambda: editor.rows == 0)
    editor.forget()
    assert editor.kv_bytes == 0


def test_stopping_lets_answers_finish(serve, gated, behind):
    served = serve(gated, grace=10)
    reply = behind(httpx.post, f"{served.url}/v1/chat/completions", json=ASK)
    until(lambda: gated.target.calls)
    served.server.should_exit = True
    until(lambda: served.runner.closing)
    with pytest.raises(httpx.TransportError):
        httpx.get(f"{served.url}/health")
    gated.target.gate.set()
    assert reply.result().json()["choices"][0]["finish_reason"] == "stop"


@pytest.mark.parametrize("stream", [True, False])
def test_stopping_ends_what_takes_too_long(small, edit_model, serve, behind, stream):
    served = serve(small.runner.editor, grace=0.3)
    reply = behind(httpx.post, f"{served.url}/v1/completions", json=ENDLESS | {"stream": stream}, timeout=30)
    until(lambda: served.runner.editor.rows)
    served.server.should_exit = True
    answer = reply.result()
    assert answer.status_code == (200 if stream else 503)
    assert "The answer was stopped" in answer.text


def test_stopping_does_not_wait_for_a_pass(serve, gated, behind):
    served = serve(gated, grace=0.2)
    reply = behind(httpx.post, f"{served.url}/v1/chat/completions", json=ASK)
    until(lambda: gated.target.calls)
    served.server.should_exit = True
    assert reply.result().json()["error"]["code"] == "stopping"


def test_logs_say_what_happened_and_nothing_of_what_was_written(small, caplog):
    with caplog.at_level(logging.INFO, "specedit.http"):
        small.http.post("/v1/completions", json={"prompt": "hush_hush", "max_tokens": 3})
        reply = small.http.post("/v1/completions", json={"prompt": "hush_hush", "hush_hush": 3})
        until(lambda: len(caplog.records) >= 2)
    lines = [JsonFormatter().format(record) for record in caplog.records]
    entries = [json.loads(line) for line in lines]
    assert entries[0]["completion_tokens"] == 3
    assert entries[1]["status"] == 400
    assert entries[1]["id"] == reply.headers["x-request-id"]
    assert "hush" not in "".join(lines)


def test_metrics(serve, replay):
    served = serve(replay("one two three"))
    body = ASK | {"prediction": {"type": "content", "content": "one two three four"}}
    usage = served.http.post("/v1/chat/completions", json=body).json()["usage"]
    text = served.http.get("/metrics").text
    values = dict(line.rsplit(" ", 1) for line in text.splitlines() if not line.startswith("#"))
    tokens = sum(float(v) for name, v in values.items() if name.startswith("specedit_tokens_total"))
    assert tokens == usage["completion_tokens"]
    assert float(values["specedit_first_token_seconds_count"]) == 1
    assert float(values['specedit_requests_total{path="/v1/chat/completions",status="200"}']) == 1
    assert {"specedit_running", "specedit_waiting", "specedit_batch_rows", "specedit_kv_bytes"} <= {*values}
