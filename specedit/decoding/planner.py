"""Which drafts to verify, and how much of each: the best expected tokens per second, "none" included."""

from __future__ import annotations

import copy
import warnings
from collections import Counter, defaultdict, deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import takewhile
from operator import itemgetter
from time import perf_counter
from traceback import extract_tb
from typing import TypeVar

import numpy as np

from specedit.decoding.cost import CostCurve
from specedit.proposers import Proposer, Request
from specedit.types import Tree, agreeing

MAX_DRAFT = 255  # with the token before it a forward pass of 256, the largest that is measured
# What each outcome is worth after the next one.
_MEMORY_FIRST = 0.95
_MEMORY_NEXT = 0.97
# What is believed before anything is counted, by strength of evidence (0, 1, 2–3, 4–7, … agreeing tokens):
# how often the first token of a draft is right, and each token after right ones, as they mostly are on the
# JavaScript, TypeScript, Rust and C edits of `bench`. Counting soon overrules it.
_FIRST = (0.05, 0.2, 0.5, 0.7, 0.85, 0.93, 0.98, 0.99, 0.99, 0.99)
_NEXT = (0.7, 0.75, 0.8, 0.88, 0.93, 0.97, 0.985, 0.993, 0.995, 0.998)
_SUREST = 0.9999  # no token is held to be likelier
_LEAST = 0.02  # tokens that are less likely are not looked at
_RIVAL = 0.3  # of these for a draft that is not its proposer's likeliest
_STRONGEST = 1 << (len(_FIRST) - 2)
# The strength of m agreeing tokens, for every m that a draft can reach.
_STRENGTHS = [min(m, _STRONGEST).bit_length() for m in range(_STRONGEST + MAX_DRAFT + 1)]
_STRENGTH = np.array(_STRENGTHS)
# Chances are raised to this power before they are weighed. Of many drafts on offer those look best that are
# overestimated; and a token that is probably wrong, when it is right, would mostly have come cheaply with the
# next step. Found on the JavaScript, TypeScript, Rust and C edits of `bench`, under three cost curves.
_CAUTION = 2
# Long matches are not among what looks good by luck: what follows 128 agreeing tokens is weighed as it is.
_CAUTIOUS = [1.0] * 8 + [1 / _CAUTION] * (len(_NEXT) - 8)
# Where drafting seems to bring less than this, the curve may just be wrong: plain steps put it right.
_WORTH = 1.002
_SLOW_DRAFT = 16  # tokens that a slow proposer is asked for at most
_TIMED = 8  # its latest drafts: the fastest says how long a token takes

R = TypeVar("R")


