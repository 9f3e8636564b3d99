"""A transformers causal language model as the target."""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from functools import cached_property

import torch
from torch import Tensor
from transformers import DynamicCache, PreTrainedModel
from transformers.cache_utils import DynamicLayer

from specedit.types import SpecEditError, depths


class HFTarget:
    """A causal language model of transformers 5.17 to 5.24 with its key-value cache (see `Target`).

    Rollback crops the cache. Sliding-window layers keep what has left the window until that crop, so they can
    be rolled back too; trees are for models without such layers. Recurrent and hybrid models can do neither.

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
    def extend(
        self, tokens: Sequence[int], parents: Sequence[int] | None = None, last_only: bool = False
    ) -> Tensor:
        if self._latest:
            self.keep(range(self._latest))
        ids = torch.tensor([tokens], device=self.model.device)
        options: dict = {self._cache_argument: self._cache, "use_cache": True}
        if last_only and self._limits_logits:
            options["logits_to_keep"] = 1
        if parents is not None and list(parents) != list(range(len(parents))):
            options |= self._tree(parents)
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

    @torch.inference_mode()
    def keep(self, path: Sequence[int]) -> None:
        if len(path) > self._latest:
            # A sliding window has already dropped what an older rollback would need.
            raise ValueError(f"only the latest {self._latest} tokens can be chosen from, not {len(path)}")
        if list(path) != list(range(len(path))):
            for layer in self._cache.layers:
                assert isinstance(layer, DynamicLayer)  # or the model would not branch
                for states in (layer.keys, layer.values):
                    assert states is not None  # [1, heads, length, head size]
                    latest = states[:, :, states.shape[2] - self._latest :]
                    latest[:, :, : len(path)] = latest[:, :, path]
        forgotten = self._latest - len(path)
        if self.can_rollback:
            # Also for 0: it is the crop that lets sliding layers drop what has left the window, and before
            # transformers 5.24 the next forward pass fails without it.
            self._cache.crop(-forgotten)
        self.length -= forgotten
        self._latest = 0

    def rewind(self, count: int) -> None:
        """Forget the last `count` tokens, of whichever `extend`, if `can_rewind`."""
        self._cache.crop(-count)
        self.length -= count
        self._latest = 0

    @property
    def can_rewind(self) -> bool:
        """Whether all of the context is kept. Sliding windows have dropped what a long rollback needs."""
        return self.can_rollback and all(type(layer) is DynamicLayer for layer in self._cache.layers)

    @cached_property
    def can_branch(self) -> bool:
        """Whether the model minds the mask of a tree. No configuration says so for sure: it is tried out.

        A branch must score as the same tokens do alone, and not as with the other branch before it. The
        context is lost.
        """
        if not self.can_rollback or self.model.config._attn_implementation not in ("sdpa", "eager"):
            return False
        try:
            alone = self._after([1, 2, 4, 5], path=[0, 1, 2, 3])
            branched = self._after([1, 2, 3, 4, 5], parents=[0, 1, 1, 3], path=[0, 1, 3, 4])
            mixed = self._after([1, 2, 3, 4, 5], path=[0, 1, 2, 3, 4])
        except Exception:  # a model that was not made for it may fail in any way
            return False
        finally:
            whole = self.can_rewind
            self.reset()
        return whole and bool((branched - alone).norm() < 0.1 * (mixed - alone).norm())

    def _after(
        self, tokens: Sequence[int], path: Sequence[int], parents: Sequence[int] | None = None
    ) -> Tensor:
        """float32 [1, vocab]: the logits after one token more, of these the ones on the path being kept."""
        self.reset()
        self.extend(tokens, parents)
        self.keep(path)
        return self.extend([6]).float()

    def _tree(self, parents: Sequence[int]) -> dict[str, Tensor]:
        """The model's options for a tree: what each token sees, and at which distance."""
        size = 1 + len(parents)
        sees = torch.eye(size, dtype=torch.bool)
        for position, parent in enumerate(parents, start=1):
            sees[position] |= sees[parent]
        hidden = torch.finfo(self.model.dtype).min
        mask = torch.zeros(1, 1, size, self.length + size, dtype=self.model.dtype)
        mask[0, 0, :, self.length :].masked_fill_(~sees, hidden)
        positions = self.length + torch.tensor([depths(parents)])
        device = self.model.device
        return {"attention_mask": mask.to(device), "position_ids": positions.to(device)}
