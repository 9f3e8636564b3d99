"""What verifying costs here: seconds per forward pass as a function of how many tokens it scores."""

from __future__ import annotations

import json
import os
import time
from collections import deque
from collections.abc import Sequence
from contextlib import suppress
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
import torch

from specedit.targets import Target

_SIZES = (1, 2, 4, 8, 16, 32, 64, 128, 256)
_REPEATS = 5
_LONG = 1.0  # seconds after which a size is not repeated
_PATIENCE = 20.0  # seconds after which no larger size is measured
_CONTEXT = 256  # tokens kept while measuring
_WRONG = 1.5  # times dearer or cheaper than the curve says
_AGREEING = 3  # steps that say so show that the curve is wrong, and not a step
_MARKED = 1.2  # a size this many times dearer or cheaper than on disk is worth writing


class CostCurve:
    """Seconds that the target takes to score n tokens, measured at a few n and corrected by every step.

    Args:
        seconds: measured seconds at the sizes 1, 2, 4, …, 256.
        pads: whether what lies between two sizes costs as much as the larger one.
    """

    def __init__(self, seconds: Sequence[float], pads: bool = False) -> None:
        # More tokens never cost less, and twice as many no more than two passes. Noise only ever adds time,
        # so the lower of two that disagree is right.
        costs = np.minimum.accumulate(np.array(seconds, dtype=float)[::-1])[::-1].copy()
        _cap(costs, 0)
        self._measured = costs
        self._pads = pads
        self._off = deque[float](maxlen=_AGREEING)  # what the latest steps took, of what was expected
        self._kept = np.full(len(_SIZES), np.inf)  # what is on disk
        self._path: Path | None = None
        self._about = ""
        self._everywhere = np.arange(1, _SIZES[-1] + 1)
        self._interpolate()

    def __call__(self, limit: int) -> np.ndarray:
        """float64 [limit]: seconds to score 1, 2, …, limit tokens; limit is at most 256."""
        return self._curve[:limit]

    def learn(self, tokens: int, seconds: float) -> None:
        """Correct the curve by one step that scored `tokens` tokens in `seconds`.

        All sizes take most of it, since a longer context or a busier machine makes them all dearer, and the
        sizes next to it a little more. Where several steps say so, they take all of it.
        """
        if self._pads:
            tokens = _SIZES[_size(tokens)]
        ratio = seconds / self._curve[min(tokens, len(self._curve)) - 1]
        self._off.append(ratio)
        agree = min(self._off) > _WRONG or max(self._off) < 1 / _WRONG
        if len(self._off) == _AGREEING and agree:  # it was measured beside other work, or this is
            self._measured *= sorted(self._off)[_AGREEING // 2]
            self._off.clear()
            self._interpolate()
            return
        nearness = np.clip(1 - np.abs(np.log2(_SIZES) - np.log2(tokens)), 0, 1)
        # A single slow step is more often noise than news.
        costs = self._measured
        costs *= np.clip(ratio, 0.5, 2) ** (0.15 + 0.05 * nearness)
        # What is older and says that fewer tokens cost more, more tokens less, or twice as many more than
        # twice as much, is wrong by now.
        at = int(nearness.argmax())
        costs[at:] = np.maximum.accumulate(costs[at:])
        costs[: at + 1] = np.minimum.accumulate(costs[at::-1])[::-1]
        _cap(costs, at)
        for smaller in range(at)[::-1]:
            costs[smaller] = max(costs[smaller], costs[smaller + 1] / 2)
        self._interpolate()

    def fixed(self) -> FixedCost:
        """A copy that no step corrects."""
        return FixedCost(self._measured.tolist(), self._pads)

    def _interpolate(self) -> None:
        if self._pads:
            self._curve = self._measured[_size(self._everywhere)]
        else:
            self._curve = np.interp(self._everywhere, _SIZES, self._measured)

    @classmethod
    def measure(cls, target: Target) -> CostCurve:
        """Time the target itself; the context it holds is lost. The least of a few repeats counts."""
        context = (
            _CONTEXT if target.max_length is None else min(_CONTEXT, max(target.max_length - _SIZES[-1], 1))
        )
        target.reset()
        target.extend([0] * context, last_only=True)
        seconds: list[float] = []
        spent = 0.0
        for size in _SIZES:
            never_asked = target.max_length is not None and context + size > target.max_length
            if never_asked or spent > _PATIENCE:  # a model this slow is bound by arithmetic by now
                seconds.append(seconds[-1] * 2)
                continue
            if target.pads:  # the first pass of a size is captured
                target.extend([0] * size)
                target.keep([])
            times: list[float] = []
            while len(times) < _REPEATS and sum(times) < _LONG:
                begin = time.perf_counter()
                target.extend([0] * size).argmax(-1).tolist()  # reading the result waits for the device
                times.append(time.perf_counter() - begin)
                target.keep([])
            seconds.append(min(times))
            spent += sum(times)
        target.reset()
        return cls(seconds, target.pads)

    @classmethod
    def cached(cls, target: Target, folder: Path) -> CostCurve:
        """The curve kept in `folder` for this target on this machine, else measured now and kept there."""
        threads = torch.get_num_threads()
        about = f"{target.name} torch {torch.__version__} threads {threads} {target.processor}"
        path = folder / f"{sha256(about.encode()).hexdigest()[:16]}.json"
        try:
            curve = cls(json.loads(path.read_text())["seconds"], target.pads)
            curve._kept = curve._measured.copy()
        except (OSError, ValueError, KeyError, TypeError):
            curve = cls.measure(target)
        curve._path, curve._about = path, about
        curve.save()
        return curve

    def save(self) -> None:
        """Keep what `learn` has corrected for the next run; does nothing unless `cached` made this curve and
        it is by now markedly another than the one on disk.
        """
        ratio = self._measured / self._kept
        if self._path is None or ((ratio > 1 / _MARKED) & (ratio < _MARKED)).all():
            return
        with suppress(OSError):  # without a place to keep it, the next start measures again
            self._path.parent.mkdir(parents=True, exist_ok=True)
            unfinished = self._path.with_suffix(f".{os.getpid()}")  # another process may read meanwhile
            unfinished.write_text(json.dumps({"about": self._about, "seconds": self._measured.tolist()}))
            unfinished.replace(self._path)
            self._kept = self._measured.copy()


def _size(tokens: int | np.ndarray) -> Any:
    """The number of the smallest size that is not smaller."""
    return np.minimum(np.searchsorted(_SIZES, tokens), len(_SIZES) - 1)


def _cap(costs: np.ndarray, start: int) -> None:
    """Twice as many tokens cost no more than two passes, from the size with this number on."""
    for larger in range(start + 1, len(costs)):
        costs[larger] = min(costs[larger], 2 * costs[larger - 1])


class FixedCost(CostCurve):
    """A cost curve that no step corrects: for counting, where nothing takes the time that it would."""

    def learn(self, tokens: int, seconds: float) -> None:
        pass
