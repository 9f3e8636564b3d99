"""Targets: the model that decides every token."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from torch import Tensor


class Target(Protocol):
    """Scores runs of tokens after a kept context, and forgets the last of them again.

    Attributes:
        name: says which model, device and number format this is, in this order.
        processor: the chip that computes. Measured costs are kept under both.
        length: tokens in the kept context.
        max_length: the most tokens the context can hold; None when there is no limit.
        eos_token_ids: tokens that end an answer.
        can_rollback: False for models whose state cannot forget tokens; they are decoded plainly.
        can_branch: whether `extend` takes trees.
        pads: whether a pass takes as long as one of the next power of two of tokens.
    """

    name: str
    length: int
    max_length: int | None
    eos_token_ids: frozenset[int]

    @property
    def processor(self) -> str: ...

    @property
    def can_rollback(self) -> bool: ...

    @property
    def can_branch(self) -> bool: ...

    @property
    def pads(self) -> bool: ...

    def extend(
        self, tokens: Sequence[int], parents: Sequence[int] | None = None, last_only: bool = False
    ) -> Tensor:
        """Append tokens to the context and return the logits that follow each: float [len(tokens), vocab],
        or [1, vocab] when only the last is wanted.

        Args:
            parents: for each token but the first, the index of the one that it follows (see `Tree`); None
                when each follows the one before it.
        """
        ...

    def keep(self, path: Sequence[int]) -> None:
        """Of the tokens that the latest `extend` appended, keep those at these rising indices, each of which
        follows the one before it, and forget the others."""
        ...

    def reset(self) -> None:
        """Forget the whole context."""
        ...
