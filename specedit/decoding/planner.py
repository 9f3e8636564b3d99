"""Which draft to verify, and how much of it: the best expected tokens per second, plain decoding included."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from itertools import takewhile
from typing import TypeVar

import numpy as np

from specedit.decoding.cost import CostCurve
from specedit.proposers import Proposer, Request
from specedit.types import Draft

MAX_DRAFT = 255  # with the token before it a forward pass of 256, the largest that is measured
# What each outcome is worth after the next one. Whether a proposer is in place changes from edit to edit; how
# long it stays there hardly does.
_MEMORY_FIRST = 0.8
_MEMORY_NEXT = 0.97
# What is believed before anything is counted, by strength of evidence (0, 1, 2–3, 4–7, … agreeing tokens):
# how often the first token of a draft is right, and each token after right ones. Counting soon overrules it.
_FIRST = (0.1, 0.2, 0.4, 0.55, 0.7, 0.8, 0.9, 0.9)
_NEXT = (0.7, 0.8, 0.88, 0.93, 0.96, 0.98, 0.99, 0.99)


R = TypeVar("R")


class Planner:
    """Asks the proposers and chooses by measured acceptance and measured cost.

    A draft of n tokens yields 1 + first·(1 + next + … + next^(n-1)) tokens on average, where `first` is how
    often the first token of such drafts is right and `next` how often a token is right after right ones. Both
    are counted per proposer and per strength of evidence, for every draft on offer, verified or not. (The
    geometric yield is that of Leviathan et al. 2023, arXiv 2211.17192, equation 1; telling the first token
    from the rest matters here, since a proposer that has found its place keeps it.)

    Args:
        proposers: asked at every step.
        cost: seconds to score n tokens with this target.
    """

    def __init__(self, proposers: Sequence[Proposer], cost: CostCurve) -> None:
        self.cost = cost
        self._proposers = list(proposers)
        self._offers: dict[str, Draft] = {}
        self._rates: dict[tuple[str, int], _Rates] = {}

    def start(self, request: Request, vocab_size: int) -> None:
        """A new answer begins, of token ids below `vocab_size`."""
        self._vocab_size = vocab_size
        for proposer in list(self._proposers):
            self._guard(proposer, proposer.start, request)

    def propose(self, history: Sequence[int], limit: int) -> tuple[str, list[int]]:
        """The proposer and the at most `limit` tokens to verify next; ("", []) when no draft pays."""
        limit = min(limit, MAX_DRAFT)
        self._offers = {}
        for proposer in list(self._proposers) if limit else ():
            if draft := self._guard(proposer, self._draft, proposer, history, limit):
                self._offers[proposer.name] = draft
        best, choice = 1 / self.cost(1)[0], ("", list[int]())
        for name, draft in self._offers.items():
            n = len(draft.tokens)
            first, following = self._rates_of(name, draft).means()
            yields = 1 + first * (1 - following ** np.arange(1, n + 1)) / (1 - following)
            speeds = yields / self.cost(n + 1)[1:]
            length = int(speeds.argmax()) + 1
            if speeds[length - 1] > best:
                best, choice = speeds[length - 1], (name, draft.tokens[:length])
        return choice

    def learn(self, emitted: Sequence[int], scored: int, seconds: float) -> None:
        """What the target wrote after the latest offers, and how long scoring `scored` tokens took."""
        self.cost.learn(scored, seconds)
        for name, draft in self._offers.items():
            right = agreeing(draft.tokens, emitted)
            wrong = right < min(len(draft.tokens), len(emitted))
            self._rates_of(name, draft).learn(right, wrong)

    def _guard(self, proposer: Proposer, call: Callable[..., R], *args: object) -> R | None:
        """Call a proposer. One that fails is left out from then on: it may cost time, never an answer."""
        try:
            return call(*args)
        except Exception as error:
            warnings.warn(f"Proposer {proposer.name} failed and is left out: {error!r}.", stacklevel=2)
            self._proposers.remove(proposer)
            return None

    def _draft(self, proposer: Proposer, history: Sequence[int], limit: int) -> Draft | None:
        """What the proposer says, if anything, cut to the limit and before the first id that is no token."""
        draft = proposer.propose(history, limit)
        tokens = list(takewhile(lambda token: 0 <= token < self._vocab_size, draft.tokens[:limit]))
        return Draft(tokens, draft.match) if tokens else None

    def _rates_of(self, name: str, draft: Draft) -> _Rates:
        strength = min(draft.match.bit_length(), len(_FIRST) - 1)
        return self._rates.setdefault((name, strength), _Rates(strength))


class _Rates:
    """How often the first and the following tokens of one kind of draft are right, lately."""

    def __init__(self, strength: int) -> None:
        # Counts of right and wrong; the prior weighs as much as one first token and eight following ones.
        self.first = np.array([_FIRST[strength], 1 - _FIRST[strength]])
        self.next = 8 * np.array([_NEXT[strength], 1 - _NEXT[strength]])

    def means(self) -> tuple[float, float]:
        following = self.next[0] / self.next.sum()
        return self.first[0] / self.first.sum(), min(following, 0.9999)

    def learn(self, right: int, wrong: bool) -> None:
        self.first *= _MEMORY_FIRST
        self.first[0 if right else 1] += 1
        if right:
            self.next *= _MEMORY_NEXT
            self.next += (right - 1, wrong)


def agreeing(a: Sequence[int], b: Sequence[int]) -> int:
    """How many leading tokens of a and b are the same."""
    count = 0
    for x, y in zip(a, b, strict=False):
        if x != y:
            break
        count += 1
    return count
