"""specedit's proposers inside vLLM's V2 model runner, in place of its n-gram look-up. See README.md here.

vLLM imports this in every process of everyone who has specedit: what takes time to import is imported later.
"""

from __future__ import annotations

import inspect
import logging
import pkgutil
import sys
from collections.abc import Mapping
from functools import cache, wraps
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch

_GPU = "vllm.v1.worker.gpu"
# What is replaced or called, and the parameters of it that are read here.
_SEAM = {f"{_GPU}.spec_decode:init_speculator": ("vllm_config", "device", "req_states")}
_RUNNER = {
    f"{_GPU}.model_runner:GPUModelRunner.add_requests": ("self", "scheduler_output"),
    f"{_GPU}.spec_decode.ngram.speculator:NgramGPUSpeculator": ("vllm_config", "device", "req_states"),
    f"{_GPU}.spec_decode.ngram.speculator:NgramGPUSpeculator.propose": (
        "input_batch",
        "num_sampled",
        "dummy_run",
        "num_speculative_tokens",
    ),
    "vllm.distributed:get_tp_group": (),
}
# vLLM shows what loggers below its own say.
logger = logging.getLogger("vllm.specedit")


def register() -> None:
    """Entry point of the group `vllm.general_plugins`, called in every process of vLLM.

    Where `additional_config` has settings for `specedit` and the method is vLLM's n-gram look-up on the V2
    runner, ours drafts in its place. Where the runner is not one that is known, nothing is registered and
    vLLM's own goes on.
    """
    if not _fits(_SEAM):
        return
    seam = sys.modules[f"{_GPU}.spec_decode"]
    original = seam.init_speculator
    if getattr(original, "_specedit", False):  # vLLM may load plugins several times
        return

    @wraps(original)
    def init_speculator(*arguments: Any, **options: Any) -> Any:
        config = _called(original, arguments, options)["vllm_config"]
        settings = getattr(config, "additional_config", None)
        if isinstance(settings, Mapping) and "specedit" in settings and config.speculative_config.use_ngram():
            if _fits(_RUNNER):
                logger.info("specedit drafts in place of the n-gram look-up.")
                return _speculator()(*arguments, **options)
            logger.warning("specedit does not know this release's V2 model runner and drafts nothing in it.")
        return original(*arguments, **options)

    init_speculator._specedit = True  # type: ignore[attr-defined]
    for module in (seam, sys.modules.get(f"{_GPU}.model_runner")):
        if module is not None:
            module.init_speculator = init_speculator  # type: ignore[attr-defined]


def _fits(table: Mapping[str, tuple[str, ...]]) -> bool:
    """Whether all of these exist and have these parameters, in this order."""
    try:
        for name, wanted in table.items():
            parameters = inspect.signature(pkgutil.resolve_name(name)).parameters
            if tuple(parameter for parameter in parameters if parameter in wanted) != wanted:
                return False
    except Exception:  # a plugin that raises ends vLLM, also for those who do not use it
        return False
    return True


@cache
def _speculator() -> type:
    """The class of ours, for the runner that is about to make its speculator."""
    import torch
    from vllm.distributed import get_tp_group
    from vllm.v1.worker.gpu.model_runner import GPUModelRunner
    from vllm.v1.worker.gpu.spec_decode.ngram.speculator import NgramGPUSpeculator

    from specedit.integrations.rows import Row
    from specedit.integrations.vllm.proposer import make_rows

    class SpecEditSpeculator(NgramGPUSpeculator):
        """Drafts on the CPU, from one transfer of new tokens a step; the runner verifies as many for each
        row in any case. Where that goes wrong, drafts of vLLM's look-up."""

        def __init__(self, vllm_config: Any, *arguments: Any, **options: Any) -> None:
            super().__init__(vllm_config, *arguments, **options)
            self._rows = make_rows(vllm_config, padded=True)
            self._width = int(vllm_config.speculative_config.num_speculative_tokens)
            self._longest = int(vllm_config.model_config.max_model_len)
            self._tokens: dict[str, list[int]] = {}  # of each request, as far as they are here
            self._about: dict[str, Mapping[str, Any]] = {}

        def told(self, scheduler_output: Any) -> None:
            """What new requests say beside their prompts is in no state of the runner."""
            for key in scheduler_output.finished_req_ids:
                self._forget(key)
            for new in scheduler_output.scheduled_new_reqs:
                self._forget(new.req_id)
                self._about[new.req_id] = getattr(new.sampling_params, "extra_args", None) or {}

        def _forget(self, key: str) -> None:
            self._tokens.pop(key, None)
            self._about.pop(key, None)
            self._rows.forget(key)

        @torch.inference_mode()
        def propose(self, *arguments: Any, **options: Any) -> torch.Tensor:
            """int64 [rows, num_speculative_tokens], on the device. Takes what vLLM's own does."""
            given = _called(super().propose, arguments, options)
            if given["dummy_run"]:
                return super().propose(*arguments, **options)
            group, drafts = get_tp_group(), None
            if group.rank_in_group == 0:
                try:
                    drafts = self._ours(given)
                except Exception:  # it would end the engine
                    logger.exception("vLLM's own look-up drafts in this step instead of specedit")
            if drafts is None:
                drafts = super().propose(*arguments, **options)
            # All that hold a part of the model have to verify the same.
            return group.broadcast(drafts, src=0) if group.world_size > 1 else drafts

        def _ours(self, given: Mapping[str, Any]) -> torch.Tensor:
            batch, width = given["input_batch"], self._width
            rows = batch.idx_mapping[: batch.num_reqs]
            lengths = self.req_states.total_len.gpu[rows].long()
            ids = self.req_states.all_token_ids.gpu
            last = (lengths[:, None] - width - 1 + torch.arange(width + 1, device=rows.device)).clamp(min=0)
            counts = torch.stack([lengths, given["num_sampled"][: batch.num_reqs].long()], 1)
            new = torch.cat([counts, ids[rows[:, None], last].long()], 1).tolist()
            room = min(width, given["num_speculative_tokens"] or width)
            asked: list[Row | None] = []
            for key, row, (length, sampled, *latest) in zip(
                batch.req_ids, batch.idx_mapping_np, new, strict=True
            ):
                if not sampled:  # its prompt is still being read
                    asked.append(None)
                    continue
                tokens = self._tokens.setdefault(key, [])
                if len(tokens) + sampled == length:
                    tokens += latest[len(latest) - sampled :]
                else:
                    tokens[:] = ids[int(row), :length].tolist()
                left = min(room, self._longest - length - 1)
                asked.append(Row(key, tokens, length - sampled, left, self._about.get(key, {})))
            drafts = self._rows.draft(asked)
            # What is not drafted is verified all the same: the latest token again, as vLLM's look-up does.
            filled = [
                draft + [latest[-1]] * (width - len(draft)) for draft, latest in zip(drafts, new, strict=True)
            ]
            return torch.tensor(filled, dtype=torch.int64, device=rows.device)

    add_requests = GPUModelRunner.add_requests

    @wraps(add_requests)
    def told(self: Any, scheduler_output: Any) -> None:
        add_requests(self, scheduler_output)
        if isinstance(self.speculator, SpecEditSpeculator):
            self.speculator.told(scheduler_output)

    GPUModelRunner.add_requests = told
    return SpecEditSpeculator


def _called(function: Any, arguments: tuple[Any, ...], options: Mapping[str, Any]) -> Mapping[str, Any]:
    bound = inspect.signature(function).bind(*arguments, **options)
    bound.apply_defaults()
    return bound.arguments
