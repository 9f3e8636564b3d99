"""Contexts of one model that are scored together: the tokens of all in one row, each seeing its own context.

The layers that work token by token take the row as it is; only attention goes from context to context
(selective batching, Yu et al. 2022, Orca). So nothing is padded, however different contexts and drafts are, a
rollback is a smaller number, and any model may verify trees, sliding windows or not.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from threading import Lock, local
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention
from transformers import AttentionInterface, PreTrainedModel

from specedit.types import depths

SLACK = 1.5  # times its length that a context takes when it grows, so that it seldom does
_NAME = "specedit"
_running = local()  # .parts: what the forward pass of this thread scores
_alone = Lock()  # whose attention a model computes is a setting of the model, for all threads

# Keys and values by layer, and which of the two (0, 1): [heads, capacity, size].
Places = dict[tuple[int, int], Tensor]


class Context:
    """Keys and values of the tokens of one context, in all layers.

    Attributes:
        length: how many tokens it has.
    """

    def __init__(self) -> None:
        self.length = 0
        self._states: Places = {}
        self._moving = Lock()

    @property
    def bytes(self) -> int:
        """What it takes of the device's memory."""
        return sum(states.nbytes for states in list(self._states.values()))  # layers may come meanwhile

    @property
    def token_bytes(self) -> int:
        """What a token takes of it, in all layers."""
        return sum(states[:, :1].nbytes for states in self._states.values())

    @torch.inference_mode()
    def trim(self) -> None:
        """Take no more memory than its tokens need, in a place of its own."""
        with self._moving:
            self._states = {place: states[:, : self.length].clone() for place, states in self._states.items()}

    @torch.inference_mode()
    def places(self, count: int, capacity: int) -> Places:
        """Places like its own, for so many contexts of so many tokens: [count, heads, capacity, size]."""
        return {
            place: states.new_zeros(count, len(states), capacity, states.shape[2])
            for place, states in self._states.items()
        }

    def is_at(self, places: Places) -> bool:
        """Whether its keys and values are at these places."""
        return bool(places) and all(self._states.get(place) is states for place, states in places.items())

    @torch.inference_mode()
    def move(self, places: Places) -> None:
        """Have them there from now on. There is room for more than its tokens."""
        with self._moving:
            for place, states in self._states.items():
                places[place][:, : self.length] = states[:, : self.length]
                places[place][:, self.length :] = 0  # a NaN of somebody else's would count, however masked
            self._states = dict(places)

    @torch.inference_mode()
    def copy(self, length: int) -> Context:
        """A context of its first `length` tokens."""
        twin = Context()
        twin.length = length
        with self._moving:
            twin._states = {place: states[:, :length].clone() for place, states in self._states.items()}
        return twin

    @torch.inference_mode()
    def keep(self, path: Sequence[int], scored: int) -> None:
        """Of the last `scored` tokens keep those at these rising indices."""
        with self._moving:
            begin = self.length - scored
            self.length = begin + len(path)
            if list(path) == list(range(len(path))):
                return
            chosen = torch.tensor(path) + begin
            for states in self._states.values():
                chosen = chosen.to(states.device)  # the layers of a model may be on several
                states[:, begin : self.length] = states[:, chosen]

    def written(self, layer: int, new: tuple[Tensor, Tensor]) -> list[Tensor]:
        """Keys and values [heads, length + n, size] of a layer with those of n tokens more."""
        end = self.length + new[0].shape[1]
        found = []
        for kind, states in enumerate(new):
            kept = self._states.get((layer, kind))
            if kept is None or kept.shape[1] < end:
                heads, _, size = states.shape
                grown = states.new_empty(heads, max(64, int(SLACK * end)), size)
                if kept is not None:
                    grown[:, : self.length] = kept[:, : self.length]
                kept = self._states[layer, kind] = grown
            kept[:, self.length : end] = states
            found.append(kept[:, :end])
        return found


