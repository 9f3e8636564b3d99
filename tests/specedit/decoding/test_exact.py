"""The contract: speculation changes the time, never the text."""

import random

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from specedit.decoding.sampling import Sampler
from specedit.decoding.statistics import Statistics
from specedit.proposers import Proposer
from specedit.targets.hf import HFTarget
from specedit.targets.replay import ReplayTarget
from specedit.types import Draft, Sampling

PROPOSERS = ("structural", "predicted", "ngram")


def some_prompt(seed: int) -> list[int]:
    rng = random.Random(seed)
    return [rng.randrange(29) for _ in range(20)] * 2


class Fixed(Proposer):
    """Drafts from a text that it is given, right or wrong."""

    name = "fixed"

    def __init__(self, text, prompt_length):
        self.text, self.prompt_length = list(text), prompt_length

    def propose(self, history, limit):
        return [Draft(self.text[len(history) - self.prompt_length :][:limit], match=9)]


class Rivals(Fixed):
    """Drafts that part from the text after some tokens, and the text itself."""

    name = "rivals"

    def propose(self, history, limit):
        [right] = super().propose(history, limit)
        parts = [[*right.tokens[:n], (right.tokens[n] + 1) % 29, 3] for n in range(min(3, len(right.tokens)))]
        return [Draft(tokens[:limit], match=9) for tokens in parts] + [right]


@pytest.mark.parametrize("kind", ["llama", "qwen2"])
@pytest.mark.parametrize("sampling", [Sampling(), Sampling(temperature=0.9, presence_penalty=0.5, seed=4)])
def test_a_tree_of_rivals_changes_nothing(tiny, run, kind, sampling):
    target, prompt, stats = HFTarget(tiny(kind)), some_prompt(0), Statistics()
    plain = run(target, prompt, sampling=sampling)
    # The third token is another one, so that paths end and begin in the middle of the tree.
    for text in (plain, [*plain[:2], (plain[2] + 1) % 29, *plain[3:]]):
        assert run(target, prompt, [Rivals(text, 40)], sampling, stats=stats) == plain
    assert max(stats.drafted_at.values()) > stats.target_calls  # there were trees


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("kind", ["llama", "qwen2", "gemma3"])
def test_greedy_is_what_transformers_writes(tiny, generate, run, kind, seed):
    model, prompt, stats = tiny(kind), some_prompt(seed), Statistics()
    assert run(HFTarget(model), prompt, PROPOSERS, stats=stats) == generate(model, prompt, 60)
    assert stats.accepted_tokens > 0  # or nothing was tested
    assert stats.rejected_tokens > 0


def test_a_model_that_cannot_roll_back_writes_what_transformers_writes(tiny, generate, run):
    model, prompt = tiny("jamba"), some_prompt(0)
    target = HFTarget(model)
    assert not target.can_rollback
    assert run(target, prompt) == generate(model, prompt, 60)


def test_a_model_that_cannot_roll_back_is_never_speculated_on(tiny, run):
    with pytest.raises(ValueError, match="cannot roll back"):
        run(HFTarget(tiny("jamba")), some_prompt(0), PROPOSERS)


@pytest.mark.parametrize("kind", ["llama", "qwen2", "gemma3"])
@settings(max_examples=15, deadline=None)
@given(
    seed=st.integers(0, 2**40),
    temperature=st.sampled_from([0.0, 0.3, 0.8, 1.5]),
    top_k=st.sampled_from([0, 1, 5]),
    top_p=st.sampled_from([1.0, 0.9, 0.3]),
    min_p=st.sampled_from([0.0, 0.1]),
    repetition_penalty=st.sampled_from([1.0, 1.3]),
    presence_penalty=st.sampled_from([0.0, 0.5]),
    frequency_penalty=st.sampled_from([0.0, 0.2]),
    logit_bias=st.dictionaries(st.integers(0, 28), st.floats(-2, 2), max_size=3),
)
def test_sampling_is_what_plain_decoding_draws_with_that_seed(tiny, run, kind, seed, **asked):
    target, prompt, sampling = HFTarget(tiny(kind)), some_prompt(seed), Sampling(seed=seed, **asked)
    plain = run(target, prompt, sampling=sampling, max_tokens=30)
    # A draft that is right up to a point, a block in which every setting matters.
    wrong = [*plain[:11], (plain[11] + 1) % 29, *plain[12:]]
    for draft in (plain, wrong):
        assert run(target, prompt, [Fixed(draft, 40)], sampling, max_tokens=30) == plain
    assert run(target, prompt, PROPOSERS, sampling, max_tokens=30) == plain


