"""A model that llama.cpp runs, as the target."""

from __future__ import annotations

import logging
import os
import weakref
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from specedit.types import SpecEditError

try:
    import llama_cpp as lib
except ImportError as error:
    raise SpecEditError("llama.cpp is missing: pip install 'specedit[llamacpp]'.") from error

_CONTEXT = 16384  # tokens: memory for all of them is taken at once, and many models could have a million


class LlamaCppTarget:
    """A causal language model in a `.gguf` file, run by llama.cpp (see `Target`).

    It scores chains, not trees. Recurrent and hybrid models are decoded plainly. `close()` gives the memory
    back, as does dropping the target.

    Args:
        path: the `.gguf` file; of a model in several files, the first.
        n_ctx: tokens that the context holds; by default those that the model was trained for, up to 16,384.
        n_threads: by default as many as torch uses.
        n_batch: the most tokens that are scored at once.
        verbose: whether llama.cpp says on stderr what it does. That is a setting of the whole process.
        options: fields of llama.cpp's `llama_model_params` and `llama_context_params`. Where it was built for
            a GPU, all layers go there unless `n_gpu_layers` says otherwise.

    Raises:
        SpecEditError: the model cannot be loaded, does not generate text, or there is no such option; later,
            memory runs out.
    """

    can_branch = pads = False

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        n_ctx: int | None = None,
        n_threads: int | None = None,
        n_batch: int = 512,
        verbose: bool = False,
        **options: Any,
    ) -> None:
        file = Path(path).expanduser()
        if not file.is_file():
            raise SpecEditError(f"There is no file {path}: name a .gguf file.")
        # What the binding prints is what a logger of this name would log.
        logging.getLogger("llama-cpp-python").setLevel(logging.DEBUG if verbose else logging.CRITICAL + 1)
        threads = n_threads or torch.get_num_threads()
        with ExitStack() as opened:
            self._model = _load(opened, file, options)
            self.max_length: int | None = n_ctx or min(lib.llama_model_n_ctx_train(self._model), _CONTEXT)
            sizes = {"n_ctx": self.max_length, "n_batch": n_batch, "n_ubatch": n_batch}
            sizes |= {"n_threads": threads, "n_threads_batch": threads}
            self._context = _begin(opened, file, self._model, sizes | options)
            self._memory = lib.llama_get_memory(self._context)
            if (
                not self._memory
                or lib.llama_model_has_encoder(self._model)
                or lib.llama_model_is_diffusion(self._model)
            ):
                raise SpecEditError(f"{path} does not write from left to right: choose a model that does.")
            self._batch = lib.llama_batch_init(n_batch, 0, 1)
            opened.callback(lib.llama_batch_free, self._batch)
            self.close = weakref.finalize(self, opened.pop_all().close)

        for row in range(n_batch):  # all tokens belong to one sequence
            self._batch.n_seq_id[row] = 1
            self._batch.seq_id[row][0] = 0
        self._tokens, self._positions, self._wanted = (
            np.ctypeslib.as_array(field, (n_batch,))
            for field in (self._batch.token, self._batch.pos, self._batch.logits)
        )
        self._vocabulary = lib.llama_model_get_vocab(self._model)
        self.vocab_size = lib.llama_vocab_n_tokens(self._vocabulary)
        self.eos_token_id = lib.llama_vocab_eos(self._vocabulary)
        self.eos_token_ids = frozenset(
            token for token in range(self.vocab_size) if lib.llama_vocab_is_eog(self._vocabulary, token)
        )
        self.can_rollback = not (
            lib.llama_model_is_recurrent(self._model) or lib.llama_model_is_hybrid(self._model)
        )
        layers = options.get("n_gpu_layers", lib.llama_model_default_params().n_gpu_layers)
        device = "gpu" if layers and lib.llama_supports_gpu_offload() else "cpu"
        numbers = lib.llama_ftype_name(lib.llama_model_ftype(self._model)).decode()
        self.name = f"{file} {device} {numbers}"
        self.processor = f"{lib.llama_print_system_info().decode()}, {threads} threads"
        self.reset()

    def reset(self) -> None:
        self.length = 0
        self._latest = 0
        # Keys of attention are masked where they are not valid; a recurrent state must be zero.
        lib.llama_memory_clear(self._memory, not self.can_rollback)

    def extend(
        self, tokens: Sequence[int], parents: Sequence[int] | None = None, last_only: bool = False
    ) -> Tensor:
        if parents is not None and list(parents) != list(range(len(tokens) - 1)):
            raise ValueError(f"{self.name} scores chains alone")
        logits = torch.empty(1 if last_only else len(tokens), self.vocab_size)
        rows = logits.numpy()
        size = len(self._tokens)
        for start in range(0, len(tokens), size):
            chunk = tokens[start : start + size]
            count = len(chunk)
            self._batch.n_tokens = count
            self._tokens[:count] = chunk
            self._positions[:count] = np.arange(self.length + start, self.length + start + count)
            self._wanted[:count] = not last_only
            self._wanted[count - 1] = not last_only or start + count == len(tokens)
            code = lib.llama_decode(self._context, self._batch)
            if code:
                lib.llama_memory_seq_rm(self._memory, 0, self.length, -1)
                raise self._failed(code, len(tokens))
            if self._wanted[count - 1]:
                count = 1 if last_only else count
                # The next pass overwrites what this points to.
                found = np.ctypeslib.as_array(lib.llama_get_logits(self._context), (count, self.vocab_size))
                rows[0 if last_only else start :][:count] = found
        self.length += len(tokens)
        self._latest = len(tokens)
        return logits

    def keep(self, path: Sequence[int]) -> None:
        if list(path) != list(range(len(path))) or len(path) > self._latest:
            raise ValueError(f"only the first of the latest {self._latest} tokens can be kept, not {[*path]}")
        length = self.length - self._latest + len(path)
        if length < self.length and not (
            self.can_rollback and lib.llama_memory_seq_rm(self._memory, 0, length, -1)
        ):
            raise ValueError(f"{self.name} cannot forget tokens")
        self.length = length
        self._latest = len(path)

    def tokens(self, text: str) -> list[int]:
        """Token ids of a text in which control tokens are ordinary characters, as llama.cpp splits it."""
        data = text.encode()
        room = (lib.llama_token * (len(data) + 1))()  # one in front, and none is shorter than a byte
        count = lib.llama_tokenize(self._vocabulary, data, len(data), room, len(room), False, False)
        return room[:count]

    def _failed(self, code: int, count: int) -> SpecEditError:
        if code == -1:
            return SpecEditError(f"{self.name} has no such tokens: give the tokenizer that belongs to it.")
        return SpecEditError(
            f"llama.cpp cannot score {count} tokens after {self.length} (code {code}): choose a shorter "
            "file, or a smaller n_ctx or model if memory is short."
        )


