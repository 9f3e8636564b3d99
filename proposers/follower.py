"""Where an answer stands in the old text, line by line, and what it will say there."""

from __future__ import annotations

from typing import NamedTuple

from rapidfuzz import fuzz

from specedit.proposers.rules import Rule, Rules
from specedit.proposers.views import View

_SHORTEST = 3  # letters that a line needs to be found by
_NEARBY = 4  # lines among which the one is sought that a new line replaces
_ALIKE = 65  # in percent, how much it must have in common with that one
_LONGEST_LINE = 1 << 12  # letters that an answer may have begun of one
_SHORTEST_END, _LONGEST_END = 2, 24  # letters by which a place within a line is found again


class Block(NamedTuple):
    """Lines whose indentation the answer has changed.

    Attributes:
        lines: from the first one seen to the last one of the block.
        old, new: their indentation, at least.
    """

    lines: range
    old: str
    new: str


class Part(NamedTuple):
    """A piece of the old text that the answer replaces.

    Attributes:
        lines: in which it lies.
        begun: what stands before it in the first one.
        cut: what stands after it in the last one, with the newline.
    """

    lines: range
    begun: str
    cut: str


class Coming(NamedTuple):
    """What is expected next.

    Attributes:
        text: as the answer writes it.
        kind: how it was found.
        match: how many letters speak for the place; None if the answer never left it.
    """

    text: str
    kind: str
    match: int | None = None


class Follower:
    """Follows an answer that writes the old text in one form.

    Args:
        rules: of the old text; they learn from every line.
        view: the form.
        begun: what the answer has written of its line in this form.
        part: of the old text, if the answer writes only this. All of it is then expected, not only changes.
        after: what the answer writes behind the part.

    Attributes:
        view: the form.
        lost: whether the latest text was not what was expected there.
    """

    def __init__(
        self, rules: Rules, view: View, begun: str = "", part: Part | None = None, after: str = ""
    ) -> None:
        self.lost = False
        self._rules = rules
        self.turn(view)
        self._part, self._after = part, after
        self._begun = view.write(part.begun) if part else begun
        self._lines = part.lines if part else range(len(rules.lines))
        self._line = self._lines.start  # the one of the old text that is expected next
        self._block: Block | None = None

    @property
    def done(self) -> bool:
        """Whether no more lines are expected."""
        return self._line not in self._lines

    def turn(self, view: View) -> None:
        """The answer is in this form."""
        self.view = view
        self._newline = view.write("\n")
        self._ahead: tuple[tuple | None, str, list[Rule], bool] = None, "", [], False

    def read(self, text: str) -> None:
        """The answer goes on with this."""
        self.lost = False
        *finished, self._begun = (self._begun + text).split(self._newline)
        for line in finished:
            self._finish(self.view.read(line))
        if len(self._begun) > _LONGEST_LINE:  # it is looked at again and again; its end is enough
            self._begun = self._begun[-_LONGEST_END:]

    def coming(self, letters: int) -> Coming | None:
        """At least so many letters of what follows, if rules change it, if it is in a block that moved, if
        the answer is back within the line after it went elsewhere, or if it replaces a part."""
        part = self._part
        if not self._rules and not self._block and not part and self._on_line():
            return None  # as it is most of the time
        at = (self._line, self._block, self._rules.version, letters)
        if self._ahead[0] != at:  # it mostly stays the same within a line
            self._ahead = at, *self._lines_ahead(letters)
        _, text, used, moved = self._ahead
        if not text.startswith(self._begun):
            return self._resumed(text)
        if not used and not moved and not part:
            return None
        proven = min((rule.right - rule.wrong for rule in used), default=0) > 0
        kind = "proven" if proven else "new" if used else "moved" if moved else "same"
        return Coming(text[len(self._begun) :], kind)

    def _lines_ahead(self, letters: int) -> tuple[str, list[Rule], bool]:
        """The line that the answer is in and at least so many letters more, the rules that change them, and
        whether some are in a block that moved."""
        text, enough, used, moved = "", 0, list[Rule](), False
        part = self._part
        for number in range(self._line, self._lines.stop):
            if len(text) > enough:
                break
            line, changing = self._expected(number)
            moved |= self._block is not None and number in self._block.lines
            line += "\n"
            if part and number + 1 == self._lines.stop:
                if not line.endswith(part.cut):
                    break  # rules have changed what is not of the part, and where it begins is not known
                line = line.removesuffix(part.cut)
            text += self.view.write(line)
            enough = enough or len(text) + letters  # the answer is within the first line
            used = used or changing
        else:
            text += self._after
        return text, used, moved

    def _on_line(self) -> bool:
        lines = self._rules.lines[self._line : self._line + 1]
        return any(self.view.write(line).startswith(self._begun) for line in lines)

    def _expected(self, number: int) -> tuple[str, list[Rule]]:
        line, used = self._rules.expected(number)
        block = self._block
        if block and number in block.lines and line.startswith(block.old):
            line = block.new + line[len(block.old) :]
        return line, used

    def _finish(self, line: str) -> None:
        """The answer has written a line."""
        lines = self._rules.lines
        if self._line in self._lines:
            self._rules.judge(self._line, line)
            if line in (lines[self._line], expected := self._expected(self._line)[0]):
                self._block = self._block if line == expected else None
                self._line += 1
                return
        self.lost = True
        found = self._rules.nearest(line, self._line)
        if found is not None and found in self._lines and len(line.strip()) >= _SHORTEST:
            self._line = found + 1
            return
        ahead = range(self._line, min(self._line + _NEARBY, self._lines.stop))
        for number in ahead:
            if line.strip() and line.lstrip() == self._rules.expected(number)[0].lstrip():
                self._block = self._moved(number, line)
                self._line = number + 1
                return
        alike = {number: fuzz.ratio(lines[number], line) for number in ahead}
        if alike and alike[likest := max(alike, key=alike.__getitem__)] > _ALIKE:
            self._rules.learn(likest, line)
            self._line = likest + 1

    def _moved(self, begin: int, written: str) -> Block:
        """The block that begins with this line, which the answer has indented otherwise."""
        lines, end = self._rules.lines, begin + 1
        old, new = _indentation(lines[begin]), _indentation(written)
        while end < len(lines) and (not lines[end].strip() or lines[end].startswith(old)):
            end += 1
        return Block(range(begin, end), old, new)

    def _resumed(self, expected: str) -> Coming | None:
        """What follows in the expected line, and after it, the longest end of what the answer has begun."""
        line, _, following = expected.partition(self._newline)
        for length in range(min(len(self._begun), _LONGEST_END), _SHORTEST_END - 1, -1):
            before, end, rest = line.partition(self._begun[-length:])
            if end.strip() and before != line:
                return Coming(rest + self._newline + following, "resumed", length)
        return None


def _indentation(line: str) -> str:
    return line[: len(line) - len(line.lstrip())]
