"""`specedit serve`, from the shell."""

import os
import signal
import subprocess
import sys

import httpx
import pytest
from click.testing import CliRunner

from specedit import SpecEditError
from specedit.cli import cli
from specedit.integrations.http.serve import listen
from specedit.integrations.http.settings import Settings


def test_serves_until_told_to_stop(edit_model, edits):
    edit = edits["rename"]
    command = [sys.executable, "-c", "from specedit.cli import main; main()", "serve", "--port", "0"]
    process = subprocess.Popen(
        [*command, "--model", str(edit_model), "--device", "cpu", "--dtype", "float32", "--api-key", "k"],
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ | {"HF_HUB_OFFLINE": "1"},
    )
    try:
        url = next(line.split()[-1] for line in process.stderr if "http://" in line)
        body = {"name": edit.name, "text": edit.old.decode(), "instruction": edit.instruction}
        reply = httpx.post(f"{url}/v1/rewrite", json=body, headers={"Authorization": "Bearer k"}, timeout=60)
        assert reply.json()["text"] == edit.new.decode()
        body = {"prompt": "x = 1\n" * 4, "max_tokens": 500, "stream": True}
        headers = {"Authorization": "Bearer k"}
        with httpx.stream("POST", f"{url}/v1/completions", json=body, headers=headers, timeout=60) as stream:
            text = stream.iter_text()
            next(text)
            process.send_signal(signal.SIGTERM)
            assert "".join(text).endswith("data: [DONE]\n\n")  # it may finish
        _, log = process.communicate(timeout=20)
        assert '"event": "request"' in log
        assert "Traceback" not in log
        assert "load" not in log  # a word of the file
    finally:
        process.kill()


def test_options(edit_model):
    command = [sys.executable, "-c", "from specedit.cli import main; main()", "serve", "--port", "0"]
    options = (
        "--allow-origin https://my.page --allow-host my.box --name mine --running 2 --waiting 0 "
        "--memory 100 --kept 10 --max-body 1000 --grace 1"
    )
    process = subprocess.Popen(
        [*command, "--model", str(edit_model), "--device", "cpu", "--dtype", "float32", *options.split()],
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ | {"HF_HUB_OFFLINE": "1"},
    )
    try:
        url = next(line.split()[-1] for line in process.stderr if "http://" in line)
        headers = {"Host": "my.box", "Origin": "https://my.page"}
        reply = httpx.get(f"{url}/v1/models", headers=headers)
        assert reply.json()["data"][0]["id"] == "mine"
        assert reply.headers["access-control-allow-origin"] == "https://my.page"
        several = {"prompt": "x", "n": 3}
        assert (
            "takes 2 answers" in httpx.post(f"{url}/v1/completions", json=several).json()["error"]["message"]
        )
        assert httpx.post(f"{url}/v1/completions", json={"prompt": "x" * 1000}).status_code == 413
    finally:
        process.kill()
        process.wait()


def test_a_port_that_is_taken():
    with listen(Settings(port=0)) as sock, pytest.raises(SpecEditError, match="--port"):
        listen(Settings(port=sock.getsockname()[1]))


def test_a_missing_extra_is_named(monkeypatch):
    for name in [name for name in sys.modules if name.startswith("specedit.integrations.http")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "uvicorn", None)
    monkeypatch.setattr("specedit.integrations.http", None, raising=False)
    result = CliRunner().invoke(cli, ["serve"])
    assert isinstance(result.exception, SpecEditError)
    assert "pip install 'specedit[serve]'" in str(result.exception)


def test_others_need_a_key(monkeypatch):
    monkeypatch.delenv("SPECEDIT_API_KEY", raising=False)
    result = CliRunner().invoke(cli, ["serve", "--host", "0.0.0.0"])
    assert "--api-key" in str(result.exception)
