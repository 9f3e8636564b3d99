import threading
from _thread import interrupt_main
from concurrent.futures import ThreadPoolExecutor
from unittest.mock import Mock

import pytest
import torch

from specedit.decoding.cost import FixedCost
from specedit.targets import packed
from specedit.targets.batch import Batch, SharedCost
from specedit.targets.hf import HFTarget
from specedit.types import Cancelled

PROMPTS = [[(seed + number * seed) % 29 for number in range(10 + 7 * seed)] * 2 for seed in range(1, 7)]


@pytest.fixture
def batch(tiny):
    return Batch(HFTarget(tiny("llama")))


@pytest.fixture
def passes(batch, monkeypatch):
    """How many tokens of each context each pass of the batch scored."""
    counted, scored = [], batch.target.scored

    def counting(parts):
        counted.append([len(part.tokens) for part in parts])
        return scored(parts)

    monkeypatch.setattr(batch.target, "scored", counting)
    return counted


@pytest.mark.parametrize("proposers", [(), ("ngram",), ("structural", "predicted", "ngram")])
def test_every_answer_is_what_it_would_be_alone(tiny, run, batch, passes, proposers, monkeypatch):
    monkeypatch.setattr("specedit.targets.batch._PATIENCE", 10)  # however busy the machine is
    alone = [run(HFTarget(tiny("llama")), prompt, proposers) for prompt in PROMPTS]

    def answer(prompt):
        with batch.row() as row:
            return run(row, prompt, proposers)

    with ThreadPoolExecutor(len(PROMPTS)) as pool:
        assert list(pool.map(answer, PROMPTS)) == alone
    assert batch.rows == 0
    assert max(map(len, passes)) == len(PROMPTS)
    assert len(passes) < 2 * 60  # an answer alone takes at most 60


def test_one_request_does_not_wait_for_one_that_is_not_read(run, batch):
    with batch.row() as idle, batch.row() as row:
        idle.extend([1, 2, 3])
        assert batch.sharing == 1
        row.extend([1, 2, 3])
        assert batch.sharing == 1  # it was given up after a moment
        assert len(run(row, PROMPTS[0])) == 60


def test_a_long_prompt_takes_several_passes(tiny, run, batch, passes, monkeypatch):
    monkeypatch.setattr("specedit.targets.batch._MOST", 16)
    with batch.row() as row:
        assert run(row, PROMPTS[-1], max_tokens=2) == run(HFTarget(tiny("llama")), PROMPTS[-1], max_tokens=2)
    _, *prompt, _ = passes
    assert prompt == [[16]] * 6 + [[8]]


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


def test_a_cancelled_request_ends_before_its_next_pass(run, batch):
    cancelled = threading.Event()
    with batch.row(cancelled=cancelled.is_set) as row, pytest.raises(Cancelled):
        run(row, PROMPTS[0], ends=lambda token: cancelled.set())
    assert batch.rows == 0


def test_a_request_that_does_not_fit_waits_for_others(tiny):
    batch = Batch(HFTarget(tiny("llama")), memory=1000)
    entered = threading.Event()

    def second():
        with batch.row(tokens=100):
            entered.set()

    with batch.row(tokens=100):  # alone it may take what it wants
        thread = threading.Thread(target=second)
        thread.start()
        assert not entered.wait(0.1)
    assert entered.wait(5)
    thread.join()


def test_who_waits_can_be_cancelled(tiny):
    batch = Batch(HFTarget(tiny("llama")), memory=1000)
    with batch.row(tokens=100), pytest.raises(Cancelled), batch.row(tokens=100, cancelled=lambda: True):
        pass
    with batch.row(tokens=100):
        pass


# What earlier requests had scored


def test_only_what_is_new_in_a_prompt_is_scored(tiny, run, batch, passes):
    with batch.row() as row:
        first = run(row, PROMPTS[0], max_tokens=20)
    longer = [*PROMPTS[0], *first, 3, 4, 5]
    with batch.row() as row:
        assert run(row, longer, max_tokens=20) == run(HFTarget(tiny("llama")), longer, max_tokens=20)
        assert row.reused == len(PROMPTS[0]) + 19  # the last token that was drawn was never scored
    assert [4] in passes


def test_a_prompt_that_parts_from_an_earlier_one_leaves_that_as_it_is(tiny, run, batch):
    base = PROMPTS[3]
    for end in ([1], [2], [1]):
        with batch.row() as row:
            assert run(row, base + end) == run(HFTarget(tiny("llama")), base + end)
    assert row.reused == len(base)


