import numpy as np
import pytest
import torch
from transformers import MinPLogitsWarper, TemperatureLogitsWarper, TopKLogitsWarper, TopPLogitsWarper

from specedit.decoding.sampling import Sampler, Uniforms
from specedit.types import Sampling, SpecEditError, Tree


def draw(sampler, logits, answer, *drafts):
    tree = Tree()
    for draft in drafts:
        tree.add("", draft)
    return sampler.draw(logits, answer, tree)[0]


def test_a_position_keeps_its_number_however_it_is_asked_for():
    together, apart = Uniforms(7), Uniforms(7)
    numbers = together(range(3000))
    assert [float(apart([t])[0]) for t in (2999, 5, 0)] == [numbers[2999], numbers[5], numbers[0]]


def test_seeds_differ():
    assert not np.array_equal(Uniforms(1)(range(10)), Uniforms(2)(range(10)))


def test_greedy_takes_the_argmax_up_to_the_first_disagreement():
    logits = torch.eye(5)[[3, 1, 4, 2]]
    assert draw(Sampler(Sampling(), [0]), logits, [], [3, 1, 0]) == [3, 1, 4]
    assert draw(Sampler(Sampling(), [0]), logits, [], [3, 1, 4]) == [3, 1, 4, 2]


def test_another_branch_is_taken_where_the_first_one_ends():
    tree = Tree()
    tree.add("a", [1, 2, 3])
    tree.add("b", [1, 4, 0, 2])  # follows position 1, and stands at positions 4 to 6
    logits = torch.eye(5)[[1, 4, 0, 0, 0, 3, 0]]
    assert Sampler(Sampling(), [0]).draw(logits, [], tree) == ([1, 4, 0, 3], [0, 1, 4, 5])


@pytest.mark.parametrize("length", [1, 15, 16, 17, 40])
def test_a_block_is_drawn_as_its_positions_would_be_alone(length):
    torch.manual_seed(0)
    logits = torch.randn(length, 50)
    sampling = Sampling(temperature=0.9, top_p=0.95, frequency_penalty=0.3, repetition_penalty=1.2, seed=3)
    alone: list[int] = []
    for row in logits:
        alone += draw(Sampler(sampling, [1, 2]), row[None], alone, [])
    assert draw(Sampler(sampling, [1, 2]), logits, [], alone[:-1]) == alone


def test_a_draw_inverts_the_cdf_of_the_warped_distribution():
    torch.manual_seed(0)
    logits = torch.randn(1, 50) * 3
    sampling = Sampling(temperature=0.7, top_k=20, top_p=0.9, min_p=0.02, seed=9)
    scores = logits
    for warp in (
        TemperatureLogitsWarper(0.7),
        TopKLogitsWarper(20),
        TopPLogitsWarper(0.9),
        MinPLogitsWarper(0.02),
    ):
        scores = warp(None, scores)
    cdf = scores.softmax(-1).double().cumsum(-1)[0].numpy()
    for t in range(100):
        expected = int(np.searchsorted(cdf, Uniforms(9)([t])[0] * cdf[-1], side="right"))
        assert draw(Sampler(sampling, [0]), logits, [0] * t, []) == [expected]


def test_presence_and_frequency_count_the_answer_and_not_the_prompt():
    logits = torch.tensor([[5.0, 4.9, 0.0]])
    once = Sampling(presence_penalty=0.2)
    assert draw(Sampler(once, prompt=[0, 0, 0]), logits, [], []) == [0]
    assert draw(Sampler(once, prompt=[0]), logits, [0], []) == [1]
    often = Sampling(frequency_penalty=0.06)
    assert draw(Sampler(often, prompt=[0]), logits, [0], []) == [0]
    assert draw(Sampler(often, prompt=[0]), logits, [0, 0], []) == [1]


def test_penalties_count_the_accepted_draft_before_a_position_and_nothing_after():
    logits = torch.tensor([[5.0, 4.9, 0.0]]).expand(3, 3)
    sampling = Sampling(presence_penalty=0.2)
    # 0 is penalised after it was written, then 1 is too and 0 is ahead again.
    assert draw(Sampler(sampling, [2]), logits, [], [0, 1]) == [0, 1, 0]
    # The rejected 2 leaves no trace.
    assert draw(Sampler(sampling, [2]), logits, [], [2, 1]) == [0]


def test_logit_bias_is_added():
    logits = torch.tensor([[1.0, 0.0, 0.0]])
    assert draw(Sampler(Sampling(logit_bias={2: 1.5}), [0]), logits, [], []) == [2]


def test_logit_bias_for_no_token_says_which_there_are():
    with pytest.raises(SpecEditError, match="from 0 to 2"):
        draw(Sampler(Sampling(logit_bias={3: 1.0}), [0]), torch.zeros(1, 3), [], [])


@pytest.mark.parametrize(
    "wrong",
    [
        {"temperature": -1},
        {"top_p": 0},
        {"top_p": 1.1},
        {"min_p": 2},
        {"top_k": -1},
        {"repetition_penalty": 0},
        {"seed": -1},
    ],
)
def test_settings_out_of_range_are_named(wrong):
    with pytest.raises(SpecEditError, match=next(iter(wrong))):
        Sampling(**wrong)


def test_settings_may_be_whole_numbers():
    logits = torch.tensor([[1.0, 0.0, 0.0]])
    assert draw(Sampler(Sampling(logit_bias={2: 5}), [0]), logits, [], []) == [2]
    assert len(draw(Sampler(Sampling(temperature=1), [0]), logits, [], [])) == 1


@pytest.mark.parametrize("temperature", [0.0, 1.0])
@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_logits_that_overflow_are_an_error_and_no_token(temperature, value):
    logits = torch.tensor([[0.0, value, 0.0]])
    with pytest.raises(SpecEditError, match="bfloat16"):
        draw(Sampler(Sampling(temperature=temperature), [0]), logits, [], [])


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_logits_that_overflow_after_a_wrong_guess_do_not_matter(temperature):
    logits = torch.tensor([[100.0, 0.0, 0.0], [float("nan")] * 3])
    assert draw(Sampler(Sampling(temperature=temperature), [0]), logits, [], [1]) == [0]
