"""Decode an answer that is known already: what speculation does for an edit that somebody has made."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from specedit.decoding.cost import CostCurve
from specedit.decoding.loop import decode
from specedit.decoding.planner import MAX_DRAFT, Planner
from specedit.decoding.sampling import Sampler
from specedit.decoding.statistics import Statistics
from specedit.proposers import Request
from specedit.targets import Target
from specedit.types import Sampling, Tree


class Forced(Sampler):
    """Draws the tokens of `answer`, whatever the logits say.

    With a real model as the target the forward passes are paid for and only their outcome is given, so the
    speed on any edit can be measured with any model, one with random weights included.
    """

    def __init__(self, answer: Sequence[int]) -> None:
        super().__init__(Sampling(), [])
        self.answer = list(answer)

    def draw(self, logits: Tensor, answer: Sequence[int], tree: Tree) -> tuple[list[int], list[int]]:
        if logits.device.type != "cpu":
            logits.argmax(-1).tolist()  # a pass is over when its tokens are known
        drawn, path = list[int](), list[int]()
        position: int | None = 0
        while position is not None:
            path.append(position)
            drawn += self.answer[len(answer) + len(drawn) :][:1]
            position = tree.child(position, drawn[-1])
        return drawn, path


class CountingTarget:
    """A target without a model: it counts what its passes would cost. Its logits say nothing (see `Forced`).

    Args:
        cost: seconds to score n tokens.

    Attributes:
        seconds: what the passes so far, the prefill left out, would have taken.
    """

    name = processor = "counting"
    max_length: int | None = None
    eos_token_ids: frozenset[int] = frozenset()
    can_rollback = can_branch = True
    pads = False

    def __init__(self, cost: CostCurve) -> None:
        self._cost = cost
        self.reset()

    def reset(self) -> None:
        self.length = 0
        self.seconds = 0.0

    def extend(
        self, tokens: Sequence[int], parents: Sequence[int] | None = None, last_only: bool = False
    ) -> Tensor:
        if self.length:
            self.seconds += float(self._cost(len(tokens))[-1])
        self.length += len(tokens)
        self._latest = len(tokens)
        return torch.empty(1, 1).expand(1 if last_only else len(tokens), 2**31)

    def keep(self, path: Sequence[int]) -> None:
        self.length -= self._latest - len(path)


def replay(target: Target, request: Request, answer: Sequence[int], planner: Planner | None) -> Statistics:
    """Decode `answer` (token ids, at least one) and return what it took.

    As with a limit of just so many tokens: no draft reaches beyond the end, as the last one may of an answer
    that ends by itself.
    """
    stats = Statistics()
    options = {"max_tokens": len(answer), "ends": lambda token: False, "stats": stats}
    for _ in decode(target, request, Forced(answer), planner, **options):  # type: ignore[arg-type]
        pass
    return stats


def count(request: Request, answer: Sequence[int], planner: Planner, cost: CostCurve) -> Statistics:
    """`replay` without a model: verifying takes what `cost` says, proposing what it takes."""
    target = CountingTarget(cost)
    stats = replay(target, request, answer, planner)
    stats.verify = target.seconds
    return stats


def fewest_passes(request: Request, answer: Sequence[int]) -> int:
    """The passes after the prefill that a perfect copier needs. It always drafts the longest run of coming
    tokens that occurs in the prompt, in a reference or in the answer so far, whatever stands before it.

    Taking the longest run each time is best, as in the factorisation of Ziv and Lempel (1977).
    """
    known = [*request.prompt]
    for reference in request.references:
        known += [-1, *request.encode(reference)]
    # Searching strings is what Python does fastest: one character a token.
    text = "".join(chr(token + 1) for token in known)
    coming = "".join(chr(token + 1) for token in answer)
    passes, at = 0, 1  # the prefill gives the first token
    while at < len(coming):
        low, high = 0, min(MAX_DRAFT, len(coming) - at - 1)
        while low < high:
            middle = (low + high + 1) // 2
            # It may begin before the present and reach into the run itself, as repetitions do.
            if coming[at : at + middle] in text + coming[: at + middle - 1]:
                low = middle
            else:
                high = middle - 1
        passes, at = passes + 1, at + low + 1
    return passes
