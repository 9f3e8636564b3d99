"""Models that give one known answer after the other, as a run of an agent needs."""

import json
import re
import time
from itertools import chain

import pytest

from specedit import SpecEditor
from specedit.decoding.cost import CostCurve
from specedit.targets.replay import ReplayTarget


class Script(ReplayTarget):
    """Writes one answer after the other, one a request."""

    def __init__(self, answers, *arguments):
        self._answers = chain([[]], answers)  # the first is for `reset` in the constructor
        super().__init__([], *arguments)

    def reset(self):
        super().reset()
        self.answer = next(self._answers)


@pytest.fixture
def script(knows_tools, tokenizer):
    """script(*answers): an editor whose model gives these, one a request."""

    def make(*answers: str) -> SpecEditor:
        end = tokenizer.eos_token_id
        ids = [[*tokenizer(answer, split_special_tokens=True).input_ids, end] for answer in answers]
        target = Script(ids, len(tokenizer), [end])
        return SpecEditor(target, knows_tools("").tokenizer, cost=CostCurve([1.0] * 9))

    return make


@pytest.fixture
def call():
    """call(name, **arguments): the call of a tool, as models write it."""

    def written(name: str, /, **arguments) -> str:
        return f"<tool_call>\n{json.dumps({'name': name, 'arguments': arguments})}\n</tool_call>"

    return written


@pytest.fixture
def metric():
    """metric(served, start): the sum of what `/metrics` shows on lines that match this."""

    def total(served, start: str) -> float:
        while served.runner.running:  # an answer is counted when it has been delivered
            time.sleep(0.01)
        shown = served.http.get("/metrics").text
        return sum(map(float, re.findall(f"^{start} (.*)$", shown, re.MULTILINE)))

    return total


@pytest.fixture
def guessed(metric):
    """guessed(served): how many tokens of all answers were guessed from a text that the model was to repeat.

    What merely repeats other words of the prompt (`ngram`) does not count.
    """
    return lambda served: metric(
        served, 'specedit_accepted_tokens_total{proposer="(?:predicted|structural)"}'
    )
