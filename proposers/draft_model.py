"""A small model, or the first layers of the target itself, for text that stands nowhere yet."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch

from specedit import models
from specedit.decoding.encode import decode_text
from specedit.proposers import Proposer, Request
from specedit.targets import Target
from specedit.targets.hf import HFTarget
from specedit.targets.linear import pack
from specedit.types import Draft, SpecEditError

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

_SURE = 0.4  # a token that the draft model gives less probability ends the draft
_COMPUTED = 1 << 20  # the most evidence
_ROOM = 1.2  # times its weights that a model takes


class _Drafting(Proposer):
    """Drafts with a model, token by token, as in Leviathan et al. 2023 (arXiv 2211.17192).

    Its tokens are drawn by the target's own rule, with the same random numbers, so that they agree often.
    Whatever the planner does with them, the answer is the target's. Of a model with another vocabulary the
    text is taken over, and what cannot be is not proposed.
    """

    slow = True
    _draft: HFTarget | None = None
    _tokenizer: PreTrainedTokenizerBase | None = None  # of the draft model; None if it is the target's

    def _use(self, model: PreTrainedModel, name: str) -> None:
        draft = HFTarget(model, name, static=False)
        if not draft.can_rollback:
            raise SpecEditError(
                f"{name} keeps a state that cannot be rolled back: choose another draft model."
            )
        self._draft = draft

    def start(self, request: Request) -> None:
        self._request = request
        self._context: list[int] = []  # what the draft model has read
        self._settled = 0  # how many of these begin every later context, too
        self._lines: list[int] = []  # the history in another vocabulary, as far as its lines are complete
        self._line = ""  # the last, which may go on
        self._read = 0  # tokens of the history in there
        if self._draft:  # another answer may be drafted meanwhile
            self._draft = copy.copy(self._draft)
            self._draft.reset()

    def propose(self, history: Sequence[int], limit: int) -> list[Draft]:
        context = self._translated(history)
        longest = self._draft.max_length if self._draft else 0
        if not self._draft or not context or (longest is not None and len(context) + limit > longest):
            return []
        kept = min(self._settled, len(context) - 1)
        while kept < min(len(self._context), len(context) - 1) and self._context[kept] == context[kept]:
            kept += 1
        self._draft.rewind(len(self._context) - kept)
        logits = self._draft.extend(context[kept:], last_only=True)
        answer = history[len(self._request.prompt) :]
        drafted: list[int] = []
        while True:
            drafted.append(self._drawn(logits, [*answer, *drafted]))
            if len(drafted) == limit or logits[0].float().softmax(-1)[drafted[-1]] < _SURE:
                break
            logits = self._draft.extend(drafted[-1:])
        self._context = [*context, *drafted[:-1]]
        self._settled = len(self._lines) if self._tokenizer else len(context)
        return [Draft(self._back(drafted), _COMPUTED)]

    def _drawn(self, logits: torch.Tensor, answer: Sequence[int]) -> int:
        if self._request.draw and self._tokenizer is None:
            return max(self._request.draw(logits, answer), 0)
        return int(logits[0].argmax())

    def _translated(self, history: Sequence[int]) -> list[int]:
        """The history in the draft model's vocabulary; empty while it ends within a character."""
        if self._tokenizer is None:
            return list(history)
        new = self._request.text(history, self._read)
        if new.endswith("\ufffd"):
            return []
        self._read = len(history)
        *lines, self._line = (self._line + new).splitlines(keepends=True) or [""]
        for line in lines:
            self._lines += self._tokenizer(line, add_special_tokens=False).input_ids
        return [*self._lines, *self._tokenizer(self._line, add_special_tokens=False).input_ids]

    def _back(self, drafted: list[int]) -> list[int]:
        """What was drafted in the target's vocabulary. The last token may go on beyond it and is left out."""
        if self._tokenizer is None:
            return drafted
        text = decode_text(self._tokenizer, drafted).partition("\ufffd")[0]
        return self._request.encode(text)[:-1]


class DraftModelProposer(_Drafting):
    """Drafts with another model.

    Args:
        model: as `SpecEditor.from_pretrained` takes it.
    """

    name = "draft_model"

    def __init__(self, model: str) -> None:
        self._model = model

    def join(self, target: Target, tokenizer: PreTrainedTokenizerBase) -> None:
        beside = getattr(target, "model", None)  # it runs where the target does, if that is a model here
        device = str(beside.device) if beside is not None else None
        dtype = str(beside.dtype).removeprefix("torch.") if beside is not None else None
        if missing := _missing(self._model, device, dtype):
            warnings.warn(
                f"The draft model {self._model} is left out: it lacks {missing / 2**30:.1f} GiB of memory.",
                stacklevel=2,
            )
            return
        loaded = models.load(self._model, device=device, dtype=dtype)
        pack(loaded.model)
        self._use(loaded.model, loaded.name)
        if loaded.tokenizer.get_vocab() != tokenizer.get_vocab():
            self._tokenizer = loaded.tokenizer


class EarlyExitProposer(_Drafting):
    """Drafts with the target's own first layers and its head, as in Draft & Verify (Zhang et al. 2023, arXiv
    2309.08168). It takes no memory but for its cache, and pays for models that were trained for it.

    Args:
        layers: how many.
    """

    name = "early_exit"

    def __init__(self, layers: str) -> None:
        self._layers = layers

    def join(self, target: Target, tokenizer: PreTrainedTokenizerBase) -> None:
        model: Any = getattr(target, "model", None)
        layers = getattr(getattr(model, "base_model", None), "layers", None)
        if layers is None:
            raise SpecEditError(f"{target.name} shows no layers to leave early: leave out early_exit.")
        if not self._layers.isdecimal() or not 0 < int(self._layers) < len(layers):
            raise SpecEditError(f"early_exit takes 1 to {len(layers) - 1} layers, as in early_exit:4.")
        self._use(_first_layers(model, int(self._layers)), f"early exit of {target.name}")


def _first_layers(model: PreTrainedModel, count: int) -> PreTrainedModel:
    """The same model with fewer layers. All weights are shared."""
    base = _shallow(model.base_model)
    base.layers = base.layers[:count]
    exit_early = _shallow(model)
    setattr(exit_early, model.base_model_prefix, base)
    return exit_early


def _shallow(module):
    """A module with the same parts, of which each can be replaced."""
    twin = copy.copy(module)
    twin._modules = dict(module._modules)
    return twin


def _missing(name: str, device: str | None, dtype: str | None) -> int:
    """Bytes of memory that the weights of a model would take beyond what is free there; 0 if they fit, or if
    nobody can say before they are loaded."""
    from accelerate import init_empty_weights
    from transformers import AutoConfig, AutoModelForCausalLM

    source = models.resolve(name)
    if source.kind == "gguf":
        return 0
    place = models.default_device(device)
    try:
        config = AutoConfig.from_pretrained(models.fetch(name) if source.kind == "embedded" else source.name)
        with init_empty_weights():
            model = AutoModelForCausalLM.from_config(config)
    except Exception:  # loading it says what is wrong
        return 0
    size = models.default_dtype(place, dtype).itemsize
    needed = _ROOM * size * sum(weights.numel() for weights in model.parameters())
    return max(int(needed - models.free_memory(place)), 0)