class Planner:
    """Asks the proposers and chooses by measured acceptance and measured cost.

    The first token of a draft is right as often as first tokens of its kind were lately, and each token after
    right ones as often as tokens after as many agreeing ones were. Both are counted per kind of draft and per
    strength of evidence, for every draft on offer, verified or not. That gives every token its chance of
    being accepted, and the target adds one of its own. As many of the likeliest tokens are verified as bring
    the most tokens a second. (The yield of a draft is that of Leviathan et al. 2023, arXiv 2211.17192,
    equation 1, with a rate for each position; the tree of the likeliest nodes is that of OPT-Tree, Wang et
    al. 2024, arXiv 2406.17276.)

    Args:
        proposers: asked at every step; slow ones where what they drafted so far says that it pays.
        cost: seconds to score n tokens with this target.
    """

    def __init__(self, proposers: Sequence[Proposer], cost: CostCurve) -> None:
        self.cost = cost
        self._proposers = list(proposers)
        self._offers: list[_Offer] = []
        self._rates: dict[tuple[str, str, int], _Rates] = {}
        self._times: defaultdict[str, deque[float]] = defaultdict(partial(deque, maxlen=_TIMED))

    def fork(self) -> Planner:
        """A planner for another answer that is decoded meanwhile. What they learn, they learn together."""
        twin = copy.copy(self)
        twin._offers = []
        twin._proposers = list(map(copy.copy, self._proposers))
        return twin

    def start(self, request: Request, vocab_size: int, branching: bool) -> None:
        """A new answer begins, of token ids below `vocab_size`.

        Args:
            branching: whether the target verifies trees; else a single draft is chosen.
        """
        self._vocab_size = vocab_size
        self._branching = branching
        self._ends = request.ends
        for proposer in list(self._proposers):
            if proposer.slow:  # it is not asked any more after bad luck, but may have better luck now
                self._rates.pop((proposer.name, "", 0), None)
            self._guard(proposer, proposer.start, request)

    def forget(self) -> None:
        """Let no later answer profit from the texts of earlier ones. How often whom to believe is kept."""
        for proposer in self._proposers:
            proposer.forget()

    def propose(self, history: Sequence[int], limit: int) -> Tree:
        """The at most `limit` tokens to verify next; none when no draft pays."""
        limit = min(limit, MAX_DRAFT)
        self._offers = []
        for proposer in sorted(self._proposers, key=lambda proposer: proposer.slow) if limit else ():
            asked = self._worth(proposer, limit) if proposer.slow else limit
            if asked:
                self._offers += self._guard(proposer, self._ask, proposer, history, asked) or []
        tree = Tree()
        for offer, length in self._plan(limit)[1]:
            tokens = offer.tokens[:length]
            for draft in [[token] for token in tokens] if offer.rivals else [tokens]:
                tree.add(offer.name, self._known(draft))
        return tree

    def learn(self, emitted: Sequence[int], scored: int, seconds: float) -> None:
        """What the target wrote after the latest offers, and how long scoring `scored` tokens took."""
        self.cost.learn(scored, seconds)
        drafted = any(offer.draft[0] == emitted[0] for offer in self._offers if not offer.rivals)
        for offer in self._offers:
            if not offer.rivals:
                right = agreeing(offer.draft, emitted)
                offer.rates.learn(offer.match, right, right < min(len(offer.draft), len(emitted)))
            elif not drafted:
                found = emitted[0] in offer.draft
                offer.rates.learn(0, int(found), not found)

    def _worth(self, proposer: Proposer, limit: int) -> int:
        """How many tokens to ask a slow proposer for; 0 where what the others offer brings more."""
        limit = min(limit, _SLOW_DRAFT)
        rates = self._rates.setdefault((proposer.name, "", 0), _Rates(rank=0))
        chances = rates.chances(_STRONGEST, limit) ** _CAUTION
        drafting = min(self._times[proposer.name], default=0.0) * np.arange(1, len(chances) + 1)
        paces = (1 + np.cumsum(chances)) / (drafting + self.cost(len(chances) + 1)[1:])
        best = int(paces.argmax())
        return best + 1 if paces[best] > max(self._plan(limit)[0], 1 / self.cost(1)[0]) else 0

    def _plan(self, limit: int) -> tuple[float, list[tuple[_Offer, int]]]:
        """The most tokens a second that the offers bring, and how much of which are to be verified for it."""
        # Nothing pays where the likeliest token does not: what each of so many costs at least decides.
        cost = self.cost(limit + 1)
        least = ((_WORTH * cost[1:] / cost[0] - 1) / np.arange(1, limit + 1)).min(initial=np.inf)
        if not any(offer.likeliest > least for offer in self._offers):
            return 0.0, []
        one_each = ([offer] for offer in self._offers if not offer.rivals)
        choices = [self._offers] if self._branching else one_each
        plans = [self._best(offers, limit) for offers in choices if offers]
        return max(plans, key=itemgetter(0), default=(0.0, []))

    def _best(self, offers: list[_Offer], limit: int) -> tuple[float, list[tuple[_Offer, int]]]:
        """The most tokens a second that verifying some of these brings, and how much of each that takes."""
        for offer in offers:
            self._weigh(offer)
        rivals = [offer for offer in offers if offer.rivals]
        offers = sorted((o for o in offers if not o.rivals), key=lambda offer: -offer.chances[0])
        beginning = defaultdict[int, list[_Offer]](list)  # by their first tokens
        for number, offer in enumerate(offers):
            fork = offers[number - 1] if number else None
            for earlier in beginning[offer.tokens[0]]:  # where both begin alike, the tokens are its
                common = agreeing(earlier.tokens, offer.tokens)
                shared = earlier.chances[:common]
                np.maximum(shared, offer.chances[:common], out=shared)
                if common >= offer.shared:
                    offer.shared, fork = common, earlier
            beginning[offer.tokens[0]].append(offer)
            if fork:
                _part(fork, offer)
        # Rivals are right as often as they are where no draft is; they are neither picked nor come cheaply.
        wrong = max(1 - sum(offer.chances[0] for offer in offers if not offer.shared), 0.0)
        drafted = sum(len(offer.tokens) - offer.shared for offer in offers)
        offers += rivals
        chances = np.concatenate([offer.chances[offer.shared :] for offer in offers])
        chances[:drafted] **= _CAUTION
        chances[drafted:] *= wrong
        owners = np.repeat(np.arange(len(offers)), [len(o.tokens) - o.shared for o in offers])
        likeliest = np.argsort(-chances, kind="stable")[:limit]
        paces = (1 + np.cumsum(chances[likeliest])) / self.cost(len(likeliest) + 1)[1:]  # tokens a second
        best = int(paces.argmax())
        if paces[best] <= _WORTH / self.cost(1)[0]:
            return 0.0, []
        counts = np.bincount(owners[likeliest[: best + 1]], minlength=len(offers))
        return paces[best], [(o, o.shared + n) for o, n in zip(offers, counts, strict=True) if n]

    def _guard(self, proposer: Proposer, call: Callable[..., R], *args: object) -> R | None:
        """Call a proposer. One that fails is left out of this answer: it may cost time, never an answer."""
        try:
            return call(*args)
        except Exception as error:
            at = extract_tb(error.__traceback__)[-1]
            # Not what the error says: it may quote the request, and servers log this.
            what = f"{type(error).__name__} at {at.filename}:{at.lineno}"
            warnings.warn(f"Proposer {proposer.name} failed and is left out: {what}.", stacklevel=2)
            self._proposers.remove(proposer)
            return None

    def _ask(self, proposer: Proposer, history: Sequence[int], limit: int) -> list[_Offer]:
        """What the proposer offers."""
        offers, ranks = [], Counter[str]()
        begun = perf_counter()
        drafts = proposer.propose(history, limit)
        if proposer.slow and drafts and drafts[0].tokens:
            self._times[proposer.name].append((perf_counter() - begun) / len(drafts[0].tokens))
        for draft in drafts:
            kind = (proposer.name, draft.kind, ranks[draft.kind])
            ranks[draft.kind] += 1
            if tokens := draft.tokens[:limit]:
                rates = self._rates.get(kind) or self._rates.setdefault(kind, _Rates(rank=kind[2]))
                match = min(draft.match, _STRONGEST)
                offers.append(_Offer(proposer.name, tokens, match, rates, draft.rivals))
        return offers

    def _weigh(self, offer: _Offer) -> None:
        """See how much of it is at all likely, and how much so."""
        offer.shared = 0
        if offer.rivals:
            offer.tokens = offer.draft
            offer.chances = np.full(len(offer.draft), offer.likeliest)
        else:
            chances = offer.rates.chances(offer.match, len(offer.draft))
            offer.tokens = self._to_the_end(offer.draft[: len(chances)])
            offer.chances = chances[: len(offer.tokens)]

    def _to_the_end(self, draft: list[int]) -> list[int]:
        """The draft up to the first token that ends the answer."""
        for end in self._ends:
            if end in draft:
                draft = draft[: draft.index(end) + 1]
        return draft

    def _known(self, draft: list[int]) -> list[int]:
        """The draft up to what is no token."""
        if draft and min(draft) >= 0 and max(draft) < self._vocab_size:
            return draft
        return list(takewhile(range(self._vocab_size).__contains__, draft))


