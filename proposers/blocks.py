"""Answers that show a piece of the old text and then what it becomes: blocks, pairs of strings, diffs."""

from __future__ import annotations

import re
from typing import NamedTuple

from specedit.proposers.follower import Coming, Follower, Part
from specedit.proposers.rules import Rules
from specedit.proposers.views import JSON, RAW, View

_MARK = 64  # letters in which a mark may have begun
_LARGEST = 1 << 16  # letters of a piece of the old text
_CONTEXT = 3  # lines that diffs show around a change
_SIZE = "7"  # lines of a hunk that changes one
# An unescaped quote; what stands before it may be escaped backslashes.
_QUOTE = r'(?<!\\)(?P<end>(?:\\\\)*)"'


class _Form(NamedTuple):
    """A form of replacement.

    Attributes:
        view: how both texts are written.
        begins, turns, ends: what stands before the old text, between the two, and after the new one. What
            `end` matches in them belongs to the text.
        after: what is expected behind the new one.
    """

    view: View
    begins: re.Pattern
    turns: re.Pattern
    ends: re.Pattern
    after: str


_SEARCH = _Form(
    RAW,
    re.compile(r"^<{5,} \w+\n", re.MULTILINE),
    re.compile(r"^={5,}\n", re.MULTILINE),
    re.compile(r"^>{5,}", re.MULTILINE),
    ">>>>>>> REPLACE\n",
)
_STRINGS = _Form(
    JSON,
    re.compile(r'"(?:old\w*|search|find)"\s*:\s*"'),
    re.compile(_QUOTE + r'\s*,\s*"(?:new\w*|replace\w*)"\s*:\s*"'),
    re.compile(_QUOTE),
    '"}',
)
_DIFF = re.compile(r"^@@ -", re.MULTILINE)
_N = r"(\d{1,9})"
_HEAD = re.compile(rf"@@ -{_N}(?:,{_N})? \+{_N}(?:,{_N})? @@")
_BEGUN_HEAD = re.compile(rf"@@ -{_N}(?:,{_N}(?: \+{_N}(?:,{_N})?)?)?")
_IN_HUNK = tuple(" +-\\@")  # what its lines begin with


class Blocks:
    """Follows an answer through SEARCH/REPLACE blocks, through pairs of strings in tool calls, and through
    hunks of a unified diff.

    Where the old text has been shown, the new one begins like it, has its other changes too, and ends where
    it ends. In a diff the numbers at the head of a hunk follow from the first of them, and so does the text.

    Args:
        rules: of the old text; they learn from every line that replaces one.
        text: the old one. Marks that are in it mark nothing.

    Attributes:
        view: the form of the texts.
        lost: whether the latest text was not what was expected there.
    """

    def __init__(self, rules: Rules, text: str) -> None:
        self.view, self.lost = RAW, False
        self._rules = rules
        self._forms = [form for form in (_SEARCH, _STRINGS) if not form.begins.search(text)]
        self._diffs = not _DIFF.search(text)
        self._text = ""  # what was read and may be of use, from the latest mark on
        self._form: _Form | None = None
        self._follower: Follower | None = None  # in the new text
        self._turned = False  # whether the answer is there
        self._fed = 0  # letters of it that were followed
        self._hunks: _Hunks | None = None
        self._line = 0  # of the old text, after the latest piece

    def read(self, text: str) -> bool:
        """The answer goes on with this. Whether it was, or is, in such a form: it does not go through the
        whole text then."""
        self.lost = False
        if self._hunks:
            self._hunks.read(text)
            self.lost = self._hunks.lost
            if self._hunks.ended:
                self._hunks = None
            return True
        was = self._form is not None
        start = max(len(self._text) - _MARK, 0)
        self._text += text
        while self._passed(start):
            start, self.lost = 0, True
        self._feed(len(self._text))
        return was or self._form is not None or self._hunks is not None

    def coming(self, letters: int) -> Coming | None:
        """At least so many letters of what follows, where that is known."""
        if self._hunks:
            return self._hunks.coming(letters)
        return self._follower.coming(letters) if self._follower else None

    def _feed(self, end: int) -> None:
        """What is in the place of the old text is known up to here."""
        if self._follower and self._fed < end:
            self._follower.read(self._text[self._fed : end])
            self._fed = end
            self.lost |= self._follower.lost

    def _passed(self, start: int) -> bool:
        """Whether the answer has passed a mark that ends behind `start`; it stands behind it then."""
        if self._form is None:
            if self._diffs and (found := _DIFF.search(self._text, start)):
                self._hunks = _Hunks(self._rules)
                self._hunks.read(self._text[found.start() :])
                self._text = ""
                return False
            begun = [(form, found) for form in self._forms if (found := form.begins.search(self._text))]
            if not begun:
                self._text = self._text[-_MARK:]
                return False
            self._form, found = min(begun, key=lambda one: one[1].start())
            self._turned = False
        elif not self._turned:
            found = self._form.turns.search(self._text, start)
            if not found:
                if len(self._text) > _LARGEST or self._ended(start):
                    self._form = None
                return False
            self._turned, self._fed = True, 0
            self._begin(self._form, self._text[: _end(found)])
        else:
            found = self._form.ends.search(self._text, start)
            if not found:
                return False
            self._feed(_end(found))
            self._form = self._follower = None
        self._text = self._text[found.end() :]
        return True

    def _ended(self, start: int) -> bool:
        """Whether the string has ended and no other is its replacement."""
        end = self._form is _STRINGS and _STRINGS.ends.search(self._text, start)
        return bool(end) and len(self._text) - end.end() > _MARK // 2

    def _begin(self, form: _Form, old: str) -> None:
        """The text begins that replaces this one."""
        self.view = form.view
        part = self._rules.find(form.view.read(old), self._line)
        if part:
            self._line = part[0].stop
            self._follower = Follower(self._rules, form.view, part=Part(*part), after=form.after)


