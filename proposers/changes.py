"""Replacements that an answer has made, expected again wherever the same tokens come up."""

from __future__ import annotations

from collections.abc import Sequence

_LONGEST = 24  # tokens of what is replaced, and of what replaces it


class Changes:
    """What the answer has put in place of what; of the same tokens the latest counts."""

    def __init__(self) -> None:
        self._made: dict[int, dict[tuple[int, ...], list[int]]] = {}  # by the first token that is replaced

    def learn(self, old: Sequence[int], new: Sequence[int]) -> None:
        """The tokens `old` became `new`. Both begin with what stands before the change, so that an insertion
        has a place."""
        if old and old != new and max(len(old), len(new)) <= _LONGEST:
            self._made.setdefault(old[0], {})[tuple(old)] = list(new)

    def applied(self, tokens: Sequence[int]) -> list[int]:
        """The tokens with all changes made."""
        if self._made.keys().isdisjoint(tokens):
            return list(tokens)
        changed: list[int] = []
        done = 0
        for place in [place for place, token in enumerate(tokens) if token in self._made]:
            known = self._made[tokens[place]]
            fitting = [old for old in known if tuple(tokens[place : place + len(old)]) == old]
            if fitting and place >= done:
                old = max(fitting, key=len)
                changed += [*tokens[done:place], *known[old]]
                done = place + len(old)
        return [*changed, *tokens[done:]]
