"""Linear layers of models on a CPU, as it multiplies fastest: with their weights laid out once for oneDNN, or
in float32 where it has no instructions for the model's dtype."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
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
        siblings: those that it is one of.
        number: which of them.
    """

    def __init__(self, siblings: Siblings, number: int) -> None:
        super().__init__()
        self.in_features, self.out_features = siblings.in_features, siblings.sizes[number]
        self._siblings, self._number = siblings, number

    def forward(self, hidden: Tensor) -> Tensor:
        return self._siblings.made(hidden, self._number)

    def unpacked(self) -> nn.Linear:
        """The ordinary layer again."""
        return self._siblings.unpacked(self._number)


class Siblings:
    """Linear layers that read the same input, as one: the fewer and larger products are, the faster.

    Args:
        layers: their weights are laid out for passes of some tens of tokens.

    Raises:
        RuntimeError, NotImplementedError: this torch or CPU has no oneDNN for it.
    """

    def __init__(self, layers: Sequence[nn.Linear]) -> None:
        self.in_features = layers[0].in_features
        self.sizes = [layer.out_features for layer in layers]
        weight = torch.cat([layer.weight.detach() for layer in layers])
        # As torch's own compiler does (torch/_inductor/fx_passes/mkldnn_fusion.py).
        self._packed = torch.ops.mkldnn._reorder_linear_weight(weight, 32)
        self._biases = [None if layer.bias is None else layer.bias.detach() for layer in layers]
        self._bias = None
        if any(bias is not None for bias in self._biases):
            every = zip(self._biases, self.sizes, strict=True)
            self._bias = torch.cat([weight.new_zeros(n) if bias is None else bias for bias, n in every])
        self._latest: tuple[Tensor | None, dict[int, Tensor]] = None, {}

    def made(self, hidden: Tensor, number: int) -> Tensor:
        """What one of them makes of its input. What the others do is kept until they are asked."""
        latest = self._latest  # another thread may put its own there meanwhile
        if latest[0] is not hidden or number not in latest[1]:
            made = self._multiplied(hidden).split(self.sizes, -1)
            latest = self._latest = hidden, dict(enumerate(made))
        made = latest[1].pop(number)
        if not latest[1]:
            self._latest = None, {}
        return made

    def _multiplied(self, hidden: Tensor) -> Tensor:
        flat = hidden.reshape(-1, self.in_features)
        rows = len(flat)
        if missing := -rows % _step(rows):
            flat = pad(flat, (0, 0, 0, missing))
        made = torch.ops.mkldnn._linear_pointwise(flat, self._packed, self._bias, "none", [], "")
        return made[:rows].reshape(*hidden.shape[:-1], sum(self.sizes))

    def unpacked(self, number: int) -> nn.Linear:
        """One of them as an ordinary layer again."""
        return _made(nn.Linear, self._packed.to_dense().split(self.sizes)[number], self._biases[number])


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
    before, siblings = _read(model, ids)
    upcast = model.dtype != torch.float32 and _is_slow(model.dtype)
    while siblings:  # a weight goes as soon as it is laid out anew
        (parent, _), layers = siblings.popitem()
        replaced: Sequence[nn.Module]
        if upcast:
            replaced = [_made(UpcastLinear, layer.weight, layer.bias) for layer in layers.values()]
        else:
            replaced = _packed(list(layers.values()))
        for name, new in zip(layers, replaced, strict=True):
            setattr(parent, name, new)
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


def _read(
    model: PreTrainedModel, ids: Tensor
) -> tuple[Tensor, dict[tuple[nn.Module, int], dict[str, nn.Linear]]]:
    """The logits of some tokens, and the linear layers by name: those of one parent that read the same input
    together."""
    inputs: dict[nn.Module, Tensor] = {}

    def read(layer: nn.Module, given: tuple[Tensor, ...]) -> None:
        inputs.update(zip([layer], given, strict=False))

    found = _layers(model, nn.Linear)
    hooks = [layer.register_forward_pre_hook(read) for _, _, layer in found]
    try:
        logits = _logits(model, ids)
    finally:
        for hook in hooks:
            hook.remove()
    siblings = defaultdict[tuple[nn.Module, int], dict[str, nn.Linear]](dict)
    for parent, name, layer in found:
        siblings[parent, id(inputs.get(layer, layer))][name] = layer
    return logits, siblings


def _packed(layers: list[nn.Linear]) -> Sequence[nn.Module]:
    """These layers of the same input, packed if that is possible and right."""
    some = layers[0].weight[:2].clone()  # as good a pair of inputs as any, but for their values
    try:
        siblings = Siblings(layers)
        packed = [PackedLinear(siblings, number) for number in range(len(layers))]
        pairs = [
            (ours(some).float(), linear(some, layer.weight, layer.bias).float())
            for ours, layer in zip(packed, layers, strict=True)
        ]
    except (RuntimeError, NotImplementedError):
        return layers
    right = all(torch.allclose(*pair, rtol=_FAR, atol=_FAR) for pair in pairs)
    return packed if right else layers


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
