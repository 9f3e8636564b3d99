"""A reference in the form that the answer is being written in: a JSON string, quoted, indented, a diff."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from typing import NamedTuple
from xml.sax.saxutils import escape, unescape

_SHORTEST = 3  # letters that a line needs to be recognised
LONGEST_PREFIX = 8  # letters of a mark before it


class View(NamedTuple):
    """A way to write a text.

    Attributes:
        name: what it is remembered by.
        write: makes it of the text.
        read: makes the text of a line of it.
    """

    name: str
    write: Callable[[str], str]
    read: Callable[[str], str] = str


def _read_json(line: str) -> str:
    try:
        return str(json.loads(f'"{line}"', strict=False))
    except ValueError:  # it is something else
        return line


RAW = View("raw", str)
JSON = View("JSON", lambda text: json.dumps(text, ensure_ascii=False)[1:-1], _read_json)
# What an answer shows in which texts are written like that.
_SIGNS = (
    (re.compile(r'[{,]\s*"\w+"\s*:\s*"'), JSON),
    (re.compile(r"&(?:lt|gt|amp);"), View("XML", escape, unescape)),
    (re.compile(r"\r\n"), View("CRLF", lambda text: text.replace("\n", "\r\n"))),
)
SIGN_ENDS = ('"', ";", "\n")  # how each of them ends


def signs(answer: str) -> list[tuple[View, int]]:
    """The views that signs in an answer stand for, the latest last, and where the signs end. A JSON string
    begins there with its text."""
    found = [(view, place.end()) for sign, view in _SIGNS for place in sign.finditer(answer)]
    return sorted(found, key=lambda seen: seen[1])


def prefixed(line: str, original: str) -> View | None:
    """The view in which `line` is how `original` is written, if it only begins otherwise: quoted, indented,
    a line of a diff."""
    if line == original:
        return None
    if line.endswith(original):
        prefix = line[: len(line) - len(original)]
        # Nobody indents an empty line, but a diff has its space there, and quotes have their mark.
        blank = prefix if prefix == " " else prefix.rstrip()
        return View(
            f"after {prefix!r}",
            lambda text: "\n".join(prefix + one if one else blank for one in text.split("\n")),
        )
    if original.endswith(line):
        prefix = original[: len(original) - len(line)]
        return View(
            f"without {prefix!r}",
            lambda text: "\n".join(one.removeprefix(prefix) for one in text.split("\n")),
        )
    return None


class Lines:
    """Finds lines of an answer among the lines of texts, however they are indented or quoted.

    Args:
        texts: where to look; of equal lines the first is found.
    """

    def __init__(self, texts: Sequence[str]) -> None:
        self._places: dict[str, tuple[int, int, str]] = {}
        for number, text in enumerate(texts):
            for at, line in enumerate(text.split("\n")):
                if len(line.strip()) >= _SHORTEST:
                    self._places.setdefault(line.strip(), (number, at, line))

    def find(self, line: str) -> tuple[int, int, View] | None:
        """The text and the number in it of the line that this one is, and how it is written."""
        for cut in range(LONGEST_PREFIX + 1):
            if found := self._places.get(line[cut:].strip()):
                number, at, original = found
                view = prefixed(line, original)
                return (number, at, view) if view else None
        return None
