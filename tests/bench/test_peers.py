"""How peers are fed."""

import io
import json
import os
import sys

import pytest

from bench.peers import run
from bench.peers.drafts import replay

CASE = {"prompt": [1, 2, 3], "answer": [5, 6, 7, 8, 9]}


def knows(prompt):
    return lambda written: CASE["answer"][len(written) :]


def is_wrong(prompt):
    return lambda written: [0] * 3


def finds_nothing(prompt):
    return lambda written: []


@pytest.mark.parametrize(
    ("drafter", "scored"), [(knows, [4]), (is_wrong, [4, 3, 2, 1]), (finds_nothing, [1, 1, 1, 1])]
)
def test_the_tokens_that_each_pass_scores(drafter, scored, monkeypatch, capsys):
    monkeypatch.setattr(sys, "stdin", io.StringIO(json.dumps(CASE) + "\n"))
    replay(drafter)
    assert json.loads(capsys.readouterr().out) == scored


@pytest.fixture
def peer(monkeypatch, tmp_path):
    """Starts a peer whose script has these lines."""
    monkeypatch.setattr(run, "python", lambda name, environment: (sys.executable, dict(os.environ)))
    monkeypatch.setattr(run, "HERE", tmp_path)
    peers = []

    def start(*lines):
        (tmp_path / "script.py").write_text("\n".join(lines))
        peers.append(run.Peer(["name", "script.py"], {"name": {}}))
        return peers[-1]

    yield start
    for started in peers:
        started.end()


def test_a_running_peer_is_asked_again_and_again(peer):
    echo = peer(
        "import sys",
        "print('ready')",  # engines say all kinds of things
        "for line in sys.stdin: print(line, end='', flush=True)",
    )
    assert [echo.ask(CASE), echo.ask({"n": 1})] == [CASE, {"n": 1}]


def test_a_peer_that_fails_says_why(peer):
    with pytest.raises(run.Absent, match="ZeroDivisionError"):
        peer("1 / 0").ask(CASE)


def test_whole_answers_are_compared_without_plain_decoding():
    def entry(seconds, digest):
        return {"seconds": seconds, "digest": digest}

    edits = [{"engines": {"ours": {"fast": entry(1.0, "a")}, "theirs": {"look-up": entry(2.0, "b")}}}]
    assert run.engines_table(edits).splitlines()[2:] == [
        "| ours, fast | 1.0 | 1 of 1 |",
        "| theirs, look-up | 2.0 | 0 of 1 |",
    ]
