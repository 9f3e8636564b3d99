"""Passes whose inputs, keys and values stay where they are, so that a GPU can replay them as CUDA graphs.

To launch the kernels of a forward pass one by one takes longer than a GPU needs to compute a few tokens. A
graph launches all of them at once, but reads and writes the same addresses every time. So contexts take
seats, which are places for keys and values, and passes come in a few sizes, which rows and tokens are padded
to.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from torch import Tensor
from transformers import PreTrainedModel

from specedit.models import free_memory
from specedit.targets.packed import Context, Part, Places, added, attending

_WIDEST = 256  # tokens of a pass
_SHORTEST = 1024  # tokens of context that a pass looks at, at least
_SHARE = 0.25  # of the free memory, for all seats


class StaticPasses:
    """Scores contexts by graphs that are captured when a size is first needed.

    Args:
        model: of which only the place of the attention changes.

    Attributes:
        places: as a context's, for all seats: [seats, heads, capacity, size].
        idle: the first of those that no context gets: there passes write for seats that they skip.
        logits: [_WIDEST, vocab], what every pass writes; None before the first.
    """

    def __init__(self, model: PreTrainedModel) -> None:
        self.model = model
        self._room: float | None = None
        self._stream: Any = None
        self._proven = False  # whether the model can be captured
        self._seats: list[_Seat] = []
        self.release()

    def release(self) -> None:
        """Give all memory back. The next pass takes what it needs."""
        for seat in self._seats:
            seat.clear()
        self.places: Places = {}
        self.idle = 0
        self.logits: Tensor | None = None
        self._seats = []
        self._passes: dict[tuple[int, int, int], _Pass] = {}
        self._pool: Any = None
        self._captured = 0

    @property
    def bytes(self) -> int:
        """What it takes of the device's memory besides keys and values."""
        buffers = sum(made.bytes for made in self._passes.values())
        return buffers + self._captured + (0 if self.logits is None else self.logits.nbytes)

    @property
    def free(self) -> int:
        """Bytes of the places that no context has."""
        taken = sum(seat.bytes for seat in self._seats)
        return sum(states.nbytes for states in self.places.values()) - taken

    @property
    def room(self) -> float:
        """Bytes that the places may take."""
        if self._room is None:
            self._room = _SHARE * free_memory(self.model.device)
        return self._room

    def shrink(self) -> None:
        """Memory was short: give it back, and take less from now on."""
        self._room = self.room / 2
        self.release()

    def takes(self, parts: Sequence[Part]) -> bool:
        """Whether it can score these: the beginning of a context is scored only once."""
        rows, width = _size(parts)
        needed = _needed(parts, width)
        if rows * width > _WIDEST or not all(part.context.length for part in parts):
            return False
        if needed <= self.idle and rows <= len(self._seats):
            return True
        count, capacity = self._grown(parts[0].context, rows, needed)
        return count * capacity * parts[0].context.token_bytes <= self.room

    @torch.inference_mode()
    def score(self, parts: Sequence[Part]) -> list[Tensor]:
        """Logits [tokens, vocab], or [1, vocab], of each part; valid until the next pass.

        Raises:
            RuntimeError: the model cannot be captured, or memory runs out. The contexts are as they were.
        """
        rows, width = _size(parts)
        needed = _needed(parts, width)
        self._seat([part.context for part in parts], rows, needed)
        seated = {self._number(part.context): part for part in parts}
        size = rows, width, min(max(_power(needed), _SHORTEST), self.idle)
        if size not in self._passes:
            self._passes[size] = self._made(seated, *size)
        self._passes[size](seated)
        assert self.logits is not None
        found = []
        for number, part in seated.items():
            part.context.length += len(part.tokens)
            end = number * width + len(part.tokens)
            found.append(self.logits[end - (1 if part.last_only else len(part.tokens)) : end])
        return found

    def _seat(self, contexts: Sequence[Context], rows: int, needed: int) -> None:
        """Have these contexts in the first so many seats, with room for so many tokens."""
        if needed > self.idle or rows > len(self._seats):
            count, capacity = self._grown(contexts[0], rows, needed)
            self.release()  # passes know the addresses of the old places
            self.idle = capacity - _WIDEST
            self.places = contexts[0].places(count, capacity)
            self._seats = [
                _Seat({at: states[number, :, : self.idle] for at, states in self.places.items()})
                for number in range(count)
            ]
        for context in contexts:
            if self._number(context) >= rows:
                next(seat for seat in self._seats if not any(map(seat.holds, contexts))).give(context)

    def _number(self, context: Context) -> int:
        """The number of its seat; more than there are if it has none."""
        taken = (number for number, seat in enumerate(self._seats) if seat.holds(context))
        return next(taken, len(self._seats))

    def _grown(self, like: Context, rows: int, needed: int) -> tuple[int, int]:
        """How many seats there are to be, and places in each: no less than now, if there is room for that."""
        least = max(_power(needed + _WIDEST), _SHORTEST)
        count, capacity = max(rows, len(self._seats)), max(least, self.idle + _WIDEST)
        fits = count * capacity * like.token_bytes <= self.room
        return (count, capacity) if fits else (rows, least)

    def _made(self, seated: Mapping[int, Part], *size: int) -> _Pass:
        """A pass of this size; on a GPU as a graph."""
        made = _Pass(self, *size)
        device = self.model.device
        if device.type == "cuda":
            with torch.cuda.device(device):
                # The memory of a pool serves all graphs that are captured on the same stream.
                self._stream = self._stream or torch.cuda.Stream()
                self._pool = self._pool or torch.cuda.graph_pool_handle()
                torch.cuda.empty_cache()
                before = torch.cuda.memory_reserved()
                made.capture(seated, self._stream, self._pool, trial=not self._proven)
                self._proven = True
                self._captured += max(torch.cuda.memory_reserved() - before, 0)
        return made


