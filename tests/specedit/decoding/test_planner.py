import json
import time

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from specedit.decoding.cost import CostCurve
from specedit.decoding.planner import Planner
from specedit.proposers import Proposer, Request
from specedit.targets.hf import HFTarget
from specedit.types import Draft, Tree

FLAT = [1.0] * 9  # seconds for 1, 2, 4, … 256 tokens
STEEP = [1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0]


class Ones(Proposer):
    name = "ones"

    def propose(self, history, limit):
        return [Draft([1] * limit, match=3)]


class Rivals(Proposer):
    """One of these may be next."""

    name = "rivals"

    def propose(self, history, limit):
        return [Draft([2, 3, 4], rivals=True)]


class Silent(Proposer):
    name = "silent"

    def propose(self, history, limit):
        return []


class Slow(Proposer):
    """Drafts twos, one in `seconds`."""

    name = "slow"
    slow = True

    def __init__(self, seconds=0.0):
        self.seconds, self.asked = seconds, []

    def propose(self, history, limit):
        self.asked.append(limit)
        time.sleep(limit * self.seconds)
        return [Draft([2] * limit, match=1 << 20)]


def planner(cost, *proposers):
    plan = Planner(proposers or [Ones()], CostCurve(cost))
    plan.start(Request([0], [], list, str), vocab_size=9, branching=True)
    return plan


def after(plan, emitted, steps):
    """The plan once `steps` steps ended in these tokens."""
    for _ in range(steps):
        plan.propose([0], 255)
        plan.learn(emitted, 1, 1.0)
    return plan.propose([0], 255)


def test_what_is_always_right_is_drafted_long_where_that_is_free():
    tokens = after(planner(FLAT), [1] * 64, steps=20).tokens
    assert len(tokens) == 255


@given(
    st.lists(st.floats(0, 0.5), min_size=9, max_size=9),
    st.lists(st.lists(st.integers(1, 4), min_size=1, max_size=40), max_size=10),
)
def test_what_is_not_weighed_would_not_have_paid(dearer, answers):
    plan = planner(list(1 + np.cumsum(dearer)), Ones(), Rivals())
    for answer in answers:
        plan.learn(answer, 1, 1.0)
        if not plan.propose([0], 255).tokens:
            assert plan._best(plan._offers, 255)[0] == 0


def test_what_is_always_right_is_drafted_wherever_that_is_faster():
    one_core = [0.075, 0.158, 0.183, 0.22, 0.276, 0.399, 0.637, 1.07, 1.71]  # two tokens cost twice one
    assert len(after(planner(one_core), [1] * 64, steps=20).tokens) > 30


def test_what_is_always_wrong_is_not_drafted():
    assert after(planner([1, 1.1, 1.2, 1.4, 1.6, 2, 3, 5, 9]), [2], steps=20) == Tree()


def test_what_turned_right_again_is_drafted_again():
    plan = planner([1, 1.1, 1.2, 1.4, 1.6, 2, 3, 5, 9])
    after(plan, [2], steps=20)
    assert after(plan, [1], steps=20).tokens


def test_nothing_is_drafted_where_each_token_costs_a_step():
    assert after(planner(STEEP), [1] * 4, steps=20) == Tree()


def test_dearer_verification_means_shorter_drafts():
    cheap = after(planner([1, 1, 1, 1, 1, 1.2, 1.5, 2, 3]), [1] * 8 + [2], steps=30).tokens
    dear = after(planner([1, 1.2, 1.5, 2, 3, 5, 9, 17, 33]), [1] * 8 + [2], steps=30).tokens
    assert 0 < len(dear) < len(cheap)


def test_a_proposer_without_a_draft_does_not_hinder_the_other():
    assert set(after(planner(FLAT, Silent(), Ones()), [1] * 9, steps=3).names) == {"ones"}


def test_a_proposer_that_fails_is_left_out_and_the_answer_goes_on():
    class Broken(Proposer):
        name = "broken"

        def propose(self, history, limit):
            raise ZeroDivisionError

    plan = planner(FLAT, Broken(), Ones())
    with pytest.warns(UserWarning, match="Proposer broken failed and is left out"):
        assert plan.propose([0], 9).tokens == [1] * 9
    assert plan.propose([0], 9).tokens == [1] * 9


def test_a_proposer_that_fails_says_nothing_of_the_request():
    class Broken(Proposer):
        name = "broken"

        def propose(self, history, limit):
            "hush \ud800".encode()

    with pytest.warns(UserWarning, match=r"left out: UnicodeEncodeError at .*test_planner.py") as warned:
        planner(FLAT, Broken()).propose([0], 9)
    assert "hush" not in str(warned[0].message)


