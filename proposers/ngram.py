"""Prompt look-up without a window: what followed the longest suffix of the text that occurred before."""

from __future__ import annotations

from collections.abc import Sequence

from specedit.proposers import Proposer, Request
from specedit.types import Draft

# How many shorter suffixes learn of a new occurrence. It bounds the work per token; a suffix further up the
# chain keeps an older occurrence, which is still one.
_REFRESHED = 16


class NgramProposer(Proposer):
    """Longest-suffix matching by an online suffix automaton (Blumer et al. 1985, The smallest automaton
    recognizing the subwords of a text).

    The suffix link of the automaton's last state stands for the longest suffix of the history that occurred
    before, so each token costs amortised O(1), however long the context is.
    """

    name = "ngram"

    def start(self, request: Request) -> None:
        self._next: list[dict[int, int]] = [{}]  # transitions per state
        self._link = [-1]  # the state of the next shorter suffix class
        self._length = [0]  # tokens in the state's longest string
        self._end = [0]  # where an occurrence ends: index of the token after it
        self._last = 0
        self._seen = 0

    def propose(self, history: Sequence[int], limit: int) -> Draft:
        for token in history[self._seen :]:
            self._append(token)
        state = self._link[self._last]
        match, source = self._length[state], self._end[state]
        if not match:
            return Draft([])
        draft = list(history[source : source + limit])
        period = len(history) - source
        while len(draft) < limit:  # the occurrence overlaps the present: the text repeats with this period
            draft.append(draft[-period])
        return Draft(draft, match)

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
