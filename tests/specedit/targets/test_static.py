"""The passes that a GPU replays as graphs, here computed one by one: at the same places, padded alike."""

import copy
from concurrent.futures import ThreadPoolExecutor
from unittest.mock import Mock

import pytest
import torch

from specedit.decoding.cost import CostCurve
from specedit.targets.batch import Batch
from specedit.targets.hf import HFTarget
from specedit.targets.packed import Context, Part, score
from specedit.targets.static import StaticPasses, _Pass

PROMPT = [number * number % 29 for number in range(30)] * 2


@pytest.fixture
def static(tiny):
    return HFTarget(tiny("llama"), static=True)


@pytest.mark.parametrize("proposers", [(), ("ngram",), ("structural", "predicted", "ngram")])
def test_answers_are_the_same(tiny, run, static, proposers):
    for prompt in (PROMPT, PROMPT[:7]):
        assert run(static, prompt, proposers) == run(HFTarget(tiny("llama")), prompt, proposers)


def test_a_context_may_outgrow_its_place(tiny, static, monkeypatch):
    monkeypatch.setattr("specedit.targets.static._SHORTEST", 32)
    usual = HFTarget(tiny("llama"))
    for target in (usual, static):
        target.extend(PROMPT[:20])
    for _ in range(10):
        torch.testing.assert_close(static.extend(PROMPT[:6]), usual.extend(PROMPT[:6]))


def test_rows_of_a_pass_may_differ_in_all(tiny):
    """A tree, a chain and a token, after contexts of three lengths; the fourth row is nobody's."""
    model = tiny("gemma3")
    drafts = ([1, 2, 3, 4], [0, 0, 2]), ([5, 6, 7], None), ([8], None)
    passes, scored = StaticPasses(model), []
    for way in (passes.score, lambda parts: score(model, parts, True)):
        contexts = [Context() for _ in drafts]
        for length, context in zip((20, 3, 11), contexts, strict=True):
            score(model, [Part(context, PROMPT[:length])], True)
        for _ in range(3):  # the first pass seats them
            parts = [Part(context, *draft) for context, draft in zip(contexts, drafts, strict=True)]
            scored.append([logits.clone() for logits in way(parts)])
            contexts[0].keep([0, 2, 3], scored=4)
    for ours, usual in zip(scored[:3], scored[3:], strict=True):
        torch.testing.assert_close(ours, usual)


def test_contexts_take_turns(tiny, run, static):
    prompts = PROMPT, PROMPT[5:40]
    batch = Batch(static)
    with batch.row() as a, batch.row() as b:
        for row, prompt in zip((a, b), prompts, strict=True):
            row.extend(prompt[:20], last_only=True)
        for at in range(20, 30):
            for row, prompt in zip((a, b), prompts, strict=True):
                usual = HFTarget(tiny("llama"))
                expected = usual.extend(prompt[: at + 1], last_only=True)
                torch.testing.assert_close(row.extend(prompt[at : at + 1]), expected)


def test_requests_of_a_batch_get_the_answers_that_they_get_alone(tiny, run, static):
    batch = Batch(static)
    for prompt in (PROMPT, [*PROMPT, 4], PROMPT[:9]):
        with batch.row() as row:
            assert run(row, prompt, ("ngram",)) == run(HFTarget(tiny("llama")), prompt)


def test_requests_that_run_at_once_get_the_answers_that_they_get_alone(tiny, run, static):
    prompts = [PROMPT[begin:] for begin in range(6)]
    alone = [run(HFTarget(tiny("llama")), prompt) for prompt in prompts]
    batch = Batch(static)

    def answer(prompt):
        with batch.row() as row:
            return run(row, prompt, ("ngram",))

    with ThreadPoolExecutor(len(prompts)) as pool:
        assert list(pool.map(answer, prompts)) == alone


def test_what_somebody_else_left_does_not_count(tiny, run, static):
    run(static, PROMPT)
    with torch.inference_mode():
        for states in static._static.places.values():
            states.fill_(torch.nan)
    assert run(static, PROMPT[:9]) == run(HFTarget(tiny("llama")), PROMPT[:9])


