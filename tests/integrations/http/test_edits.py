"""The edit API."""

import json

import pytest


def events_of(served, path, body):
    with served.http.stream("POST", path, json={**body, "stream": True}) as response:
        assert response.status_code == 200
        blocks = "".join(response.iter_text()).split("\n\n")
    events = [dict(line.split(": ", 1) for line in block.splitlines()) for block in blocks if block]
    return [(event["event"], json.loads(event["data"])) for event in events if "event" in event]


def rewrite_of(edit):
    return {"name": edit.name, "text": edit.old.decode(), "instruction": edit.instruction}


def test_rewrite(small, edits):
    reply = small.http.post("/v1/rewrite", json=rewrite_of(edits["rename"])).json()
    assert reply["text"] == edits["rename"].new.decode()
    assert "+def read_config(path):" in reply["diff"]
    assert reply["problems"] == []
    assert reply["stats"]["completion_tokens"] > reply["stats"]["accepted_prediction_tokens"] > 0


def test_streaming_gives_the_same(small, edits):
    whole = small.http.post("/v1/rewrite", json=rewrite_of(edits["rename"])).json()
    events = events_of(small, "/v1/rewrite", rewrite_of(edits["rename"]))
    pieces = [data for name, data in events if name == "piece"]
    name, result = events[-1]
    assert name == "result"
    assert "".join(piece["text"] for piece in pieces) == result["text"] == whole["text"]
    assert "".join(data["text"] for name, data in events if name == "hunk") in result["diff"]
    assert [name for name, _ in events].count("hunk") == result["diff"].count("\n@@ ")


def test_every_letter_has_a_source(small, edits):
    events = events_of(small, "/v1/rewrite", rewrite_of(edits["rename"]))
    pieces = [data for name, data in events if name == "piece"]
    assert all("".join(t["text"] for t in piece["tokens"]) == piece["text"] for piece in pieces)
    sources = {token["source"] for piece in pieces for token in piece["tokens"]}
    assert "target" in sources
    assert len(sources) > 1


def test_wrong_guesses_are_told(serve, replay):
    served = serve(replay("x = 2\ny = 5\nz = 3\n````"))
    body = {"text": "x = 2\ny = 2\nz = 3\n", "instruction": "Let y be 5."}
    pieces = [data for name, data in events_of(served, "/v1/rewrite", body) if name == "piece"]
    wrong = [guess for piece in pieces for guess in piece["rejected"]]
    assert any(guess["text"].startswith("2") for guess in wrong)
    assert all(guess["source"] for guess in wrong)


def test_problems_are_told(small, edits):
    reply = small.http.post("/v1/rewrite", json=rewrite_of(edits["placeholder"])).json()
    assert reply["problems"][0]["line"] == 3


def test_an_instruction_of_spaces(small):
    reply = small.http.post("/v1/rewrite", json={"text": "x", "instruction": " "})
    assert reply.status_code == 400
    assert "instruction" in reply.json()["error"]["message"]


def test_references_are_shown(serve, replay):
    served = serve(replay("x\n````"))
    stats = [
        served.http.post("/v1/rewrite", json={"text": "x\n", "instruction": "Fix.", **more}).json()["stats"]
        for more in ({}, {"references": {"other.py": "y = 1\n"}})
    ]
    assert stats[1]["prompt_tokens"] > stats[0]["prompt_tokens"]


def test_apply(serve, replay):
    served = serve(replay("x = 2\ny = 1\n````"))
    body = {"initial_code": "x = 1\ny = 1\n", "edit_snippet": "x = 2\n# ... existing code ..."}
    reply = served.http.post("/v1/code/apply", json=body).json()
    assert reply["mergedCode"] == "x = 2\ny = 1\n"
    assert reply["usage"]["total_tokens"] > reply["usage"]["completion_tokens"] > 0
    assert reply["problems"] == []
    assert events_of(served, "/v1/code/apply", body)[-1][1]["mergedCode"] == reply["mergedCode"]


def test_words_of_a_snippet_are_no_leave_to_change_tabs(serve, replay):
    """Somebody who asks to "format" may get spaces; code that calls format() says nothing."""
    body = {
        "initial_code": "def f(x):\n\treturn x\n\n\ndef g(x):\n\treturn x\n",
        "edit_snippet": "def f(x):\n    return 'tab {}'.format(x)\n# ... existing code ...",
    }
    answer = "def f(x):\n    return 'tab {}'.format(x)\n\n\ndef g(x):\n    return x\n````"
    reply = serve(replay(answer)).http.post("/v1/code/apply", json=body).json()
    assert reply["mergedCode"] == "def f(x):\n\treturn 'tab {}'.format(x)\n\n\ndef g(x):\n\treturn x\n"


def test_nothing_is_read_from_disk(serve, replay, tmp_path):
    secret = tmp_path / "secret.py"
    secret.write_text("SECRET = 1\n")
    body = {"text": "x\n", "instruction": "Fix.", "path": str(secret)}
    reply = serve(replay("y\n```")).http.post("/v1/rewrite", json=body)
    assert reply.json()["text"] == "y\n"
    assert "SECRET" not in reply.text


@pytest.mark.parametrize("field", ["frobnicate", "write"])
def test_unknown_fields_are_named(small, field):
    reply = small.http.post("/v1/rewrite", json={"text": "x", "instruction": "y", field: 1})
    assert reply.status_code == 400
    assert reply.json()["error"]["param"] == field
