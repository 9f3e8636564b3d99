"""Linear layers of models on a CPU, as it multiplies fastest: with their weights laid out once for oneDNN, or
in float32 where it has no instructions for the model's dtype."""

from __future__ import annotations

from time import perf_counter
from typing import TypeVar

import torch
from torch import Tensor, nn
from torch.nn.functional import linear, pad
from transformers import PreTrainedModel

L = TypeVar("L", bound=nn.Module)
_DTYPES = (torch.float32, torch.bfloat16, torch.float16)
_FEW = 8  # rows from which on it pays to convert a weight in every pass
_PIECE = 1 << 20  # elements of a weight that are converted at a time: they stay in the processor's cache
_FAR = 0.05  # of the size of the logits, by which no rounding moves them


class PackedLinear(nn.Module):
    """A linear layer without gradients. torch's own lays its weight out anew in every pass, which takes as
    long as multiplying some tokens by it.

    Args:
        layer: its weight is laid out for passes of some tens of tokens.

    Raises:
        RuntimeError, NotImplementedError: this torch or CPU has no oneDNN for it.
    """

    def __init__(self, layer: nn.Linear) -> None:
        super().__init__()
        self.in_features, self.out_features = layer.in_features, layer.out_features
        # As torch's own compiler does (torch/_inductor/fx_passes/mkldnn_fusion.py).
        self._packed = torch.ops.mkldnn._reorder_linear_weight(layer.weight.detach(), 32)
        self._bias = None if layer.bias is None else layer.bias.detach()

    def forward(self, hidden: Tensor) -> Tensor:
        flat = hidden.reshape(-1, self.in_features)
        rows = len(flat)
        if missing := -rows % _step(rows):
            flat = pad(flat, (0, 0, 0, missing))
        made = torch.ops.mkldnn._linear_pointwise(flat, self._packed, self._bias, "none", [], "")
        return made[:rows].reshape(*hidden.shape[:-1], self.out_features)

    def unpacked(self) -> nn.Linear:
        """The ordinary layer again."""
        return _made(nn.Linear, self._packed.to_dense(), self._bias)


class UpcastLinear(nn.Linear):
    """A linear layer in half precision on a CPU that has no instructions for it. All but a few rows are
    multiplied in float32, which is exact but for the order of the sums and takes a fraction of the time."""

    def forward(self, hidden: Tensor) -> Tensor:
        flat = hidden.reshape(-1, self.in_features)
        if len(flat) < _FEW:
            return super().forward(hidden)
        flat, made = flat.float(), hidden.new_empty(len(flat), self.out_features)
        size = max(_PIECE // self.in_features, 1)
        for begin in range(0, self.out_features, size):
            piece = slice(begin, begin + size)
            bias = None if self.bias is None else self.bias[piece].float()
            made[:, piece] = linear(flat, self.weight[piece].float(), bias)
        return made.reshape(*hidden.shape[:-1], self.out_features)

    def unpacked(self) -> nn.Linear:
        """The ordinary layer again."""
        return _made(nn.Linear, self.weight, self.bias)


def _made(kind: type[nn.Linear], weight: Tensor, bias: Tensor | None) -> nn.Linear:
    """A layer of this kind that has these and copies neither. What other layers share stays theirs, too."""
    layer = kind(weight.shape[1], weight.shape[0], bias is not None, device="meta")
    layer.weight = _parameter(weight)
    if bias is not None:
        layer.bias = _parameter(bias)
    return layer.eval()


def _parameter(values: Tensor) -> nn.Parameter:
    return values if isinstance(values, nn.Parameter) else nn.Parameter(values, requires_grad=False)


def _step(rows: int) -> int:
    """What many rows are made a multiple of, a 32nd of them at most. oneDNN compiles code for every number of
    rows and keeps it for good: up to half a megabyte for each number and shape of layer."""
    return 1 << max((rows - 1).bit_length() - 5, 0)


def is_packed(model: nn.Module) -> bool:
    """Whether `pack` has changed it."""
    return any(isinstance(module, PackedLinear | UpcastLinear) for module in model.modules())


@torch.inference_mode()
def pack(model: PreTrainedModel) -> None:
    """Make a model on a CPU faster, for good; what cannot be packed stays as it is.

    A model that looks at the weights of its layers itself, or computes something else with packed ones, is
    put back.
    """
    if model.device.type != "cpu" or model.dtype not in _DTYPES or not torch.backends.mkldnn.is_available():
        return
    ids = torch.tensor([[1, 2] * (_FEW // 2)])  # fewer rows are not upcast
    before = _logits(model, ids)
    upcast = model.dtype != torch.float32 and _is_slow(model.dtype)
    for parent, name, layer in _layers(model, nn.Linear):
        if upcast:
            setattr(parent, name, _made(UpcastLinear, layer.weight, layer.bias))
        elif packed := _packed(layer):
            setattr(parent, name, packed)
    try:
        right = bool((_logits(model, ids) - before).norm() < _FAR * before.norm())
    except Exception:  # a model that was not made for it may fail in any way
        right = False
    if not right:
        ours: list[tuple[nn.Module, str, PackedLinear | UpcastLinear]]
        ours = [*_layers(model, PackedLinear), *_layers(model, UpcastLinear)]
        for parent, name, changed in ours:
            setattr(parent, name, changed.unpacked())


def _is_slow(dtype: torch.dtype) -> bool:
    """Whether many rows take much longer in this dtype than in float32. CPUs that have instructions for it
    are not all known, and torch does not use those of all."""
    seconds = []
    for each in (torch.float32, dtype):
        rows, weight = torch.ones(64, 512, dtype=each), torch.ones(512, 512, dtype=each)
        times = []
        for _ in range(4):  # the first one prepares
            begin = perf_counter()
            linear(rows, weight)
            times.append(perf_counter() - begin)
        seconds.append(min(times))
    return seconds[1] > 2 * seconds[0]


def _packed(layer: nn.Linear) -> PackedLinear | None:
    """The layer, packed, if that is possible and right."""
    some = layer.weight[:2].clone()  # as good a pair of inputs as any, but for their values
    try:
        packed = PackedLinear(layer)
        ours, theirs = packed(some), linear(some, layer.weight, layer.bias)
    except (RuntimeError, NotImplementedError):
        return None
    return packed if torch.allclose(ours.float(), theirs.float(), rtol=_FAR, atol=_FAR) else None


def _layers(model: nn.Module, kind: type[L]) -> list[tuple[nn.Module, str, L]]:
    """The layers of just this kind: their parents, their names there, and they themselves."""
    return [
        (parent, name, child)
        for parent in model.modules()
        for name, child in parent.named_children()
        if type(child) is kind
    ]


def _logits(model: PreTrainedModel, ids: Tensor) -> Tensor:
    return model(input_ids=ids, use_cache=False).logits.float()
