"""An editor that lets a provider of OpenAI's API do the work, and tells it what the answer will be like.

editor = HostedEditor("https://api.openai.com/v1", "gpt-4.1")
editor.rewrite(Path("app.py"), "Rename load to read_config.").diff
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Generator, Mapping, Sequence
from threading import Event
from time import perf_counter
from typing import Any
from urllib.parse import urlsplit

from specedit.decoding.encode import Messages, check_texts
from specedit.decoding.statistics import Statistics
from specedit.editing.answer import blocks, fences
from specedit.editing.languages import grammar_of, language_of
from specedit.editing.prompt import EditPrompt, build_prompt
from specedit.editing.source import SourceFile
from specedit.results import EditResult, Generation, Stream, Trace, awaited, judged
from specedit.types import Sampling, SpecEditError

GREEDY = Sampling()
# The provider's own variable is read for its own address alone: a key goes to nobody else.
_KEYS = {
    "api.openai.com": "OPENAI_API_KEY",
    "api.fireworks.ai": "FIREWORKS_API_KEY",
    "api.cerebras.ai": "CEREBRAS_API_KEY",
}
_OWN_KEY = "SPECEDIT_API_KEY"
_PATIENCE = 120  # seconds without a word after which a provider is given up
_LONGEST = 300  # letters of a provider's words that are repeated
_REFUSALS = (400, 404, 422)  # what providers answer to a field that they do not take
_PREDICTION = "prediction"


class HostedEditor:
    """Rewrites files and answers chats as `SpecEditor` does, with a model that somebody else runs.

    The file goes along as `prediction`, which OpenAI, Fireworks, Cerebras, `specedit serve` and vLLM with our
    middleware honour. Whoever refuses it is asked once more without, with a warning.

    Args:
        base: the address that the provider names, mostly one that ends in /v1.
        model: the provider's name of it.
        key: to be sent; by default what stands in the environment, in SPECEDIT_API_KEY or the provider's own
            variable.
        price: dollars for a million tokens of an answer, to say what rejected ones cost.

    Raises:
        SpecEditError: the address is none, or the package `openai` is missing.
    """

    def __init__(self, base: str, model: str, key: str | None = None, price: float | None = None) -> None:
        try:
            import openai
        except ModuleNotFoundError as error:
            raise SpecEditError("Hosted models need openai: pip install 'specedit[hosted]'.") from error
        try:
            parts = urlsplit(base)
            host = parts.hostname or ""
            sound = parts.scheme in ("http", "https") and host and parts.port != 0 and parts.username is None
        except ValueError:
            host, sound = "", False
        if not sound or any(letter.isspace() for letter in base):
            raise SpecEditError(
                "This is no address: give one as https://api.openai.com/v1, without a key in it."
            )
        if key is None:
            key = os.environ.get(_OWN_KEY) or os.environ.get(_KEYS.get(host, ""), "")
        self.base, self.model, self.price = base, model, price
        self._key = key.strip()
        if not self._key.isascii() or any(letter.isspace() for letter in self._key):
            raise SpecEditError(
                "The API key has letters that no header can have: look at where it comes from."
            )
        self._openai = openai
        # The file goes to the address that was named and to no other.
        patient = openai.DefaultHttpxClient(follow_redirects=False, timeout=_PATIENCE)
        self._client = openai.OpenAI(base_url=base, api_key=self._key or "none", http_client=patient)
        if host != "api.openai.com":  # what the environment says of OpenAI's own service is for nobody else
            self._client.organization = self._client.project = None
            self._client._custom_headers = {}
        self._refused = set[str]()  # fields that the provider does not take

    def generate(self, messages: Messages, **options: Any) -> Generation:
        """The whole answer to a chat. The options are those of `stream`."""
        return self.stream(messages, **options).result

    def stream(
        self,
        messages: Messages,
        *,
        prediction: str = "",
        sampling: Sampling = GREEDY,
        stop: Sequence[str] = (),
        max_new_tokens: int | None = None,
    ) -> Stream[Generation]:
        """Answer a chat, piece by piece.

        Args:
            messages: `{"role": ..., "content": ...}`.
            prediction: the text that the answer is expected to be, roughly.
            sampling: how tokens are drawn. What OpenAI's API does not have is sent under the names that
                others have for it, if it is not the default.
            stop: the answer ends before the first of these strings.
            max_new_tokens: the longest answer; by default what the provider allows.

        Raises:
            SpecEditError: while iterating: no answer comes, or the provider refuses.
        """
        check_texts(str(message["content"]) for message in messages)
        body = _body(sampling, stop, max_new_tokens) | {
            "model": self.model,
            "messages": [dict(message) for message in messages],
            "stream": True,
        }
        stats, cancelled = Statistics(), Event()
        trace = Trace([], stats.sources, stats.rejected, [], [])
        pieces = self._pieces(body, prediction, stats, trace, cancelled)
        return Stream(stats, trace, pieces, cancelled)

    def rewrite(self, source: str | os.PathLike[str] | SourceFile, instruction: str, **options) -> EditResult:
        """The file, or text, as the instruction wants it. The options are those of `stream_rewrite`."""
        return self.stream_rewrite(source, instruction, **options).result

    def stream_rewrite(
        self,
        source: str | os.PathLike[str] | SourceFile,
        instruction: str,
        *,
        name: str = "",
        references: Mapping[str, str] | None = None,
        sampling: Sampling = GREEDY,
        stop: Sequence[str] = (),
        max_new_tokens: int | None = None,
    ) -> Stream[EditResult]:
        """Rewrite a file or text, piece by piece. Nothing is written before `EditResult.write`.

        Args:
            source, instruction, name, references, sampling: as `SpecEditor.stream_rewrite` has them.
            stop: must be empty.
            max_new_tokens: the longest answer; by default what the provider allows.

        Raises:
            SpecEditError: there is no such file or no instruction; or, while iterating, as in `stream`.
            Refused: the file is not text.
        """
        if stop:
            raise SpecEditError(
                "This API does not say whether a stop string or the model ended an answer: leave out --stop."
            )
        source = SourceFile.of(source, name)
        shown = source.shown_name
        prompt = build_prompt(source.text, instruction, shown, references=references)
        newline = "" if source.text.endswith("\n") or not source.text else "\n"
        system, *others = prompt.messages
        opening = prompt.prefill.strip()
        asked = f"{system['content']} Begin the block with {opening} and end it with {prompt.fence}."
        stream = self.stream(
            [{**system, "content": asked}, *others],
            prediction=f"{prompt.prefill}{source.text}{newline}{prompt.fence}",
            sampling=sampling,
            max_new_tokens=max_new_tokens,
        )
        pieces = _rewriting(stream, source, instruction, prompt, language_of(shown))
        return Stream(stream.stats, stream.trace, pieces, stream.cancelled)

    def rejected(self, stats: Statistics) -> str:
        """One sentence about what the provider counts as written of the prediction, though it is not in the
        answer; "" if there is nothing."""
        if not stats.rejected_tokens:
            return ""
        share = stats.rejected_tokens / max(stats.tokens, 1)
        said = f"{stats.rejected_tokens} tokens of the prediction were rejected"
        if self.price is None:
            return f"{said}; OpenAI bills such tokens as written ones: here {share:.0%} of {stats.tokens}."
        return f"{said}; where they are billed as written ones, they cost ${self.cost(stats):.4f}."

    def cost(self, stats: Statistics) -> float:
        """Dollars for the rejected tokens of the prediction, at the editor's price."""
        return stats.rejected_tokens * (self.price or 0.0) / 1e6

    def _pieces(
        self, body: dict[str, Any], prediction: str, stats: Statistics, trace: Trace, cancelled: Event
    ) -> Generator[str, None, Generation]:
        begun = perf_counter()
        text, reason = "", ""
        try:
            for event in awaited(self._events(body, prediction), cancelled):
                for choice in event.choices or ():
                    reason = choice.finish_reason or reason
                    piece = choice.delta.content if choice.delta else None
                    if isinstance(piece, str) and piece:
                        # Until the usage comes, a piece counts as a token.
                        stats.tokens += 1
                        stats.sources.append("target")
                        stats.first_token = stats.first_token or perf_counter() - begun
                        stats.prefill = stats.first_token
                        stats.verify = perf_counter() - begun - stats.prefill
                        text += piece
                        yield piece
                if event.usage:
                    _count(stats, event.usage)
        except self._openai.APIConnectionError as error:
            raise (self._broken() if text else self._failure(error)) from error
        except self._openai.OpenAIError as error:
            raise self._failure(error) from error
        except (ValueError, AttributeError, TypeError) as error:  # what is no event of this API
            raise SpecEditError(
                f"{self.base} answers in a form that is not OpenAI's: check the address."
            ) from error
        except OSError as error:  # httpx lets some of the network's own errors through
            raise self._broken() from error
        if not reason:
            raise self._broken()
        return Generation(text, reason, None, [], trace, stats)

    def _broken(self) -> SpecEditError:
        return SpecEditError(f"{self.base} broke off its answer: try again.")

    def _events(self, body: dict[str, Any], prediction: str) -> Generator[Any, None, None]:
        with self._asked(body, prediction) as events:
            yield from events

    def _asked(self, body: dict[str, Any], prediction: str) -> Any:
        """The events of an answer. A provider that refuses what it can do without is asked without it."""
        extra: dict[str, Any] = {"stream_options": {"include_usage": True}}
        if prediction:
            extra[_PREDICTION] = {"type": "content", "content": prediction}
        extra = {field: value for field, value in extra.items() if field not in self._refused}
        while True:
            try:
                return self._client.chat.completions.create(**body, **extra)
            except self._openai.APIStatusError as error:
                field = next((field for field in extra if field in error.response.text), None)
                if error.status_code not in _REFUSALS or field is None:
                    raise
                warnings.warn(
                    f"{self.base} takes no {field} here ({self._said(error)}) and is asked without it.",
                    stacklevel=2,
                )
                del extra[field]
                # Some refuse a prediction together with penalties alone.
                if not {"presence_penalty", "frequency_penalty"} & body.keys():
                    self._refused.add(field)

    def _failure(self, error: Exception) -> SpecEditError:
        """What to do about it. Keys are never repeated, and what a provider says of one may repeat it."""
        api, where = self._openai, self.base
        if isinstance(error, (api.AuthenticationError, api.PermissionDeniedError)):
            return SpecEditError(f"{where} refuses the API key: set {_OWN_KEY}, or give an --api-key-file.")
        if isinstance(error, api.APITimeoutError):
            return SpecEditError(f"{where} did not answer in time: try again.")
        if isinstance(error, api.APIConnectionError):
            return SpecEditError(f"No answer from {where}: check the address and the network.")
        if isinstance(error, api.RateLimitError):
            return SpecEditError(f"{where} allows no more now ({self._said(error)}): wait a while.")
        if isinstance(error, api.NotFoundError):
            return SpecEditError(f"{where} has no {self.model} ({self._said(error)}): check both names.")
        return SpecEditError(f"{where} refuses: {self._said(error)}; change what it names.")

    def _said(self, error: Exception) -> str:
        """The provider's own words, in one line and without the key."""
        response = getattr(error, "response", None)
        body = getattr(error, "body", None)
        said = str(body.get("message") or "") if isinstance(body, dict) else ""
        said = said or (response.text if response is not None else str(error))
        line = " ".join("".join(letter if letter.isprintable() else " " for letter in said).split())
        # Some repeat the key, whole or in parts.
        words = (word for word in line[:_LONGEST].split(" ") if not (self._key and self._key[:8] in word))
        return " ".join(words).rstrip(".")


