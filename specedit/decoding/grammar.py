"""Answers that are JSON: which tokens may come next, at every position that is scored."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Any

import numpy as np
import torch
from transformers import PreTrainedTokenizerBase

from specedit.types import SpecEditError, agreeing

# Some models would go on with empty lines for ever, where any white space may stand.
_LAYOUT = {"whitespace_pattern": "[ \n]{0,20}"}


class Grammar:
    """Follows one answer through a JSON schema, by llguidance.

    A position allows the same tokens whatever was drafted, so that masks compose with speculation.

    Args:
        tokenizer: of the target.
        eos_token_ids: of the target.
        schema: that the answer fulfils.

    Raises:
        SpecEditError: llguidance is missing, or the schema is none that it knows.
    """

    def __init__(
        self, tokenizer: PreTrainedTokenizerBase, eos_token_ids: Iterable[int], schema: Mapping[str, Any]
    ) -> None:
        try:
            from llguidance import LLMatcher
        except ModuleNotFoundError as error:
            raise SpecEditError("JSON schemas need llguidance: pip install 'specedit[grammar]'.") from error
        grammar = LLMatcher.grammar_from_json_schema(json.dumps({"x-guidance": _LAYOUT} | dict(schema)))
        self._matcher = LLMatcher(_vocabulary(tokenizer, tuple(sorted(eos_token_ids))), grammar)
        if self._matcher.is_error():
            reason = self._matcher.get_error().strip().splitlines()[0]
            raise SpecEditError(f"The JSON schema cannot be followed ({reason}): change it.")
        self._read: list[int] = []  # tokens that the matcher has consumed

    def allowed(self, answer: Sequence[int], draft: Sequence[int], shape: Sequence[int]) -> torch.Tensor:
        """bool [rows, vocab]: what may come after the answer, and after each drafted token. Rows after one
        that may not come allow everything: nobody will look at them.

        Args:
            shape: how many rows, and columns of the logits.
        """
        masks = np.ones(shape, dtype=bool)
        possible = self._seek(answer)
        for row in range(shape[0]):
            if row and possible:
                possible = self._consume(draft[row - 1 : row])
            if not possible:
                break
            mask = np.frombuffer(self._matcher.compute_logit_bias(), np.uint8)[: shape[1]] > 0
            masks[row, : len(mask)] = mask
            masks[row, len(mask) :] = False  # columns that no token has
        return torch.from_numpy(masks)

    def _seek(self, tokens: Sequence[int]) -> bool:
        """Let the matcher be after these tokens; False if they may not come."""
        same = agreeing(tokens, self._read)
        self._matcher.rollback(len(self._read) - same)
        del self._read[same:]
        return self._consume(tokens[same:])

    def _consume(self, tokens: Sequence[int]) -> bool:
        consumed = self._matcher.try_consume_tokens(list(tokens))
        self._read += tokens[:consumed]
        return consumed == len(tokens)


@lru_cache(maxsize=4)
def _vocabulary(tokenizer: Any, ends: tuple[int, ...]) -> Any:
    import llguidance.hf

    return llguidance.hf.from_tokenizer(tokenizer, eos_token=list(ends) or None)
