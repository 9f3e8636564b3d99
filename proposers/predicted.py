"""The old file as a prediction of the new one: cursors in it that find their place again after every edit."""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Callable, Sequence
from itertools import accumulate
from math import log2
from typing import NamedTuple

from specedit.editing.answer import FENCE
from specedit.proposers import Proposer, Request
from specedit.proposers.changes import Changes
from specedit.proposers.views import JSON, LONGEST_PREFIX, RAW, SIGN_ENDS, Lines, View, signs
from specedit.types import Draft, agreeing

_BOUNDARY = -1  # stands between two texts; no token has this id
_NEARBY = 16  # occurrences looked at on either side of the place where the answer left the text
_EVIDENCE = 24  # agreeing tokens beyond this make a place no more likely
_START = 4  # how far a fresh cursor at the top of the first reference is trusted, in agreeing tokens
_SETTLED = 4  # agreeing tokens after which a new place is taken as where the answer is
_RIVALS = 8  # cursors that are kept
_DRAFTS = 3  # and of these, how many are drafted from,
_SURE = 8  # unless so many tokens agree at the likeliest
_SOON = 10  # tokens that an answer leaves out or replaces, mostly
_BACK = 2  # agreeing tokens after which what was left is taken as replaced
_TAIL = 64  # tokens of the answer that are read to see in which form it repeats a reference,
_SIGN = 16  # and as many where a sign of it would be


class _Cursor(NamedTuple):
    """A place where the answer may be in the text.

    Attributes:
        place: of the token expected next.
        evidence: bits that speak for it.
        match: how many tokens before it agree with the answer.
    """

    place: int
    evidence: float
    match: int


class _Region(NamedTuple):
    """A reference in a view, as a part of the text.

    Attributes:
        top, end: its first place, and the one after its last.
        line_ends: the places of tokens with newlines.
        lines: how many newlines there are up to each of them.
    """

    top: int
    end: int
    line_ends: list[int]
    lines: list[int]


