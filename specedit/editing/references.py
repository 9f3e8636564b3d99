"""Texts in a chat that its answer may repeat, for callers who name none."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from specedit.editing.languages import language_of

_FENCED = re.compile(
    r"^ {0,3}(?P<fence>`{3,}|~{3,}) *(?P<hint>[^\s`]*)[^\n]*\n(?P<text>.*?)^ {0,3}(?P=fence)",
    re.MULTILINE | re.DOTALL,
)
_TAGGED = re.compile(
    r"<(?P<tag>code|content|document|file|file_contents?|source)\b"
    r"(?:[^>]*?(?P<hint>[\w/-]+\.\w+))?[^>]*>\n?(?P<text>.*?)</(?P=tag)>",
    re.DOTALL,
)
# As `cat -n` and agents' tools number lines.
_NUMBER = re.compile(r"^ *(\d+)(?:\t|\||→|: ?)", re.MULTILINE)
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


def _parts(message: Mapping[str, str]) -> Iterator[File]:
    text = message["content"]
    parts = [*_FENCED.finditer(text), *_TAGGED.finditer(text)]
    for part in sorted(parts, key=re.Match.start):
        hint = part["hint"] or ""  # a language or the name of a file
        yield File(unnumbered(part["text"]), language_of(hint if "." in hint else f"_.{hint}"))
    if message["role"] == "tool" and not parts:
        yield File(unnumbered(text), "")
