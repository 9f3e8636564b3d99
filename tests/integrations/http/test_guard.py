"""Who may call, from where, with what."""

import socket
import subprocess

import pytest

from specedit import SpecEditError
from specedit.integrations.http.settings import Settings

PAGE = "https://editor.example"
PREFLIGHT = {
    "Origin": PAGE,
    "Access-Control-Request-Method": "POST",
    "Access-Control-Request-Headers": "authorization,content-type,x-stainless-lang",
}


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.168.1.2", "example.org"])
def test_others_need_a_key(host):
    with pytest.raises(SpecEditError, match="--api-key"):
        Settings(host=host)
    Settings(host=host, api_keys=("k",))


@pytest.mark.parametrize("host", ["127.0.0.1", "::1", "localhost", "127.0.0.2"])
def test_this_machine_needs_none(host):
    Settings(host=host)


def test_an_empty_key_is_none():
    with pytest.raises(SpecEditError, match="empty"):
        Settings(api_keys=("",))


@pytest.mark.parametrize("path", ["/v1/models", "/metrics", "/openapi.json", "/nowhere"])
@pytest.mark.parametrize("header", [None, "Bearer wrong", "Basic key", "Bearer", "Bearer \xff"])
def test_wrong_keys(serve, replay, path, header):
    served = serve(replay("x"), api_keys=("key",))
    headers = {"Authorization": header.encode("latin-1")} if header else {}
    reply = served.http.get(path, headers=headers)
    assert reply.status_code == 401
    assert reply.json()["error"]["code"] == "invalid_api_key"


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/v1/chat/completions", {"messages": [{"role": "user", "content": "Hi"}]}),
        ("/v1/completions", {"prompt": "Hi"}),
        ("/v1/rewrite", {"text": "x", "instruction": "y"}),
        ("/v1/code/apply", {"initial_code": "x", "edit_snippet": "y"}),
    ],
)
def test_each_key_has_a_memory_of_its_own(serve, replay, monkeypatch, path, body):
    editor, clients = replay("x"), []
    stream = editor.stream
    monkeypatch.setattr(editor, "stream", lambda *a, **o: clients.append(o["client"]) or stream(*a, **o))
    served = serve(editor, api_keys=("one", "two"))
    for key in ("one", "two", "one"):
        reply = served.http.post(path, json=body, headers={"Authorization": f"Bearer {key}"})
        assert reply.status_code == 200
    assert clients[0] == clients[2] != clients[1]
    assert not {"one", "two", ""} & {*clients}


def test_health_needs_no_key(serve, replay):
    assert serve(replay("x"), api_keys=("key",)).http.get("/health").json()["status"] == "ok"


@pytest.mark.parametrize(
    ("host", "status"),
    [
        ("127.0.0.1", 200),
        ("localhost:8317", 200),
        ("[::1]:8317", 200),
        ("evil.example", 403),
        ("evil.example:8317", 403),
        ("localhost.evil.example", 403),
        ("127.0.0.1.evil.example", 403),
        ("192.168.1.2", 403),
        ("0.0.0.0", 403),
        ("[::1", 403),
        ("", 403),
        ("my.box", 200),
    ],
)
def test_a_rebound_name_is_refused(serve, replay, host, status):
    reply = serve(replay("x"), hosts=("my.box",)).http.get("/health", headers={"Host": host})
    assert reply.status_code == status


@pytest.mark.parametrize("origin", ["https://evil.example", "null", "http://localhost:1", "http://127.0.0.1"])
def test_other_pages_are_refused(serve, replay, origin):
    reply = serve(replay("x")).http.post("/v1/rewrite", json={}, headers={"Origin": origin})
    assert reply.status_code == 403
    assert reply.json()["error"]["code"] == "origin_not_allowed"


def test_the_own_page_may_call(serve, replay):
    served = serve(replay("x"))
    assert served.http.get("/health", headers={"Origin": served.url}).status_code == 200


def test_preflight_needs_no_key(serve, replay):
    served = serve(replay("x"), api_keys=("key",), origins=(PAGE,))
    reply = served.http.options("/v1/chat/completions", headers=PREFLIGHT)
    assert reply.status_code == 200
    assert reply.headers["access-control-allow-origin"] == PAGE
    assert "POST" in reply.headers["access-control-allow-methods"]
    assert "x-stainless-lang" in reply.headers["access-control-allow-headers"]