def test_a_proposer_that_fails_is_back_for_the_next_answer():
    class Broken(Proposer):
        name = "broken"

        def propose(self, history, limit):
            if history[-1]:
                return [Draft([1] * limit, match=64)]
            raise ZeroDivisionError

    plan = Planner([Broken()], CostCurve(FLAT))
    first, second = plan.fork(), plan.fork()
    for answer in (first, second):
        answer.start(Request([0], [], None, None), 9, branching=True)
    with pytest.warns(UserWarning, match="left out"):
        assert first.propose([0], 9).tokens == []
    assert first.propose([1], 9).tokens == []
    assert second.propose([1], 9).tokens == [1] * 9


def test_rivals_are_verified_side_by_side_where_that_is_free():
    tree = after(planner(FLAT, Rivals()), [4], steps=3)
    assert (tree.tokens, tree.parents) == ([2, 3, 4], [0, 0, 0])


def test_rivals_stand_back_where_another_draft_is_sure():
    half_free = [1, 1, 1, 1.5, 2, 3, 5, 9, 17]
    assert set(after(planner(half_free, Ones(), Rivals()), [1] * 64, steps=20).names) == {"ones"}


def test_rivals_that_are_always_wrong_are_not_verified():
    assert after(planner([1, 1.1, 1.2, 1.4, 1.6, 2, 3, 5, 9], Rivals()), [5], steps=20) == Tree()


def test_to_forget_reaches_every_proposer():
    class Keeper(Silent):
        kept = True

        def forget(self):
            self.kept = False

    keepers = Keeper(), Keeper()
    planner(FLAT, *keepers).forget()
    assert not any(keeper.kept for keeper in keepers)


def test_a_proposer_that_does_not_return_drafts_is_left_out():
    class Single(Proposer):
        name = "single"

        def propose(self, history, limit):
            return Draft([1] * limit)

    with pytest.warns(UserWarning, match="Proposer single failed"):
        assert planner(FLAT, Single()).propose([0], 9) == Tree()


@pytest.mark.parametrize("no_token", [-1, 9])
def test_a_draft_ends_before_an_id_that_is_no_token(no_token):
    class Stray(Proposer):
        name = "stray"

        def propose(self, history, limit):
            return [Draft([1, 8, no_token, 1], match=9)]

    assert planner(FLAT, Stray()).propose([0], 9).tokens == [1, 8]


def test_no_room_no_draft():
    assert planner(FLAT).propose([0], 0) == Tree()


def test_the_curve_follows_what_steps_cost():
    curve = CostCurve(FLAT)
    for _ in range(60):
        curve.learn(64, 3.0)
    assert curve(64)[-1] == pytest.approx(3.0, rel=0.05)


def test_one_odd_step_hardly_moves_the_curve():
    curve = CostCurve(FLAT)
    curve.learn(8, 1000.0)
    assert curve(256).max() < 1.2


@given(st.lists(st.tuples(st.integers(1, 256), st.floats(0.001, 10)), max_size=30))
def test_more_tokens_never_cost_less(steps):
    curve = CostCurve(FLAT)
    for tokens, seconds in steps:
        curve.learn(tokens, seconds)
    assert (np.diff(curve(256)) >= 0).all()


def test_a_curve_that_was_learnt_on_a_busy_machine_does_not_keep_wrong_drafts():
    # Single steps met other work, so that four tokens seem to cost less than one.
    plan = planner([0.16, 0.23, 0.12, 0.28, 0.49, 1.05, 0.95, 0.72, 0.69])
    true = CostCurve([0.064, 0.08, 0.09, 0.1, 0.12, 0.15, 0.2, 0.4, 0.7])
    scored = []
    for _ in range(40):
        scored.append(1 + len(plan.propose([0], 255).tokens))
        plan.learn([2], scored[-1], float(true(256)[scored[-1] - 1]))
    assert scored[-10:] == [1] * 10


def test_steps_that_agree_correct_a_wrong_curve_at_once():
    curve = CostCurve([10.0] * 9)
    for seconds in (1.0, 1.1, 0.9):
        curve.learn(1, seconds)
    assert 0.8 < curve(1)[0] < 1.2
    assert 0.8 < curve(256)[-1] < 1.2


