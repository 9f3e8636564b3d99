"""What a request gives back: an answer, a rewritten file, and the stream of either."""

from __future__ import annotations

import os
from collections.abc import Generator, Iterator
from dataclasses import dataclass, field
from queue import Empty, SimpleQueue
from threading import Event, Thread
from traceback import clear_frames
from typing import Generic, TypeVar

from specedit.decoding.statistics import Rejected, Statistics
from specedit.editing.checks import Problem, check
from specedit.editing.diff import unified
from specedit.editing.source import SourceFile
from specedit.types import Cancelled, Refused

R = TypeVar("R")
T = TypeVar("T")
_PATIENCE = 0.1  # seconds between looks whether an answer is still wanted


@dataclass(frozen=True)
class Trace:
    """An answer token by token.

    Attributes:
        tokens: its token ids.
        sources: who drafted each, or "target".
        rejected: what was drafted and is not in the answer.
        logprobs: natural logarithm of the probability that the model itself, before temperature and
            penalties, gave each token; empty unless asked for.
        top_logprobs: at each place the likeliest tokens and the logarithms of theirs; empty unless asked for.
    """

    tokens: list[int]
    sources: list[str]
    rejected: list[Rejected]
    logprobs: list[float]
    top_logprobs: list[list[tuple[int, float]]]


@dataclass(frozen=True)
class Generation:
    """What the target wrote.

    Attributes:
        text: the answer, without the token or stop string that ended it.
        finish_reason: "stop", or "length" when a limit cut it.
        matched_stop: the stop string that ended it, if one did.
        prompt: token ids of the prompt.
        trace: the answer token by token, the ending ones included.
        stats: counts and times.
    """

    text: str
    finish_reason: str
    matched_stop: str | None
    prompt: list[int]
    trace: Trace
    stats: Statistics

    @property
    def tokens(self) -> list[int]:
        return self.trace.tokens

    @property
    def logprobs(self) -> list[float]:
        return self.trace.logprobs


@dataclass(frozen=True)
class EditResult:
    """A rewritten file that nobody has written yet.

    Attributes:
        text: the new text, with the file's own line endings.
        diff: from the old text to the new, in git's form; "" when nothing changes.
        problems: why the answer should not be taken; empty when it can be.
        usable: whether it can be taken in spite of them: it is whole, and the file's encoding has all of it.
        generation: what the target wrote.
        data: the bytes that `write` puts into the file.
    """

    text: str
    diff: str
    problems: list[Problem]
    usable: bool
    generation: Generation
    data: bytes = field(repr=False)
    _source: SourceFile = field(repr=False)

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
        if self.problems and not (force and self.usable):
            raise Refused(self.problems[0].message)

    def write(self, path: str | os.PathLike[str] | None = None, force: bool = False) -> None:
        """Put the new text in the file's place, or in `path`, at once or not at all.

        Raises:
            Refused: the answer has problems, or the file is no longer what was read.
            SpecEditError: the file cannot be written. What was there is untouched.
        """
        self.require(force)
        self._source.write(self.data, path)


def judged(
    source: SourceFile, instruction: str, answer: str, incomplete: str | None, generation: Generation
) -> EditResult:
    """The file with the code of an answer, and what stands against taking it.

    Args:
        answer: the code, with "\\n" newlines.
        incomplete: why it is not the whole file; None if it is.
    """
    problems, data, usable = list[Problem](), source.data, incomplete is None
    try:
        data = source.restore(answer, instruction)
    except Refused as error:
        problems.append(Problem(0, str(error)))
        usable = False
    if incomplete is None:
        problems += check(source.text, answer, source.name)
    else:
        problems = [Problem(0, incomplete)]
    text = data.decode(source.encoding)
    diff = unified(source.original, text, source.name)
    return EditResult(text, diff, problems, usable, generation, data, source)


def awaited(items: Iterator[T], cancelled: Event) -> Iterator[T]:
    """The items, got by a thread of their own, so that nobody goes on waiting for one that is not wanted.

    Raises:
        Cancelled: they are not.
        Exception: what getting them raises.
    """
    found, left = SimpleQueue[tuple[list[T], BaseException | None]](), Event()

    def get() -> None:
        try:
            for item in items:
                found.put(([item], None))
                if left.is_set():
                    break
        except BaseException as error:
            found.put(([], error))
        else:
            found.put(([], StopIteration()))

    Thread(target=get, name="awaited", daemon=True).start()
    try:
        while not cancelled.is_set():
            try:
                item, error = found.get(timeout=_PATIENCE)
            except Empty:
                continue
            yield from item
            if isinstance(error, StopIteration):
                return
            if error:
                raise error
        raise Cancelled
    finally:
        left.set()


class Stream(Generic[R]):
    """Pieces of an answer while it is decoded: complete characters only. Iterate it, then take `result`.

    Attributes:
        stats: counts and times so far.
        trace: the tokens so far, among them some whose text is still held back.
        cancelled: set by `cancel`.
    """

    def __init__(
        self, stats: Statistics, trace: Trace, pieces: Generator[str, None, R], cancelled: Event
    ) -> None:
        self.stats = stats
        self.trace = trace
        self.cancelled = cancelled
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
            clear_frames(error.__traceback__)  # what was decoded last holds logits, which may take 100 MB
            raise

    def cancel(self) -> None:
        """The answer is no longer wanted; to be called from any thread. Within a step, whoever iterates gets
        `Cancelled`."""
        self.cancelled.set()

    @property
    def result(self) -> R:
        """The whole answer; decodes what has not been iterated yet, and raises what stopped it."""
        for _ in self if self._result is None else ():
            pass
        if self._failure:
            raise self._failure
        assert self._result is not None
        return self._result
