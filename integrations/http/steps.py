"""Pieces of an answer, and which tokens wrote them."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from transformers import PreTrainedTokenizerBase

from specedit.decoding.encode import decode_text, encode_text
from specedit.decoding.text import TextStream

if TYPE_CHECKING:
    from specedit.results import Trace


@dataclass(frozen=True, slots=True)
class Token:
    """A token of the answer, or the rest of one whose beginning was in an earlier piece.

    Attributes:
        text: what it adds.
        id: in the vocabulary.
        source: who guessed it, or "target".
        logprob: of it; None where that was not asked for.
        top: the likeliest tokens at its position, with their logarithms of probability.
        begins: False for the rest of a token.
    """

    text: str
    id: int
    source: str
    logprob: float | None = None
    top: list[tuple[int, float]] = field(default_factory=list)
    begins: bool = True


@dataclass(frozen=True, slots=True)
class Rejected:
    """A guess that the model did not follow, before token number `at` of its step."""

    at: int
    source: str
    text: str


@dataclass(frozen=True, slots=True)
class Step:
    """A piece of the answer, the tokens that it consists of, and what was guessed in their place."""

    text: str
    tokens: list[Token] = field(default_factory=list)
    rejected: list[Rejected] = field(default_factory=list)


class Reader:
    """Finds the tokens of each piece.

    Pieces lag behind the tokens, as the beginning of a stop string is held back, and what ends the answer is
    in no piece.
    """

    def __init__(
        self, trace: Trace, tokenizer: PreTrainedTokenizerBase, eos_token_ids: Iterable[int]
    ) -> None:
        self._trace = trace
        self._tokenizer = tokenizer
        # After a newline, since some tokenizers drop a space at the start of a text.
        self._texts = TextStream(tokenizer, eos_token_ids, after=encode_text(tokenizer, "\n"))
        self._tokens: deque[Token] = deque()
        self._rejected: dict[int, list[Rejected]] = {}
        self._read = self._taken = self._seen = 0

    def read(self, text: str) -> Step:
        """The next piece of the answer, this text, with its tokens."""
        self._catch_up()
        step = Step(text)
        room = len(text)
        while room > 0 and self._tokens:
            token = self._tokens.popleft()
            shown, rest = token.text[:room], token.text[room:]
            room -= len(shown)
            if token.begins:
                wrong = self._rejected.pop(self._taken, [])
                step.rejected.extend(replace(guess, at=len(step.tokens)) for guess in wrong)
                self._taken += 1
            step.tokens.append(replace(token, text=shown))
            if rest:
                self._tokens.appendleft(replace(token, text=rest, begins=False))
        return step

    def _catch_up(self) -> None:
        trace = self._trace
        for at in range(self._read, len(trace.tokens)):
            self._texts.push(trace.tokens[at])
            logprob = trace.logprobs[at] if trace.logprobs else None
            top = trace.top_logprobs[at] if trace.top_logprobs else []
            text = self._texts.take()
            self._tokens.append(Token(text, trace.tokens[at], trace.sources[at], logprob, top))
            self._read += 1
        for at, source, tokens in trace.rejected[self._seen :]:
            guess = Rejected(at, source, decode_text(self._tokenizer, tokens))
            self._rejected.setdefault(at, []).append(guess)
            self._seen += 1
