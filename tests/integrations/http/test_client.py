"""`specedit rewrite --server`: the model elsewhere, the file here."""

import json
import sys
import threading
import time
from contextlib import ExitStack, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from specedit import Sampling, SpecEditError
from specedit.cli import main
from specedit.editing import SourceFile
from specedit.integrations.http import client
from specedit.integrations.http.client import RemoteEditor
from specedit.types import Cancelled


@pytest.fixture
def rewrite(monkeypatch, capsys, tmp_path):
    """rewrite(edit, *options): run the command on the edit's file; its exit code and what it printed."""

    def run(edit, *options):
        path = tmp_path / edit.name
        path.write_bytes(edit.old)
        command = ["specedit", "rewrite", str(path), "-i", edit.instruction, *options]
        monkeypatch.setattr(sys, "argv", command)
        with pytest.raises(SystemExit) as end:
            main()
        return end.value.code or 0, capsys.readouterr(), path.read_bytes()

    return run


@pytest.fixture
def never(monkeypatch):
    """No model may be loaded here."""

    def load(*_, **__):
        raise AssertionError("a model was loaded")

    monkeypatch.setattr("specedit.cli.load", load)


@pytest.mark.parametrize("name", ["rename", "crlf", "same"])
def test_the_server_writes_and_the_file_is_kept_here(small, rewrite, never, edits, name):
    code, _, written = rewrite(edits[name], "--server", small.url, "--write")
    assert (code, written) == (0, edits[name].new)


@pytest.mark.parametrize(
    ("name", "says", "force"),
    [
        ("placeholder", "stands for code that is left out", True),
        ("syntax", "breaks the python syntax", True),
        ("endless", "The answer was cut", False),
    ],
)
def test_what_must_not_be_taken_is_refused_here_too(small, rewrite, never, edits, name, says, force):
    code, printed, written = rewrite(edits[name], "--server", small.url, "--write")
    assert (code, written) == (1, edits[name].old)
    assert says in " ".join(printed.err.split())
    code, _, written = rewrite(edits[name], "--server", small.url, "--write", "--force")
    assert (written != edits[name].old) is force


def test_statistics_come_along(small, rewrite, never, edits):
    _, printed, _ = rewrite(edits["rename"], "--server", small.url, "--json")
    stats = json.loads(printed.out)["stats"]
    assert stats["completion_tokens"] == sum(stats["tokens_by_source"].values())
    assert stats["accepted_prediction_tokens"] > 0
    assert stats["seconds"]["total"] > 0


def test_a_running_server_is_found(small, rewrite, never, edits, monkeypatch):
    monkeypatch.setattr(client, "DEFAULT_URL", small.url)
    code, printed, _ = rewrite(edits["rename"])
    assert code == 0
    assert "+def read_config" in printed.out
    assert "--no-server" in printed.err


def test_without_a_server_there_is_none(monkeypatch):
    assert not RemoteEditor("http://127.0.0.1:9").is_there()


def test_a_server_that_wants_a_key_is_none_for_who_has_none(serve, replay):
    served = serve(replay("x"), api_keys=("secret",))
    assert not RemoteEditor(served.url).is_there()
    assert RemoteEditor(served.url, "secret").is_there()


def test_the_key_of_the_environment_is_for_the_server_that_was_named(serve, replay, monkeypatch):
    served = serve(replay("x"), api_keys=("secret",))
    monkeypatch.setenv("SPECEDIT_API_KEY", "secret")
    monkeypatch.setattr(client, "DEFAULT_URL", served.url)
    assert client.running(served.url).is_there()
    assert client.running(None) is None  # whoever listens on the default port is told no key


def test_a_server_that_was_named_and_is_not_there(rewrite, edits):
    code, printed, _ = rewrite(edits["rename"], "--server", "127.0.0.1:9")
    assert code == 1
    assert "specedit serve" in " ".join(printed.err.split())


def test_what_the_server_refuses_is_said(serve, replay, rewrite, edits):
    served = serve(replay("x"), api_keys=("secret",))
    code, printed, _ = rewrite(edits["rename"], "--server", served.url)
    assert code == 1
    assert "API key is missing or wrong" in " ".join(printed.err.split())


def test_a_model_of_ones_own_and_a_server_exclude_each_other(rewrite, edits):
    code, printed, _ = rewrite(edits["rename"], "--server", "127.0.0.1:9", "--model", "x")
    assert code == 2
    assert "excludes" in printed.err


def test_only_http(edits):
    with pytest.raises(SpecEditError, match="is no server"):
        RemoteEditor("file:///etc/passwd")


def test_who_cancels_frees_the_server(small, edits):
    edit = edits["endless"]
    source = SourceFile.from_text(edit.old.decode(), edit.name)
    stream = RemoteEditor(small.url).stream_rewrite(source, edit.instruction, sampling=Sampling())
    next(stream)
    stream.cancel()
    with pytest.raises(Cancelled):
        list(stream)
    end = time.monotonic() + 20
    while small.runner.running:
        assert time.monotonic() < end
        time.sleep(0.01)


def test_who_cancels_before_the_first_piece_frees_the_server(serve, gated):
    served = serve(gated, ping=0.1)
    source = SourceFile.from_text("x = 1\n", "a.py")
    stream = RemoteEditor(served.url).stream_rewrite(source, "Rename x.", sampling=Sampling())
    threading.Timer(0.5, stream.cancel).start()
    with pytest.raises(Cancelled):
        next(stream)
    [job] = served.runner._jobs
    assert job._gone.wait(20)


class Strange(BaseHTTPRequestHandler):
    """Answers anything with `body`, again and again if `endless`."""

    body, endless = b"", False

    def do_POST(self):
        self.send_response(200)
        self.end_headers()
        with suppress(OSError):
            self.wfile.write(self.body)
            while self.endless:
                self.wfile.write(self.body)
                time.sleep(0.01)

    do_GET = do_POST

    def log_message(self, *_):
        pass


@pytest.fixture
def strange():
    """strange(body, endless=False): the address of a server that is not specedit's."""
    with ExitStack() as stack:

        def started(body, endless=False):
            handler = type("Handler", (Strange,), {"body": body, "endless": endless})
            server = stack.enter_context(ThreadingHTTPServer(("127.0.0.1", 0), handler))
            stack.callback(server.shutdown)
            threading.Thread(target=server.serve_forever).start()
            return f"http://127.0.0.1:{server.server_port}"

        yield started


@pytest.mark.parametrize(
    "body",
    [
        b"hello",
        b"data: hello\n\n",
        b"data: \xff\xfe\n\n",
        b"data: 5\n\n",
        b'data: {"error": "boom"}\n\n',
        b"event: piece\ndata: {}\n\n",
        b'event: result\ndata: {"text": ""}\n\n',
        b'event: piece\ndata: {"text": "x", "tok',
    ],
)
def test_what_is_no_answer_is_said_in_a_sentence(strange, rewrite, edits, body):
    code, printed, written = rewrite(edits["rename"], "--server", strange(body), "--write")
    assert (code, written) == (1, edits["rename"].old)
    assert "--no-server" in printed.err
    assert "Traceback" not in printed.err


@pytest.mark.parametrize("endless", [True, False])
def test_a_server_of_something_else_is_not_taken_for_ours(strange, endless):
    assert not RemoteEditor(strange(b" ", endless)).is_there()


@pytest.mark.parametrize("url", ["http://[::1", "http://", "http://a:b"])
def test_an_address_that_is_none(url):
    with pytest.raises(SpecEditError, match="is no server"):
        RemoteEditor(url)
