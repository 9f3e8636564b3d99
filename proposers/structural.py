"""The rest of the old file with the changes made that the answer has begun, or was asked, to make."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Generic, TypeVar

from specedit.editing.languages import grammar_of
from specedit.proposers import Proposer, Request
from specedit.proposers.blocks import Blocks
from specedit.proposers.follower import Follower
from specedit.proposers.rules import Rules
from specedit.proposers.views import JSON, RAW, signs
from specedit.types import Draft

_TAIL = 64  # letters of the answer in which a sign of another form may have begun
_ENOUGH = 48  # drafted tokens that are left when no more are drafted
_LETTERS = 4  # a token has about as many
# "rename a to b", "`a` -> `b`", "replace a by b"
_ASKED = re.compile(
    r"(?<![\w.])`?(\w+)(?:\(\))?[`'\"]?\s*(?:\b(?:to|into|with|by|as)\b|->|=>|→)\s*[`'\"]?(\w+)"
)


F = TypeVar("F", Follower, Blocks)


class StructuralProposer(Proposer):
    """Follows the answer line by line through the first reference and drafts the lines to come as the rules
    have them that its changes so far, and the names in its instruction, make. Where the answer shows that it
    writes in another form, in a JSON string say, it is followed there, too. Where it shows a piece of the
    text and then what replaces it, it is followed in the replacement.

    The text is tokenised from the letter on where the answer stands.
    """

    name = "structural"

    def start(self, request: Request) -> None:
        self._request = request
        self._seen = self._read = len(request.prompt)
        self._tail = ""
        self._followed: list[_Followed[Follower]] = []
        old = request.references[0] if request.references else ""
        if not 0 < len(old) <= request.readable:
            return
        self._rules = rules = Rules(old, grammar_of(request.language))
        for a, b in _ASKED.findall(request.decode(request.prompt).replace(old, "")):
            if a in rules.names and b not in rules.names:
                rules.rename(a, b)
        self._blocks = _Followed(request, Blocks(rules, old))
        self._usual = {view for view, _ in signs(old)} - {JSON}  # no sign of anything here
        self._followed.append(_Followed(request, Follower(rules, RAW)))

    def propose(self, history: Sequence[int], limit: int) -> list[Draft]:
        if not self._followed:
            return []
        new = list(history[self._seen :])
        self._seen = len(history)
        try:
            return self._follow(history, new, limit)
        except RecursionError:  # some files nest deeper than Python can follow
            self._followed = []
            return []

    def _follow(self, history: Sequence[int], new: list[int], limit: int) -> list[Draft]:
        self._blocks.walk(new)
        for followed in self._followed:
            followed.walk(new)
        text = self._request.text(history, self._read)
        if text.endswith("\ufffd"):  # the answer is within a character
            return []
        self._read = len(history)
        text = self._blocks.follower.read(text)  # what is in no block
        if self._blocks.follower.inside:
            del self._followed[1:]
            draft = self._blocks.draft(limit)
            return [draft] if draft else []
        string = self._look(text)
        for followed in self._followed:
            followed.follower.read(text)
        if string is not None:
            self._followed[1:] = [_Followed(self._request, Follower(self._rules, JSON, string))]
        drafts = [followed.draft(limit) for followed in self._followed]
        return [draft for draft in drafts if draft]

    def _look(self, text: str) -> str | None:
        """Take on the form that this latest text is a sign of; what stands in it of a JSON string. What looks
        like one may be none, so that both are followed."""
        if "\n" in text:  # no JSON string has a newline
            del self._followed[1:]
        self._tail = (self._tail + text)[-max(_TAIL, len(text)) :]
        seen = [(view, end) for view, end in signs(self._tail) if view not in self._usual]
        if not seen:
            return None
        view, end = seen[-1]
        tail, self._tail = self._tail, ""
        if view is JSON:
            return tail[end:]
        self._followed[0].follower.turn(view)
        return None


class _Followed(Generic[F]):
    """A follower, and what was last drafted from it."""

    def __init__(self, request: Request, follower: F) -> None:
        self.follower: F = follower
        self._request = request
        self._ahead: list[int] = []
        self._kind = ""
        self._match = 0  # tokens since the answer was last elsewhere

    def walk(self, new: Sequence[int]) -> None:
        """The answer went on with these tokens."""
        self._match += len(new)
        self._ahead = self._ahead[len(new) :] if self._ahead[: len(new)] == new else []

    def draft(self, limit: int) -> Draft | None:
        if self.follower.lost:
            self._match = 0
            self._ahead = []
        if len(self._ahead) < _ENOUGH:
            coming = self.follower.coming(_LETTERS * limit)
            self._ahead = self._request.encode(coming.text)[:limit] if coming else []
            if coming:
                self._kind = f"{self.follower.view.name}, {coming.kind}"
                self._match = self._match if coming.match is None else coming.match
        return Draft(self._ahead[:limit], self._match, self._kind) if self._ahead else None
