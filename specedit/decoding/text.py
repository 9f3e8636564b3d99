"""Tokens to text while they arrive: complete characters only, stop strings never shown."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from tokenizers.decoders import DecodeStream
from transformers import PreTrainedTokenizerBase

from specedit.types import SpecEditError


class TextStream:
    """The answer's text so far, and whether it has come to its end.

    Args:
        tokenizer: of the target.
        eos_token_ids: tokens that end the answer and are no part of its text.
        stop: the answer ends where one of these first stands; it is no part of the text.
        after: token ids that the answer goes on from. Some tokenizers drop a space at the start of a text,
            and an answer that continues one must keep it.

    Attributes:
        tokens: token ids of the answer, the ending one included.
        text: what they say.
        finish_reason: "stop" when an end was seen, "length" until then.
        matched_stop: the stop string that ended the answer, if one did.
    """

    def __init__(
        self,
        tokenizer: PreTrainedTokenizerBase,
        eos_token_ids: Iterable[int],
        stop: Iterable[str] = (),
        after: Sequence[int] = (),
    ) -> None:
        backend = getattr(tokenizer, "backend_tokenizer", None)
        if backend is None:
            raise SpecEditError(
                f"{type(tokenizer).__name__} cannot stream text: choose a model with a tokenizer.json."
            )
        self._backend = backend
        self._decoder = DecodeStream(ids=list(after[-8:]), skip_special_tokens=False)
        self._eos = frozenset(eos_token_ids)
        self._stop = [text for text in stop if text]
        self._shown = 0
        self.tokens: list[int] = []
        self.text = ""
        self.finish_reason = "length"
        self.matched_stop: str | None = None

    def push(self, token: int) -> bool:
        """Take the next token; True when the answer ends with it."""
        self.tokens.append(token)
        if token in self._eos:
            self.finish_reason = "stop"
            return True
        try:
            piece = self._decoder.step(self._backend, token)
        except Exception:
            # DecodeStream gives up on bytes that are no UTF-8 (with a bare Exception, "Invalid prefix
            # encountered"): begin a new one at this token.
            self._decoder = DecodeStream(ids=[], skip_special_tokens=False)
            piece = self._decoder.step(self._backend, token)
        if piece is None:  # in the middle of a character
            return False
        # A stop string that the piece completes begins at most its own length before it.
        checked = max(len(self.text) - max(map(len, self._stop), default=0), 0)
        self.text += piece
        found = [(at, stop) for stop in self._stop if (at := self.text.find(stop, checked)) >= 0]
        if found:
            at, self.matched_stop = min(found)
            self.text = self.text[:at]
            self.finish_reason = "stop"
        return bool(found)

    def take(self, final: bool = False) -> str:
        """The text that can be shown since the last call.

        Args:
            final: no more will come. Until then, what may be the beginning of a stop string is held back.
        """
        end = len(self.text)
        if not final:
            longest = max(map(len, self._stop), default=1) - 1
            for start in range(max(end - longest, self._shown), end):
                if any(stop.startswith(self.text[start:]) for stop in self._stop):
                    end = start
                    break
        piece = self.text[self._shown : end]
        self._shown = end
        return piece