def _end(mark: re.Match) -> int:
    """Where the text ends that stands before this mark."""
    return mark.end("end") if "end" in mark.re.groupindex else mark.start()


class _Hunks:
    """Follows the hunks of a unified diff.

    Args:
        rules: of the old text.

    Attributes:
        lost: whether the latest text began another line than expected.
        ended: whether a line was none of a hunk.
    """

    def __init__(self, rules: Rules) -> None:
        self.lost = self.ended = False
        self._rules = rules
        self._begun = ""  # of the line
        self._line = 0  # of the old text, which comes next
        self._context = 0  # lines of it since a change
        self._changed = False  # whether this hunk has changed anything
        self._shift = 0  # lines that were added so far
        self._gone = range(0)  # lines that were taken away and have no replacement yet
        self._follower: Follower | None = None  # in what replaces them
        self._fed = 0  # letters of the line that it knows

    def read(self, text: str) -> None:
        self.lost = "\n" in text
        *finished, self._begun = (self._begun + text).split("\n")
        for line in finished:
            self._feed(f"{line}\n")
            self._finish(line)
            self._fed = 0
        self._feed(self._begun)

    def coming(self, letters: int) -> Coming | None:
        replacing = self._gone or (self._follower and not self._follower.done)
        if self._begun.startswith("+") or (replacing and not self._begun):
            return self._added(letters)
        if not self._begun.startswith("@"):
            text = self._following()
        elif found := _BEGUN_HEAD.match(self._begun):
            text = self._head(*found.groups())
        else:
            return None
        return Coming(text[len(self._begun) :], "hunk") if text.startswith(self._begun) else None

    def _feed(self, line: str) -> None:
        """The line is known up to here."""
        if not line.startswith("+"):
            return
        if self._gone:
            self._follower = Follower(self._rules, RAW, part=Part(self._gone, "", ""))
            self._gone = range(0)
        if self._follower:
            self._follower.read(line[max(self._fed, 1) :])
            self._fed = len(line)
            self.lost |= self._follower.lost

    def _finish(self, line: str) -> None:
        if head := _HEAD.match(line):
            first, size = int(head[1]), head[2]
            self._line = first if size == "0" else first - 1
            self._context, self._changed = 0, False
        elif line.startswith("+"):
            self._shift += 1
            self._context, self._changed = 0, True
            return
        elif line.startswith("-"):
            known = self._pass(line[1:])
            at = self._line - 1
            first = self._gone.start if self._gone.stop == at else at
            self._gone = range(first, at + 1) if known else range(0)
            self._shift -= 1
            self._context, self._changed = 0, True
            self._follower = None
            return
        else:
            self.ended = bool(line) and not line.startswith(_IN_HUNK)
            self._pass(line[1:])
            self._context += 1
        self._gone, self._follower = range(0), None

    def _pass(self, line: str) -> bool:
        """The answer has shown this line of the old text. Models do not count well: it may stand elsewhere.
        Whether it does stand there at all."""
        places = self._rules.places.get(line, [])
        self._line = 1 + min(places, key=lambda number: abs(number - self._line), default=self._line)
        return bool(places)

    def _head(self, first: str, size: str | None, new: str | None, new_size: str | None) -> str:
        """The head of a hunk that begins on this line, and what follows it."""
        size, new = size or _SIZE, new or f"{int(first) + self._shift}"
        head = f"@@ -{first},{size} +{new},{new_size or size} @@\n"
        return head + self._unchanged(int(first) - 1, _CONTEXT) + self._taken(int(first) - 1 + _CONTEXT)

    def _following(self) -> str:
        """What follows on a line that was not changed."""
        left = _CONTEXT - self._context
        if not self._changed:
            return self._unchanged(self._line, left) + self._taken(self._line + max(left, 0))
        if self._begun.startswith("-"):
            return self._taken(self._line)
        return self._unchanged(self._line, left) + "@@ -"

    def _unchanged(self, line: int, count: int) -> str:
        lines = self._rules.lines[max(line, 0) : max(line, 0) + max(count, 0)]
        return "".join(f" {line}\n" for line in lines)

    def _taken(self, line: int) -> str:
        """What takes this line away and puts what it becomes in its place."""
        if not 0 <= line < len(self._rules.lines):
            return ""
        return f"-{self._rules.lines[line]}\n+{self._rules.expected(line)[0]}\n"

    def _added(self, letters: int) -> Coming | None:
        """What follows where lines are put in the place of others."""
        follower = self._follower
        if self._gone:
            follower = Follower(self._rules, RAW, part=Part(self._gone, "", ""))
        coming = follower.coming(letters) if follower else None
        if not coming or not coming.text:
            return None
        text = coming.text.removesuffix("\n").replace("\n", "\n+") + "\n"
        if len(coming.text) < letters:  # all of them
            text += self._unchanged(self._line, _CONTEXT)
        return Coming(text if self._begun else f"+{text}", f"hunk, {coming.kind}", coming.match)
