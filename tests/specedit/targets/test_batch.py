import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from specedit.decoding.cost import CostCurve, FixedCost
from specedit.targets import packed
from specedit.targets.batch import Batch, SharedCost
from specedit.targets.hf import HFTarget

PROMPTS = [[(seed + number * seed) % 29 for number in range(10 + 7 * seed)] * 2 for seed in range(1, 7)]
FLAT = FixedCost([1.0] * 9)


@pytest.fixture
def batch(tiny):
    return Batch(HFTarget(tiny("llama")), FLAT)


@pytest.fixture
def passes(monkeypatch):
    """How many contexts each pass scored."""
    counted = []

    def score(model, parts, limits_logits):
        counted.append(len(parts))
        return packed.score(model, parts, limits_logits)

    monkeypatch.setattr("specedit.targets.batch.score", score)
    return counted


@pytest.mark.parametrize("proposers", [(), ("ngram",), ("structural", "predicted", "ngram")])
def test_every_answer_is_what_it_would_be_alone(tiny, run, batch, passes, proposers):
    alone = [run(HFTarget(tiny("llama")), prompt, proposers) for prompt in PROMPTS]

    def answer(row, prompt):
        with row:
            return run(row, prompt, proposers)

    rows = [batch.row() for _ in PROMPTS]
    with ThreadPoolExecutor(len(PROMPTS)) as pool:
        assert list(pool.map(answer, rows, PROMPTS)) == alone
    assert batch.rows == 0
    assert max(passes) == len(PROMPTS)
    assert len(passes) < 2 * 60  # an answer alone takes at most 60


def test_one_request_does_not_wait_for_others_that_do_nothing(run, batch):
    batch.row()
    with batch.row() as row:
        assert len(run(row, PROMPTS[0], max_tokens=5)) == 5


def test_a_long_prompt_takes_several_passes(tiny, run, batch, passes, monkeypatch):
    monkeypatch.setattr("specedit.targets.batch._MOST", 16)
    with batch.row() as row:
        assert run(row, PROMPTS[-1]) == run(HFTarget(tiny("llama")), PROMPTS[-1])
    assert len(passes) > 60


def test_a_request_that_fails_fails_alone(run, batch):
    failed = threading.Event()

    def bad():
        with batch.row() as row, pytest.raises(IndexError):
            row.extend([1000])
        failed.set()

    with batch.row() as good:
        thread = threading.Thread(target=bad)
        thread.start()
        assert len(run(good, PROMPTS[0])) == 60
        thread.join()
    assert failed.is_set()


def test_what_is_drafted_costs_more_when_more_share_a_pass(tiny):
    batch = Batch(HFTarget(tiny("llama")), CostCurve([1, 1, 1, 1, 1, 1, 2, 4, 8]))
    cost = SharedCost(batch)
    assert cost(64)[[0, 63]].tolist() == [1, 2]
    for _ in range(8):
        batch.row()
    assert cost(64)[[0, 63]].tolist() == [1, 16]
