"""What proposers may know of a prompt that another engine shows as token ids."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from specedit.decoding.encode import decode_text, make_request
from specedit.editing.references import known
from specedit.proposers import Request

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase


def request_for(
    prompt: list[int],
    tokenizer: PreTrainedTokenizerBase | None,
    prediction: str = "",
    references: Sequence[str] = (),
    language: str = "",
    **about: Any,
) -> Request:
    """A request whose answer may repeat these texts, or else the files that the prompt shows.

    Args:
        prompt: token ids.
        tokenizer: without it only tokens of the prompt are repeated.
        prediction: the text that the answer will be, roughly.
        references: other texts that it may repeat.
        language: of the prediction or the first reference, as written after a code fence.
        about: what else there is to say (see `Request`).
    """
    if tokenizer is None:
        return Request(prompt, [], lambda text: [], lambda tokens: "", **about)
    messages = [{"role": "user", "content": decode_text(tokenizer, prompt)}]
    texts, language = known([prediction, *references], language, messages)
    ends = [] if tokenizer.eos_token_id is None else [tokenizer.eos_token_id]
    return make_request(tokenizer, prompt, texts, language, ends, **about)
