"""Texts in a chat that its answer may repeat, for callers who name none."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping

_FENCED = re.compile(r"^ {0,3}(`{3,}|~{3,})[^\n]*\n(.*?)^ {0,3}\1", re.MULTILINE | re.DOTALL)
_TAGGED = re.compile(r"<(code|content|document|file|file_contents?|source)\b[^>]*>\n?(.*?)</\1>", re.DOTALL)
# As `cat -n` and agents' tools number lines.
_NUMBER = re.compile(r"^ *(\d+)(?:\t|\||→|: ?)", re.MULTILINE)
_SHORTEST = 40  # letters


def found_in(messages: Iterable[Mapping[str, str]]) -> list[str]:
    """Fenced blocks, what stands in tags like `<file>`, and results of tools: the latest first, each once,
    without line numbers.
    """
    found = [text for message in messages for text in _parts(message)]
    return [text for text in dict.fromkeys(map(unnumbered, reversed(found))) if len(text) >= _SHORTEST]


def unnumbered(text: str) -> str:
    """The text without the numbers before its lines, if they count up by one."""
    numbers = [int(number) for number in _NUMBER.findall(text)]
    lines = text.removesuffix("\n").count("\n") + 1
    if len(numbers) != lines or numbers != list(range(numbers[0], numbers[0] + lines)):
        return text
    return _NUMBER.sub("", text)


def _parts(message: Mapping[str, str]) -> Iterator[str]:
    text = message["content"]
    parts = [*_FENCED.finditer(text), *_TAGGED.finditer(text)]
    for part in sorted(parts, key=re.Match.start):
        yield part[2]
    if message["role"] == "tool" and not parts:
        yield text
