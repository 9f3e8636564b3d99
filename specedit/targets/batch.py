"""Requests that run at the same time share the passes of one model."""

from __future__ import annotations

from collections.abc import Sequence
from threading import Condition
from time import perf_counter

import numpy as np
from torch import Tensor

from specedit.decoding.cost import CostCurve
from specedit.targets.hf import HFTarget
from specedit.targets.packed import Part, score

_MOST = 512  # tokens of a pass; longer prompts take several, so that no other request waits for them
_PATIENCE = 0.02  # seconds that a pass waits for requests that are drafting


class Batch:
    """Joins the passes of requests that run at once (continuous batching: Yu et al. 2022, Orca).

    Each request decodes in a thread of its own, with a row as its target. When all rows that are at work wait
    for a pass, the last of them makes it for all. Rows come and go between passes.

    Args:
        target: the model; one that can roll back.
        cost: what scoring so many tokens takes, of all rows together; corrected by every pass.

    Attributes:
        rows: how many there are.
    """

    def __init__(self, target: HFTarget, cost: CostCurve) -> None:
        if not target.can_rollback:
            raise ValueError(f"{target.name} cannot roll back: use it for one request at a time")
        self.target = target
        self.cost = cost
        self.rows = 0
        self._waiting: list[_Wanted] = []
        self._busy = False
        self._changed = Condition()

    def row(self) -> Row:
        """A target for one request. Close it, or leave its `with` block, when the answer is done."""
        with self._changed:
            self.rows += 1
        return Row(self)

    def leave(self) -> None:
        """A row is gone."""
        with self._changed:
            self.rows -= 1
            self._changed.notify_all()

    def scored(self, part: Part) -> Tensor:
        """The logits of a row's part, after a pass with those of others."""
        wanted = _Wanted(part)
        with self._changed:
            self._waiting.append(wanted)
            while not wanted.done:
                waited = len(self._waiting) < self.rows and not self._changed.wait(_PATIENCE)
                if not self._busy and (waited or len(self._waiting) >= self.rows):
                    self._lead()
                elif self._busy:
                    self._changed.wait()
        if wanted.error:
            raise wanted.error
        assert wanted.logits is not None
        return wanted.logits

    def _lead(self) -> None:
        """Make a pass for those that wait, the first come first. Others may come to wait meanwhile."""
        taken, tokens = list[_Wanted](), 0
        while self._waiting and (not taken or tokens + len(self._waiting[0].part.tokens) <= _MOST):
            taken.append(self._waiting.pop(0))
            tokens += len(taken[-1].part.tokens)
        self._busy = True
        self._changed.release()
        try:
            self._pass(taken)
        finally:
            self._changed.acquire()
            self._busy = False
            self._changed.notify_all()

    def _pass(self, taken: list[_Wanted]) -> None:
        model, limits = self.target.model, self.target.limits_logits
        parts = [wanted.part for wanted in taken]
        begun = perf_counter()
        try:
            for wanted, logits in zip(taken, score(model, parts, limits), strict=True):
                wanted.logits = logits
            self.cost.learn(sum(len(part.tokens) for part in parts), perf_counter() - begun)
        except Exception as error:
            if len(taken) == 1:
                taken[0].error = error
            else:  # one of them is at fault, and not all are to fail
                for wanted in taken:
                    self._pass([wanted])


class _Wanted:
    """A part that waits for its pass, and what came of it."""

    def __init__(self, part: Part) -> None:
        self.part = part
        self.logits: Tensor | None = None
        self.error: Exception | None = None

    @property
    def done(self) -> bool:
        return self.logits is not None or self.error is not None


class Row(HFTarget):
    """The target of one request of a batch."""

    def __init__(self, batch: Batch) -> None:
        self.__dict__ |= vars(batch.target)
        self._batch = batch
        self.reset()

    def extend(
        self, tokens: Sequence[int], parents: Sequence[int] | None = None, last_only: bool = False
    ) -> Tensor:
        while parents is None and last_only and len(tokens) > _MOST:
            super().extend(tokens[:_MOST], last_only=True)
            tokens = tokens[_MOST:]
        return super().extend(tokens, parents, last_only)

    def _scored(self, part: Part) -> Tensor:
        return self._batch.scored(part)

    def close(self) -> None:
        self.reset()
        self._batch.leave()

    def __enter__(self) -> Row:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class SharedCost(CostCurve):
    """What a token costs a request while it shares the passes with others that draft as much as it does."""

    def __init__(self, batch: Batch) -> None:
        self._batch = batch

    def __call__(self, limit: int) -> np.ndarray:
        everywhere = self._batch.cost(256)
        sizes = max(self._batch.rows, 1) * np.arange(1, limit + 1)
        beyond = everywhere[-1] + (sizes - 256) * (everywhere[-1] - everywhere[-2])
        return np.where(sizes <= 256, everywhere[np.minimum(sizes, 256) - 1], beyond)

    def learn(self, tokens: int, seconds: float) -> None:
        """The batch itself learns what its passes cost."""

    def save(self) -> None:
        self._batch.cost.save()
