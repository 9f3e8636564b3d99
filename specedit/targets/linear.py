"""Linear layers of models on a CPU, with their weights laid out once as oneDNN multiplies them."""

from __future__ import annotations

from typing import TypeVar

import torch
from torch import Tensor, nn
from torch.nn.functional import linear, pad
from transformers import PreTrainedModel

L = TypeVar("L", bound=nn.Module)
_DTYPES = (torch.float32, torch.bfloat16)
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
        layer = nn.Linear(self.in_features, self.out_features, self._bias is not None, device="meta")
        layer.weight = nn.Parameter(self._packed.to_dense(), requires_grad=False)
        if self._bias is not None:
            layer.bias = nn.Parameter(self._bias, requires_grad=False)
        return layer.eval()


def _step(rows: int) -> int:
    """What many rows are made a multiple of, a 32nd of them at most. oneDNN compiles code for every number of
    rows and keeps it for good: up to half a megabyte for each number and shape of layer."""
    return 1 << max((rows - 1).bit_length() - 5, 0)


def is_packed(model: nn.Module) -> bool:
    """Whether `pack` has changed it."""
    return any(isinstance(module, PackedLinear) for module in model.modules())


@torch.inference_mode()
def pack(model: PreTrainedModel) -> None:
    """Make a model on a CPU faster, for good; what cannot be packed stays as it is.

    A model that looks at the weights of its layers itself, or computes something else with packed ones, is
    put back.
    """
    if model.device.type != "cpu" or model.dtype not in _DTYPES or not torch.backends.mkldnn.is_available():
        return
    ids = torch.tensor([[1, 2, 3]])
    before = _logits(model, ids)
    for parent, name, layer in _layers(model, nn.Linear):
        if packed := _packed(layer):
            setattr(parent, name, packed)
    try:
        right = bool((_logits(model, ids) - before).norm() < _FAR * before.norm())
    except Exception:  # a model that was not made for it may fail in any way
        right = False
    if not right:
        for parent, name, ours in _layers(model, PackedLinear):
            setattr(parent, name, ours.unpacked())


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