def test_origins_may_be_given_as_addresses(serve, replay):
    served = serve(replay("x"), origins=(f"{PAGE.upper()}/",))
    assert served.http.options("/v1/rewrite", headers=PREFLIGHT).status_code == 200
    reply = served.http.get("/v1/models", headers={"Origin": PAGE})
    assert reply.headers["access-control-allow-origin"] == PAGE


def test_every_page_may_call_if_the_server_says_so(serve, replay):
    served = serve(replay("x"), origins=("*",))
    assert served.http.options("/v1/rewrite", headers=PREFLIGHT).status_code == 200
    body = {"text": "x\n", "instruction": "y"}
    reply = served.http.post("/v1/rewrite", json=body, headers={"Origin": PAGE})
    assert (reply.status_code, reply.headers["access-control-allow-origin"]) == (200, "*")


def test_preflight_of_a_private_network(serve, replay):
    served = serve(replay("x"), origins=(PAGE,))
    asks = PREFLIGHT | {"Access-Control-Request-Private-Network": "true"}
    reply = served.http.options("/v1/rewrite", headers=asks)
    assert reply.headers["access-control-allow-private-network"] == "true"


def test_preflight_of_another_page(serve, replay):
    reply = serve(replay("x"), origins=("https://other.example",)).http.options(
        "/v1/rewrite", headers=PREFLIGHT
    )
    assert reply.status_code == 403
    assert "access-control-allow-origin" not in reply.headers


def test_allowed_pages_can_read_errors(serve, replay):
    served = serve(replay("x"), api_keys=("key",), origins=(PAGE,))
    reply = served.http.get("/v1/models", headers={"Origin": PAGE})
    assert reply.status_code == 401
    assert reply.headers["access-control-allow-origin"] == PAGE


def test_large_bodies(serve, replay):
    served = serve(replay("x"), body=1000)
    body = b'{"text": "' + b"x" * 2000 + b'"}'
    headers = {"content-type": "application/json"}
    said = served.http.post("/v1/rewrite", content=body, headers=headers)
    chunked = served.http.post("/v1/rewrite", content=iter([body[:900], body[900:]]), headers=headers)
    assert said.status_code == chunked.status_code == 413
    assert said.json() == chunked.json()
    assert served.http.get("/health").status_code == 200


def test_a_body_that_does_not_come(serve, replay, monkeypatch):
    monkeypatch.setattr("specedit.integrations.http.guard._BODY_SECONDS", 0.2)
    served = serve(replay("x"))
    address = served.http.base_url
    with socket.create_connection((address.host, address.port), timeout=10) as sock:
        head = f"POST /v1/rewrite HTTP/1.1\r\nHost: {address.host}\r\nContent-Type: application/json"
        sock.sendall(f"{head}\r\nContent-Length: 100\r\n\r\n{{".encode())
        assert sock.recv(100).startswith(b"HTTP/1.1 408 ")
    assert served.http.get("/health").status_code == 200


def test_curl(serve, replay):
    served = serve(replay("one two"), api_keys=("key",))
    body = '{"stream": true, "messages": [{"role": "user", "content": "Hi"}]}'
    curl = f"curl -sN {served.url}/v1/chat/completions -H 'Authorization: Bearer key' --json @-"
    done = subprocess.run(curl, shell=True, input=body, capture_output=True, text=True, check=True)
    assert done.stdout.endswith("data: [DONE]\n\n")


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/nowhere", 404),
        ("GET", "/v1/rewrite", 405),
        ("DELETE", "/health", 405),
        ("GET", "/docs", 404),
    ],
)
def test_errors_have_one_shape(small, method, path, status):
    reply = small.http.request(method, path)
    assert reply.status_code == status
    assert {*reply.json()["error"]} == {"message", "type", "param", "code"}
    assert (status == 405) == ("allow" in reply.headers)


def test_a_form_is_no_request(small):
    reply = small.http.post("/v1/rewrite", content="{}", headers={"content-type": "text/plain"})
    assert reply.status_code == 400
    assert "application/json" in reply.json()["error"]["message"]


@pytest.mark.parametrize(
    "body",
    [
        {"prompt": [-1] * 1_000_000},
        {"messages": [0] * 1_000_000},
        {"messages": [{"role": "user", "content": [0] * 1_000_000}]},
        {"messages": [{"role": "user", "content": "x"} | {f"k{n}": 0 for n in range(20_000)}]},
        {f"k{n}": 0 for n in range(20_000)},
    ],
)
def test_a_million_mistakes_are_refused_as_fast_as_one(small, body):
    """It took gigabytes, and nobody else was answered meanwhile."""
    for path in ("/v1/completions", "/v1/chat/completions"):
        assert small.http.post(path, json=body).status_code == 400
