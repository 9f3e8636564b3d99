"""The old file as a prediction of the new one: a cursor in it that finds its place again after every edit."""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Sequence
from math import log2

from specedit.proposers import Proposer, Request
from specedit.types import Draft

_BOUNDARY = -1  # stands between two references; no token has this id
_NEARBY = 16  # occurrences looked at on either side of the place where the answer left the text
_EVIDENCE = 16  # agreeing tokens beyond this make a place no more likely
_START = 4  # how far a fresh cursor at the top of the first reference is trusted, in agreeing tokens
_SETTLED = 4  # agreeing tokens after which a new place is taken as where the answer is


class PredictedProposer(Proposer):
    """A cursor in the expected text, moved by every token of the answer.

    While the answer agrees, the cursor walks on. Where it does not, the answer has inserted, deleted or
    replaced something there. The place to resume is the occurrence of the latest token for which most
    speaks: each agreeing token up to it counts as many bits as it is rare in the text, less one bit for each
    doubling of the distance to the place that was left. Where nothing speaks for any, the answer is taken to
    replace token for token.
    """

    name = "predicted"

    def start(self, request: Request) -> None:
        self._text: list[int] = []
        for reference in request.references:
            self._text += [*request.encode(reference), _BOUNDARY]
        self._places: defaultdict[int, list[int]] = defaultdict(list)
        for place, token in enumerate(self._text):
            self._places[token].append(place)
        self._bits = {token: log2(len(self._text) / len(places)) for token, places in self._places.items()}
        self._cursor = 0  # the token expected next
        self._match = _START  # how many tokens before it agree
        self._left = 0  # where the answer left the text
        self._novel = 0  # tokens since then
        self._start = self._seen = len(request.prompt)

    def propose(self, history: Sequence[int], limit: int) -> Draft:
        if not self._text:
            return Draft([])
        for end in range(self._seen, len(history)):
            self._follow(history, end)
        self._seen = len(history)
        draft = self._text[self._cursor : self._cursor + limit]
        if _BOUNDARY in draft:
            draft = draft[: draft.index(_BOUNDARY)]
        return Draft(draft, self._match)

    def _follow(self, history: Sequence[int], end: int) -> None:
        token = history[end]
        if self._match and self._text[self._cursor] == token:
            self._cursor += 1
            self._match += 1
            return
        if self._match >= _SETTLED:
            self._left, self._novel = self._cursor, 0
        self._novel += 1
        self._cursor, self._match = self._resume(history, end)

    def _resume(self, history: Sequence[int], end: int) -> tuple[int, int]:
        """Where the answer goes on in the text after history[end], and how many tokens agree there."""
        places = self._places.get(history[end], [])
        nearest = bisect_left(places, self._left)
        best, agreed = 0.0, 0
        cursor = min(self._left + self._novel, len(self._text) - 1)
        for place in places[max(nearest - _NEARBY, 0) : nearest + _NEARBY]:
            agreement, evidence = 0, -log2(1 + abs(place - self._left))
            while (
                agreement < _EVIDENCE
                and place >= agreement
                and end - agreement >= self._start
                and self._text[place - agreement] == history[end - agreement]
            ):
                evidence += self._bits[history[end - agreement]]
                agreement += 1
            if evidence > best:
                best, agreed, cursor = evidence, agreement, place + 1
        return cursor, agreed
