"""Providers of OpenAI's API: our own server, and small ones that refuse what hosted ones refuse."""

import asyncio
import json
import sys
import threading
import time
from contextlib import ExitStack, contextmanager

import pytest
import uvicorn
from fastapi import FastAPI, Request
from fastapi.responses import JSONResponse, RedirectResponse, StreamingResponse

from specedit import Refused, Sampling, SpecEditError
from specedit.cli import main
from specedit.integrations.hosted import HostedEditor
from specedit.integrations.http.serve import listen
from specedit.integrations.http.settings import Settings
from specedit.types import Cancelled

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


@pytest.mark.parametrize(("field", "options"), [("prediction", {"status": 422}), ("stream_options", {})])
def test_a_provider_that_refuses_what_is_not_needed_is_asked_once_with_it(ask, field, options):
    provider = Provider(refuses=[field], **options)
    editor = ask(provider)
    with pytest.warns(UserWarning, match=f"takes no {field} here"):
        assert editor.rewrite(OLD, "Rename it.", name="a.py").text == NEW
    assert editor.rewrite(OLD, "Rename it.", name="a.py").text == NEW
    assert [field in body for body in provider.asked] == [True, False, False]


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


MARKDOWN = "# Title\n\n```\nload x\n```\n\nThe end.\n"


@pytest.mark.parametrize(
    ("name", "old", "answer"),
    [
        ("a.md", MARKDOWN, MARKDOWN.replace("load", "read")),  # no fence around the file
        ("a.md", MARKDOWN, f"```\n{MARKDOWN}```\n"),  # one that the file has itself
        ("a.md", MARKDOWN, f"````markdown\n{MARKDOWN}````\nOr so:\n````markdown\n# Title\n````\n"),
        ("a.txt", "load it\n", "I'm sorry, I can't help with that."),
        ("a.py", OLD, NEW),
        ("a.py", OLD, f"Instead of\n```python\n{OLD}```\nwrite\n```python\n{NEW}```\n"),
    ],
)
def test_an_answer_in_which_the_file_cannot_be_told_is_refused(ask, name, old, answer):
    result = ask(Provider(answer=answer)).rewrite(old, "Rename load to read.", name=name)
    with pytest.raises(Refused, match="ask again"):
        result.require(force=True)


@pytest.mark.parametrize("fence", ["````", "````markdown", "~~~~~"])
def test_a_fence_that_the_file_has_not_is_enough(ask, fence):
    new = MARKDOWN.replace("load", "read")
    closing = fence.removesuffix("markdown")
    answer = f"Here:\n{fence}\n{new}{closing}\nDone."
    result = ask(Provider(answer=answer)).rewrite(MARKDOWN, "Rename load to read.", name="a.md")
    assert (result.text, result.problems) == (new, [])


def test_three_backticks_are_enough_around_text_without_any(ask):
    result = ask(Provider(answer="```\nread it\n```")).rewrite("load it\n", "Say read.", name="a.txt")
    assert (result.text, result.problems) == ("read it\n", [])


@pytest.mark.parametrize(
    "odd",
    [
        {"choices": None},
        {"choices": [{"index": 0, "delta": None}]},
        {"choices": [{"index": 0}]},
        {"choices": [], "usage": {}},
        {"choices": [], "usage": {"completion_tokens": None}},
    ],
)
def test_events_without_what_they_mostly_have_do_no_harm(ask, odd):
    class Odd(Provider):
        async def events(self):
            async for said in super().events():
                if "DONE" in said:
                    yield f"data: {json.dumps(odd)}\n\n"
                yield said

    assert ask(Odd()).rewrite(OLD, "Rename load to read.", name="a.py").text == NEW


def test_what_is_no_event_is_said(ask):
    class Page(Provider):
        async def events(self):
            yield "data: <html>\n\n"

    with pytest.raises(SpecEditError, match="a form that is not OpenAI's"):
        ask(Page()).generate(MESSAGES)


def test_the_file_goes_to_no_other_address(ask, provider):
    class Moved(Provider):
        async def complete(self, request: Request):
            return RedirectResponse(f"{target}/chat/completions", 307)

    with running(provider) as target, pytest.raises(SpecEditError, match="refuses"):
        ask(Moved()).generate(MESSAGES)
    assert provider.asked == []


def test_settings_for_openai_go_to_openai_alone(ask, monkeypatch):
    class Nosy(Provider):
        async def complete(self, request: Request):
            self.headers = dict(request.headers)
            return await super().complete(request)

    monkeypatch.setenv("OPENAI_ORG_ID", "secret-org")
    monkeypatch.setenv("OPENAI_PROJECT_ID", "secret-project")
    monkeypatch.setenv("OPENAI_CUSTOM_HEADERS", "X-Token: secret-token")
    provider = Nosy()
    ask(provider).generate(MESSAGES)
    assert "secret" not in str(provider.headers)


def test_an_answer_that_breaks_off_is_said(ask):
    with pytest.raises(SpecEditError, match="broke off"):
        ask(Provider(breaks=True)).generate(MESSAGES)


@pytest.mark.parametrize("before", ["", "Here it is:\n"], ids=["before a word", "after some"])
def test_nobody_waits_for_a_provider_that_says_nothing_more(ask, before):
    class Silent(Provider):
        async def events(self):
            if before:
                yield event([{"index": 0, "delta": {"content": before}}])
            while not stream.cancelled.is_set():
                await asyncio.sleep(0.05)
            await asyncio.sleep(3)

    stream = ask(Silent()).stream(MESSAGES)
    threading.Timer(0.5, stream.cancel).start()
    said, begun = [], time.monotonic()
    with pytest.raises(Cancelled):
        said += stream
    assert "".join(said) == before
    assert time.monotonic() - begun < 2.5


def test_nobody_there():
    with pytest.raises(SpecEditError, match="check the address"):
        HostedEditor("http://127.0.0.1:9/v1", "m").generate(MESSAGES)


@pytest.mark.parametrize(
    "base",
    [
        "api.openai.com",
        "ftp://x",
        "https://",
        "http://h:x/v1",
        "http://[::1/v1",
        "http://a b/v1",
        "http://u:secret@h/v1",
    ],
)
def test_what_is_no_address(base):
    with pytest.raises(SpecEditError, match="is no address") as caught:
        HostedEditor(base, "m")
    assert "secret" not in str(caught.value)


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
