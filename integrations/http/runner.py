"""Running answers: worker threads, a queue with an end, and an end for what nobody waits for."""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from time import perf_counter
from typing import Any

from specedit.decoding.statistics import Statistics
from specedit.editor import SpecEditor
from specedit.integrations.http.errors import ApiError
from specedit.integrations.http.metrics import Metrics
from specedit.integrations.http.settings import Settings
from specedit.integrations.http.steps import Reader, Step
from specedit.results import EditResult, Generation, Stream
from specedit.types import Cancelled, SpecEditError

Begin = Callable[[], Stream[Any]]
Result = Generation | EditResult

_log = logging.getLogger("specedit.http")
_BUSY_SECONDS = 2  # what a client that is turned away is asked to wait


class Answers:
    """The answers to one request, while they are decoded.

    Iterate what comes: the number of the answer, and a step of it or, at its end, its result. The first error
    ends all.
    """

    def __init__(self, count: int) -> None:
        self.jobs: list[_Job] = []
        self.told: asyncio.Queue[tuple[int, Step | Result | ApiError]] = asyncio.Queue()
        self._left = count

    def __aiter__(self) -> Answers:
        return self

    async def __anext__(self) -> tuple[int, Step | Result]:
        if not self._left:
            raise StopAsyncIteration
        number, what = await self.told.get()
        if isinstance(what, ApiError):
            self._left = 0
            self.cancel()
            raise what
        if not isinstance(what, Step):
            self._left -= 1
        return number, what

    def cancel(self) -> None:
        """Let what is not finished end, within one step."""
        for job in self.jobs:
            job.cancel()


class Runner:
    """Runs the answers of one editor, so many at a time, in the order in which they were asked for.

    Attributes:
        name: of the model, as clients see it.
        full_name: as the person who started the server gave it.
        created: when this began, in seconds since 1970.
        closing: no new requests are taken.
    """

    def __init__(self, editor: SpecEditor, settings: Settings) -> None:
        self.editor = editor
        self.settings = settings
        self.metrics = Metrics(self)
        self.closing = False
        self.created = int(time.time())
        self.full_name = editor.target.name.rsplit(" ", 2)[0]  # without device and number format
        self.name = settings.name or self.full_name.rstrip("/").rpartition("/")[2]
        self._places = settings.running if editor.concurrent else 1
        self._pool = ThreadPoolExecutor(self._places, "answer")
        self._jobs: set[_Job] = set()

    @property
    def running(self) -> int:
        """Answers that are being decoded."""
        return sum(job.began is not None for job in tuple(self._jobs))

    @property
    def waiting(self) -> int:
        """Answers that wait for their turn."""
        return len(self._jobs) - self.running

    def start(self, begins: Sequence[Begin], traced: bool = False, request: str = "") -> Answers:
        """Queue the answers to one request.

        Args:
            begins: what makes the stream of each; called in the thread that decodes it.
            traced: let steps say which tokens they consist of.
            request: its id, for the log.

        Raises:
            ApiError: there are too many already, or the server stops.
        """
        if self.closing:
            raise ApiError(503, "The server is stopping: try again when it is back.", code="stopping")
        most = self._places + self.settings.waiting
        if len(begins) > most:
            raise ApiError(400, f"This server takes {most} answers at a time: ask for fewer.", "n")
        if len(self._jobs) + len(begins) > most:
            raise ApiError(
                429,
                f"{len(self._jobs)} answers are running or waiting: try again in {_BUSY_SECONDS} seconds.",
                code="queue_full",
                headers={"Retry-After": str(_BUSY_SECONDS)},
            )
        answers = Answers(len(begins))
        loop = asyncio.get_running_loop()
        for number, begin in enumerate(begins):
            job = _Job(self, answers, number, begin, traced, request, loop)
            answers.jobs.append(job)
            self._jobs.add(job)
            job.future = self._pool.submit(job.run)
            job.future.add_done_callback(partial(self._forget, job))
        return answers

    def _forget(self, job: _Job, _: Future[None]) -> None:
        job.post(self._jobs.discard, job)

    async def close(self, grace: float = 0.0) -> None:
        """Take no more requests, wait so many seconds for the answers that there are, and end the others."""
        self.closing = True
        end = perf_counter() + grace
        while self._jobs and perf_counter() < end:
            await asyncio.sleep(0.05)
        for job in list(self._jobs):
            job.cancel()
            job.tell(_stopped())  # even if its pass goes on for long
        self._pool.shutdown(wait=False)


class _Job:
    """One answer in its thread."""

    def __init__(
        self,
        runner: Runner,
        answers: Answers,
        number: int,
        begin: Begin,
        traced: bool,
        request: str,
        loop: asyncio.AbstractEventLoop,
    ) -> None:
        self.future: Future[None] | None = None
        self.began: float | None = None
        self._runner = runner
        self._answers = answers
        self._number = number
        self._begin = begin
        self._traced = traced
        self._request = request
        self._loop = loop
        self._gone = threading.Event()
        self._stream: Stream[Any] | None = None
        self._asked = perf_counter()

    def cancel(self) -> None:
        """From any thread. What has not begun never will."""
        if self._gone.is_set():
            return
        self._gone.set()
        if self._stream is not None:
            self._stream.cancel()
        if self.future is not None and self.future.cancel():
            del self._begin  # with the request's texts: the pool keeps the job until its turn
            waited = perf_counter() - self._asked
            self._runner.metrics.count(Statistics(), "cancelled", waited=waited, took=waited)
            self.tell(_stopped())

    def run(self) -> None:
        self.began = perf_counter()
        stats, outcome = Statistics(), "failed"
        try:
            stream = self._begun()
            stats = stream.stats
            self.tell(self._finished(stream))
            outcome = "finished"
        except Cancelled:
            outcome = "cancelled"
            self.tell(_stopped())
        except ApiError as error:
            outcome = "refused"
            self.tell(error)
        except BaseException as error:  # the server outlives it
            _log.error("an answer failed", exc_info=error, extra={"fields": {"id": self._request}})
            self.tell(_failed(error))
        finally:
            ended = perf_counter()
            self._runner.metrics.count(
                stats, outcome, waited=self.began - self._asked, took=ended - self._asked
            )

    def post(self, call: Callable[..., Any], *arguments: Any) -> None:
        """Call this in the server's loop; when it is closed, nobody listens."""
        try:
            self._loop.call_soon_threadsafe(call, *arguments)
        except RuntimeError:
            _log.debug("the loop is closed")

    def _begun(self) -> Stream[Any]:
        if self._gone.is_set():
            raise Cancelled
        try:
            stream = self._begin()
        except SpecEditError as error:
            raise ApiError(400, str(error), code="refused") from error
        # `cancel` sets `_gone` before it looks for a stream; here it is the other way round.
        self._stream = stream
        if self._gone.is_set():
            stream.cancel()
        return stream

    def _finished(self, stream: Stream[Any]) -> Result:
        editor = self._runner.editor
        reader = None
        if self._traced:
            reader = Reader(stream.trace, editor.tokenizer, editor.target.eos_token_ids)
        for piece in stream:
            self.tell(reader.read(piece) if reader else Step(piece))
        return stream.result

    def tell(self, what: Step | Result | ApiError) -> None:
        self.post(self._answers.told.put_nowait, (self._number, what))


def _stopped() -> ApiError:
    return ApiError(503, "The answer was stopped, as the server stops: try again.", code="stopping")


def _failed(error: BaseException) -> ApiError:
    advice = (
        str(error) if isinstance(error, SpecEditError) else "The model failed: the server's log says how."
    )
    return ApiError(500, advice, code="model_failed")
