"""Providers of OpenAI's API: our own server, and small ones that refuse what hosted ones refuse."""

import json
import sys
import threading
from contextlib import ExitStack, contextmanager

import pytest
import uvicorn
from fastapi import FastAPI, Request
from fastapi.responses import JSONResponse, StreamingResponse

from specedit import Refused, Sampling, SpecEditError
from specedit.cli import main
from specedit.integrations.hosted import HostedEditor
from specedit.integrations.http.serve import listen
from specedit.integrations.http.settings import Settings

OLD = "def load(path):\n    return path\n"
NEW = "def read(path):\n    return path\n"
ANSWER = f"Here it is:\n```python\n{NEW}```\n"
MESSAGES = [{"role": "user", "content": "Say it again."}]


class Provider:
    """Streams one answer, and refuses what it is told to refuse.

    Attributes:
        asked: the bodies that arrived.
        keys: the keys that came with them.
    """

    def __init__(self, answer=ANSWER, refuses=(), reason="stop", status=400, breaks=False):
        self.answer, self.reason, self.breaks = answer, reason, breaks
        self.refuses, self.status = refuses, status
        self.asked, self.keys = [], []
        self.app = FastAPI()
        self.app.post("/v1/chat/completions")(self.complete)

    async def complete(self, request: Request):
        body = await request.json()
        self.asked.append(body)
        self.keys.append(request.headers["authorization"])
        for field in self.refuses:
            if body.get(field):
                said = f"Unsupported parameter: '{field}' with the key {self.keys[-1]}."
                return JSONResponse({"error": {"message": said, "param": field}}, self.status)
        return StreamingResponse(self.events(), media_type="text/event-stream")

    async def events(self):
        for piece in self.answer.splitlines(keepends=True):
            yield event([{"index": 0, "delta": {"content": piece}}])
        if self.breaks:
            return
        yield event([{"index": 0, "delta": {}, "finish_reason": self.reason}])
        details = {"accepted_prediction_tokens": 7, "rejected_prediction_tokens": 5}
        usage = {"prompt_tokens": 30, "completion_tokens": 20, "total_tokens": 50}
        yield event([], usage=usage | {"completion_tokens_details": details})
        yield "data: [DONE]\n\n"


def event(choices, **fields):
    about = {"id": "1", "object": "chat.completion.chunk", "created": 1, "model": "m", "choices": choices}
    return f"data: {json.dumps(about | fields)}\n\n"


@contextmanager
def running(provider):
    with listen(Settings(port=0)) as sock:
        server = uvicorn.Server(uvicorn.Config(provider.app, log_level="error"))
        thread = threading.Thread(target=server.run, kwargs={"sockets": [sock]})
        thread.start()
        try:
            yield f"http://127.0.0.1:{sock.getsockname()[1]}/v1"
        finally:
            server.should_exit = True
            thread.join(20)


@pytest.fixture
def provider():
    return Provider()


@pytest.fixture
def ask():
    """ask(provider, **options): an editor for it."""
    with pytest.MonkeyPatch.context() as patch, ExitStack() as stack:
        patch.delenv("SPECEDIT_API_KEY", raising=False)
        enter = stack.enter_context
        yield lambda provider, **options: HostedEditor(enter(running(provider)), "m", **options)


def test_the_file_goes_along_as_prediction(provider, ask):
    result = ask(provider).rewrite(OLD, "Rename load to read.", name="a.py")
    (body,) = provider.asked
    assert body["prediction"] == {"type": "content", "content": f"```python\n{OLD}```"}
    assert result.text == NEW
    assert not result.problems


def test_what_became_of_the_prediction_is_counted(provider, ask):
    editor = ask(provider, price=10.0)
    stats = editor.rewrite(OLD, "Rename load to read.", name="a.py").stats
    assert (stats.accepted_tokens, stats.rejected_tokens, stats.tokens) == (7, 5, 20)
    assert editor.cost(stats) == 5 * 10.0 / 1e6
    assert "5 tokens of the prediction were rejected" in editor.rejected(stats)


