"""The proposer as vLLM's runner calls it: rows of tokens, which move and come and go."""

from types import SimpleNamespace

import numpy as np
import pytest

from specedit import SpecEditError
from specedit.decoding.encode import encode_text
from specedit.integrations.rows import Rows
from specedit.integrations.vllm import SpecEditProposer

FILE = "def load(path):\n    return path\n\n\nload(1)\nload(2)\nprint(load(3), load)\n"
DRAFTED, LONGEST, ROWS = 12, 400, 4


class Engine:
    """As much of a model runner as there is to read: rows that get given answers, in as many steps as it
    takes."""

    def __init__(self, proposer, bound=True):
        self.proposer = proposer
        self.rows = []
        self.requests = {}
        self.steps = 0
        if bound:
            self.input_batch = self

    @property
    def req_ids(self):
        return [row.key for row in self.rows]

    def add(self, key, prompt, answer, **about):
        self.requests[key] = SimpleNamespace(sampling_params=SimpleNamespace(extra_args=about or None))
        self.rows.append(SimpleNamespace(key=key, tokens=list(prompt), answer=list(answer), draft=[]))

    def step(self, reading=()):
        """One pass: every row gets the drafted tokens that are right, and one more."""
        sampled = []
        for row in self.rows:
            right = 0
            while right < min(len(row.draft), len(row.answer)) and row.draft[right] == row.answer[right]:
                right += 1
            got = [] if row.key in reading else row.answer[: right + 1]
            row.tokens += got
            del row.answer[: len(got)]
            sampled.append(got)
        lengths = np.array([len(row.tokens) for row in self.rows])
        ids = np.zeros((ROWS, LONGEST), dtype=np.int32)
        for number, row in enumerate(self.rows):
            ids[number, : len(row.tokens)] = row.tokens
        drafts = self.proposer.propose(sampled, lengths, ids, slot_mappings=None)
        assert [len(draft) <= DRAFTED for draft in drafts] == [True] * len(self.rows)
        for row, draft in zip(self.rows, drafts, strict=True):
            row.draft = draft
        self.rows = [row for row in self.rows if row.answer]
        self.steps += 1

    def run(self):
        """To the end of all rows; how many steps that took."""
        before = self.steps
        while self.rows:
            self.step()
        return self.steps - before


@pytest.fixture
def make(config):
    """make(**settings): a proposer, by `additional_config`."""

    def made(**settings):
        proposer = SpecEditProposer(config({"specedit": settings}, DRAFTED, LONGEST, ROWS))
        # Steps without a model say nothing about what passes cost.
        proposer._rows._pace.cost.learn = lambda tokens, seconds: None
        return proposer

    return made


@pytest.fixture
def proposer(make):
    return make()


@pytest.fixture
def asked(tokenizer):
    """A prompt without a file in it, and an answer."""
    return encode_text(tokenizer, "Write it: "), encode_text(tokenizer, FILE)


def test_a_prediction_of_the_request_saves_steps(proposer, asked):
    prompt, answer = asked
    engine = Engine(proposer)
    engine.add("a", prompt, answer)
    alone = engine.run()
    engine.add("b", prompt, answer, specedit_prediction=FILE)
    assert engine.run() < alone / 2


def test_files_in_the_prompt_are_found_without_the_runner(proposer, tokenizer, asked):
    shown = encode_text(tokenizer, f"Rename nothing.\n```python\n{FILE}```\n")
    engine = Engine(proposer, bound=False)
    engine.add("a", shown, asked[1])
    assert engine.run() < len(asked[1]) / 4


@pytest.mark.parametrize("bound", [True, False])
def test_rows_that_move_keep_their_answers(proposer, asked, bound):
    prompt, answer = asked
    engine = Engine(proposer, bound)
    engine.add("alone", prompt, answer + answer)
    expected = engine.run()
    engine.add("x", [9, 8, 7], [5, 6, 5, 7])
    engine.add("y", prompt, answer + answer)
    engine.add("z", [1, 2, 3], range(20, 30))
    while engine.rows:
        engine.step()
        engine.rows.reverse()
    assert engine.steps <= 2 * expected + 1


def test_a_prompt_that_is_still_read_gets_no_draft(proposer, asked):
    engine = Engine(proposer)
    engine.add("a", *asked, specedit_prediction=FILE)
    engine.step(reading="a")
    assert engine.rows[0].draft == []
    engine.step()
    assert engine.rows[0].draft != []


def test_drafts_stop_before_the_longest_context(proposer):
    engine = Engine(proposer)
    engine.add("a", [1, 2, 3] * 132, [1, 2, 3])
    engine.step()
    assert len(engine.rows[0].draft) <= LONGEST - 397 - 1


def test_answers_learn_from_those_of_the_same_client_alone(proposer, asked):
    prompt, answer = asked
    engine = Engine(proposer)

    def steps(client):
        engine.add(object(), prompt, answer, specedit_client=client)
        return engine.run()

    steps("one")
    other, again = steps("another"), steps("one")
    assert again < 0.7 * other


def test_what_goes_wrong_costs_drafts_and_nothing_else(proposer, asked, monkeypatch):
    engine = Engine(proposer)
    engine.add("good", *asked, specedit_prediction=FILE)
    engine.step()
    request, bad = Rows._request, []
    monkeypatch.setattr(
        Rows, "_request", lambda self, row: bad[0] if row.key == "bad" else request(self, row)
    )
    engine.add("bad", *asked)
    engine.step()
    assert [bool(row.draft) for row in engine.rows] == [True, False]
    assert proposer.propose([[1]], None, None) == [[]]


@pytest.mark.parametrize("given", [7, None, FILE, [7, None], [FILE] * 1000, {"a": 1}])
def test_references_that_are_none_are_left_out(proposer, asked, given):
    engine = Engine(proposer)
    engine.add("a", *asked, specedit_references=given, specedit_prediction=given, specedit_client=given)
    engine.step()
    assert engine.rows


def test_a_request_that_takes_anothers_name_begins_anew(proposer, asked):
    engine = Engine(proposer)
    engine.add("a", *asked, specedit_prediction=FILE)
    expected = engine.run()
    engine.add("a", [9, 8, 7], asked[1], specedit_prediction=FILE)
    assert engine.run() <= 2 * expected


def test_a_proposer_that_needs_the_target_is_refused(make):
    with pytest.raises(SpecEditError, match="early_exit does not work inside"):
        make(proposers=["early_exit:1"])
