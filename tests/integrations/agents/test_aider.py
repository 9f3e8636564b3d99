"""aider, as it is, against the local server, on a small git repository."""

import os
import shutil
import subprocess

import pytest

AIDER = os.environ.get("AIDER") or shutil.which("aider")
OLD = "def load(path):\n    return open(path).read()\n\n\nprint(load('a'))\n"
NEW = OLD.replace("load", "read_config")

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not AIDER, reason="aider is not installed: name it with AIDER, or put it on PATH"),
]


@pytest.fixture
def git(tmp_path):
    """git(*arguments): run it in the repository, which has one commit of greet.py."""
    repository = tmp_path / "repository"
    repository.mkdir()

    def run(*arguments: str) -> str:
        command = ["git", "-c", "user.name=Test", "-c", "user.email=test@localhost", *arguments]
        return subprocess.run(command, cwd=repository, check=True, capture_output=True, text=True).stdout

    run("init", "-q")
    run("config", "user.name", "Test")
    run("config", "user.email", "test@localhost")
    (repository / "greet.py").write_text(OLD)
    run("add", "greet.py")
    run("commit", "-q", "-m", "Begin")
    return run


@pytest.mark.parametrize("stream", ["--stream", "--no-stream"])
def test_aider_rewrites_a_file_and_commits_it(serve, script, guessed, git, tmp_path, stream):
    served = serve(script(f"I rename it.\n\ngreet.py\n```python\n{NEW}```\n", "Rename load to read_config"))
    options = [
        *("--model", "openai/default", "--openai-api-base", f"{served.url}/v1", "--openai-api-key", "none"),
        *("--edit-format", "whole", "--yes-always", "--no-check-update", "--analytics-disable"),
        *("--no-show-model-warnings", "--no-show-release-notes", "--no-gitignore", "--no-pretty"),
        *("--map-tokens", "0", stream, "--message", "Rename load to read_config.", "greet.py"),
    ]
    # litellm would else ask the network for its prices, and aider read the user's settings.
    env = os.environ | {"HOME": str(tmp_path), "LITELLM_LOCAL_MODEL_COST_MAP": "True"}
    run = subprocess.run(
        [AIDER, *options],
        cwd=tmp_path / "repository",
        env=env,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=180,
    )
    assert run.returncode == 0, run.stdout + run.stderr
    assert (tmp_path / "repository" / "greet.py").read_text() == NEW, run.stdout
    assert git("show", "HEAD:greet.py") == NEW
    assert "Rename load to read_config" in git("log", "-1", "--format=%s")
    assert guessed(served) > len(OLD) / 2  # aider shows the file in a fence