def test_a_single_slow_step_does_not(tiny):
    curve = CostCurve([1.0] * 9)
    for seconds in (1.0, 9.0, 1.0, 9.0, 1.0, 1.0):
        curve.learn(1, seconds)
    assert curve(1)[0] < 1.5


def test_measuring_a_model_gives_a_rising_curve_and_an_empty_context(tiny):
    target = HFTarget(tiny("llama"))
    curve = CostCurve.measure(target)
    assert (np.diff(curve(256)) >= 0).all()
    assert curve(1)[0] > 0
    assert target.length == 0


def test_a_measured_curve_is_kept(tiny, tmp_path):
    target = HFTarget(tiny("llama"))
    first = CostCurve.cached(target, tmp_path)
    assert np.array_equal(CostCurve.cached(target, tmp_path)(256), first(256))


def test_the_next_run_begins_with_what_this_one_learnt(tiny, tmp_path):
    target = HFTarget(tiny("llama"))
    curve = CostCurve.cached(target, tmp_path)
    for _ in range(60):
        curve.learn(1, 3.0)
    curve.save()
    assert np.array_equal(CostCurve.cached(target, tmp_path)(256), curve(256))


def test_a_small_correction_is_not_worth_writing(tiny, tmp_path):
    curve = CostCurve.cached(HFTarget(tiny("llama")), tmp_path)
    (kept,) = tmp_path.iterdir()
    before = kept.read_text()
    curve.learn(1, 1.5 * curve(1)[0])
    curve.save()
    assert kept.read_text() == before


def test_another_number_format_has_its_own_curve(tiny, tmp_path):
    target = HFTarget(tiny("llama"))
    CostCurve.cached(target, tmp_path)
    target.name = target.name.replace("float32", "bfloat16")
    CostCurve.cached(target, tmp_path)
    assert len(list(tmp_path.iterdir())) == 2


@pytest.mark.parametrize(
    "damage", ["", "{}", json.dumps({"seconds": [1]}), json.dumps({"seconds": ["a"] * 9})]
)
def test_a_damaged_curve_is_measured_again(tiny, tmp_path, damage):
    target = HFTarget(tiny("llama"))
    CostCurve.cached(target, tmp_path)
    (kept,) = tmp_path.iterdir()
    kept.write_text(damage)
    assert len(CostCurve.cached(target, tmp_path)(256)) == 256
    assert len(json.loads(kept.read_text())["seconds"]) == 9


def test_a_folder_that_cannot_be_written_is_no_reason_to_fail(tiny, tmp_path):
    (tmp_path / "file").write_text("")
    assert len(CostCurve.cached(HFTarget(tiny("llama")), tmp_path / "file" / "costs")(256)) == 256


def test_a_slow_proposer_is_asked_where_the_others_know_nothing():
    slow = Slow()
    assert after(planner(FLAT, Silent(), slow), [2] * 64, steps=5).tokens == [2] * slow.asked[-1]


def test_a_slow_proposer_is_not_asked_where_the_others_know_better():
    slow = Slow()
    after(planner(FLAT, Ones(), slow), [1] * 64, steps=20)
    assert len(slow.asked) < 5


def test_a_slow_proposer_that_takes_longer_than_the_target_is_not_asked_again():
    slow = Slow(seconds=0.005)
    plan = planner([0.001] * 9, slow)
    for _ in range(5):
        plan.propose([0], 255)
        plan.learn([2] * 8, 1, 0.001)
    assert len(slow.asked) == 1


@pytest.mark.parametrize(("rivals", "kept"), [(False, [1, 2, 7]), (True, [1, 2, 7, 3])])
def test_no_draft_goes_on_after_a_token_that_ends_the_answer(rivals, kept):
    class Ending(Proposer):
        name = "ending"

        def propose(self, history, limit):
            return [Draft([1, 2, 7, 3], match=1 << 20, rivals=rivals)]

    plan = Planner([Ending()], CostCurve([1] * 9))
    plan.start(Request([0], [], list, str, ends=[8, 7]), vocab_size=9, branching=True)
    assert plan.propose([0], 255).tokens == kept


def test_a_slow_proposer_that_was_wrong_gets_another_chance_with_the_next_answer():
    slow = Slow()
    plan = planner([1, 1.1, 1.2, 1.4, 1.6, 2, 3, 5, 9], slow)
    after(plan, [1], steps=50)
    asked = len(slow.asked)
    plan.propose([0], 255)
    assert len(slow.asked) == asked
    plan.start(Request([0], [], list, str), vocab_size=9, branching=True)
    plan.propose([0], 255)
    assert len(slow.asked) == asked + 1