def test_another_seed_writes_another_answer(tiny, run):
    target, prompt = HFTarget(tiny("llama")), some_prompt(0)
    answers = [run(target, prompt, PROPOSERS, Sampling(temperature=1.0, seed=seed)) for seed in (1, 1, 2)]
    assert answers[0] == answers[1] != answers[2]


@pytest.mark.parametrize("penalty", [1.3, 0.7])
def test_the_repetition_penalty_is_that_of_transformers(tiny, generate, run, penalty):
    model, prompt = tiny("llama"), some_prompt(1)
    expected = generate(model, prompt, 60, repetition_penalty=penalty)
    assert run(HFTarget(model), prompt, PROPOSERS, Sampling(repetition_penalty=penalty)) == expected


@pytest.mark.parametrize("budget", [1, 2, 3, 4])
def test_the_token_limit_is_met_to_the_token(run, budget):
    answer = list(range(20))
    draft = Fixed(answer, 2)
    assert run(ReplayTarget(answer, 29), [27, 28], [draft], max_tokens=budget) == answer[:budget]


def test_nothing_follows_an_end_token_inside_an_accepted_block(run):
    answer = [1, 2, 3, 0, 5, 6, 7]
    ends = lambda token: token == 0  # noqa: E731
    stats = Statistics()
    assert run(ReplayTarget(answer, 29), [28], [Fixed(answer, 1)], ends=ends, stats=stats) == [1, 2, 3, 0]
    assert stats.tokens == 4


def test_every_token_is_counted_once(run):
    answer, stats = list(range(20)), Statistics()
    run(ReplayTarget(answer, 29), [28], [Fixed(answer, 1)], max_tokens=20, stats=stats)
    assert stats.tokens == 20
    # The prefill draws one token and the one step adds one to what it accepts.
    assert (stats.target_calls, stats.accepted_tokens) == (1, 18)


def test_a_wrong_draft_costs_no_token(run):
    answer, stats = list(range(20)), Statistics()
    wrong = Fixed([token + 1 for token in answer], 1)
    assert run(ReplayTarget(answer, 29), [28], [wrong], max_tokens=20, stats=stats) == answer
    assert stats.accepted_tokens == 0
    assert stats.target_calls == 19


def test_a_draft_beyond_the_limit_is_cut(run):
    class Greedy(Fixed):
        def propose(self, history, limit):
            return [Draft(self.text[len(history) - self.prompt_length :], match=9)]

    answer = list(range(20))
    assert run(ReplayTarget(answer, 29), [28], [Greedy(answer, 1)], max_tokens=5) == answer[:5]


def test_a_prompt_of_one_token(tiny, generate, run):
    model = tiny("llama")
    assert run(HFTarget(model), [3], PROPOSERS) == generate(model, [3], 60)


def test_the_context_is_never_overrun(tiny, run):
    """The last token of a full context is drawn but never fed, so 512 positions hold 513 tokens at most."""
    target = HFTarget(tiny("llama"))
    lengths = []
    extend = target.extend
    target.extend = lambda *a, **k: (lengths.append(target.length + len(a[0])), extend(*a, **k))[1]
    run(target, [1, 2] * 240, PROPOSERS, max_tokens=32)
    assert max(lengths) <= 512


def test_a_proposer_of_ones_own_needs_one_method(tiny, generate, run):
    class Echo(Proposer):
        name = "echo"

        def propose(self, history, limit):
            return [Draft(list(history[-limit:]))]

    model = tiny("llama")
    assert run(HFTarget(model), [1, 2, 3], [Echo()]) == generate(model, [1, 2, 3], 60)


@pytest.mark.parametrize("sampling", [Sampling(), Sampling(temperature=0.8, presence_penalty=0.5, seed=3)])
def test_logprobs_are_what_the_model_itself_gives_each_token(tiny, run, sampling):
    model, prompt = tiny("llama"), some_prompt(0)
    sampler = Sampler(sampling, prompt, keep_logprobs=True)
    tokens = torch.tensor(run(HFTarget(model), prompt, PROPOSERS, sampler=sampler))
    with torch.inference_mode():
        logits = model(torch.cat([torch.tensor(prompt), tokens])[None]).logits[0, len(prompt) - 1 : -1]
    expected = logits.log_softmax(-1).gather(1, tokens[:, None])[:, 0]
    assert sampler.logprobs == pytest.approx(expected.tolist(), abs=1e-4)
