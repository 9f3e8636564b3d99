"""A target that writes a known answer: what tests and benchmarks decode when the text must be given."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import torch
from torch import Tensor


class ReplayTarget:
    """Draws the tokens of `answer` one after the other, whatever stands before them (see `Target`).

    Args:
        answer: token ids; the prompt is what the first `extend` after a reset brings.
        vocab_size: columns of the logits.
        eos_token_ids: tokens that end the answer.
        max_length: the most tokens the context can hold.
    """

    name = processor = "replay"
    can_rollback = True

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
        self.length = self._prompt = 0

    def extend(self, tokens: Sequence[int], last_only: bool = False) -> Tensor:
        self._prompt = self._prompt or len(tokens)
        first = self.length + (len(tokens) if last_only else 1) - self._prompt
        self.length += len(tokens)
        drawn = self.answer[max(first, 0) : self.length - self._prompt + 1]
        logits = torch.zeros(1 if last_only else len(tokens), self.vocab_size)
        for row, token in enumerate(drawn):
            logits[row, token] = 100.0
        return logits

    def rollback(self, count: int) -> None:
        self.length -= count
