"""Answers that show a piece of the old text and then what it becomes: blocks, pairs of strings, diffs."""

from __future__ import annotations

import re
from typing import NamedTuple

from specedit.proposers.follower import Coming, Follower, Part
from specedit.proposers.rules import Rules
from specedit.proposers.views import JSON, RAW, View

_MARK = 64  # letters in which a mark may have begun
_LARGEST = 1 << 14  # letters of a piece of the old text, and of a line of a diff
_TIMES = 4  # as often as long may the new text be, and
_MORE = 2000  # so many letters longer
_CONTEXT = 3  # lines that diffs show around a change
_SIZE = "7"  # lines of a hunk that changes one
# An unescaped quote; what stands before it may be escaped backslashes.
_QUOTE = r'(?<!\\)(?P<end>(?:\\\\)*)"'
_TAG = r'<(?:parameter(?:=| name="))?{}\w*"?>\n?'


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
    re.compile(r"(?<=\n)<{5,} \w+[ \t]*\r?\n"),
    re.compile(r"^={5,}[ \t]*\r?\n", re.MULTILINE),
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
_TAGS = _Form(
    RAW,
    re.compile(_TAG.format("old")),
    re.compile(r"</[^<>]{1,40}>\s*" + _TAG.format("new")),
    re.compile("</"),
    "</",
)
_FORMS = (_SEARCH, _STRINGS, _TAGS)
_DIFF = re.compile(r"(?<=\n)@@ -")
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
        self._forms = [form for form in _FORMS if not form.begins.search(f"\n{text}")]
        self._diffs = not _DIFF.search(f"\n{text}")
        self._text = "\n"  # what was read and may be of use, from the latest mark on
        self._held = ""  # what was read in a form that may be none
        self._form: _Form | None = None
        self._old = ""  # the text that is being replaced, once the answer has turned to the new one
        self._follower: Follower | None = None  # in the new one
        self._fed = 0  # letters of it that were followed
        self._hunks: _Hunks | None = None
        self._line = 0  # of the old text, after the latest piece

    @property
    def inside(self) -> bool:
        """Whether the answer is in such a form."""
        return bool(self._form or self._hunks)

    def read(self, text: str) -> str:
        """The answer goes on with this. What of it is in no such form: with what was taken to be and was
        not, this goes on with the whole text."""
        self.lost = False
        self._held += text
        if self._hunks:
            hunks = self._hunks
            self._text += self._behind(hunks, text)
            self.lost = hunks.lost
        else:
            self._text += text
        start = max(len(self._text) - len(text) - _MARK, 0)
        while not self._hunks and self._passed(start):
            start, self.lost = 0, True
        self._feed(len(self._text))
        if self.inside:
            return ""
        held, self._held = self._held, ""
        return held

    def coming(self, letters: int) -> Coming | None:
        """At least so many letters of what follows, where that is known."""
        if self._hunks:
            return self._hunks.coming(letters)
        return self._follower.coming(letters) if self._follower else None

    def _behind(self, hunks: _Hunks, text: str) -> str:
        """The diff goes on with this. What of it is behind the diff, if it ends."""
        rest = hunks.read(text)
        if hunks.ended:
            self._leave(known=hunks.known)
        return rest

    def _leave(self, known: bool) -> None:
        """The answer is in no form now, and was in none if the old text of this one is not known."""
        self._form = self._follower = self._hunks = None
        if known:
            self._held = ""

    def _feed(self, end: int) -> None:
        """What is in the place of the old text is known up to here."""
        if self._follower and self._fed < end:
            self._follower.read(self._text[self._fed : end])
            self._fed = end
            self.lost |= self._follower.lost

    def _passed(self, start: int) -> bool:
        """Whether the answer has passed a mark that ends behind `start`; it stands behind it then."""
        if not self._form:
            return self._begun(start)
        if not self._follower:
            return self._turned(self._form, start)
        found = self._form.ends.search(self._text, start)
        if found:
            self._feed(_end(found))
            self._leave(known=True)
            self._text = self._text[found.end() :]
        elif len(self._text) > _TIMES * len(self._old) + _MORE:
            self._leave(known=True)
        return bool(found)

    def _begun(self, start: int) -> bool:
        """Whether a form begins."""
        if self._diffs and (found := _DIFF.search(self._text, start)):
            self._hunks = _Hunks(self._rules)
            self._text = self._behind(self._hunks, self._text[found.start() :])
            return not self._hunks
        begun = [(form, found) for form in self._forms if (found := form.begins.search(self._text))]
        if not begun:
            self._text = self._text[-_MARK:]
            return False
        self._form, mark = min(begun, key=lambda one: one[1].start())
        self._text = self._text[mark.end() :]
        return True

    def _turned(self, form: _Form, start: int) -> bool:
        """Whether the new text begins."""
        for found in form.turns.finditer(self._text, start):
            self._old = self._text[: _end(found)]
            lines, *around = self._rules.find(form.view.read(self._old), self._line) or (range(0),)
            following = self._rules.lines[lines.stop : lines.stop + 1] if lines else []
            if form is _SEARCH and following == [found[0].strip()]:
                continue  # the old text has such a line itself
            if not lines:
                break
            self.view, self._line, self._fed = form.view, lines.stop, 0
            self._follower = Follower(self._rules, form.view, part=Part(lines, *around), after=form.after)
            self._text = self._text[found.end() :]
            return True
        else:
            if not self._strayed(start):
                return False
        self._leave(known=False)
        return False

    def _strayed(self, start: int) -> bool:
        """Whether what seemed to be a piece of the old text is none."""
        if self._form is _STRINGS:
            ended = _STRINGS.ends.search(self._text, start)
            behind = len(self._text) - ended.end() if ended else 0
            return len(self._text) > _LARGEST or behind > _MARK // 2
        first = self._text.rfind("\n", 0, start) + 1
        finished = self._text[first:].split("\n")[:-1] if self._form is _SEARCH else []
        return len(self._text) > _LARGEST or any(
            line.rstrip("\r") not in self._rules.places and line.strip("= \t\r") for line in finished
        )


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
        known: whether a line of the old text was shown.
    """

    def __init__(self, rules: Rules) -> None:
        self.lost = self.ended = self.known = False
        self._rules = rules
        self._count = len(rules.lines) - (not rules.lines[-1])  # of the lines of the old text
        self._begun = ""  # of the line
        self._line = 0  # of the old text, which comes next
        self._context = 0  # lines of it since a change
        self._left = 0  # lines that the hunk has still to show of the old text
        self._changed = False  # whether this hunk has changed anything
        self._shift = 0  # lines that were added so far
        self._gone = range(0)  # lines that were taken away and have no replacement yet
        self._follower: Follower | None = None  # in what replaces them
        self._fed = 0  # letters of the line that it knows

    def read(self, text: str) -> str:
        """The answer goes on with this. What of it is behind the diff."""
        self.lost = "\n" in text
        *finished, self._begun = (self._begun + text).split("\n")
        for number, line in enumerate(finished):
            if self._foreign(line):
                self.ended = True
                return "\n".join(["", *finished[number:], self._begun])
            self._feed(f"{line}\n")
            self._finish(line)
            self._fed = 0
        if len(self._begun) > _LARGEST:
            self.ended = True
            return self._begun
        self._feed(self._begun)
        return ""

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

    def _foreign(self, line: str) -> bool:
        """Whether a line is none of a hunk. Empty lines stand for empty lines where some have still to
        come."""
        return not line.startswith(_IN_HUNK) and (bool(line) or self._left <= 0)

    def _feed(self, line: str) -> None:
        """The line is known up to here."""
        if not line.startswith("+"):
            return
        if self._gone:
            self._follower, self._gone = self._replacing(), range(0)
        if self._follower:
            self._follower.read(line[max(self._fed, 1) :])
            self._fed = len(line)
            self.lost |= self._follower.lost

    def _replacing(self) -> Follower:
        """At the beginning of what replaces the lines that were taken away."""
        return Follower(self._rules, RAW, part=Part(self._gone, "", ""))

    def _finish(self, line: str) -> None:
        if head := _HEAD.match(line):
            first, size = int(head[1]), head[2]
            self._line = first if size == "0" else first - 1
            self._left = int(size or 1)
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
        elif not line.startswith("\\"):  # which says that there is no newline
            self._pass(line[1:])
            self._context += 1
        self._gone, self._follower = range(0), None

    def _pass(self, line: str) -> bool:
        """The answer has shown this line of the old text. Models do not count well: it may stand elsewhere.
        Whether it does stand there at all."""
        at = self._rules.nearest(line, self._line)
        self._line = 1 + (self._line if at is None else at)
        self._left -= 1
        self.known |= at is not None
        return at is not None

    def _head(self, first: str, size: str | None, new: str | None, new_size: str | None) -> str:
        """The head of a hunk that begins on this line, and what follows it."""
        size, new = size or _SIZE, new or f"{int(first) + self._shift}"
        head = f"@@ -{first},{size} +{new},{new_size or size} @@\n"
        return head + self._to_change(int(first) - 1, _CONTEXT)

    def _following(self) -> str:
        """What follows on a line that was not changed."""
        left = max(_CONTEXT - self._context, 0)
        if not self._changed:
            return self._to_change(self._line, left)
        if self._begun.startswith("-"):
            return self._to_change(self._line, 0)
        more = "@@ -" if self._line + left < self._count else ""
        return self._unchanged(self._line, left) + more

    def _unchanged(self, line: int, count: int) -> str:
        lines = self._rules.lines[max(line, 0) : min(line + count, self._count)]
        return "".join(f" {line}\n" for line in lines)

    def _to_change(self, line: int, count: int) -> str:
        """So many lines that stay, and one that is taken away for what it becomes."""
        text, changed = self._unchanged(line, count), line + count
        if 0 <= changed < self._count:
            text += f"-{self._rules.lines[changed]}\n+{self._rules.expected(changed)[0]}\n"
        return text

    def _added(self, letters: int) -> Coming | None:
        """What follows where lines are put in the place of others."""
        follower = self._replacing() if self._gone else self._follower
        coming = follower.coming(letters) if follower else None
        if not coming or not coming.text:
            return None
        text = coming.text.removesuffix("\n").replace("\n", "\n+") + "\n"
        if len(coming.text) < letters:  # all of them
            text += self._unchanged(self._line, _CONTEXT)
        return Coming(text if self._begun else f"+{text}", f"hunk, {coming.kind}", coming.match)