class Part:
    """What is scored of one context.

    Args:
        context: it grows by these tokens.
        tokens: their ids.
        parents: for each but the first the index of the one that it follows; None if each follows the last.
        last_only: whether only the logits after the last are wanted.
    """

    def __init__(
        self,
        context: Context,
        tokens: Sequence[int],
        parents: Sequence[int] | None = None,
        last_only: bool = False,
    ) -> None:
        chain = range(len(tokens) - 1)
        self.context, self.tokens, self.last_only = context, tokens, last_only
        self.parents = chain if parents is None else parents
        self.is_chain = list(self.parents) == list(chain)
        self.positions = [context.length + depth for depth in depths(self.parents)]
        self._masks: dict[tuple[int | None, int, torch.device], Tensor | None] = {}

    def written(self, layer: int, new: tuple[Tensor, Tensor]) -> list[Tensor]:
        return [states[None] for states in self.context.written(layer, new)]

    def own(self) -> np.ndarray:
        """bool [tokens, tokens]: which of them each sees."""
        size = len(self.tokens)
        if self.is_chain:
            return np.tril(np.ones((size, size), dtype=bool))
        own = np.eye(size, dtype=bool)
        for index, parent in enumerate(self.parents, start=1):
            own[index] |= own[parent]
        return own

    def mask(self, window: int | None, query: Tensor, times: int) -> Tensor | None:
        """[times · tokens, context + tokens] in the query's dtype: 0 for what each token sees and -inf for
        the rest, so many times; None if each sees all. Made once for all layers."""
        if (key := (window, times, query.device)) not in self._masks:
            sees = self._sees(window)
            self._masks[key] = None if sees is None else added(sees, query, times)
        return self._masks[key]

    def is_causal(self, window: int | None) -> bool:
        """Whether each token sees just those up to itself, which needs no mask."""
        return self.is_chain and self.context.length == 0 and not self._is_far(window)

    def _is_far(self, window: int | None) -> bool:
        return window is not None and max(self.positions) >= window

    def _sees(self, window: int | None) -> Tensor | None:
        before, size = self.context.length, len(self.tokens)
        far = self._is_far(window)
        if size == 1 and not far:
            return None
        sees = torch.ones(size, before + size, dtype=torch.bool)
        sees[:, before:] = torch.from_numpy(self.own())
        if window is not None and far:
            mine = torch.tensor(self.positions)
            theirs = torch.cat([torch.arange(before), mine])
            sees &= mine[:, None] - theirs[None] < window
        return sees


class Scored(Protocol):
    """What attention asks of a part, which may be several rows of equally many tokens."""

    tokens: Sequence[int]

    def written(self, layer: int, new: tuple[Tensor, Tensor]) -> list[Tensor]:
        """Keys and values [rows, heads, m, size] of a layer after those [heads, tokens, size] were added."""

    def is_causal(self, window: int | None) -> bool:
        """Whether each token sees just those up to itself."""

    def mask(self, window: int | None, query: Tensor, times: int) -> Tensor | None:
        """To add to scores [rows, heads, times · tokens of a row, m], so that each token sees what it may."""


@torch.inference_mode()
def score(model: PreTrainedModel, parts: Sequence[Part], limits_logits: bool) -> list[Tensor]:
    """Logits [tokens, vocab], or [1, vocab], of each part after one forward pass.

    Args:
        limits_logits: whether the model takes `logits_to_keep`.
    """
    rows, wanted, at = [], list[int](), 0
    for part in parts:
        end = at + len(part.tokens)
        rows.append(range(end - 1 if part.last_only else at, end))
        wanted += rows[-1]
        at = end
    ids = torch.tensor([[token for part in parts for token in part.tokens]], device=model.device)
    positions = torch.tensor([[place for part in parts for place in part.positions]], device=model.device)
    options = {}
    if limits_logits and len(wanted) < at:
        options["logits_to_keep"] = torch.tensor(wanted, device=model.device)
    with attending(model, parts):
        logits = model(input_ids=ids, position_ids=positions, use_cache=False, **options).logits[0]
    if not options and len(wanted) < at:
        logits = logits[wanted]
    for part in parts:
        part.context.length += len(part.tokens)
    return list(logits.split([len(row) for row in rows]))


