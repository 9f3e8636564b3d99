"""A transformers causal language model as the target."""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from functools import cached_property
from typing import Any

import torch
from torch import Tensor
from transformers import DynamicCache, PreTrainedModel
from transformers.cache_utils import DynamicLayer, DynamicSlidingWindowLayer

from specedit.targets.linear import is_packed
from specedit.targets.packed import Context, Part, agrees, score
from specedit.targets.static import StaticPasses
from specedit.types import SpecEditError

_ATTENTION = {"full_attention", "sliding_attention"}  # the kinds of layers that `packed` computes


class HFTarget:
    """A causal language model of transformers 5.17 to 5.24 (see `Target`).

    Its attention is computed here (see `packed`), so that rolling back costs nothing and trees can be
    verified. Models for which that does not work, as recurrent and hybrid ones, keep transformers' own cache
    and are decoded plainly.

    Args:
        model: in eval mode.
        name: what to call it.
        static: whether passes are replayed as CUDA graphs (see `static`); None where there is CUDA. Models
            that cannot be captured do without.

    Raises:
        SpecEditError: the model keeps no cache that transformers manages; later, memory runs out.
    """

    def __init__(self, model: PreTrainedModel, name: str | None = None, static: bool | None = None) -> None:
        parameters = inspect.signature(model.forward).parameters
        # transformers 5.24 renamed the argument; the old name only warns there and is gone in 5.40.
        argument = next((key for key in ("cache", "past_key_values") if key in parameters), None)
        if argument is None:
            raise SpecEditError(
                f"{type(model).__name__} keeps no key-value cache of transformers: choose another model."
            )
        self._cache_argument = argument
        self.limits_logits = "logits_to_keep" in parameters
        self.model = model
        self.name = f"{name or model.config.name_or_path} {model.device} {model.dtype}"
        if static is None:
            static = model.device.type == "cuda"
        devices = {weight.device for weight in model.parameters()}  # a graph is one device's
        self._static = StaticPasses(model) if static and len(devices) == 1 else None
        self.max_length: int | None = getattr(
            model.config.get_text_config(decoder=True), "max_position_embeddings", None
        )
        ids = model.generation_config.eos_token_id if model.generation_config else model.config.eos_token_id
        self.eos_token_ids = frozenset([ids] if isinstance(ids, int) else ids or ())
        self.reset()

    def reset(self) -> None:
        self.length = 0
        self._latest = 0
        self._context = Context()
        self._cache: DynamicCache | None = None

    @torch.inference_mode()
    def extend(
        self, tokens: Sequence[int], parents: Sequence[int] | None = None, last_only: bool = False
    ) -> Tensor:
        try:
            if self.can_rollback:
                logits = self._scored(Part(self._context, tokens, parents, last_only))
            else:
                logits = self._cached(tokens, last_only)
        except (torch.OutOfMemoryError, MemoryError) as error:
            raise SpecEditError(
                f"{self.length + len(tokens)} tokens do not fit into the memory of {self.model.device}: "
                "choose a shorter file, a smaller model, bfloat16 or another device."
            ) from error
        self.length += len(tokens)
        self._latest = len(tokens)
        return logits[-1:] if last_only else logits

    def _scored(self, part: Part) -> Tensor:
        [logits] = self.scored([part])
        return logits

    def scored(self, parts: Sequence[Part]) -> list[Tensor]:
        """Logits [tokens, vocab], or [1, vocab], of each part after one pass; valid until the next."""
        if self._static and self._static.takes(parts):
            try:
                return self._static.score(parts)
            except torch.OutOfMemoryError:
                self._static.shrink()
            except RuntimeError:  # it cannot be captured
                self._static.release()
                self._static = None
        return score(self.model, parts, self.limits_logits)

    def release(self) -> None:
        """Give back what is kept of the device's memory from one answer to the next."""
        if self._static:
            self._static.release()

    def _cached(self, tokens: Sequence[int], last_only: bool) -> Tensor:
        self._cache = self._cache or DynamicCache(config=self.model.config)
        ids = torch.tensor([tokens], device=self.model.device)
        options: dict[str, Any] = {self._cache_argument: self._cache, "use_cache": True}
        if last_only and self.limits_logits:
            options["logits_to_keep"] = 1
        return self.model(input_ids=ids, **options).logits[0]

    def keep(self, path: Sequence[int]) -> None:
        if list(path) == list(range(self._latest)):
            return
        if not self.can_rollback:
            raise ValueError(f"{self.name} cannot forget tokens")
        if len(path) > self._latest:
            raise ValueError(f"only the latest {self._latest} tokens can be chosen from, not {len(path)}")
        self._context.keep(path, self._latest)
        self.length = self._context.length
        self._latest = 0

    def rewind(self, count: int) -> None:
        """Forget the last `count` tokens, of whichever `extend`."""
        self._latest = count
        self.keep([])

    @property
    def can_branch(self) -> bool:
        return self.can_rollback

    @property
    def pads(self) -> bool:
        return self.can_rollback and self._static is not None

    @property
    def processor(self) -> str:
        if self.model.device.type == "cuda":
            chip = torch.cuda.get_device_name(self.model.device)
        else:
            chip = torch.backends.cpu.get_cpu_capability()
        return chip + ", packed" * is_packed(self.model) + ", static" * self.pads

    @property
    def extra_bytes(self) -> int:
        """What is kept of the device's memory besides weights, keys and values."""
        return self._static.bytes if self._static else 0

    @property
    def seat_room(self) -> float:
        """Bytes that keys and values may take at places that are kept for them."""
        return self._static.room if self._static else 0

    @property
    def free_seats(self) -> int:
        """Bytes of these places that no context has."""
        return self._static.free if self._static else 0

    @cached_property
    def can_rollback(self) -> bool:
        """Whether the model computes the same with our attention as with its own. No configuration says so
        for sure: it is tried out."""
        config = self.model.config.get_text_config(decoder=True)
        layers = DynamicCache(config=self.model.config).layers
        if self.model._is_stateful or not (
            set(getattr(config, "layer_types", None) or ()) <= _ATTENTION
            and {type(layer) for layer in layers} <= {DynamicLayer, DynamicSlidingWindowLayer}
        ):
            return False
        if self._static:
            if self._agrees():
                return True
            self._static = None
        return self._agrees()

    def _agrees(self) -> bool:
        try:
            return agrees(self.model, self.scored)
        except Exception:  # a model that was not made for it may fail in any way
            return False
