"""What is sampled is distributed as the target says, whoever guesses."""

import random

import numpy as np
import pytest
import torch

from specedit.proposers import Proposer
from specedit.types import Draft, Sampling

DRAWS = 50_000
LOGITS = torch.tensor([2.0, 1.5, 1.0, 0.0, -0.5, -1.0, 0.3, -2.0])
# The chi-square value that 7 degrees of freedom exceed once in 10,000 times. The seeds are fixed.
CRITICAL = 29.88


class Die:
    """A target that says the same eight probabilities at every position."""

    name = "die"
    max_length = None
    eos_token_ids = frozenset()
    can_rollback = can_branch = True
    length = 0

    def reset(self):
        pass

    def extend(self, tokens, parents=None, last_only=False):
        return LOGITS.expand(1 if last_only else len(tokens), -1)

    def keep(self, path):
        pass


class Sighted(Proposer):
    """Knows the answer, and says it with the given probability."""

    name = "sighted"

    def __init__(self, answer, right):
        self.rng = random.Random(5)
        self.text = [t if self.rng.random() < right else (t + 1) % 8 for t in answer]

    def propose(self, history, limit):
        return [Draft(self.text[len(history) - 1 :][: min(limit, 16)], match=9)]


def chi_square(tokens, probabilities):
    counts = np.bincount(tokens, minlength=len(probabilities))
    expected = np.asarray(probabilities) * len(tokens)
    return float((((counts - expected) ** 2) / expected).sum())


@pytest.fixture(scope="module")
def plain(run):
    return run(Die(), [0], sampling=Sampling(temperature=1.3, seed=11), max_tokens=DRAWS)


@pytest.mark.parametrize("right", [1.0, 0.7, 0.0])
def test_speculation_samples_the_targets_distribution(run, plain, right):
    drawn = run(Die(), [0], [Sighted(plain, right)], Sampling(temperature=1.3, seed=11), max_tokens=DRAWS)
    assert chi_square(drawn, (LOGITS / 1.3).softmax(0)) < CRITICAL


def test_the_test_can_fail(plain):
    """A temperature that is a little off is told apart."""
    assert chi_square(plain, (LOGITS / 1.4).softmax(0)) > CRITICAL


def test_neighbouring_draws_are_independent(plain):
    pairs = np.asarray(plain[:-1]) * 8 + np.asarray(plain[1:])
    p = (LOGITS / 1.3).softmax(0).numpy()
    # 63 degrees of freedom are above 116.6 once in 20,000 times.
    assert chi_square(pairs, np.outer(p, p).ravel()) < 116.6