@dataclass(slots=True)
class _Offer:
    """A draft on offer.

    Attributes:
        name: its proposer's.
        draft: what it says.
        match: how many agreeing tokens stand behind it, as far as that counts.
        rates: of drafts like it.
        rivals: whether it is each of its tokens alone instead, where no draft is right.
        tokens: as much of it as is at all likely.
        chances: float64 [tokens], how likely the target is to accept all up to each.
        shared: how many of its first tokens a likelier draft has, too.
    """

    name: str
    draft: list[int]
    match: int
    rates: _Rates
    rivals: bool
    tokens: list[int] = field(init=False)
    chances: np.ndarray = field(init=False)
    shared: int = field(init=False)

    @property
    def likeliest(self) -> float:
        """What the likeliest of its tokens is weighed as, at most."""
        first = self.rates.first(0 if self.rivals else self.match)
        return first / len(self.draft) if self.rivals else first**_CAUTION


def _part(a: _Offer, b: _Offer) -> None:
    """At most one of two drafts is right where they part, as often as what they share at best."""
    at = b.shared
    if at < min(len(a.tokens), len(b.tokens)):
        whole = a.chances[at - 1] if at else 1.0
        both = a.chances[at] + b.chances[at]
        if both > whole:
            a.chances[at:] *= whole / both
            b.chances[at:] *= whole / both


