"""A target that writes a known answer: what tests and benchmarks decode when the text must be given."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import torch
from torch import Tensor

from specedit.types import depths


class ReplayTarget:
    """Draws the tokens of `answer` one after the other, whatever stands before them (see `Target`).

    Args:
        answer: token ids; the prompt is what the first `extend` after a reset brings.
        vocab_size: columns of the logits.
        eos_token_ids: tokens that end the answer.
        max_length: the most tokens the context can hold.
    """

    name = processor = "replay"
    can_rollback = can_branch = True
    pads = False

    def __init__(
        self,
        answer: Sequence[int],
        vocab_size: int,
        eos_token_ids: Iterable[int] = (),
        max_length: int | None = None,
    ) -> None:
        self.answer = list(answer)
        self.vocab_size = vocab_size
        self.eos_token_ids = frozenset(eos_token_ids)
        self.max_length = max_length
        self.reset()

    def reset(self) -> None:
        self.length = self._prompt = self._latest = 0

    def extend(
        self, tokens: Sequence[int], parents: Sequence[int] | None = None, last_only: bool = False
    ) -> Tensor:
        self._prompt = self._prompt or len(tokens)
        logits = torch.zeros(len(tokens), self.vocab_size)
        for row, depth in enumerate(range(len(tokens)) if parents is None else depths(parents)):
            at = self.length + depth + 1 - self._prompt
            if 0 <= at < len(self.answer):
                logits[row, self.answer[at]] = 100.0
        self.length += len(tokens)
        self._latest = len(tokens)
        return logits[-1:] if last_only else logits

    def keep(self, path: Sequence[int]) -> None:
        self.length -= self._latest - len(path)
        self._latest = 0
