"""An editor whose model llama.cpp runs."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from transformers import AutoTokenizer, PreTrainedTokenizerBase

from specedit import SpecEditError, SpecEditor
from specedit.integrations.llamacpp.convert import default_gguf
from specedit.integrations.llamacpp.target import LlamaCppTarget
from specedit.pretrained import explain, quiet
from specedit.proposers import DEFAULT, find

# Where ways to split text differ: digits, runs of spaces (before them, too), newlines, contractions, scripts.
_SAMPLE = (
    "def f(x2):\n\n    return [x2 * 1000,\t'it\\'s', \"ß日本\"]  # 3.14 it's\r\n        y_1 = 2\n        12\n"
)
# llama.cpp's names for what --dtype calls them.
_FORMATS = {"auto": "BF16", "bfloat16": "BF16", "float16": "F16", "float32": "F32"}


def editor(
    path: str | os.PathLike[str] | None = None,
    *,
    tokenizer: str | None = None,
    proposers: Sequence[str] = DEFAULT,
    progress: Callable[[str], None] | None = None,
    **options: Any,
) -> SpecEditor:
    """An editor with a `.gguf` file, or with the default model as one.

    Args:
        path: the file; None takes the default model, in bfloat16.
        tokenizer: a folder or hub id; by default it is read from the file.
        proposers: names of those that guess; none decodes plainly.
        progress: receives short lines about what takes long.
        options: those of `LlamaCppTarget`.

    Raises:
        SpecEditError: the model or tokenizer cannot be had or loaded, or there is no such proposer or option.
    """
    find(proposers)  # a wrong name should not wait for the model
    return SpecEditor(*_load(path, tokenizer, "BF16", progress, options), proposers)


def named(
    file: str, device: str | None, dtype: str | None, progress: Callable[[str], None] | None
) -> tuple[LlamaCppTarget, PreTrainedTokenizerBase]:
    """What `--model llamacpp:FILE` stands for, with the other options of a model at the shell.

    Args:
        file: the `.gguf` file; "" takes the default model, in this dtype, by default bfloat16.
        device: "cpu" keeps everything there; None or "auto" takes what llama.cpp was built for.

    Raises:
        SpecEditError: the model or tokenizer cannot be had or loaded, or these options do not go together.
    """
    if file and dtype not in (None, "auto"):
        raise SpecEditError(f"{file} has numbers of its own format: leave the dtype out.")
    if device not in (None, "auto", "cpu"):
        raise SpecEditError(f"llama.cpp does not take {device}: leave the device out, or say cpu.")
    options = {"n_gpu_layers": 0, "op_offload": False, "offload_kqv": False} if device == "cpu" else {}
    return _load(file or None, None, _FORMATS[dtype or "auto"], progress, options)


def _load(
    path: str | os.PathLike[str] | None,
    tokenizer: str | None,
    numbers: str,
    progress: Callable[[str], None] | None,
    options: dict[str, Any],
) -> tuple[LlamaCppTarget, PreTrainedTokenizerBase]:
    if path is None:
        path = default_gguf(numbers, progress)
        tokenizer = tokenizer or str(path.parent)
    target = LlamaCppTarget(path, **options)
    loaded = _tokenizer(target, Path(path).expanduser(), tokenizer)
    _compare(target, loaded)
    return target, loaded


def _tokenizer(target: LlamaCppTarget, file: Path, name: str | None) -> PreTrainedTokenizerBase:
    options: dict[str, Any] = {"trust_remote_code": False}
    if name is None:
        options |= {"gguf_file": file.name, "local_files_only": True, "clean_up_tokenization_spaces": False}
    try:
        with quiet():
            tokenizer = AutoTokenizer.from_pretrained(name or file.parent, **options)
    except Exception as error:  # whatever transformers throws
        raise explain(error, name or str(file), hub=name is not None and not Path(name).is_dir()) from error
    if name is None and target.eos_token_id >= 0:  # transformers 5.17 gives it some default
        tokenizer.eos_token = tokenizer.convert_ids_to_tokens(target.eos_token_id)
    return tokenizer


def _compare(target: LlamaCppTarget, tokenizer: PreTrainedTokenizerBase) -> None:
    """Say when the model would read other tokens than llama.cpp itself gives it."""
    ours = tokenizer(_SAMPLE, add_special_tokens=False)["input_ids"]
    if ours != target.tokens(_SAMPLE):
        warnings.warn(
            f"transformers splits text into other tokens than llama.cpp for {target.name}: answers may be "
            "worse, so give tokenizer=, the folder or hub id of the model that the file was made from.",
            stacklevel=4,
        )
