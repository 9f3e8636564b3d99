"""Contexts of finished requests, for later ones that begin alike."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from threading import Lock

import numpy as np
import torch

from specedit.targets.packed import Context

_SHORTEST = 16  # tokens in common that are worth the bookkeeping


@dataclass(frozen=True, slots=True, eq=False)
class _Kept:
    client: str
    tokens: np.ndarray
    context: Context


class Prefixes:
    """Keeps key-value caches of whole requests, the least recently used go first.

    Args:
        most: bytes that they may take together.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._kept: list[_Kept] = []  # the latest used last
        self._lock = Lock()

    @property
    def bytes(self) -> int:
        return sum(kept.context.bytes for kept in self._kept)

    def clear(self) -> None:
        with self._lock:
            self._kept = []

    def add(self, client: str, tokens: Sequence[int], context: Context) -> None:
        """Keep a context, which nobody else uses from now on, for requests of the same client."""
        if len(tokens) < _SHORTEST or len(tokens) * context.token_bytes > self._most:
            return
        try:
            context.trim()
        except (torch.OutOfMemoryError, MemoryError):  # to keep it is no duty
            return
        new = _Kept(client, np.array(tokens), context)
        with self._lock:
            held = [kept for kept in self._kept if not self._covers(new, kept)] + [new]
            room = self._most
            for at in range(len(held) - 1, -1, -1):
                room -= held[at].context.bytes
                if room < 0:
                    held = held[at + 1 :]
                    break
            self._kept = held

    def take(self, client: str, prompt: Sequence[int]) -> Context:
        """A context with the longest beginning of the prompt, its last token left out, that this client's
        requests had; an empty one if there is none."""
        wanted = np.array(prompt[:-1])
        with self._lock:
            mine = [kept for kept in self._kept if kept.client == client]
            best = max(mine, key=lambda kept: _common(kept.tokens, wanted), default=None)
            common = _common(best.tokens, wanted) if best else 0
            if best is None or common < _SHORTEST:
                return Context()
            self._kept.remove(best)
            if common == len(best.tokens):  # it only grows: nothing of it is lost
                return best.context
            self._kept.append(best)
        try:
            return best.context.copy(common)  # which takes long: others need not wait for it
        except (torch.OutOfMemoryError, MemoryError):
            self.clear()
            return Context()

    @staticmethod
    def _covers(new: _Kept, old: _Kept) -> bool:
        return new.client == old.client and _common(new.tokens, old.tokens) == len(old.tokens)


def _common(a: np.ndarray, b: np.ndarray) -> int:
    """How many leading tokens are the same."""
    size = min(len(a), len(b))
    differs = a[:size] != b[:size]
    return int(differs.argmax()) if differs.any() else size
