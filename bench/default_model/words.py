"""What the edits share: how an instruction is worded, the names that people give, and changes of a text."""

from __future__ import annotations

import ast
import keyword
import re
from collections.abc import Sequence
from pathlib import Path
from random import Random
from typing import TypeVar

import tomllib

T = TypeVar("T")
Edit = tuple[str, str]  # the instruction, and the file after it

_DATA = tomllib.loads(Path(__file__).with_name("phrases.toml").read_text("utf-8"))
PHRASES: dict[str, list[str]] = _DATA["phrases"]
WORDS: dict[str, list] = _DATA["words"]
OPERATORS: dict[str, dict[str, list[str]]] = _DATA["operators"]


class NoOccasion(Exception):
    """A file does not lend itself to an edit."""


def need(condition: object) -> None:
    """Raise NoOccasion unless the condition holds."""
    if not condition:
        raise NoOccasion


def pick(rng: Random, found: Sequence[T]) -> T:
    """One of what was found.

    Raises:
        NoOccasion: nothing was.
    """
    need(found)
    return rng.choice(found)


def say(rng: Random, *keys: str, **fields: str) -> str:
    """A phrase of one of the lists, worded as a person may: polite or short, with code in quotes or bare.

    Args:
        fields: the pieces of code that the phrases name. One style of quoting serves all of them.
    """
    template = rng.choice([phrase for key in keys for phrase in PHRASES[key]])
    style = rng.choice(["`", "`", "", "", '"', "'"])

    def piece(match: re.Match[str]) -> str:
        code, how, mark = fields[match[1]], match[2], style
        if how == "bare" or "`" in code:
            return code
        if mark in ('"', "'") and re.search("[\"']", code):
            mark = "`"
        elif mark in ('"', "'") and how == "code":
            mark = ""
        if not mark and re.search(r"[^\w.@\"'\[\]]", code):  # what has a space in it is never left bare
            mark = "`"
        return mark + code + mark

    sentence = re.sub(r"\{(\w+):?(\w*)\}", piece, template)
    before, after = rng.choice(WORDS["before"]), rng.choice(WORDS["after"])
    if "nothing to change" in keys:
        after = ""  # "Change nothing. Change nothing else."
    if template.split()[0] in WORDS["verbs"] and (before or rng.random() < 0.3):
        sentence = before + sentence[:1].lower() + sentence[1:]
    if after or rng.random() < 0.6:
        sentence += "." + after
    return sentence


def splice(text: str, *changes: tuple[int, int, str]) -> str:
    """The text with ranges of its bytes replaced."""
    data = text.encode()
    for start, end, new in sorted(changes, reverse=True):
        data = data[:start] + new.encode() + data[end:]
    return data.decode()


def insert(lines: list[str], at: int, new: str) -> str:
    """The text with a line (or several) before the line with the index `at`."""
    return "".join([*lines[:at], new + "\n", *lines[at:]])


def drop(lines: list[str], start: int, end: int) -> str:
    """The text without the lines from index `start` to `end`.

    Raises:
        NoOccasion: the empty lines around them would meet, and nobody says what becomes of those.
    """
    above = start > 0 and lines[start - 1].strip()
    below = end < len(lines) and lines[end].strip()
    need(above or below)
    return "".join(lines[:start] + lines[end:])


def count(text: str, name: str) -> int:
    """How often a name stands in a text, be it in code, a string or a comment."""
    return len(re.findall(rf"(?<![\w$]){re.escape(name)}(?![\w$])", text))


def rename(
    text: str, rng: Random, what: str, old: str, new: str, spans: list[tuple[int, int]], shown: str = "{}"
) -> Edit:
    """The edit that renames `old`.

    Args:
        what: "function", "class" …
        spans: where it stands, in bytes.
        shown: how the instruction writes the names.
    """
    need(spans)
    keys = ["rename"]
    if count(text, old) == len(set(spans)):
        keys.append("rename, nothing else has the name")
    instruction = say(rng, *keys, what=what, old=shown.format(old), new=shown.format(new))
    return instruction, splice(text, *((start, end, new) for start, end in set(spans)))


