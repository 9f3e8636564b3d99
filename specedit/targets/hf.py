"""A transformers causal language model as the target."""

from __future__ import annotations

import inspect
from collections.abc import Sequence

import torch
from torch import Tensor
from transformers import DynamicCache, PreTrainedModel

from specedit.types import SpecEditError


class HFTarget:
    """A causal language model of transformers 5.17 to 5.24 with its key-value cache (see `Target`).

    Rollback crops the cache. Sliding-window layers keep what has left the window until that crop, so they can
    be rolled back too. Recurrent and hybrid models cannot: `can_rollback` is False for them.

    Raises:
        SpecEditError: the model keeps no cache that transformers manages; later, memory runs out.
    """

    def __init__(self, model: PreTrainedModel, name: str | None = None) -> None:
        parameters = inspect.signature(model.forward).parameters
        # transformers 5.24 renamed the argument; the old name only warns there and is gone in 5.40.
        argument = next((key for key in ("cache", "past_key_values") if key in parameters), None)
        if argument is None:
            raise SpecEditError(
                f"{type(model).__name__} keeps no key-value cache of transformers: choose another model."
            )
        self._cache_argument = argument
        self._limits_logits = "logits_to_keep" in parameters
        self.model = model
        self.name = f"{name or model.config.name_or_path} {model.device} {model.dtype}"
        self.processor = (
            torch.cuda.get_device_name(model.device)
            if model.device.type == "cuda"
            else torch.backends.cpu.get_cpu_capability()
        )
        self.max_length: int | None = getattr(
            model.config.get_text_config(decoder=True), "max_position_embeddings", None
        )
        ids = model.generation_config.eos_token_id if model.generation_config else model.config.eos_token_id
        self.eos_token_ids = frozenset([ids] if isinstance(ids, int) else ids or ())
        self.can_rollback = not model._is_stateful and DynamicCache(config=model.config).is_croppable
        self.reset()

    def reset(self) -> None:
        self.length = 0
        self._latest = 0
        self._cache = DynamicCache(config=self.model.config)
        if self.can_rollback:
            self._cache.activate_past_recording()

    @torch.inference_mode()
    def extend(self, tokens: Sequence[int], last_only: bool = False) -> Tensor:
        if self._latest:
            self.rollback(0)
        ids = torch.tensor([tokens], device=self.model.device)
        options: dict = {self._cache_argument: self._cache, "use_cache": True}
        if last_only and self._limits_logits:
            options["logits_to_keep"] = 1
        try:
            logits = self.model(input_ids=ids, **options).logits[0]
        except (torch.OutOfMemoryError, MemoryError) as error:
            raise SpecEditError(
                f"{self.length + len(tokens)} tokens do not fit into the memory of {self.model.device}: "
                "choose a shorter file, a smaller model, bfloat16 or another device."
            ) from error
        self.length += len(tokens)
        self._latest = len(tokens)
        return logits[-1:] if last_only else logits

    def rollback(self, count: int) -> None:
        if count > self._latest:
            # A sliding window has already dropped what an older rollback would need.
            raise ValueError(f"only the latest {self._latest} tokens can be rolled back, not {count}")
        if self.can_rollback:
            # Also for 0: it is the crop that lets sliding layers drop what has left the window, and before
            # transformers 5.24 the next forward pass fails without it.
            self._cache.crop(-count)
        self.length -= count
        self._latest = 0
