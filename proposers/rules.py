"""What an answer has done to the syntax tree of the old text, as rules for the rest of it."""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from difflib import SequenceMatcher
from itertools import accumulate

from tree_sitter import Language, Node, Parser

_LEXEME = re.compile(r"\w+|\s+|[^\w\s]")
_NAME = re.compile(r"[^\W\d]\w*")
_LONGEST = 120  # letters of what a rule puts in place
_FORGIVEN = 1  # how much oftener a rule may be wrong than right
_FUNCTION = re.compile(r"function|method|lambda|closure")


@dataclass(eq=False, slots=True)
class Rule:
    """A rewriting that the answer has made, or that it was asked for.

    Attributes:
        name: the first name in what is rewritten.
        pieces: what is put in place: texts, and nodes of `pattern` whose counterparts stand there.
        pattern: what is rewritten; None for a name wherever it stands.
        scope: where, as letters of the text.
        right, wrong: how often it foretold a line, and how often the line stayed as it was.
    """

    name: str
    pieces: list[str | Node]
    pattern: Node | None
    scope: range
    right: int = 0
    wrong: int = 0


class Rules:
    """Learns from the lines that an answer has changed, and rewrites those that are still to come.

    A name that became another one is expected to do so wherever it is in scope. Any other change is taken as
    one of the smallest syntax node around it that begins with a name: what stayed the same in the node may be
    anything elsewhere, so `t.Optional[str]` that became `str | None` makes `int | None` of `t.Optional[int]`.
    (Rewritings of trees learnt from examples, as in Rolim et al. 2017, arXiv 1608.09000; here from one.)

    Args:
        text: the old one.
        grammar: of its language; without one only names are followed.

    Attributes:
        lines: of the text.
        places: of equal lines their numbers.
        names: that are in the text.
        version: another one whenever other lines may be expected.
    """

    def __init__(self, text: str, grammar: Language | None) -> None:
        self.lines = text.split("\n")
        self.places: defaultdict[str, list[int]] = defaultdict(list)
        for number, line in enumerate(self.lines):
            self.places[line].append(number)
        self.names = set(_NAME.findall(text))
        self._text = text
        self._starts = [0, *accumulate(len(line) + 1 for line in self.lines)]
        # A byte a letter, so that offsets agree.
        self._root = Parser(grammar).parse(text.encode("ascii", "replace")).root_node if grammar else None
        self._rules: dict[str, list[Rule]] = {}  # by name, the latest first
        self._rewritten: dict[int, tuple[str, list[Rule]]] = {}
        self.version = 0

    def __bool__(self) -> bool:
        """Whether there are any."""
        return bool(self._rules)

    def find(self, piece: str, start: int = 0) -> tuple[range, str, str] | None:
        """The lines in which this piece of the text lies, what stands before it in the first, and after it
        in the last, with the newline. One that begins on the line `start` or below is preferred."""
        text = f"{self._text}\n"
        at = text.find(piece, self._starts[min(start, len(self.lines) - 1)])
        at = at if at >= 0 else text.find(piece)
        if at < 0 or not piece:
            return None
        first = bisect_right(self._starts, at) - 1
        end = at + len(piece)
        last = bisect_left(self._starts, end) - 1
        before = self._text[self._starts[first] : at]
        return range(first, last + 1), before, text[end : self._starts[last + 1]]

    def nearest(self, line: str, number: int) -> int | None:
        """The number of the line that says this, of several the nearest to that number."""
        places = self.places.get(line, [])
        after = bisect_left(places, number)
        near = places[max(after - 1, 0) : after + 1]
        return min(near, key=lambda place: abs(place - number), default=None)

    def add(self, rule: Rule) -> None:
        """Follow a rule, rather than older ones for the same."""
        known = self._rules.setdefault(rule.name, [])
        known[:] = [rule, *(other for other in known if self._shape(other) != self._shape(rule))]
        self._change()

    def rename(self, old: str, new: str, at: int | None = None) -> None:
        """The name `old` became `new`, at this letter of the text."""
        everywhere = range(len(self._text))
        scope = everywhere if at is None else self._scope(old, at) or everywhere
        self.add(Rule(old, [new], None, scope))

    def judge(self, number: int, written: str) -> None:
        """The answer has written this for a line: rules that mostly fail are dropped."""
        expected, used = self.expected(number)
        for rule in used:
            rule.right += written == expected
            rule.wrong += written == self.lines[number]
            if rule.wrong > rule.right + _FORGIVEN and rule in self._rules[rule.name]:
                self._rules[rule.name].remove(rule)
                self._change()

    def _change(self) -> None:
        self._rewritten.clear()
        self.version += 1

    def learn(self, number: int, written: str) -> None:
        """The answer has this instead of a line."""
        old, new = _LEXEME.findall(self.lines[number]), _LEXEME.findall(written)
        old_ends = list(accumulate(map(len, old), initial=self._starts[number]))
        new_ends = list(accumulate(map(len, new), initial=0))
        # Where in the new line is what begins or ends at these letters of the text.
        begins, ends = dict[int, int](), dict[int, int]()
        around = list[Node]()
        for kind, a, a_end, b, b_end in SequenceMatcher(None, old, new, autojunk=False).get_opcodes():
            if kind == "equal":
                begins |= zip(old_ends[a:a_end], new_ends[b:b_end], strict=True)
                ends |= zip(old_ends[a + 1 : a_end + 1], new_ends[b + 1 : b_end + 1], strict=True)
                continue
            begins[old_ends[a]], ends[old_ends[a_end]] = new_ends[b], new_ends[b_end]
            if a_end - a == b_end - b == 1 and self._renamable(old[a], old_ends[a], new[b]):
                self.rename(old[a], new[b], old_ends[a])
            if node := self._around(old_ends[a], old_ends[a_end]):
                around = [other for other in around if not _within(other, node)]
                if not any(_within(node, other) for other in around):
                    around.append(node)
        for node in around:
            if node.start_byte in begins and node.end_byte in ends:
                self._generalise(node, written[begins[node.start_byte] : ends[node.end_byte]])

    def expected(self, number: int) -> tuple[str, list[Rule]]:
        """A line as the rules have it, and those that changed it."""
        if number not in self._rewritten:
            line, used = self.lines[number], list[Rule]()
            if not self._rules.keys().isdisjoint(_NAME.findall(line)):
                span = range(self._starts[number], self._starts[number] + len(line))
                if self._root:
                    node = self._root.descendant_for_byte_range(span.start, span.stop)
                    line = self._applied(node or self._root, span, used)
                else:
                    line = self._renamed(span, used)
            self._rewritten[number] = line, used
        return self._rewritten[number]

    def _applied(self, node: Node, span: range, used: list[Rule]) -> str:
        """What the rules make of as much of the node as lies in the span."""
        if not node.child_count:
            part = range(max(node.start_byte, span.start), min(node.end_byte, span.stop))
            return self._renamed(part, used, _is_member(node))
        if node.is_named and span.start <= node.start_byte and node.end_byte <= span.stop:
            first = next(self._names(node), None)
            for rule in self._rules.get(self._of(first) if first else "", ()):
                found = {piece.id: piece for piece in rule.pieces if isinstance(piece, Node)}
                if rule.pattern and self._alike(rule.pattern, node, found):
                    used.append(rule)
                    return "".join(
                        piece if isinstance(piece, str) else self._applied(found[piece.id], span, used)
                        for piece in rule.pieces
                    )
        written, done = [], max(node.start_byte, span.start)
        for child in node.children:
            if child.end_byte > span.start and child.start_byte < span.stop:
                written += [self._text[done : child.start_byte], self._applied(child, span, used)]
                done = min(child.end_byte, span.stop)
        return "".join([*written, self._text[done : min(node.end_byte, span.stop)]])

    def _alike(self, pattern: Node, node: Node, found: dict[int, Node]) -> bool:
        """Whether a node has the shape of the pattern. It may differ in the parts whose ids are in `found`:
        for these the node's are put there."""
        if pattern.id in found:
            found[pattern.id] = node
            return True
        if pattern.type != node.type:
            return False
        if not pattern.child_count:
            return self._of(pattern) == self._of(node)
        return pattern.child_count == node.child_count and all(
            self._alike(*parts, found) for parts in zip(pattern.children, node.children, strict=True)
        )

    def _renamed(self, part: range, used: list[Rule], member: bool = False) -> str:
        def renamed(name: re.Match) -> str:
            for rule in self._rules.get(name[0], ()):
                local = len(rule.scope) < len(self._text)
                if rule.pattern is None and part.start in rule.scope and not (local and member):
                    used.append(rule)
                    return "".join(piece for piece in rule.pieces if isinstance(piece, str))
            return name[0]

        return _NAME.sub(renamed, self._text[part.start : part.stop])

    def _renamable(self, old: str, at: int, new: str) -> bool:
        """Whether one is a name and the other may be its new one, which no other had."""
        if not (_NAME.fullmatch(old) and _NAME.fullmatch(new)) or new in self.names:
            return False
        node = self._root and self._root.descendant_for_byte_range(at, at + len(old))
        return node is None or (node.is_named and self._of(node) == old)  # a keyword has no name

    def _shape(self, rule: Rule) -> str | None:
        return self._of(rule.pattern) if rule.pattern else None

    def _around(self, start: int, end: int) -> Node | None:
        """The smallest node around these letters that has parts and begins with a name, such as a call."""
        if self._root is None:
            return None
        if start == end:  # something was inserted between two letters
            start, end = max(start - 1, 0), end + 1
        node = self._root.descendant_for_byte_range(start, end)
        while node and not (node.is_named and node.child_count and self._begins_with_name(node)):
            node = node.parent
        return node

    def _generalise(self, node: Node, new: str) -> None:
        """Make a rule of it that this node became `new`."""
        if len(new) > _LONGEST or not _balanced(new):
            return
        first = next(self._names(node))
        kept: list[tuple[int, int, Node]] = []

        def keep(part: Node) -> None:
            text = self._of(part)
            if part.is_named and _NAME.search(text) and not _within(first, part) and not _is_member(part):
                for place in re.finditer(rf"(?<!\w){re.escape(text)}(?!\w)", new):
                    if all(place.end() <= start or end <= place.start() for start, end, _ in kept):
                        kept.append((*place.span(), part))
                        return
            for child in part.children:
                keep(child)

        keep(node)
        pieces, done = list[str | Node](), 0
        for start, end, part in sorted(kept, key=lambda span: span[:2]):
            pieces += [new[done:start], part]
            done = end
        self.add(Rule(self._of(first), [*pieces, new[done:]], node, range(len(self._text))))

    def _begins_with_name(self, node: Node) -> bool:
        first = next(self._names(node), None)
        return first is not None and first.start_byte == node.start_byte

    def _of(self, node: Node) -> str:
        return self._text[node.start_byte : node.end_byte]

    def _names(self, node: Node) -> Iterator[Node]:
        """The parts of a node that are names."""
        if node.child_count:
            for child in node.children:
                yield from self._names(child)
        elif _NAME.fullmatch(self._of(node)):
            yield node

    def _scope(self, name: str, at: int) -> range | None:
        """The function that binds this name, if it is a variable of one."""
        node = self._root and self._root.descendant_for_byte_range(at, at + len(name))
        if node is None or _is_member(node):
            return None
        while node := node.parent:
            if _FUNCTION.search(node.type) and self._binds(node, name):
                return range(node.start_byte, node.end_byte)
        return None

    def _binds(self, node: Node, name: str) -> bool:
        """Whether a parameter or an assignment in a function has this name."""
        for field in ("left", "pattern", "declarator", "parameter"):
            target = node.child_by_field_name(field)
            if target and self._of(target) == name:
                return True
        if node.type.endswith("parameters"):
            return any(self._of(part) == name for part in self._names(node))
        return any(self._binds(child, name) for child in node.children)


def _within(inner: Node, outer: Node) -> bool:
    return outer.start_byte <= inner.start_byte and inner.end_byte <= outer.end_byte


def _is_member(node: Node) -> bool:
    """Whether this is the name behind a dot."""
    fields = ("attribute", "property", "field")
    parent = node.parent
    return parent is not None and any(parent.child_by_field_name(field) == node for field in fields)


def _balanced(text: str) -> bool:
    depth = 0
    for letter in text:
        depth += (letter in "([{") - (letter in ")]}")
        if depth < 0:
            return False
    return depth == 0