class _Rates:
    """How often the tokens of one kind of draft are right, lately, by strength of evidence.

    Args:
        rank: how many likelier drafts of this kind there are.
    """

    def __init__(self, rank: int) -> None:
        # Right and wrong, by strength. The prior weighs as much as one first token and eight next ones.
        self._first = [[first, 1 - first] for first in np.multiply(_FIRST, _RIVAL if rank else 1).tolist()]
        self._next = [[8 * rate, 8 * (1 - rate)] for rate in _NEXT]
        self._onward = np.array([self._weighed(strength) for strength in range(len(_NEXT))])

    def first(self, match: int) -> float:
        """How likely the first token is right after `match` agreeing ones."""
        right, wrong = self._first[_STRENGTHS[match]]
        return min(right / (right + wrong), _SUREST)

    def chances(self, match: int, size: int) -> np.ndarray:
        """How likely the first 1, 2, … tokens are all right after `match` agreeing ones: float64 [n], up to
        `size` and as far as that is at all likely, but of one token always."""
        first = self.first(match)
        if first <= _LEAST:
            return np.array([first])
        rates = self._onward[_STRENGTH[match : match + size]]
        rates[0] = first
        chances = np.multiply.accumulate(rates)  # in half the time of `cumprod`
        return chances if chances[-1] > _LEAST else chances[: np.count_nonzero(chances > _LEAST)]

    def learn(self, match: int, right: int, wrong: bool) -> None:
        """So many tokens after `match` agreeing ones were right, and whether the next one was wrong."""
        first = self._first[_STRENGTHS[match]]
        first[:] = (_MEMORY_FIRST * count for count in first)
        first[0 if right else 1] += 1
        if not right:
            return
        begin, end = match + 1, match + right  # what stood behind the second one, and behind the next one
        for strength in range(_STRENGTHS[begin], _STRENGTHS[end] + 1):
            least, most = 1 << (strength - 1), (1 << strength) - 1 if strength < len(_NEXT) - 1 else end
            known = max(min(most, end - 1) - max(least, begin) + 1, 0)
            missed = wrong and strength == _STRENGTHS[end]
            if known or missed:
                counts = self._next[strength]
                counts[:] = _MEMORY_NEXT * counts[0] + known, _MEMORY_NEXT * counts[1] + missed
                self._onward[strength] = self._weighed(strength)

    def _weighed(self, strength: int) -> float:
        """How often a next token is right, for what is chosen by it."""
        right, wrong = self._next[strength]
        return min(right / (right + wrong), _SUREST) ** _CAUTIOUS[strength]