def test_a_model_that_cannot_be_captured_is_decoded_as_ever(tiny, run, static, monkeypatch):
    def capture(*_):
        raise RuntimeError("operation not permitted when stream is capturing")

    monkeypatch.setattr("specedit.targets.static._Pass.__call__", capture)
    assert run(static, PROMPT) == run(HFTarget(tiny("llama")), PROMPT)
    assert not static.pads
    assert static.extra_bytes == 0


def test_a_pass_that_skips_a_seat_leaves_it_as_it_is(tiny, monkeypatch):
    """The first context has grown, by a pass of another kind, to where seats are nobody's."""
    monkeypatch.setattr("specedit.targets.static._WIDEST", 8)
    monkeypatch.setattr("specedit.targets.static._SHORTEST", 32)
    model = tiny("llama")
    passes = StaticPasses(model)
    contexts = [Context() for _ in range(3)]
    for context in contexts:
        score(model, [Part(context, PROMPT[:14])], True)
    passes.score([Part(context, PROMPT[14:16]) for context in contexts])
    score(model, [Part(contexts[0], PROMPT[16:30])], True)
    passes.score([Part(context, PROMPT[16:18]) for context in contexts[1:]])
    [ours] = passes.score([Part(contexts[0], PROMPT[30:32])])
    with torch.inference_mode():
        torch.testing.assert_close(ours, model(torch.tensor([PROMPT[:32]])).logits[0, 30:])


def test_where_memory_is_short_passes_take_no_places(tiny, run, static):
    static._static._room = 0
    assert run(static, PROMPT) == run(HFTarget(tiny("llama")), PROMPT)
    assert static.free_seats == 0


def test_a_long_context_gets_the_places_of_many_short_ones(tiny, monkeypatch):
    monkeypatch.setattr("specedit.targets.static._WIDEST", 8)
    monkeypatch.setattr("specedit.targets.static._SHORTEST", 32)
    model = tiny("llama")
    passes, contexts = StaticPasses(model), [Context() for _ in range(4)]
    for context in contexts:
        score(model, [Part(context, PROMPT[:14])], True)
    passes._room = 4 * 32 * contexts[0].token_bytes
    parts = [Part(context, [1]) for context in contexts]
    assert passes.takes(parts)
    passes.score(parts)
    score(model, [Part(contexts[0], PROMPT[15:60])], True)
    part = Part(contexts[0], [1])
    assert passes.takes([part])
    passes.score([part])
    assert not passes.takes([Part(context, [1]) for context in contexts])


def test_when_memory_runs_out_less_is_taken_from_then_on(tiny, run, static, monkeypatch):
    assert static.pads
    room = static.seat_room
    with monkeypatch.context() as short:
        short.setattr(_Pass, "__call__", Mock(side_effect=torch.OutOfMemoryError))
        assert run(static, PROMPT, max_tokens=2) == run(HFTarget(tiny("llama")), PROMPT, max_tokens=2)
    assert static.seat_room == room / 2
    assert run(static, PROMPT) == run(HFTarget(tiny("llama")), PROMPT)
    assert static.free_seats + static._context.bytes > 0


def test_tokens_between_two_sizes_cost_as_much_as_the_larger(static):
    cost = CostCurve.measure(static)(256)
    assert cost[4] == cost[7]
    assert cost[32] == cost[63]
    assert len(set(cost)) <= 9


def test_a_step_of_a_padded_size_corrects_that_size():
    curve = CostCurve([1.0] * 4 + [2.0] * 5, pads=True)
    curve.learn(9, 3.0)
    assert curve(16)[8] == curve(16)[15] > 2


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.parametrize("kind", ["llama", "qwen2", "gemma3"])
def test_graphs_are_replayed_on_a_gpu(tiny, run, kind):
    target = HFTarget(copy.deepcopy(tiny(kind)).cuda())
    for proposers in ((), ("ngram",)):
        assert run(target, PROMPT, proposers) == run(HFTarget(tiny(kind)), PROMPT)
    assert target.pads


def test_what_it_takes_of_the_memory_is_known(static):
    static.extend(PROMPT, last_only=True)
    static.extend(PROMPT[:5])
    assert static.extra_bytes > 256 * 29 * 4
