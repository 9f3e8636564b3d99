"""Calls of tools in what the model writes, as Hermes has them: `<tool_call>{"name": …}</tool_call>`."""

from __future__ import annotations

import secrets
from collections.abc import Collection, Iterator
from contextlib import suppress
from dataclasses import dataclass

from pydantic_core import from_json

from specedit.integrations.http.errors import compact

_OPEN, _CLOSE = "<tool_call>", "</tool_call>"


@dataclass(frozen=True, slots=True)
class ToolCall:
    """A call. The arguments are a JSON object, written out."""

    id: str
    name: str
    arguments: str


class ToolCalls:
    """Tells calls from text while both arrive. What looks like a call and is none stays text.

    Args:
        names: of the tools that there are.
    """

    def __init__(self, names: Collection[str]) -> None:
        self._names = names
        self._held = ""
        self._after_call = False

    def push(self, text: str) -> Iterator[str | ToolCall]:
        """What is certain now."""
        self._held += text
        while self._held:
            if self._after_call:  # calls stand on lines of their own
                self._held = self._held.lstrip()
                self._after_call = not self._held
                continue
            before, tag, inside = self._held.partition(_OPEN)
            if not tag:
                safe = len(before) - _overlap(before, _OPEN)
                if safe:
                    yield before[:safe]
                self._held = before[safe:]
                return
            if before:
                yield before
            self._held = tag + inside
            end = inside.find(_CLOSE)
            while end >= 0 and _is_cut(inside[:end]):  # the tag stands in a string
                end = inside.find(_CLOSE, end + 1)
            if end < 0:
                return
            call = self._call(inside[:end])
            yield call or tag + inside[:end] + _CLOSE
            self._held, self._after_call = inside[end + len(_CLOSE) :], call is not None

    def end(self) -> Iterator[str | ToolCall]:
        """The rest. Some models leave out the last closing tag."""
        call = self._call(self._held.removeprefix(_OPEN)) if self._held.startswith(_OPEN) else None
        if call or self._held:
            yield call or self._held
        self._held = ""

    def _call(self, written: str) -> ToolCall | None:
        try:
            call = from_json(written, allow_inf_nan=False)
        except ValueError:
            return None
        name = call.get("name") if isinstance(call, dict) else None
        arguments = call.get("arguments", {}) if isinstance(call, dict) else None
        if not isinstance(name, str) or name not in self._names or not isinstance(arguments, dict):
            return None
        return ToolCall(f"call_{secrets.token_hex(12)}", name, compact(arguments))


def _is_cut(written: str) -> bool:
    """Whether this is the beginning of JSON, and not all of it."""
    try:
        from_json(written)
    except ValueError:
        with suppress(ValueError):
            from_json(written, allow_partial="trailing-strings")
            return True
    return False


def _overlap(text: str, tag: str) -> int:
    """How many letters at the end of the text may be the beginning of the tag."""
    return next((size for size in range(len(tag) - 1, 0, -1) if text.endswith(tag[:size])), 0)
