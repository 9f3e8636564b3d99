"""The VS Code extension: its own tests, by node, against real servers. VS Code itself is not run."""

import json
import os
import shutil
import subprocess
import time
import zipfile
from pathlib import Path

import pytest

from specedit import SpecEditor
from specedit.targets.replay import ReplayTarget

FOLDER = Path(__file__).parents[2] / "integrations" / "vscode"
PACKAGED = {"package.json", "readme.md", "LICENSE.txt"} | {
    f"out/src/{name}.js" for name in ("client", "edit", "extension")
}


class Slow(ReplayTarget):
    """Takes its time for every step."""

    def extend(self, tokens, parents=None, last_only=False):
        time.sleep(0.05)
        return super().extend(tokens, parents, last_only)


@pytest.fixture(scope="module")
def npm():
    """npm(*arguments, **environment): its output, run in the extension's folder."""
    if not (shutil.which("node") and shutil.which("npm")):
        pytest.skip("there is no node with npm here")

    def run(*arguments, **environment):
        done = subprocess.run(
            ["npm", *arguments],
            cwd=FOLDER,
            env=os.environ | environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=300,
        )
        return done.returncode, done.stdout

    if not (FOLDER / "node_modules" / ".bin" / "tsc").exists():
        code, output = run("ci")
        if code:
            pytest.skip(f"npm ci does not work here: {output[-500:]}")
    return run


def test_its_own_tests(npm, small, serve, replay, tokenizer, edits):
    locked = serve(replay("x = 2\n```"), api_keys=("secret",))
    answer = tokenizer("abc " * 100).input_ids
    slow = serve(SpecEditor(Slow(answer, len(tokenizer), [tokenizer.eos_token_id]), tokenizer, []))
    known = {
        name: {
            "name": edits[name].name,
            "text": edits[name].old.decode(),
            "instruction": edits[name].instruction,
            "new": edits[name].new and edits[name].new.decode(),
        }
        for name in ("rename", "placeholder", "crlf", "endless")
    }
    servers = {
        "url": small.url,
        "locked": {"url": locked.url, "key": "secret"},
        "slow": slow.url,
        "edits": known,
    }
    code, output = npm("test", SPECEDIT_TEST_SERVERS=json.dumps(servers))
    assert code == 0, output
    assert "skipped 0" in output
    assert "pass 0" not in output


@pytest.mark.slow
def test_package(npm, tmp_path):
    """What is packaged is what runs, and nothing else. npx fetches the packager."""
    path = tmp_path / "specedit.vsix"
    code, output = npm("run", "package", "--", "--out", str(path))
    assert code == 0, output
    with zipfile.ZipFile(path) as package:
        names = {name for name in package.namelist() if name.startswith("extension/")}
    assert names == {f"extension/{name}" for name in PACKAGED}
