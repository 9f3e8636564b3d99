"""Prompt look-up without a window: what followed the longest suffix of the text that occurred before, what
most often followed the last few tokens, and the tokens that were of use last."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator, Sequence
from itertools import islice
from threading import Lock

from specedit.proposers import Proposer, Request
from specedit.types import Draft

# How many shorter suffixes learn of a new occurrence. It bounds the work per token; a suffix further up the
# chain keeps an older occurrence, which is still one.
_REFRESHED = 16
_ORDERS = (3, 2, 1)  # tokens that continuations are counted after
_RANKED = 3  # continuations that are offered
_AHEAD = 8  # tokens of each
_SURE = 8  # tokens of a suffix that occurred before leave no doubt how it goes on
_RECENT = 64  # of the latest tokens compete for the next place
_CONTEXT_BYTES = 500  # what a counted context takes, with one continuation


class NgramProposer(Proposer):
    """Longest-suffix matching by an online suffix automaton (Blumer et al. 1985, The smallest automaton
    recognizing the subwords of a text), and the likeliest continuations of the last tokens.

    The suffix link of the automaton's last state stands for the longest suffix of the history that occurred
    before, so each token costs amortised O(1), however long the context is. The continuations are counted
    over all answers of one client since the last `forget`, so its next file profits from the last one. What
    nothing foretells is most likely a token of late (move to front, Bentley et al. 1986): where many tokens
    cost no more than one to verify, as on a GPU, one of them is often right.

    Args:
        memory: bytes that the counts may take, of all clients together.
    """

    name = "ngram"

    def __init__(self, *, memory: int = 64 << 20) -> None:
        self._continuations = _Continuations(memory // _CONTEXT_BYTES)

    def forget(self) -> None:
        with self._continuations.lock:
            self._continuations.clear()

    def start(self, request: Request) -> None:
        self._next: list[dict[int, int]] = [{}]  # transitions per state
        self._link = [-1]  # the state of the next shorter suffix class
        self._length = [0]  # tokens in the state's longest string
        self._end = [0]  # where an occurrence ends: index of the token after it
        self._last = 0
        self._seen = 0
        self._recent: dict[int, None] = {}  # the tokens of the history, the latest last
        self._client = request.client

    def propose(self, history: Sequence[int], limit: int) -> list[Draft]:
        begin = self._seen
        for token in history[begin:]:
            self._append(token)
            self._recent.pop(token, None)
            self._recent[token] = None
        drafts = self._longest(history, limit)
        with self._continuations.lock:
            self._continuations.count(self._client, history, begin)
            if drafts and drafts[0].match >= _SURE:
                return drafts
            for kind, match, tokens in self._continuations.ranked(self._client, history):
                drafts.append(Draft(tokens[:limit], match, kind))
        if recent := list(islice(reversed(self._recent), min(_RECENT, limit))):
            drafts.append(Draft(recent, kind="recent", rivals=True))
        return drafts

    def _longest(self, history: Sequence[int], limit: int) -> list[Draft]:
        state = self._link[self._last]
        match, source = self._length[state], self._end[state]
        if not match:
            return []
        draft = list(history[source : source + limit])
        # Where the occurrence overlaps the present, the text repeats itself from there on.
        return [Draft((draft * -(-limit // len(draft)))[:limit], match)]

    def _append(self, token: int) -> None:
        self._refresh(self._link[self._last])
        self._seen += 1
        state = self._new_state({}, 0, self._length[self._last] + 1, self._seen)
        walk = self._last
        while walk >= 0 and token not in self._next[walk]:
            self._next[walk][token] = state
            walk = self._link[walk]
        if walk >= 0:
            target = self._next[walk][token]
            if self._length[walk] + 1 != self._length[target]:
                target = self._split(walk, token, target)
            self._link[state] = target
        self._last = state

    def _split(self, walk: int, token: int, target: int) -> int:
        clone = self._new_state(
            dict(self._next[target]), self._link[target], self._length[walk] + 1, self._end[target]
        )
        self._link[target] = clone
        while walk >= 0 and self._next[walk].get(token) == target:
            self._next[walk][token] = clone
            walk = self._link[walk]
        return clone

    def _new_state(self, transitions: dict[int, int], link: int, length: int, end: int) -> int:
        self._next.append(transitions)
        self._link.append(link)
        self._length.append(length)
        self._end.append(end)
        return len(self._link) - 1

    def _refresh(self, state: int) -> None:
        """The suffixes of the history occur here too: prefer this, the latest occurrence, from now on."""
        for _ in range(_REFRESHED):
            if state <= 0:
                return
            self._end[state] = self._seen
            state = self._link[state]


class _Continuations:
    """How often which token followed the same one, two and three: prediction by partial matching (Cleary and
    Witten 1984), without its probabilities.

    Nothing that is counted for one client is offered to another.

    Args:
        most: contexts that are kept; those that were of no use for longest go first.

    Attributes:
        lock: whoever counts or ranks holds it: answers that are decoded at the same time count together.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._counts: OrderedDict[tuple[str | int, ...], _Followers] = OrderedDict()
        self.lock = Lock()

    def clear(self) -> None:
        self._counts.clear()

    def count(self, client: str, history: Sequence[int], begin: int) -> None:
        """Count each token from `begin` on as what followed those before it."""
        for end in range(begin, len(history)):
            for order in _ORDERS:
                if order <= end:
                    context: tuple[str | int, ...] = (client, *history[end - order : end])
                    counts = self._counts.get(context)
                    if counts is None:
                        counts = self._counts[context] = _Followers()
                    counts.add(history[end])
            while len(self._counts) > self._most:
                self._counts.popitem(last=False)

    def ranked(self, client: str, history: Sequence[int]) -> Iterator[tuple[str, int, list[int]]]:
        """What may follow the history, the likeliest first: how sure that is, after how many tokens it was
        counted, and the tokens, as far as each mostly followed those before it."""
        offered = set[int]()
        for order in _ORDERS:
            context: tuple[str | int, ...] = (client, *history[-order:])
            counts = self._counts.get(context)
            if not counts or len(history) < order:
                continue
            self._counts.move_to_end(context)
            for token in sorted(counts, key=counts.__getitem__, reverse=True):
                if len(offered) == _RANKED:
                    return
                if token not in offered:
                    offered.add(token)
                    share = counts[token] / counts.total
                    sure = "mostly" if share > 0.6 else "often" if share > 0.25 else "sometimes"
                    yield f"{sure} after {order}", order, self._further(client, history, token)

    def _further(self, client: str, history: Sequence[int], token: int) -> list[int]:
        recent, tokens = list(history[-max(_ORDERS) :]), list[int]()
        next_token: int | None = token
        while next_token is not None and len(tokens) < _AHEAD:
            tokens.append(next_token)
            recent.append(next_token)
            next_token = self._mostly(client, recent)
        return tokens

    def _mostly(self, client: str, recent: Sequence[int]) -> int | None:
        """The token that followed more than half the time after the longest context that was counted."""
        for order in _ORDERS:
            if counts := self._counts.get((client, *recent[-order:])):
                return counts.most if 2 * counts[counts.most] > counts.total else None
        return None


class _Followers(dict[int, int]):
    """How often each token followed.

    Attributes:
        total: how often any did.
        most: the one that did most often.
    """

    __slots__ = ("most", "total")

    def __init__(self) -> None:
        self.total = 0
        self.most = -1

    def add(self, token: int) -> None:
        count = self[token] = self.get(token, 0) + 1
        self.total += 1
        if count > self.get(self.most, 0):
            self.most = token