def _body(sampling: Sampling, stop: Sequence[str], longest: int | None) -> dict[str, Any]:
    """The fields of a request that say how to draw and when to end."""
    drawing: dict[str, Any] = {"temperature": sampling.temperature}
    if sampling.temperature:
        drawing |= {"seed": sampling.seed, "top_p": sampling.top_p}
    if longest is not None:
        drawing["max_tokens"] = longest  # max_completion_tokens is forbidden beside a prediction
    if sampling.logit_bias:
        drawing["logit_bias"] = {str(token): bias for token, bias in sampling.logit_bias.items()}
    given = {
        "presence_penalty": sampling.presence_penalty,
        "frequency_penalty": sampling.frequency_penalty,
        "stop": list(stop),
    }
    extra = {
        "top_k": sampling.top_k,
        "min_p": sampling.min_p,
        "repetition_penalty": sampling.repetition_penalty if sampling.repetition_penalty != 1 else 0,
    }
    extra = {name: value for name, value in extra.items() if value}
    drawing |= {name: value for name, value in given.items() if value}
    return drawing | ({"extra_body": extra} if extra else {})


def _count(stats: Statistics, usage: Any) -> None:
    """What the provider counted."""
    details = getattr(usage, "completion_tokens_details", None)
    accepted = getattr(details, "accepted_prediction_tokens", None) or 0
    rejected = getattr(details, "rejected_prediction_tokens", None) or 0
    stats.prompt_tokens = usage.prompt_tokens or 0
    stats.tokens = usage.completion_tokens or stats.tokens
    prompt = getattr(usage, "prompt_tokens_details", None)
    stats.cached_tokens = getattr(prompt, "cached_tokens", None) or 0
    if accepted or rejected:
        stats.drafted[_PREDICTION], stats.accepted[_PREDICTION] = accepted + rejected, accepted