def test_a_provider_that_refuses_predictions_is_asked_once_without(ask):
    provider = Provider(refuses=["prediction"], status=422)
    editor = ask(provider)
    with pytest.warns(UserWarning, match="takes no prediction here"):
        assert editor.rewrite(OLD, "Rename it.", name="a.py").text == NEW
    assert editor.rewrite(OLD, "Rename it.", name="a.py").text == NEW
    assert ["prediction" in body for body in provider.asked] == [True, False, False]


def test_penalties_that_forbid_a_prediction_do_so_for_themselves_alone(ask):
    class Picky(Provider):
        async def complete(self, request: Request):
            body = await request.json()
            self.refuses = ["prediction"] if "presence_penalty" in body else []
            return await super().complete(request)

    provider = Picky()
    editor = ask(provider)
    with pytest.warns(UserWarning, match="takes no prediction here"):
        editor.generate(MESSAGES, prediction="it", sampling=Sampling(presence_penalty=1.0))
    editor.generate(MESSAGES, prediction="it")
    assert ["prediction" in body for body in provider.asked] == [True, False, True]


def test_a_key_goes_along_and_is_never_shown(ask):
    provider = Provider(refuses=["messages"])
    with pytest.raises(SpecEditError, match="Unsupported parameter") as caught:
        ask(provider, key="sk-secret").generate(MESSAGES)
    assert provider.keys == ["Bearer sk-secret"]
    assert "sk-secret" not in str(caught.value)


def test_another_addresses_variable_is_not_read(provider, ask, monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", "sk-secret")
    ask(provider).generate(MESSAGES)
    assert provider.keys == ["Bearer none"]


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"reason": "length"}, "cut by a limit"),
        ({"reason": "content_filter"}, "content_filter"),
        ({"answer": f"```python\n{NEW}"}, "before its code block did"),
    ],
)
def test_an_answer_that_is_not_whole_is_not_taken(ask, tmp_path, options, said):
    file = tmp_path / "a.py"
    file.write_text(OLD)
    result = ask(Provider(**options)).rewrite(file, "Rename it.")
    with pytest.raises(Refused, match=said):
        result.write()
    assert file.read_text() == OLD


def test_an_answer_that_breaks_off_is_said(ask):
    with pytest.raises(SpecEditError, match="broke off"):
        ask(Provider(breaks=True)).generate(MESSAGES)


def test_nobody_there():
    with pytest.raises(SpecEditError, match="check the address"):
        HostedEditor("http://127.0.0.1:9/v1", "m").generate(MESSAGES)


@pytest.mark.parametrize("base", ["api.openai.com", "ftp://x", "https://"])
def test_what_is_no_address(base):
    with pytest.raises(SpecEditError, match="is no address"):
        HostedEditor(base, "m")


def test_our_own_server_honours_it(serve, replay):
    served = serve(replay(ANSWER))
    result = HostedEditor(f"{served.url}/v1", "default").rewrite(OLD, "Rename load to read.", name="a.py")
    assert result.text == NEW
    assert result.stats.accepted_tokens > 0


def command(monkeypatch, *arguments):
    """Runs it; its exit code."""
    monkeypatch.setattr(sys, "argv", ["specedit", "rewrite", *map(str, arguments)])
    with pytest.raises(SystemExit) as end:
        main()
    return end.value.code or 0


def test_the_command_writes_what_a_provider_answers(ask, provider, monkeypatch, tmp_path, capsys):
    file, key = tmp_path / "a.py", tmp_path / "key"
    file.write_text(OLD)
    key.write_text("sk-secret\n")
    options = ["--api-base", ask(provider).base, "--api-model", "m", "--api-key-file", key, "--api-price", 10]
    assert command(monkeypatch, file, "-i", "Rename load to read.", "--write", *options) == 0
    assert file.read_text() == NEW
    assert provider.keys == ["Bearer sk-secret"]
    assert "they cost $0.0001" in " ".join(capsys.readouterr().err.split())


@pytest.mark.parametrize("other", [["--server", "http://x"], ["--model", "x"], ["--compare"], []])
def test_what_does_not_go_together_is_wrong_usage(monkeypatch, tmp_path, other):
    (tmp_path / "a.py").write_text(OLD)
    model = ["--api-model", "m"] if other else []
    options = ["--api-base", "http://127.0.0.1:9/v1", *model, *other]
    assert command(monkeypatch, tmp_path / "a.py", "-i", "Rename it.", *options) == 2