@torch.inference_mode()
def agrees(model: PreTrainedModel, scored: Callable[[Sequence[Part]], list[Tensor]]) -> bool:
    """Whether a tree in two passes is scored like its last branch in one pass of the model itself."""
    context = Context()
    scored([Part(context, [1, 2])])
    ours = scored([Part(context, [3, 4, 5], parents=[0, 0])])[0][-1].float()
    with _alone:
        theirs, other = (
            model(input_ids=torch.tensor([tokens], device=model.device), use_cache=False)
            .logits[0, -1]
            .float()
            for tokens in ([1, 2, 3, 5], [1, 2, 3, 4, 5])
        )
    return bool((ours - theirs).norm() < 0.1 * (other - theirs).norm())


@contextmanager
def attending(model: PreTrainedModel, parts: Sequence[Scored]) -> Iterator[None]:
    """The model's attention is ours meanwhile."""
    config = model.config.get_text_config(decoder=True)
    with _alone:
        usual = config._attn_implementation
        config._attn_implementation, _running.parts = _NAME, parts
        try:
            yield
        finally:
            config._attn_implementation, _running.parts = usual, None


def _attention(
    module: Any,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    scaling: float | None = None,
    sliding_window: int | None = None,
    softcap: float | None = None,
    s_aux: Tensor | None = None,
    **kwargs,
) -> tuple[Tensor, None]:
    """Attention of a row: query [1, heads, total, size], key and value of its key-value heads."""
    if not getattr(_running, "parts", None):
        raise RuntimeError("specedit is using this model in another thread: wait until it has finished.")
    total, heads = query.shape[2], query.shape[1]
    out = query.new_empty(1, total, heads, value.shape[3])
    at = 0
    for part in _running.parts:
        span = slice(at, at := at + len(part.tokens))
        keys, values = part.written(module.layer_idx, (key[0, :, span], value[0, :, span]))
        asked = query[0, :, span]
        by_hand = softcap is not None or s_aux is not None
        if not by_hand and part.is_causal(sliding_window):
            attended = scaled_dot_product_attention(
                asked[None], keys, values, is_causal=True, scale=scaling, enable_gqa=True
            )
        else:
            # Heads that share keys are taken as one with more queries, so that no key is copied.
            rows, distinct = keys.shape[:2]
            mask = part.mask(sliding_window, query, heads // distinct)
            asked = asked.unflatten(1, (rows, -1)).transpose(0, 1)  # [rows, heads, n, size]
            asked = asked.reshape(rows, distinct, -1, asked.shape[3])
            if by_hand:
                attended = _attend_by_hand(asked, keys, values, mask, scaling, softcap, s_aux)
            else:
                attended = scaled_dot_product_attention(asked, keys, values, mask, scale=scaling)
            attended = attended.reshape(rows, heads, -1, values.shape[3])
        out[0, span] = attended.transpose(1, 2).flatten(0, 1)
    return out, None


def added(sees: Tensor, query: Tensor, times: int) -> Tensor:
    """What to add to scores, so that only these count, so many times one below the other. Kernels would make
    it of the bools in every layer."""
    mask = query.new_zeros(sees.shape).masked_fill_(~sees.to(query.device), float("-inf"))
    return mask.repeat(*[1] * (mask.dim() - 2), times, 1)


def _attend_by_hand(
    query: Tensor,
    keys: Tensor,
    values: Tensor,
    mask: Tensor | None,
    scaling: float | None,
    softcap: float | None,
    sinks: Tensor | None,
) -> Tensor:
    """[rows, heads, n, size] of query [rows, heads, n, size] on keys and values [rows, heads, m, size].

    Knows what no kernel of torch's does: capped scores (Gemma 2), sinks (gpt-oss).
    """
    scores = query @ keys.transpose(2, 3) * (query.shape[3] ** -0.5 if scaling is None else scaling)
    if softcap is not None:
        scores = softcap * torch.tanh(scores / softcap)
    if mask is not None:
        scores = scores + mask
    if sinks is not None:  # a key that takes attention and gives nothing
        each = sinks.to(scores).reshape(keys.shape[1], -1)  # by the heads that share keys
        each = each.repeat_interleave(query.shape[2] // each.shape[1], 1)
        scores = torch.cat([scores, each[None, :, :, None].expand(len(scores), -1, -1, -1)], dim=-1)
    return scores.softmax(-1, dtype=torch.float32).to(values)[..., : keys.shape[2]] @ values


AttentionInterface.register(_NAME, _attention)
