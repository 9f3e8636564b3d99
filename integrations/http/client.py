"""An editor that lets a running server do the work: for a shell that should not wait for a model to load."""

from __future__ import annotations

import http.client
import json
import os
import time
from collections import Counter
from collections.abc import Generator, Iterator, Mapping, Sequence
from dataclasses import asdict
from threading import Event
from typing import Any
from urllib.error import HTTPError, URLError
from urllib.parse import urlsplit
from urllib.request import ProxyHandler, Request, build_opener

from specedit.decoding.encode import check_texts
from specedit.decoding.statistics import Statistics
from specedit.editing.source import SourceFile
from specedit.results import EditResult, Generation, Stream, Trace, awaited, judged
from specedit.types import Sampling, SpecEditError

DEFAULT_URL = "http://127.0.0.1:8317"
_LOCAL = {"127.0.0.1", "localhost", "::1"}
_HELLO = 0.3  # seconds that a server on this machine may take to say that it is there
_LETTER = 1 << 16  # bytes that its first answer may have
_BROKEN = (OSError, http.client.HTTPException)
_STRANGE = (ValueError, LookupError, TypeError, AttributeError)  # what is read from what others send
_SILENCE = 120  # seconds without a word, keep-alive comments included, after which a server is given up


class RemoteEditor:
    """Rewrites files as `SpecEditor` does, with the model of a server. Files are read, checked and written
    here: the server sees their text and names.

    Args:
        url: of the server, as it prints it.
        key: that the server asks for.

    Raises:
        SpecEditError: this is no address of a server.
    """

    def __init__(self, url: str = DEFAULT_URL, key: str = "") -> None:
        self.url = (url if "://" in url else f"http://{url}").rstrip("/")
        try:
            parts = urlsplit(self.url)
            sound = parts.scheme in ("http", "https") and parts.hostname and parts.port != 0
        except ValueError:
            sound = False
        if not sound:
            raise SpecEditError(f"{url} is no server: give an address as {DEFAULT_URL}.")
        if not key.isascii():
            raise SpecEditError("The API key has letters that no header can have: see SPECEDIT_API_KEY.")
        self._key = key
        # A proxy knows nothing of servers on this machine.
        local = parts.hostname in _LOCAL
        self._opener = build_opener(*[ProxyHandler({})] * local)

    def is_there(self) -> bool:
        """Whether a server answers at once, and takes this key."""
        end, said = time.monotonic() + _HELLO, b""
        try:
            with self._opener.open(self._request("/v1/models"), timeout=_HELLO) as answer:
                while (part := answer.read1(_LETTER)) and time.monotonic() < end and len(said) < _LETTER:
                    said += part
            return bool(json.loads(said)["data"][0]["owned_by"] == "specedit")
        except (*_BROKEN, *_STRANGE):
            return False

    def stream_rewrite(
        self,
        source: SourceFile,
        instruction: str,
        *,
        references: Mapping[str, str] | None = None,
        sampling: Sampling,
        stop: Sequence[str] = (),
        max_new_tokens: int | None = None,
    ) -> Stream[EditResult]:
        """See `SpecEditor.stream_rewrite`.

        Raises:
            SpecEditError: the instruction is no text; while iterating: the server is not there, refuses, or
                breaks off.
        """
        check_texts([instruction])
        body = {
            "text": source.text,
            "instruction": instruction,
            "name": source.shown_name,
            "references": dict(references or {}),
            "stop": list(stop),
            "max_tokens": max_new_tokens,
            "stream": True,
            **asdict(sampling),
        }
        stats, cancelled = Statistics(), Event()
        trace = Trace([], stats.sources, stats.rejected, [], [])
        pieces = self._pieces(source, instruction, body, stats, trace, cancelled)
        return Stream(stats, trace, pieces, cancelled)

    def _pieces(
        self,
        source: SourceFile,
        instruction: str,
        body: dict[str, Any],
        stats: Statistics,
        trace: Trace,
        cancelled: Event,
    ) -> Generator[str, None, EditResult]:
        try:
            for name, said in awaited(self._events(body), cancelled):
                if name == "piece":
                    stats.sources += [token["source"] for token in said["tokens"]]
                    stats.tokens = len(stats.sources)
                    yield said["text"]
                elif name == "result":
                    _fill(stats, said["stats"])
                    generation = Generation(said["text"], said["finish_reason"], None, [], trace, stats)
                    incomplete = None if said["usable"] else said["problems"][0]["message"]
                    return judged(source, instruction, said["text"], incomplete, generation)
                elif "error" in said:
                    raise SpecEditError(said["error"]["message"])
        except _STRANGE as error:
            raise SpecEditError(
                f"{self.url} is no server of this version of specedit: use --no-server."
            ) from error
        raise SpecEditError(f"{self.url} broke off its answer: look at its log, or use --no-server.")

    def _request(self, path: str, body: dict[str, Any] | None = None) -> Request:
        headers = {"Content-Type": "application/json"} if body else {}
        if self._key:
            headers["Authorization"] = f"Bearer {self._key}"
        return Request(f"{self.url}{path}", json.dumps(body).encode() if body else None, headers)

    def _events(self, body: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
        """Server-sent events, as they come."""
        asked, name = self._request("/v1/rewrite", body), ""
        try:
            with self._opener.open(asked, timeout=_SILENCE) as answer:
                for line in answer:
                    field, _, value = line.decode("utf-8", "replace").rstrip("\r\n").partition(": ")
                    if not field:  # a comment: somebody may look whether the answer is still wanted
                        yield "", {}
                    elif field == "event":
                        name = value
                    elif field == "data":
                        yield name, json.loads(value)
                        name = ""
        except HTTPError as error:
            raise SpecEditError(_message(error)) from error
        except _BROKEN as error:
            reason = error.reason if isinstance(error, URLError) else type(error).__name__
            raise SpecEditError(
                f"No answer from {self.url} ({reason}): see whether `specedit serve` runs there, or use "
                "--no-server."
            ) from error


def running(url: str | None) -> RemoteEditor | None:
    """The server at this address, which is told the environment's key; or else the one on the default port,
    if there is one. Whoever listens there is told no key.

    Raises:
        SpecEditError: this is no address of a server.
    """
    if url:
        return RemoteEditor(url, os.environ.get("SPECEDIT_API_KEY", "").partition(" ")[0])
    editor = RemoteEditor(DEFAULT_URL)
    return editor if editor.is_there() else None


def _fill(stats: Statistics, said: dict[str, Any]) -> None:
    """What the server counted. It does not tell it by position in the draft."""
    seconds = said["seconds"]
    stats.prompt_tokens, stats.cached_tokens = said["prompt_tokens"], said["cached_tokens"]
    stats.tokens, stats.target_calls = said["completion_tokens"], said["target_calls"]
    stats.drafted = Counter(said["drafted_by_proposer"])
    stats.accepted = Counter(said["tokens_by_source"])
    del stats.accepted["target"]
    for part in ("prefill", "draft", "verify", "coordination", "first_token"):
        setattr(stats, part, seconds[part])
    stats.plain = seconds["plain_estimate"]
    stats.extra_memory = said.get("extra_memory", 0)


def _message(error: HTTPError) -> str:
    try:
        return str(json.load(error)["error"]["message"])
    except (ValueError, LookupError, TypeError):
        return f"The server answered {error.code}: is it specedit's?"
