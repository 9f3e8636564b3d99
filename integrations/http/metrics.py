"""What `/metrics` shows to Prometheus."""

from __future__ import annotations

from typing import TYPE_CHECKING

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

from specedit.decoding.statistics import Statistics

if TYPE_CHECKING:
    from specedit.integrations.http.runner import Runner

_SECONDS = (0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300)
_PHASES = ("prefill", "draft", "verify", "coordination")


class Metrics:
    """Counts all answers of one server, in a registry of its own: two servers in a process stay apart."""

    def __init__(self, runner: Runner) -> None:
        self._registry = registry = CollectorRegistry()
        for name, about, value in (
            ("waiting", "Answers that wait for their turn", lambda: runner.waiting),
            ("running", "Answers that are being decoded", lambda: runner.running),
            ("batch_rows", "Requests in the model's batch", lambda: runner.editor.rows),
            ("kv_bytes", "Bytes of all key-value caches", lambda: runner.editor.kv_bytes),
        ):
            Gauge(f"specedit_{name}", about, registry=registry).set_function(value)
        self._requests = Counter("specedit_requests", "HTTP requests", ["path", "status"], registry=registry)
        self._answers = Counter(
            "specedit_answers", "Answers, by how they ended", ["outcome"], registry=registry
        )
        self._prompt = Counter(
            "specedit_prompt_tokens",
            "Tokens of prompts, by whether they were computed",
            ["kind"],
            registry=registry,
        )
        self._tokens = Counter(
            "specedit_tokens", "Tokens of answers, by who guessed them", ["source"], registry=registry
        )
        self._drafted = Counter(
            "specedit_drafted_tokens", "Guessed tokens that were verified", ["proposer"], registry=registry
        )
        self._accepted = Counter(
            "specedit_accepted_tokens", "Of these, the right ones", ["proposer"], registry=registry
        )
        self._seconds = Counter(
            "specedit_decoding_seconds", "Where the time of answers went", ["phase"], registry=registry
        )
        self._waited = Histogram(
            "specedit_wait_seconds", "From the request to its turn", buckets=_SECONDS, registry=registry
        )
        self._first = Histogram(
            "specedit_first_token_seconds",
            "From the request to the first token",
            buckets=_SECONDS,
            registry=registry,
        )
        self._took = Histogram(
            "specedit_answer_seconds",
            "From the request to the whole answer",
            buckets=_SECONDS,
            registry=registry,
        )

    def count(self, stats: Statistics, outcome: str, *, waited: float, took: float) -> None:
        """An answer has ended. From any thread."""
        self._answers.labels(outcome).inc()
        self._waited.observe(waited)
        self._prompt.labels("cached").inc(stats.cached_tokens)
        self._prompt.labels("computed").inc(stats.prompt_tokens - stats.cached_tokens)
        if stats.tokens:
            self._first.observe(waited + stats.first_token)
        if outcome == "finished":
            self._took.observe(took)
        self._tokens.labels("target").inc(max(stats.tokens - stats.accepted_tokens, 0))
        for proposer, tokens in stats.accepted.items():
            self._tokens.labels(proposer).inc(tokens)
            self._accepted.labels(proposer).inc(tokens)
        for proposer, tokens in stats.drafted.items():
            self._drafted.labels(proposer).inc(tokens)
        for phase in _PHASES:
            self._seconds.labels(phase).inc(getattr(stats, phase))

    def count_request(self, path: str, status: int) -> None:
        self._requests.labels(path, str(status)).inc()

    def render(self) -> bytes:
        return generate_latest(self._registry)