class PredictedProposer(Proposer):
    """Cursors in the expected text, moved by every token of the answer.

    While the answer agrees, the cursors walk on. Where it does not, the answer has inserted, deleted,
    replaced or moved something there. It may go on at every occurrence of the latest token: each agreeing
    token up to it counts as many bits as it is rare in the text, less one bit for each doubling of the
    distance to the place that was left. The best ones compete. As long as little speaks for any, the answer
    may also replace token for token, have put something before the place that it left, or be about to end
    its line and go on with the line that it left, or the next one.

    What has been replaced is expected to be replaced again further on. Where the answer is seen to write a
    reference in another form, the text in this form is added. Behind a reference as it is, the end of a code
    block and of the answer is expected.
    """

    name = "predicted"

    def start(self, request: Request) -> None:
        self._request = request
        self._references: list[str] = []
        room = request.readable
        for reference in request.references:
            self._references.append(reference[:room])
            room -= len(self._references[-1])
        self._text: list[int] = []
        self._places: defaultdict[int, list[int]] = defaultdict(list)
        self._line_ends: list[int] = []
        self._boundaries: list[int] = []  # their places
        self._regions: dict[tuple[int, str], _Region] = {}
        self._lines = Lines(self._references)
        self._texts = _Texts(request.decode)
        self._turned = -1  # the latest newline behind which a form was looked for,
        self._beneath: list[int] = []  # and where the answer may go on in this form
        for number in range(len(self._references)):
            self._region(number, RAW)
        self._cursors = [_Cursor(0, 0.0, _START)]
        self._left = 0  # where the answer left the text
        self._novel = 0  # tokens since then
        self._changes = Changes()
        self._parted: tuple[int, int] | None = None  # the place left and the token written there, if not back
        self._start = self._seen = len(request.prompt)

    def propose(self, history: Sequence[int], limit: int) -> list[Draft]:
        if not self._text:
            return []
        while self._seen < len(history):
            self._seen += self._walk(history) or self._follow(history, self._seen)
        sure = self._cursors and self._cursors[0].match >= _SURE
        drafts = [
            self._draft(cursor.place, limit, cursor.match, self._kind(cursor))
            for cursor in self._cursors[: 1 if sure else _DRAFTS]
        ]
        if drafts:
            drafts += self._changed(drafts[0], history[-1])
        if not self._settled and self._left <= self._line_ends[-1]:  # else it has left what closes the text
            line = bisect_left(self._line_ends, self._left)
            drafts += [
                self._draft(self._left + self._novel, limit, 0, "replaced"),
                self._draft(self._left, limit, 0, "inserted"),
                self._draft(self._line_ends[line - 1] if line else 0, limit, 0, "inserted line"),
                self._draft(self._line_ends[line], limit, 0, "replaced line"),
            ]
        return [draft for draft in drafts if draft.tokens]

    @property
    def _settled(self) -> bool:
        return bool(self._cursors) and self._cursors[0].match >= _SETTLED

    def _kind(self, cursor: _Cursor) -> str:
        """Whether the answer goes on there soon after the place that it left: it is surer then."""
        skipped = cursor.place - cursor.match - self._left
        return "" if -_START <= skipped <= _SOON else "far"

    def _draft(self, place: int, limit: int, match: int, kind: str = "") -> Draft:
        at = bisect_left(self._boundaries, place)
        end = self._boundaries[at] if at < len(self._boundaries) else place
        return Draft(self._text[place : min(place + limit, end)], match, kind)

    def _changed(self, draft: Draft, latest: int) -> list[Draft]:
        """The draft with the changes made that the answer has made before, if there are any in it."""
        first, *tokens = self._changes.applied([latest, *draft.tokens])
        changed = first == latest and tokens != draft.tokens
        return [Draft(tokens[: len(draft.tokens)], draft.match, "changed")] if changed else []

    def _region(self, number: int, view: View) -> _Region:
        """This reference in this view, which is added to the text if need be."""
        if known := self._regions.get((number, view.name)):
            return known
        reference = self._references[number]
        tokens = self._request.encode(view.write(reference))
        top, end = len(self._text), len(self._text) + len(tokens)
        self._text += [*tokens, *(self._closing(reference) if view is RAW else []), _BOUNDARY]
        self._boundaries.append(len(self._text) - 1)
        for place, token in enumerate(self._text[top:], start=top):
            self._places[token].append(place)
        size = len(self._text)
        self._bits = {token: log2(size / len(places)) for token, places in self._places.items()}
        newlines = {token: self._texts[token].count("\n") for token in set(tokens)}
        line_ends = [place for place in range(top, end) if newlines[self._text[place]]]
        lines = list(accumulate(newlines[self._text[place]] for place in line_ends))
        self._line_ends += [*line_ends, end]
        region = self._regions[number, view.name] = _Region(top, end, line_ends, lines)
        return region

    def _closing(self, reference: str) -> list[int]:
        """What ends an answer that is this reference in a code block."""
        prompted = self._request.decode(self._request.prompt[-_SIGN:])
        opened = FENCE.fullmatch(prompted.removesuffix("\n").rpartition("\n")[2])
        fence = opened[2] if opened else "```"
        newline = "" if reference.endswith("\n") else "\n"
        return [*self._request.encode(newline + fence), *self._request.ends[:1]] if reference else []

    def _walk(self, history: Sequence[int]) -> int:
        """How many tokens the answer went on in the text where it is; the cursors are moved along."""
        if not self._settled:
            return 0
        place, new = self._cursors[0].place, history[self._seen :]
        run = new[: agreeing(self._text[place : place + len(new)], new)]
        if run:
            bits = sum(map(self._bits.__getitem__, run))
            self._cursors = [
                _Cursor(place + len(run), evidence + bits, match + len(run))
                for place, evidence, match in self._cursors
                if self._text[place : place + len(run)] == run
            ]
        return len(run)

    def _follow(self, history: Sequence[int], end: int) -> int:
        """Find where the answer goes on with this one token, which is not where it was."""
        token = history[end]
        walking = [
            _Cursor(place + 1, evidence + self._bits[token], match + 1)
            for place, evidence, match in self._cursors
            if self._text[place] == token
        ]
        if self._settled:
            self._left, self._novel = self._cursors[0].place, 0
            self._parted = (self._left, end)
        self._novel += 1
        viewed = self._viewed(history, end)
        places = self._places.get(token, [])
        nearest = bisect_left(places, self._left)
        near = [*viewed, *places[max(nearest - _NEARBY, 0) : nearest + _NEARBY]]
        # Without the token before it, this one alone must speak for the place.
        reach, before = 2 ** self._bits.get(token, 0.0) - 1, history[end - 1]
        near = [place for place in near if abs(place - self._left) < reach or self._text[place - 1] == before]
        resumed = [cursor for place in near if (cursor := self._resumed(history, end, place)).evidence > 0]
        found = {cursor.place: cursor for cursor in (*resumed, *walking)}
        self._cursors = sorted(found.values(), key=lambda cursor: -cursor.evidence)[:_RIVALS]
        if self._parted and self._cursors:
            self._compare(history, end + 1, self._cursors[0], *self._parted)
        return 1

    def _compare(self, history: Sequence[int], end: int, cursor: _Cursor, left: int, parted: int) -> None:
        """If the answer is back in the text at this cursor, learn what it has changed since it left it."""
        match = min(cursor.match, end - parted, cursor.place - left)
        if match < _BACK:
            return
        old = [history[parted - 1], *self._text[left : cursor.place - match]]
        new = list(history[parted - 1 : end - match])
        if cursor.place - match == left:  # an insertion has its place between two tokens
            old.append(self._text[left])
            new.append(self._text[left])
        if _BOUNDARY not in old:
            self._changes.learn(old, new)
        self._parted = None

    def _resumed(self, history: Sequence[int], end: int, place: int) -> _Cursor:
        """What speaks for it that history[end] stands at this place in the text."""
        match, evidence = 0, -log2(1 + abs(place - self._left))
        while (
            match < _EVIDENCE
            and place >= match
            and end - match >= self._start
            and self._text[place - match] == history[end - match]
        ):
            evidence += self._bits[history[end - match]]
            match += 1
        return _Cursor(place + 1, evidence, match)

    def _viewed(self, history: Sequence[int], end: int) -> list[int]:
        """Places of history[end] in other forms of the references, if the answer turns to one."""
        if self._texts[history[end]].endswith(SIGN_ENDS):
            tail = self._tail(history, end, _SIGN)
            seen = signs(tail)
            if seen and seen[-1][1] == len(tail):
                self._turn(seen[-1][0])
                return []
        newline = self._newline(history, end)
        if newline is None:
            return []
        if newline != self._turned:
            self._turned = newline
            line = self._tail(history, newline, _TAIL).rpartition("\n")[0].rpartition("\n")[2]
            self._beneath = self._under(line)
        return self._beneath

    def _turn(self, view: View) -> None:
        """The answer turns to this form."""
        new = (0, view.name) not in self._regions
        region = self._region(0, view)
        if view is JSON and new:
            self._left, self._novel = region.top, 0
        elif new:  # the answer goes on there where it was in the raw text
            raw = self._regions[0, RAW.name]
            share = min(self._left / raw.end, 1.0)
            self._left = region.top + round(share * (region.end - region.top))

    def _newline(self, history: Sequence[int], end: int) -> int | None:
        """Which token has the latest newline, if no more stands behind it than a mark before a line has."""
        letters = 0
        for at in range(end, self._start - 1, -1):
            text = self._texts[history[at]]
            letters += len(text) - 1 - text.rfind("\n")
            if letters > LONGEST_PREFIX:
                break
            if "\n" in text:
                return at
        return None

    def _tail(self, history: Sequence[int], end: int, tokens: int) -> str:
        """What the answer says up to and with this token, so many at most."""
        return self._request.decode(history[max(self._start, end + 1 - tokens) : end + 1])

    def _under(self, line: str) -> list[int]:
        """Places that the next line may begin at, if the answer writes this one in another form."""
        found = self._lines.find(line)
        if not found:
            return []
        number, at, view = found
        region = self._region(number, view)
        ending = bisect_left(region.lines, at + 1)
        line_end = region.line_ends[ending] if ending < len(region.lines) else region.end
        return list(range(line_end, min(line_end + LONGEST_PREFIX, region.end)))


class _Texts(dict[int, str]):
    """What each token says alone."""

    def __init__(self, decode: Callable[[Sequence[int]], str]) -> None:
        self._decode = decode

    def __missing__(self, token: int) -> str:
        text = self[token] = self._decode([token])
        return text
