"""specedit's proposers inside TensorRT-LLM's Python API. Never run: see README.md here.

LLM(model, speculative_config=UserProvidedDecodingConfig(max_draft_len=64, drafter=drafter(64, tok)))
"""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any

from specedit.integrations.rows import Row, Rows
from specedit.types import SpecEditError

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

_PARAMETERS = ["self", "scheduled_requests", "resource_manager"]  # of `Drafter.prepare_draft_tokens`
_MOST = 1024  # answers that are remembered


def drafter(longest: int, tokenizer: PreTrainedTokenizerBase) -> Any:
    """A `Drafter` for `UserProvidedDecodingConfig`.

    Args:
        longest: tokens of a draft, as in `max_draft_len`.
        tokenizer: of the model.

    Raises:
        SpecEditError: this release of TensorRT-LLM calls drafters in a way that is not known.
    """
    from tensorrt_llm._torch.speculative.drafter import Drafter

    if list(inspect.signature(Drafter.prepare_draft_tokens).parameters) != _PARAMETERS:
        raise SpecEditError("This release of TensorRT-LLM calls drafters otherwise: leave specedit's out.")

    class SpecEditDrafter(Drafter):
        _needs_padding_kv_extension = True  # rows are padded to the longest draft, and rolled back as such

        def __init__(self) -> None:
            taken = inspect.signature(Drafter.__init__).parameters
            options = {"max_draft_len": longest, "max_total_draft_tokens": longest}
            super().__init__(**{name: value for name, value in options.items() if name in taken})
            self._rows = Rows(tokenizer, len(tokenizer), "cuda", _MOST)

        def prepare_draft_tokens(self, scheduled_requests: Any, resource_manager: Any = None) -> None:
            requests = list(scheduled_requests.generation_requests)
            rows = []
            for request in requests:
                tokens = list(request.get_tokens(0))
                rows.append(Row(request.py_request_id, tokens, request.py_prompt_len, longest))
            for request, draft in zip(requests, self._rows.draft(rows), strict=True):
                request.py_draft_tokens = draft

    return SpecEditDrafter()
