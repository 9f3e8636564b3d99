"""How peers' drafters are fed."""

import io
import json
import sys

import pytest

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