class Names:
    """Names that occur in real files, by kind, to rename to; and sentences that people wrote."""

    def __init__(self) -> None:
        self.functions: list[str] = []
        self.classes: list[str] = []
        self.variables: list[str] = []
        self.constants: list[str] = []
        self.docstrings: list[str] = []
        self.comments: list[str] = []
        self.strings: list[str] = []
        self.words: list[str] = []  # that the names consist of

    def read(self, text: str) -> None:
        """Take in the names of a Python file."""
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                if not node.name.startswith("__"):
                    self.functions.append(node.name.strip("_"))
                args = [arg.arg for arg in node.args.args]
                self.variables += [name for name in args if len(name) > 2 and name != "self"]
                first = (ast.get_docstring(node) or "").split("\n")[0]
                if 10 < len(first) < 70 and not re.search(r"[`\\\"{}*:]", first):
                    self.docstrings.append(first)
            elif isinstance(node, ast.ClassDef):
                self.classes.append(node.name.strip("_"))
            elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store) and len(node.id) > 2:
                if node.id.isupper():
                    self.constants.append(node.id.strip("_"))
                elif node.id.islower():
                    self.variables.append(node.id.strip("_"))
            elif (
                isinstance(node, ast.Constant)
                and isinstance(node.value, str)
                and re.fullmatch(r"[A-Za-z][\w .,/:-]{1,45}", node.value)
            ):
                self.strings.append(node.value)
        self.comments += re.findall(r"^ *# ([A-Z][\w ,.'()-]{8,60})$", text, re.MULTILINE)

    def finish(self) -> None:
        """Drop duplicates, so that common names are not the only ones."""
        for kind in ("functions", "classes", "variables", "constants", "docstrings", "comments", "strings"):
            setattr(self, kind, sorted({name for name in getattr(self, kind) if name.strip()}))
        words = {word for name in self.functions + self.variables for word in name.split("_")}
        self.words = sorted(word for word in words if 2 < len(word) < 12 and word.isalpha())

    def code(self, rng: Random, *keys: str, **fields: str) -> str:
        """A piece of code of one of the lists, its gaps filled with `fields` and with names of its own."""
        found = rng.choice([entry for key in keys for entry in WORDS[key]])
        while isinstance(found, list):
            found = rng.choice(found)
        pools = {"variable": self.variables, "verb": self.functions, "string": self.strings}

        def fill(gap: re.Match[str]) -> str:
            if gap[1] == "digit":
                return str(rng.randint(1, 9))
            return fields[gap[1]] if gap[1] in fields else rng.choice(pools[gap[1]])

        return re.sub(r"\{(\w+)\}", fill, found)

    def instead_of(self, old: str, rng: Random, taken: str) -> str:
        """A name of the same style for what is called `old`, and that `taken` (a text) does not hold."""
        for _ in range(50):
            bare = old.strip("_")
            if old.isupper() and len(bare) > 1:
                new = self._vary(bare.lower(), self.constants, rng).upper()
            elif bare[:1].isupper():
                new = self._camel(bare, rng)
            else:
                pool = self.functions if rng.random() < 0.5 else self.variables
                new = self._vary(bare, pool, rng)
            new = old[: len(old) - len(old.lstrip("_"))] + new
            if new.isidentifier() and not keyword.iskeyword(new) and not count(taken, new) and len(new) < 40:
                return new
        return old + "_2"

    def camel_case(self, old: str, rng: Random, taken: str) -> str:
        """The same for languages that write camelCase."""
        new = self.instead_of(old, rng, taken)
        if "_" in old or old[:1].isupper():
            return new
        first, *rest = new.split("_")
        new = first + "".join(word.capitalize() for word in rest)
        return new if not count(taken, new) else old + "2"

    def _vary(self, old: str, pool: list[str], rng: Random) -> str:
        words = [word for word in old.split("_") if word]
        turn = rng.random()
        if turn < 0.45 or not words:
            return rng.choice(pool).lower()
        if turn < 0.75:
            words[rng.randrange(len(words))] = rng.choice(self.words)
        elif turn < 0.9 or len(words) == 1:
            words.insert(rng.randrange(len(words) + 1), rng.choice(self.words))
        else:
            del words[rng.randrange(len(words))]
        return "_".join(words)

    def _camel(self, old: str, rng: Random) -> str:
        words = re.findall(r"[A-Z]+(?![a-z])|[A-Z][a-z0-9]*", old)
        if rng.random() < 0.5 or not words:
            return rng.choice(self.classes)
        if rng.random() < 0.6:
            words[rng.randrange(len(words))] = rng.choice(self.words).capitalize()
        else:
            words.insert(rng.randrange(len(words) + 1), rng.choice(self.words).capitalize())
        return "".join(words)
