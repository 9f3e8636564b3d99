"""specedit's proposers inside SGLang, around its n-gram speculation. Never run: see README.md here.

pip install specedit && python -m sglang.launch_server --speculative-algorithm NGRAM …
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np

from specedit.integrations.rows import Row, Rows, logger

_WORKER = "sglang.srt.speculative.ngram_worker.NGRAMWorker"
_METHOD = "_prepare_draft_tokens"
_PARAMETERS = ["self", "batch"]  # of the method, in the releases that this was read for
_rows: WeakKeyDictionary[object, Rows] = WeakKeyDictionary()


def register() -> None:
    """Entry point of the group `sglang.srt.plugins`. Where the worker is not the one that this was read for,
    nothing is registered, and SGLang's own n-gram speculation goes on."""
    import pkgutil

    from sglang.srt.plugins.hook_registry import HookRegistry, HookType

    try:
        method = getattr(pkgutil.resolve_name(_WORKER), _METHOD)
        fits = list(inspect.signature(method).parameters) == _PARAMETERS
    except (ImportError, AttributeError):
        fits = False
    if fits:
        HookRegistry.register(f"{_WORKER}.{_METHOD}", around, HookType.AROUND)
    else:
        logger.warning("specedit does not know this release of SGLang and drafts nothing in it.")


def around(original: Callable[..., Any], worker: Any, batch: Any) -> tuple[np.ndarray, np.ndarray]:
    """Drafts in place of those of SGLang's n-gram tree, where a request's tokens are up to date.

    Returns:
        Token ids, int64 [rows · width], the first of each row being its latest token, and which of them see
        which, bool [rows · width · width].
    """
    ids, sees = original(worker, batch)
    try:
        return _replaced(ids, sees, worker, batch)
    except Exception:
        logger.exception("specedit drafts nothing in this step")
        return ids, sees


def _replaced(ids: np.ndarray, sees: np.ndarray, worker: Any, batch: Any) -> tuple[np.ndarray, np.ndarray]:
    width = worker.draft_token_num
    ids = np.array(ids).reshape(-1, width)
    sees = np.array(sees).reshape(-1, width, width)
    rows: list[Row | None] = []
    for root, request in zip(ids[:, 0], batch.reqs, strict=True):
        tokens = [*request.origin_input_ids, *request.output_ids]
        # With overlapped scheduling the latest tokens may not be there yet: what follows them is not ours.
        current = bool(request.output_ids) and tokens[-1] == root
        about = request.sampling_params.custom_params or {}
        prompt = len(request.origin_input_ids)
        rows.append(Row(request.rid, tokens, prompt, width - 1, about) if current else None)
    for number, draft in enumerate(_known(worker).draft(rows)):
        if draft:
            ids[number, 1 : 1 + len(draft)] = draft
            ids[number, 1 + len(draft) :] = 0  # every row is as wide: what is not drafted is rejected
            sees[number] = np.tril(np.ones((width, width), dtype=bool))
    return ids.reshape(-1), sees.reshape(-1)


def _known(worker: Any) -> Rows:
    if worker not in _rows:
        target = worker.target_worker
        vocabulary = target.model_runner.model_config.vocab_size
        _rows[worker] = Rows(target.tokenizer, vocabulary, "cuda", 2 * worker.max_batch_size, padded=True)
    return _rows[worker]
