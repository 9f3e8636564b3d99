"""Answers that are JSON: which tokens may come next, at every position that is scored."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Any

import numpy as np
import torch
from transformers import PreTrainedTokenizerBase

from specedit.types import SpecEditError

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
        for row in range(shape[0]):
            if not self._seek([*answer, *draft[:row]]):
                break
            mask = np.frombuffer(self._matcher.compute_logit_bias(), np.uint8)[: shape[1]] > 0
            masks[row, : len(mask)] = mask
            masks[row, len(mask) :] = False  # columns that no token has
        return torch.from_numpy(masks)

    def _seek(self, tokens: list[int]) -> bool:
        """Let the matcher be after these tokens; False if they may not come."""
        same = 0
        while same < min(len(tokens), len(self._read)) and tokens[same] == self._read[same]:
            same += 1
        self._matcher.rollback(len(self._read) - same)
        consumed = self._matcher.try_consume_tokens(tokens[same:])
        self._read = tokens[: same + consumed]
        return len(self._read) == len(tokens)


@lru_cache(maxsize=4)
def _vocabulary(tokenizer: Any, ends: tuple[int, ...]) -> Any:
    import llguidance.hf

    return llguidance.hf.from_tokenizer(tokenizer, eos_token=list(ends) or None)