def test_the_same_prompt_again_is_scored_from_its_last_token(run, batch):
    for _ in range(2):
        with batch.row() as row:
            run(row, PROMPTS[2], max_tokens=1)
    assert row.reused == len(PROMPTS[2]) - 1


def test_nothing_is_shared_between_clients(run, batch):
    for client in ("alice", "bob"):
        with batch.row(client=client) as row:
            run(row, PROMPTS[0])
            assert row.reused == 0


def test_kept_contexts_take_no_more_than_they_may(tiny, run):
    batch = Batch(HFTarget(tiny("llama")), kept=100_000)
    for prompt in PROMPTS:
        with batch.row() as row:
            run(row, prompt)
    assert 50_000 < batch.bytes < 100_000


def test_one_that_is_too_large_to_be_kept_leaves_the_others(tiny, run):
    batch = Batch(HFTarget(tiny("llama")), kept=50_000)
    for prompt, size in ((PROMPTS[0], 20), (PROMPTS[5], 60)):
        with batch.row() as row:
            run(row, prompt, max_tokens=size)
    with batch.row() as row:
        run(row, PROMPTS[0], max_tokens=1)
        assert row.reused == len(PROMPTS[0]) - 1


def test_a_request_that_fails_leaves_no_drafts_behind(tiny, run, batch):
    prompt = PROMPTS[4]
    with batch.row() as row:
        row.extend(prompt, last_only=True)
        row.extend([1, 2, 3], [0, 0])  # 3 follows 1; nobody says what to keep
    with batch.row() as row:
        assert run(row, [*prompt, 1, 2, 3, 4]) == run(HFTarget(tiny("llama")), [*prompt, 1, 2, 3, 4])
        assert row.reused == len(prompt)


def test_what_is_kept_makes_way_when_memory_runs_out(tiny, run, batch, monkeypatch):
    with batch.row() as row:
        run(row, PROMPTS[0])

    def score(model, parts, limits_logits):
        if batch.prefixes.bytes:
            raise MemoryError
        return packed.score(model, parts, limits_logits)

    monkeypatch.setattr("specedit.targets.hf.score", score)
    with batch.row() as row:
        assert run(row, PROMPTS[1]) == run(HFTarget(tiny("llama")), PROMPTS[1])


def test_what_is_drafted_costs_more_when_more_share_a_pass(batch):
    cost = SharedCost(batch, FixedCost([1, 1, 1, 1, 1, 1, 2, 4, 8]))
    assert cost(64)[[0, 63]].tolist() == [1, 2]
    batch._expected = [None] * 8
    assert cost(64)[[0, 63]].tolist() == [1, 16]


def test_ctrl_c_in_a_pass_leaves_others_and_what_is_kept_as_they_were(tiny, run, batch, monkeypatch):
    def interrupted(model, parts, limits_logits):
        interrupt_main()
        return packed.score(model, parts, limits_logits)

    prompt = PROMPTS[4]
    with batch.row() as row, batch.row() as other:
        row.extend(prompt, last_only=True)
        monkeypatch.setattr("specedit.targets.hf.score", interrupted)
        with pytest.raises(KeyboardInterrupt):
            row.extend([1, 2, 3])
        monkeypatch.undo()
        assert other.extend([1], last_only=True).shape == (1, 29)
    with batch.row() as row:
        assert run(row, [*prompt, 4]) == run(HFTarget(tiny("llama")), [*prompt, 4])
        assert row.reused == len(prompt)


def test_a_row_that_cannot_be_kept_is_freed(tiny, run, batch, monkeypatch):
    with monkeypatch.context() as short:
        short.setattr("specedit.targets.packed.Context.trim", Mock(side_effect=torch.OutOfMemoryError))
        with batch.row(tokens=100) as row:
            run(row, PROMPTS[-1], max_tokens=2)
    assert (batch.rows, batch.bytes, batch._reserved) == (0, 0, 0)


def test_what_cannot_be_copied_is_scored(tiny, run, batch, monkeypatch):
    with batch.row() as row:
        run(row, PROMPTS[-1], max_tokens=2)
    with monkeypatch.context() as short:
        short.setattr("specedit.targets.packed.Context.copy", Mock(side_effect=torch.OutOfMemoryError))
        with batch.row() as row:
            prompt = [*PROMPTS[-1][:-5], 7]
            assert run(row, prompt) == run(HFTarget(tiny("llama")), prompt)
            assert row.reused == 0
