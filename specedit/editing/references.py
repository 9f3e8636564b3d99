"""Texts in a chat that its answer may repeat, for callers who name none."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from io import StringIO
from itertools import accumulate
from typing import Any, NamedTuple

from specedit.editing.languages import language_of

# Each matches in time that grows with the length of the text alone: nobody's text is to stall the others'.
_FENCE = re.compile(r" {0,3}(`{3,}|~{3,})")
_HINT = re.compile(r"[^\s`]*")
_TAG = re.compile(r"<(code|content|document|file|file_contents?|source)\b([^<>]*)>\n?")
_FILE = re.compile(r"[\w/-]+\.\w+")
# As `cat -n` and agents' tools number lines.
_NUMBER = re.compile(r"^ *(\d{1,9})(?:\t|\||→|: ?)", re.MULTILINE)
_SHORTEST = 40  # letters


class File(NamedTuple):
    """A file, or part of one, in a chat.

    Attributes:
        text: without line numbers.
        language: as `language_of` gives it, "" if the chat does not say.
    """

    text: str
    language: str


def found_in(messages: Iterable[Mapping[str, str]]) -> list[File]:
    """Fenced blocks, what stands in tags like `<file>`, and results of tools: the latest first, each once,
    without line numbers.
    """
    found = [file for message in messages for file in _parts(message)]
    latest: dict[str, File] = {}
    for file in reversed(found):
        if len(file.text) >= _SHORTEST:
            latest.setdefault(file.text, file)
    return list(latest.values())


def known(
    given: Iterable[str], language: str, messages: Iterable[Mapping[str, Any]]
) -> tuple[list[str], str]:
    """The texts that an answer may repeat, and the language of the first: those that are given, or else those
    that the messages show."""
    texts = [text for text in given if text]
    if texts:
        return texts, language
    found = found_in(messages)
    return [file.text for file in found], found[0].language if found else ""


def unnumbered(text: str) -> str:
    """The text without the numbers before its lines, if they count up by one."""
    numbers = [int(number) for number in _NUMBER.findall(text)]
    lines = text.removesuffix("\n").count("\n") + 1
    if len(numbers) != lines or numbers != list(range(numbers[0], numbers[0] + lines)):
        return text
    return _NUMBER.sub("", text)


class _Part(NamedTuple):
    """A text in a message, where it begins, and a language or the name of a file."""

    begin: int
    text: str
    hint: str


def _parts(message: Mapping[str, str]) -> Iterator[File]:
    text = message["content"]
    parts = [*_fenced(text), *_tagged(text)]
    for _, inside, hint in sorted(parts):
        yield File(unnumbered(inside), language_of(hint if "." in hint else f"_.{hint}"))
    if message["role"] == "tool" and not parts:
        yield File(unnumbered(text), "")


def _fenced(text: str) -> Iterator[_Part]:
    """What stands in fences. One that is not closed is none."""
    lines = StringIO(text).readlines()  # str.splitlines also ends them where only printers do
    begins = [0, *accumulate(map(len, lines))]
    fences = [(number, found) for number, line in enumerate(lines) if (found := _FENCE.match(line))]
    end = 0
    for place, (number, opening) in enumerate(fences):
        if number < end:
            continue
        later = (fences[other] for other in range(place + 1, len(fences)))
        close = next((other for other, fence in later if fence[1].startswith(opening[1])), None)
        if close is not None:
            hint = _HINT.match(lines[number][opening.end() :].lstrip(" "))
            inside = "".join(lines[number + 1 : close])
            yield _Part(begins[number], inside, hint[0] if hint else "")
            end = close + 1


def _tagged(text: str) -> Iterator[_Part]:
    """What stands between tags like `<file>` and `</file>`."""
    unclosed, end = set[str](), 0
    for opening in _TAG.finditer(text):
        name, attributes = opening.groups()
        if opening.start() < end or name in unclosed:
            continue
        close = text.find(f"</{name}>", opening.end())
        if close < 0:
            unclosed.add(name)
            continue
        hint = _FILE.search(attributes)
        yield _Part(opening.start(), text[opening.end() : close], hint[0] if hint else "")
        end = close