def _rewriting(
    stream: Stream[Generation], source: SourceFile, instruction: str, prompt: EditPrompt, language: str
) -> Generator[str, None, EditResult]:
    yield from stream
    generation = stream.result
    text, incomplete = _code(generation.text, source.text, prompt.fence, language)
    if generation.finish_reason == "length":
        incomplete = "The answer was cut by a limit: allow more (--max-new-tokens)."
    elif generation.finish_reason not in ("stop", "eos"):
        incomplete = f"The provider ended the answer ({generation.finish_reason}): word it differently."
    return judged(source, instruction, text, incomplete, generation)


def _code(answer: str, old: str, fence: str, language: str) -> tuple[str, str | None]:
    """The file in an answer, and why it may not be the whole file.

    Nobody makes the model begin with the fence that was asked for. What it puts around the file must be told
    from what is in the file: where no syntax check would notice, that takes a fence which the file has not.
    """
    found = blocks(answer, language)
    if len(found) != 1:
        return old, f"The answer has {len(found)} code blocks where one should be: ask again."
    (block,) = found
    if not block.code.closed:
        return block.code.text, "The answer ended before its code block did: ask again."
    clear = grammar_of(language) or len(block.fence) >= len(fence) or fences(old) + fences(answer) == 2
    return block.code.text, None if clear else (
        f"It is not clear where the file ends in the answer, which should have {fence} around it: ask again."
    )
