"""The class that vLLM asks for drafts."""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from itertools import count
from typing import Any

import numpy as np
from transformers import AutoTokenizer

from specedit.integrations.rows import Row, Rows, logger
from specedit.proposers import DEFAULT

_CALLERS = 6  # frames above `propose` among which vLLM's model runner is


class SpecEditProposer:
    """Drafts for every row of a step.

    vLLM tells a proposer the tokens of its rows and nothing else. What else it knows of a request (which
    texts the answer may repeat, whose it is, which row is which) is on its model runner, which calls
    `propose`; where no runner is found, rows are recognised by their tokens, and texts are those that prompts
    show. What `Row.about` holds is read from `extra_args` of a request's sampling parameters (`vllm_xargs`
    over HTTP).

    Args:
        config: vLLM's configuration. `additional_config["specedit"]["proposers"]` may name who guesses.

    Raises:
        SpecEditError: a proposer does not exist, or needs the target.
    """

    def __init__(self, config: Any) -> None:
        self._drafted = int(config.speculative_config.num_speculative_tokens)
        self._longest = int(config.model_config.max_model_len)
        self._rows = make_rows(config)
        self._numbers = count()
        self._runner: Any = None
        self._sought = False

    def load_model(self, *_: object, **__: object) -> None:
        """vLLM calls this on every proposer. There is no model."""

    def propose(
        self,
        sampled_token_ids: Sequence[Sequence[int]],
        num_tokens_no_spec: np.ndarray,
        token_ids_cpu: np.ndarray,
        **_: Any,
    ) -> list[list[int]]:
        """A draft for every row. Never raises: an error here would end the engine.

        Args:
            sampled_token_ids: what each row got in this step; nothing while its prompt is being read.
            num_tokens_no_spec: int [rows], how many tokens each has, with these.
            token_ids_cpu: int32 [rows, longest], the tokens.
        """
        try:
            if not self._sought:
                self._sought, self._runner = True, _runner()
            rows = [
                self._row(number, token_ids_cpu[number, : num_tokens_no_spec[number]], len(sampled))
                if len(sampled)
                else None
                for number, sampled in enumerate(sampled_token_ids)
            ]
            return self._rows.draft(rows)
        except Exception:
            logger.exception("specedit drafts nothing in this step")
            return [[] for _ in sampled_token_ids]

    def _row(self, number: int, tokens: np.ndarray, sampled: int) -> Row:
        room = min(self._drafted, self._longest - len(tokens) - 1)
        prompt = len(tokens) - sampled
        if self._runner is None:
            key = self._rows.find(tokens) or f"row {next(self._numbers)}"
            return Row(key, tokens, prompt, room)
        key = self._runner.input_batch.req_ids[number]
        about = getattr(self._runner.requests[key].sampling_params, "extra_args", None) or {}
        return Row(key, tokens, prompt, room, about)


def make_rows(config: Any, padded: bool = False) -> Rows:
    """Rows of a model, by vLLM's configuration.

    Raises:
        SpecEditError: a proposer does not exist, or needs the target.
    """
    settings = dict(config.additional_config or {}).get("specedit", {})
    model = config.model_config
    tokenizer = None
    if not model.skip_tokenizer_init:
        tokenizer = AutoTokenizer.from_pretrained(
            model.tokenizer,
            revision=model.tokenizer_revision,
            trust_remote_code=model.trust_remote_code,
        )
    return Rows(
        tokenizer,
        int(model.get_vocab_size()),
        config.device_config.device_type,
        2 * int(config.scheduler_config.max_num_seqs),
        settings.get("proposers", DEFAULT),
        padded,
    )


def _runner() -> Any:
    """vLLM's model runner, if it is among the callers: what a request says beside its tokens is nowhere else,
    and a proposer is not given it."""
    frame = inspect.currentframe()
    for _ in range(_CALLERS):
        frame = frame.f_back if frame is not None else None
        caller = frame.f_locals.get("self") if frame is not None else None
        if hasattr(caller, "input_batch") and hasattr(caller, "requests"):
            return caller
    return None