def _load(opened: ExitStack, file: Path, options: dict[str, Any]) -> Any:
    """The loaded model, which `opened` will free."""
    lib.llama_backend_init()
    settings = lib.llama_model_default_params()
    fields = {name for name, *_ in (*settings._fields_, *lib.llama_context_params._fields_)}
    if unknown := options.keys() - fields:
        raise SpecEditError(
            f"llama.cpp has no setting {min(unknown)}: choose from {', '.join(sorted(fields))}."
        )
    _set(settings, options)
    model = lib.llama_model_load_from_file(os.fsencode(file), settings)
    if not model:
        raise SpecEditError(f"llama.cpp cannot load {file}: with verbose=True it says why.")
    opened.callback(lib.llama_model_free, model)
    return model


def _begin(opened: ExitStack, file: Path, model: Any, options: dict[str, Any]) -> Any:
    """A context for the model, which `opened` will free."""
    settings = lib.llama_context_default_params()
    settings.swa_full = True  # else a sliding window overwrites what a rollback would bring back
    if lib.llama_model_ftype(model) == lib.LLAMA_FTYPE_ALL_F32:
        # Both llama.cpp's usual cache and its flash attention round to float16.
        settings.type_k = settings.type_v = lib.GGML_TYPE_F32
        settings.flash_attn_type = lib.LLAMA_FLASH_ATTN_TYPE_DISABLED
    _set(settings, options)
    context = lib.llama_init_from_model(model, settings)
    if not context:
        raise SpecEditError(
            f"llama.cpp cannot make a context of {settings.n_ctx} tokens for {file}: choose a smaller n_ctx, "
            "or see with verbose=True what is in its way."
        )
    opened.callback(lib.llama_free, context)
    return context


def _set(settings: Any, options: dict[str, Any]) -> None:
    for name in options.keys() & {name for name, *_ in settings._fields_}:
        setattr(settings, name, options[name])