class _Seat:
    """Places for one context."""

    def __init__(self, places: Places) -> None:
        self._places = places
        self._given: weakref.ref[Context] | None = None

    def holds(self, context: Context) -> bool:
        """Whether its keys and values are here."""
        return self._given is not None and self._given() is context and context.is_at(self._places)

    @property
    def bytes(self) -> int:
        """Of the context that is here."""
        context = self._given and self._given()
        return context.bytes if context and self.holds(context) else 0

    def give(self, context: Context) -> None:
        """Have them here, and those that are here elsewhere."""
        self.clear()
        context.move(self._places)
        self._given = weakref.ref(context)

    def clear(self) -> None:
        """Have those that are here elsewhere."""
        context = self._given and self._given()
        if context and self.holds(context):
            context.trim()


class _Pass:
    """A forward pass of `width` tokens for each of the first `rows` seats, over their first `extent` places.
    What `Part` computes for attention, it reads from the device, where it was put before.

    Args:
        static: whose places and logits it uses.
    """

    def __init__(self, static: StaticPasses, rows: int, width: int, extent: int) -> None:
        device = static.model.device
        total = rows * width
        self.tokens: Sequence[int] = range(total)
        self._static, self._rows, self._width, self._extent = static, rows, width, extent
        self._numbers = torch.zeros(2 * total + rows, dtype=torch.long, device=device)
        self._ids, self._positions, lengths = self._numbers.split([total, total, rows])
        self._lengths = lengths[:, None]
        self._chains = np.tril(np.ones((rows, width, width), dtype=bool))
        self._own = torch.from_numpy(self._chains).to(device)
        self._are_chains = True
        self._seats = torch.arange(rows, device=device)[:, None]
        self._steps = torch.arange(width, device=device)
        self._everywhere = torch.arange(extent, device=device)
        self._masks: dict[tuple[int | None, int], Tensor] = {}
        self._graph: Any = None

    @property
    def bytes(self) -> int:
        return sum(held.nbytes for held in (self._numbers, self._own, self._steps, self._everywhere))

    def __call__(self, seated: Mapping[int, Part]) -> None:
        """Score these parts, by the numbers of their seats."""
        self._put(seated)
        if self._graph is None:
            self._run()
        else:
            self._graph.replay()

    def capture(self, seated: Mapping[int, Part], stream: Any, pool: Any, trial: bool) -> None:
        """Make a CUDA graph of it on this stream, which works in the memory of this pool.

        Args:
            trial: whether to find out before whether that is possible: torch does not recover from a capture
                that fails. No other thread uses the device meanwhile.

        Raises:
            RuntimeError: the model waits for the device or needs more memory than there is.
        """
        self._put(seated)
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):  # a capture that fails does not leave it
            self._run()  # what libraries do only the first time does not belong into the graph
            if trial:
                with _no_waiting():
                    self._run()
            graph = torch.cuda.CUDAGraph()
            # Other threads may read logits meanwhile.
            with torch.cuda.graph(graph, pool=pool, stream=stream, capture_error_mode="thread_local"):
                self._run()
        torch.cuda.current_stream().wait_stream(stream)
        self._graph = graph
        self._masks = {}  # their memory is the graph's

    def _put(self, seated: Mapping[int, Part]) -> None:
        ids, positions = np.zeros((2, self._rows, self._width), dtype=np.int64)
        lengths = np.full(self._rows, self._static.idle)
        for number, part in seated.items():
            ids[number, : len(part.tokens)] = part.tokens
            positions[number, : len(part.tokens)] = part.positions
            lengths[number] = part.context.length
        _send(np.concatenate([ids.ravel(), positions.ravel(), lengths]), self._numbers)
        are_chains = all(part.is_chain for part in seated.values())
        if are_chains and self._are_chains:
            return
        own = self._chains.copy()
        for number, part in seated.items():
            own[number, : len(part.tokens), : len(part.tokens)] = part.own()
        _send(own, self._own)
        self._are_chains = are_chains

    def _run(self) -> None:
        static = self._static
        self._masks = {}
        self._written = self._lengths + self._steps  # [rows, width]
        with attending(static.model, [self]):
            logits = static.model(
                input_ids=self._ids[None], position_ids=self._positions[None], use_cache=False
            ).logits[0]
        if static.logits is None:
            static.logits = logits.new_empty(_WIDEST, logits.shape[1])
        static.logits[: len(logits)] = logits

    def written(self, layer: int, new: tuple[Tensor, Tensor]) -> list[Tensor]:
        found = []
        for kind, states in enumerate(new):
            place = self._static.places[layer, kind]
            place[self._seats, :, self._written] = states.unflatten(1, (self._rows, -1)).permute(1, 2, 0, 3)
            found.append(place[: self._rows, :, : self._extent])
        return found

    def is_causal(self, window: int | None) -> bool:
        return False

    def mask(self, window: int | None, query: Tensor, times: int) -> Tensor:
        """[rows, 1, times · width, extent]."""
        if (window, times) not in self._masks:
            index = self._everywhere - self._lengths  # [rows, extent]: which of the pass's tokens is there
            is_own = (index >= 0) & (index < self._width)
            index = index.clamp(0, self._width - 1)
            own = self._own.gather(2, index[:, None].expand(-1, self._width, -1))
            sees = torch.where(is_own[:, None], own, (self._everywhere < self._lengths)[:, None])
            if window is not None:
                mine = self._positions.unflatten(0, (self._rows, -1))
                theirs = torch.where(is_own, mine.gather(1, index), self._everywhere)
                sees &= mine[:, :, None] - theirs[:, None] < window
            self._masks[window, times] = added(sees[:, None], query, times)
        return self._masks[window, times]


@contextmanager
def _no_waiting() -> Iterator[None]:
    """Whoever waits for the device meanwhile gets a RuntimeError."""
    usual = torch.cuda.get_sync_debug_mode()
    torch.cuda.set_sync_debug_mode("error")
    try:
        yield
    finally:
        torch.cuda.set_sync_debug_mode(usual)


def _size(parts: Sequence[Part]) -> tuple[int, int]:
    """Rows, and tokens of each, of the pass that scores these."""
    return _power(len(parts)), _power(max(len(part.tokens) for part in parts))


def _needed(parts: Sequence[Part], width: int) -> int:
    """Places that a pass of this width fills in some seat."""
    return width + max(part.context.length for part in parts)


def _send(values: np.ndarray, to: Tensor) -> None:
    """Copy to the device without waiting for it."""
    sent = torch.from_numpy(values)
    to.copy_(sent.pin_memory() if to.is_cuda else sent, non_blocking=True)


def _power(number: int) -> int:
    """The smallest power of two that is not smaller."""
    return 1 << (number - 1).bit_length()
