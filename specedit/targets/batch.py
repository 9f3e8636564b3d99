"""Requests that run at the same time share the passes of one model."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import cached_property
from threading import Condition
from typing import Protocol

import numpy as np
import torch
from torch import Tensor

from specedit.decoding.cost import CostCurve
from specedit.models import free_memory
from specedit.targets.hf import HFTarget
from specedit.targets.packed import SLACK, Context, Part
from specedit.targets.prefixes import Prefixes
from specedit.types import Cancelled

_MOST = 512  # tokens of a pass; longer prompts take several, so that no other request waits for them
_PATIENCE = 0.02  # seconds that a pass waits for requests that are drafting
_LARGEST = 256  # tokens of a pass whose cost is known
_USED = 0.8  # of the free memory, by all requests together


class Batch:
    """Joins the passes of requests that run at once (continuous batching: Yu et al. 2022, Orca).

    Each request decodes in a thread of its own, with a row as its target. When all rows that are at work wait
    for a pass, the last of them has it made for all. Rows come and go between passes.

    Args:
        target: the model; one that can roll back.
        kept: bytes of finished requests' contexts that are kept for later requests that begin alike.
        memory: bytes that the contexts of running requests may take; most of what is free by default. A
            request that would take more waits, unless it is alone.

    Attributes:
        rows: how many there are.
    """

    def __init__(self, target: HFTarget, kept: int = 1 << 30, memory: int | None = None) -> None:
        if not target.can_rollback:
            raise ValueError(f"{target.name} cannot roll back: use it for one request at a time")
        self.target = target
        self.prefixes = Prefixes(kept)
        self._memory = memory
        self._reserved = 0.0
        self._queue = deque[object]()  # who waits for memory, the first come first
        self._rows = list[Row]()
        self._expected = list[Row]()  # those that a pass waits for
        self._waiting: list[_Wanted] = []
        self._passing = list[_Wanted]()
        # All passes are made in one thread: the libraries below keep memory and threads for each they meet.
        self._thread = ThreadPoolExecutor(1, "passes")
        self._changed = Condition()

    @property
    def rows(self) -> int:
        return len(self._rows)

    @property
    def sharing(self) -> int:
        """How many rows share a pass now, at least one."""
        return max(len(self._expected), 1)

    @property
    def bytes(self) -> int:
        """What all contexts take of the device's memory."""
        return self.prefixes.bytes + sum(row.bytes for row in list(self._rows)) + self.target.free_seats

    @contextmanager
    def row(
        self, tokens: int = 0, client: str = "", cancelled: Callable[[], bool] = lambda: False
    ) -> Iterator[Row]:
        """A target for one request, when there is room for its context.

        Args:
            tokens: how long it may grow.
            client: whose it is. Contexts are not shared between clients.
            cancelled: asked before every pass; True ends the request.

        Raises:
            Cancelled: here or in `extend`.
        """
        needed = SLACK * tokens * self._token_bytes
        with self._changed:
            self._queue.append(ticket := object())
            try:
                while self._queue[0] is not ticket or (self._rows and self._reserved + needed > self._room):
                    self._changed.wait(_PATIENCE)
                    check_wanted(cancelled)
            finally:
                self._queue.remove(ticket)
            self._rows.append(row := Row(self, client, cancelled))
            self._reserved += needed
        try:
            yield row
        finally:
            try:
                row.give_back()
            finally:
                with self._changed:
                    self._rows.remove(row)
                    if row in self._expected:
                        self._expected.remove(row)
                    self._reserved -= needed
                    self._changed.notify_all()

    def scored(self, row: Row, part: Part) -> Tensor:
        """The logits of a row's part, after a pass with those of others."""
        wanted = _Wanted(row, part)
        with self._changed:
            if row not in self._expected:
                self._expected.append(row)
            self._waiting.append(wanted)
            try:
                while not wanted.done:
                    if self._passing:
                        self._changed.wait()
                    elif len(self._waiting) >= len(self._expected):
                        self._begin()
                    elif not self._changed.wait(_PATIENCE):
                        # Who drafts for so long, or is not read by its caller, is expected when it is back.
                        self._expected = [waiting.row for waiting in self._waiting]
            finally:  # Ctrl-C: nobody is there to take it
                if wanted in self._waiting:
                    self._waiting.remove(wanted)
                self._changed.wait_for(lambda: wanted not in self._passing)
        if wanted.error:
            raise wanted.error
        assert wanted.logits is not None
        return wanted.logits

    def _begin(self) -> None:
        """Have a pass made for those that wait, the first come first. Others may come to wait meanwhile."""
        tokens = 0
        while self._waiting and (not tokens or tokens + len(self._waiting[0].part.tokens) <= _MOST):
            self._passing.append(self._waiting.pop(0))
            tokens += len(self._passing[-1].part.tokens)
        self._thread.submit(self._pass)

    def _pass(self) -> None:
        self._score_or_fail(self._passing)
        with self._changed:
            self._passing = []
            self._changed.notify_all()

    def _score_or_fail(self, wanted: Sequence[_Wanted]) -> None:
        try:
            scored = self._score([one.part for one in wanted])
            for one, logits in zip(wanted, scored, strict=True):
                one.logits = logits
        except Exception as error:
            if len(wanted) == 1:
                wanted[0].error = error
            else:  # one of them is at fault, and not all are to fail
                for one in wanted:
                    self._score_or_fail([one])

    def _score(self, parts: Sequence[Part]) -> list[Tensor]:
        try:
            scored = self.target.scored(parts)
        except (torch.OutOfMemoryError, MemoryError):
            if not self.prefixes.bytes:
                raise
            self.prefixes.clear()
            scored = self.target.scored(parts)
        # Where passes are static, the next one may come before this one's logits are read.
        return [logits.clone() for logits in scored] if self.target.pads else scored

    @cached_property
    def _room(self) -> int:
        """Bytes that the contexts of running requests may take."""
        if self._memory is not None:
            return self._memory
        return int(_USED * free_memory(self.target.model.device) - self.target.seat_room)

    @cached_property
    def _token_bytes(self) -> float:
        """What a token takes in a context: no configuration says so for all models, so one is scored."""
        context = Context()
        self.target.scored([Part(context, [0])])
        return context.copy(1).bytes


