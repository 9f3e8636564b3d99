"""Replaying a known answer: counted without a model, and paid for with one."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from specedit.decoding.cost import FixedCost
from specedit.decoding.loop import decode
from specedit.decoding.planner import Planner
from specedit.decoding.sampling import Sampler
from specedit.decoding.statistics import Statistics
from specedit.proposers import DEFAULT, Request, create
from specedit.replay import CountingTarget, fewest_passes, replay
from specedit.targets.hf import HFTarget
from specedit.types import Sampling

COST = FixedCost([1.0, 1.1, 1.2, 1.3, 1.4, 1.6, 2.0, 3.0, 5.0])
TOKENS = st.lists(st.integers(0, 5), min_size=1, max_size=40)


def request(prompt, reference=()):
    return Request(prompt, ["reference"], lambda text: list(reference), str)


def planner():
    return Planner(create(DEFAULT), COST)


@given(prompt=TOKENS, answer=TOKENS)
def test_the_answer_is_the_one_that_was_given(prompt, answer):
    stats = replay(CountingTarget(COST), request(prompt, answer), answer, planner())
    assert stats.tokens == len(answer)


def test_a_pass_costs_what_the_curve_says():
    target = CountingTarget(COST)
    assert replay(target, request([1, 2, 3]), [4, 5, 6], None).target_calls == 2
    assert target.seconds == 2 * 1.0


def test_an_answer_that_is_the_reference_takes_few_passes():
    text = list(range(200))
    stats = replay(CountingTarget(COST), request([7], text), text, planner())
    assert stats.target_calls < 20


def test_a_replay_makes_the_passes_of_live_decoding(tiny):
    prompt = [1, 2, 3, 4, 1, 2, 3]
    live, stats = HFTarget(tiny("llama"), "tiny"), Statistics()
    options = {"max_tokens": 60, "ends": lambda token: False, "stats": stats}
    steps = decode(live, request(prompt), Sampler(Sampling(), prompt), planner(), **options)
    answer = [token for tokens in steps for token in tokens]
    for target in (live, CountingTarget(COST)):
        again = replay(target, request(prompt), answer, planner())
        assert again.target_calls == stats.target_calls
        assert again.accepted == stats.accepted


@given(prompt=TOKENS, answer=TOKENS)
def test_no_proposer_needs_fewer_passes_than_the_perfect_copier(prompt, answer):
    asked = request(prompt, [*answer[3:], *answer[:3]])
    assert fewest_passes(asked, answer) <= replay(CountingTarget(COST), asked, answer, planner()).target_calls


@pytest.mark.parametrize(("answer", "passes"), [([9], 0), ([9, 1, 2, 3], 1), ([9, 8, 7, 6], 3)])
def test_the_perfect_copier_takes_whole_runs(answer, passes):
    assert fewest_passes(request([1, 2, 3, 4]), answer) == passes
