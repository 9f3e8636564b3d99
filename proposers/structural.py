"""The rest of the old file with the changes made that the answer has begun, or was asked, to make."""

from __future__ import annotations

import re
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Sequence

from rapidfuzz import fuzz

from specedit.editing.languages import grammar_of
from specedit.proposers import Proposer, Request
from specedit.proposers.rules import Rule, Rules
from specedit.types import Draft

_LARGEST = 1 << 18  # letters of a text that is followed: parsing it is not to be noticed
_SHORTEST = 3  # letters that a line needs to be found by
_NEARBY = 4  # lines among which the one is sought that a new line replaces
_ALIKE = 65  # in percent, how much it must have in common with that one
_SHORTEST_END, _LONGEST_END = 2, 24  # letters by which a place within a line is found again
_ENOUGH = 48  # drafted tokens that are left when no more are drafted
_LETTERS = 4  # a token has about as many
# "rename a to b", "`a` -> `b`", "replace a by b"
_ASKED = re.compile(
    r"(?<![\w.])`?(\w+)(?:\(\))?[`'\"]?\s*(?:\b(?:to|into|with|by|as)\b|->|=>|→)\s*[`'\"]?(\w+)"
)


class StructuralProposer(Proposer):
    """Follows the answer line by line through the first reference and drafts the lines to come as the rules
    have them that its changes so far, and the names in its instruction, make.

    The text is tokenised from the letter on where the answer stands.
    """

    name = "structural"

    def start(self, request: Request) -> None:
        self._request = request
        self._seen = self._read = len(request.prompt)
        self._begun = ""  # the line that the answer is in, as far as it has been read
        self._line = 0  # the one of the reference that is expected there
        self._match = 0  # tokens since the answer was last elsewhere
        self._ahead: list[int] = []
        self._rules: Rules | None = None
        self._kind = ""
        old = request.references[0] if request.references else ""
        if not 0 < len(old) <= _LARGEST:
            return
        self._rules = Rules(old, grammar_of(request.language))
        self._places: defaultdict[str, list[int]] = defaultdict(list)
        for number, line in enumerate(self._rules.lines):
            self._places[line].append(number)
        names = set(re.findall(r"\w+", old))
        for a, b in _ASKED.findall(request.decode(request.prompt).replace(old, "")):
            if a in names and b not in names:
                self._rules.rename(a, b)

    def propose(self, history: Sequence[int], limit: int) -> list[Draft]:
        if self._rules is None:
            return []
        try:
            return self._follow(self._rules, history, limit)
        except RecursionError:  # some files nest deeper than Python can follow
            self._rules = None
            return []

    def _follow(self, rules: Rules, history: Sequence[int], limit: int) -> list[Draft]:
        new = list(history[self._seen :])
        self._seen = len(history)
        self._match += len(new)
        self._ahead = self._ahead[len(new) :] if self._ahead[: len(new)] == new else []
        text = self._request.text(history, self._read)
        if text.endswith("\ufffd"):  # the answer is within a character
            return []
        self._read = len(history)
        *finished, self._begun = (self._begun + text).split("\n")
        for line in finished:
            self._finish(rules, line)
        if len(self._ahead) < _ENOUGH:
            self._ahead = self._draft(rules, limit)
        return [Draft(self._ahead[:limit], self._match, self._kind)] if self._ahead else []

    def _finish(self, rules: Rules, line: str) -> None:
        """The answer has written a line."""
        if self._line < len(rules.lines):
            rules.judge(self._line, line)
            if line in (rules.lines[self._line], rules.expected(self._line)[0]):
                self._line += 1
                return
        self._match = 0
        self._ahead = []
        places = self._places.get(line, [])
        if places and len(line.strip()) >= _SHORTEST:
            after = bisect_left(places, self._line)
            near = places[max(after - 1, 0) : after + 1]
            self._line = min(near, key=lambda number: abs(number - self._line)) + 1
            return
        ahead = range(self._line, min(self._line + _NEARBY, len(rules.lines)))
        alike = {number: fuzz.ratio(rules.lines[number], line) for number in ahead}
        if alike and alike[likest := max(alike, key=alike.__getitem__)] > _ALIKE:
            rules.learn(likest, line)
            self._line = likest + 1

    def _draft(self, rules: Rules, limit: int) -> list[int]:
        """The rest of the line that the answer has begun and of those that follow, if rules change them or
        the answer is back within the line after it went elsewhere."""
        text, used = "", list[Rule]()
        for number in range(self._line, len(rules.lines)):
            if len(text) > len(self._begun) + _LETTERS * limit:
                break
            line, changing = rules.expected(number)
            text += line + "\n"
            used = used or changing
        if not text.startswith(self._begun):
            text = self._resumed(text)
        elif used:
            self._kind = "proven" if min(rule.right - rule.wrong for rule in used) > 0 else "new"
            text = text[len(self._begun) :]
        else:
            text = ""
        return self._request.encode(text)[:limit]

    def _resumed(self, expected: str) -> str:
        """What follows in the expected line, and after it, the longest end of what the answer has begun."""
        line, _, following = expected.partition("\n")
        for length in range(min(len(self._begun), _LONGEST_END), _SHORTEST_END - 1, -1):
            before, end, rest = line.partition(self._begun[-length:])
            if end.strip() and before != line:
                self._kind, self._match = "resumed", length
                return f"{rest}\n{following}"
        return ""
