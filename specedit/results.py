"""What a request gives back: an answer, a rewritten file, and the stream of either."""

from __future__ import annotations

import os
from collections.abc import Generator, Iterator
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from specedit.decoding.statistics import Statistics
from specedit.editing.checks import Problem
from specedit.editing.source import SourceFile
from specedit.types import Refused

R = TypeVar("R")


@dataclass(frozen=True)
class Generation:
    """What the target wrote.

    Attributes:
        text: the answer, without the token or stop string that ended it.
        tokens: its token ids, the ending ones included.
        finish_reason: "stop", or "length" when a limit cut it.
        matched_stop: the stop string that ended it, if one did.
        logprobs: natural logarithm of the probability that the model itself, before temperature and
            penalties, gave each token; empty unless asked for.
        prompt: token ids of the prompt.
        stats: counts and times.
    """

    text: str
    tokens: list[int]
    finish_reason: str
    matched_stop: str | None
    logprobs: list[float]
    prompt: list[int]
    stats: Statistics


@dataclass(frozen=True)
class EditResult:
    """A rewritten file that nobody has written yet.

    Attributes:
        text: the new text, with the file's own line endings.
        diff: from the old text to the new, in git's form; "" when nothing changes.
        problems: why the answer should not be taken; empty when it can be.
        generation: what the target wrote.
        data: the bytes that `write` puts into the file.
    """

    text: str
    diff: str
    problems: list[Problem]
    generation: Generation
    data: bytes = field(repr=False)
    _source: SourceFile = field(repr=False)
    _usable: bool = field(repr=False)

    @property
    def finish_reason(self) -> str:
        return self.generation.finish_reason

    @property
    def stats(self) -> Statistics:
        return self.generation.stats

    def require(self, force: bool = False) -> None:
        """Raise what stands against taking this answer.

        Args:
            force: take it in spite of its problems. An answer that was cut short, or that the file's encoding
                cannot express, is never taken.

        Raises:
            Refused: there is a problem.
        """
        if self.problems and not (force and self._usable):
            raise Refused(self.problems[0].message)

    def write(self, path: str | os.PathLike[str] | None = None, force: bool = False) -> None:
        """Put the new text in the file's place, or in `path`, at once or not at all.

        Raises:
            Refused: the answer has problems, or the file is no longer what was read.
            SpecEditError: the file cannot be written. What was there is untouched.
        """
        self.require(force)
        self._source.write(self.data, path)


class Stream(Generic[R]):
    """Pieces of an answer while it is decoded: complete characters only. Iterate it, then take `result`.

    Attributes:
        stats: counts and times so far.
    """

    def __init__(self, stats: Statistics, pieces: Generator[str, None, R]) -> None:
        self.stats = stats
        self._pieces = pieces
        self._result: R | None = None
        self._failure: Exception | None = None

    def __iter__(self) -> Iterator[str]:
        return self

    def __next__(self) -> str:
        try:
            return next(self._pieces)
        except StopIteration as end:
            if end.value is not None:  # asked again after the end, a generator has no value
                self._result = end.value
            raise StopIteration from None
        except Exception as error:
            self._failure = error
            raise

    @property
    def result(self) -> R:
        """The whole answer; decodes what has not been iterated yet, and raises what stopped it."""
        for _ in self if self._result is None else ():
            pass
        if self._failure:
            raise self._failure
        assert self._result is not None
        return self._result
