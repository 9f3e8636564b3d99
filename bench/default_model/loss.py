"""The loss of several edits of several files in one pass, without padding.

All tokens stand in one row: a file, then the rest of each of its prompts with its answer, then the next file.
Attention goes part by part, so that an edit sees its file and itself; all else is done for the row at once.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from transformers import AttentionInterface

ATTENTION = "edits"  # the attn_implementation of a model that goes through `losses`


@dataclass(frozen=True, slots=True)
class Part:
    """Tokens `start` to `end` of the row, which also see the tokens of `file` before them (none: 0 to 0)."""

    start: int
    end: int
    file: tuple[int, int] = (0, 0)


def losses(model, files: Sequence[Sequence]) -> tuple[Tensor, Tensor]:
    """The cross entropy of each answer token, for the `Example`s of each file.

    Args:
        model: a causal language model that was loaded with `attn_implementation=ATTENTION`.

    Returns:
        losses [n] float32 and hits [n] bool (the token is the most likely one), answer after answer.
    """
    ids: list[int] = []
    positions: list[int] = []
    parts: list[Part] = []
    picked: list[int] = []
    wanted: list[int] = []

    def add(tokens: list[int], position: int, file: tuple[int, int] = (0, 0)) -> None:
        parts.append(Part(len(ids), len(ids) + len(tokens), file))
        ids.extend(tokens)
        positions.extend(range(position, position + len(tokens)))

    for examples in files:
        shared = _common([example.prompt for example in examples])
        start = len(ids)
        add(examples[0].prompt[:shared], 0)
        for example in examples:
            add(example.prompt[shared:] + example.answer[:-1], shared, (start, start + shared))
            picked += range(len(ids) - len(example.answer), len(ids))
            wanted += example.answer
    out = model.model(
        torch.tensor([ids]), position_ids=torch.tensor([positions]), use_cache=False, parts=parts
    )
    logits = model.lm_head(out.last_hidden_state[0, picked]).float()
    target = torch.tensor(wanted)
    return torch.nn.functional.cross_entropy(logits, target, reduction="none"), logits.argmax(-1) == target


def _common(prompts: list[list[int]]) -> int:
    """How many tokens the prompts share at their start; less than all of any."""
    shared = 0
    while shared < min(map(len, prompts)) - 1 and all(p[shared] == prompts[0][shared] for p in prompts):
        shared += 1
    return shared


def _attention(
    module, query: Tensor, key: Tensor, value: Tensor, mask: None, scaling: float, parts: list[Part], **_
) -> tuple[Tensor, None]:
    """query [1, heads, n, size], key and value [1, kv heads, n, size] to [1, n, heads, size].

    It is what transformers' AttentionInterface calls.
    """
    found = []
    for part in parts:
        seen = [slice(*part.file), slice(part.start, part.end)]
        keys, values = (torch.cat([of[0, :, s] for s in seen], 1) for of in (key, value))
        found.append(_attend(query[0, :, part.start : part.end] * scaling, keys, values))
    return torch.cat(found, 1).transpose(0, 1)[None], None


def _attend(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    """query [heads, n, size], key and value [kv heads, m, size] to [heads, n, size]; query 0 is at key m - n.

    On a CPU this is faster than torch's kernel: heads that share keys go through one product.
    """
    heads, n, size = query.shape
    kv, m, _ = key.shape
    hidden = torch.ones(n, m, dtype=torch.bool).triu(m - n + 1).repeat(heads // kv, 1)
    scores = query.reshape(kv, -1, size) @ key.transpose(1, 2)
    weights = scores.masked_fill(hidden, float("-inf")).softmax(-1, dtype=scores.dtype)
    return (weights @ value).reshape(heads, n, size)


AttentionInterface.register(ATTENTION, _attention)