class _Wanted:
    """A part that waits for its pass, and what came of it."""

    def __init__(self, row: Row, part: Part) -> None:
        self.row, self.part = row, part
        self.logits: Tensor | None = None
        self.error: Exception | None = None

    @property
    def done(self) -> bool:
        return self.logits is not None or self.error is not None


class Row(HFTarget):
    """The target of one request of a batch.

    Attributes:
        reused: how many tokens of the prompt an earlier request had scored.
    """

    def __init__(self, batch: Batch, client: str, cancelled: Callable[[], bool]) -> None:
        self.__dict__ |= vars(batch.target)
        self._batch, self._client, self._cancelled = batch, client, cancelled
        self._static = None  # the batch's passes may be, but nothing here is to hold their memory
        self.reset()

    def reset(self) -> None:
        super().reset()
        self.reused = 0
        self._tokens: list[int] = []
        self._drafted = 0  # tokens of the latest pass, if nobody has said which of them to keep

    @property
    def bytes(self) -> int:
        return self._context.bytes

    def extend(
        self, tokens: Sequence[int], parents: Sequence[int] | None = None, last_only: bool = False
    ) -> Tensor:
        if last_only and not self.length:
            self._context = self._batch.prefixes.take(self._client, tokens)
            self.length = self.reused = self._context.length
            self._tokens += tokens[: self.length]
            tokens = tokens[self.length :]
        while last_only and parents is None and len(tokens) > _MOST:
            self._extended(tokens[:_MOST], None, True)
            tokens = tokens[_MOST:]
        return self._extended(tokens, parents, last_only)

    def _extended(self, tokens: Sequence[int], parents: Sequence[int] | None, last_only: bool) -> Tensor:
        check_wanted(self._cancelled)
        logits = super().extend(tokens, parents, last_only)
        self._tokens += tokens
        self._drafted = 0 if parents is None else len(tokens)
        return logits

    def keep(self, path: Sequence[int]) -> None:
        begin = self.length - self._latest
        super().keep(path)
        self._drafted = 0
        self._tokens[begin:] = [self._tokens[begin + position] for position in path]

    def give_back(self) -> None:
        """The request is done: what it had scored may serve the next, but what it had not decided about."""
        if self._drafted:
            self.rewind(self._drafted)
        self._context.length = len(self._tokens)  # a pass that nobody waited for may have scored more
        context, self._context = self._context, Context()
        self._batch.prefixes.add(self._client, self._tokens, context)

    def _scored(self, part: Part) -> Tensor:
        return self._batch.scored(self, part)


class Sharing(Protocol):
    """Whose passes several requests share."""

    @property
    def sharing(self) -> int:
        """How many do now, at least one."""


class SharedCost(CostCurve):
    """What a token costs a request while it shares the passes with others that draft as much as it does.

    Args:
        batch: its passes are shared.
        cost: of these passes.
    """

    def __init__(self, batch: Sharing, cost: CostCurve) -> None:
        self._batch, self._cost = batch, cost

    def __call__(self, limit: int) -> np.ndarray:
        everywhere = self._cost(_LARGEST)
        sizes = self._batch.sharing * np.arange(1, limit + 1)
        slope = (everywhere[-1] - everywhere[_LARGEST // 2 - 1]) / (_LARGEST // 2)
        beyond = everywhere[-1] + (sizes - _LARGEST) * slope
        return np.where(sizes <= _LARGEST, everywhere[np.minimum(sizes, _LARGEST) - 1], beyond)

    def learn(self, tokens: int, seconds: float) -> None:
        """Of a pass for one request alone: one for several takes longer for as many tokens, by a factor that
        changes nothing about what pays."""
        if self._batch.sharing == 1:
            self._cost.learn(tokens, seconds)

    def save(self) -> None:
        self._cost.save()


def check_wanted(cancelled: Callable[[], bool]) -> None:
    """Raises Cancelled if the request is no longer wanted."""
    if cancelled():
        raise Cancelled
