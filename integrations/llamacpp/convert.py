"""Models of transformers as `.gguf` files: only as much of that as the default model needs."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path

from gguf import (
    MODEL_ARCH,
    GGMLQuantizationType,
    GGUFWriter,
    LlamaFileType,
    TokenType,
    get_tensor_name_map,
)
from gguf.quants import quantize
from safetensors.torch import load_file
from transformers import AutoConfig, AutoTokenizer

from specedit import models
from specedit.pretrained import first_sentence
from specedit.types import SpecEditError


def default_gguf(numbers: str = "BF16", progress: Callable[[str], None] | None = None) -> Path:
    """The default model as a `.gguf` file, which is made once and stands beside it in the cache.

    Args:
        numbers: F32, BF16, F16, Q8_0, Q4_0 or another format that the package gguf can write.
        progress: receives short lines about what takes long.

    Raises:
        SpecEditError: the model cannot be had, or the file cannot be written.
    """
    folder = models.fetch(progress=progress)
    file = folder / f"{models.DEFAULT_MODEL}-{numbers}.gguf"
    if not file.exists():
        if progress:
            progress(f"writing {file.name}, this once")
        unfinished = file.with_suffix(f".{os.getpid()}")
        try:
            convert(folder, unfinished, numbers, splitting="smollm")
            unfinished.replace(file)
        except OSError as error:
            raise SpecEditError(
                f"Could not write {file} ({first_sentence(error)}): make room, or set SPECEDIT_CACHE to a "
                "folder that can be written."
            ) from error
        finally:
            unfinished.unlink(missing_ok=True)
    return file


def convert(folder: Path, out: Path, numbers: str, splitting: str) -> None:
    """Write a Llama with a byte-level BPE, as transformers saves it, to a `.gguf` file.

    Args:
        numbers: the format of the weights; those of norms are float32 always.
        splitting: llama.cpp's name for how text is split before merges apply (`tokenizer.ggml.pre`).
    """
    config = AutoConfig.from_pretrained(folder)
    tokenizer = AutoTokenizer.from_pretrained(folder)
    bpe = json.loads(tokenizer.backend_tokenizer.to_str())["model"]
    kind = GGMLQuantizationType[numbers]
    file = GGUFWriter(out, "llama")
    file.add_file_type(LlamaFileType["ALL_F32" if numbers == "F32" else f"MOSTLY_{numbers}"])
    file.add_block_count(config.num_hidden_layers)
    file.add_context_length(config.max_position_embeddings)
    file.add_embedding_length(config.hidden_size)
    file.add_feed_forward_length(config.intermediate_size)
    file.add_head_count(config.num_attention_heads)
    file.add_head_count_kv(config.num_key_value_heads)
    file.add_rope_freq_base(config.rope_parameters["rope_theta"])
    file.add_layer_norm_rms_eps(config.rms_norm_eps)
    file.add_vocab_size(config.vocab_size)
    file.add_tokenizer_model("gpt2")
    file.add_tokenizer_pre(splitting)
    special = set(tokenizer.all_special_ids) | set(tokenizer.added_tokens_decoder)
    tokens = range(config.vocab_size)
    file.add_token_list([str(tokenizer.convert_ids_to_tokens(token)) for token in tokens])
    file.add_token_types([TokenType.CONTROL if token in special else TokenType.NORMAL for token in tokens])
    file.add_token_merges([" ".join(pair) for pair in bpe["merges"]])
    for name in ("bos", "eos", "unk", "pad"):
        if (token := getattr(tokenizer, f"{name}_token_id")) is not None:
            getattr(file, f"add_{name}_token_id")(token)
    file.add_add_bos_token(False)
    file.add_chat_template(tokenizer.chat_template)

    names = get_tensor_name_map(MODEL_ARCH.LLAMA, config.num_hidden_layers)
    heads = {"q_proj": config.num_attention_heads, "k_proj": config.num_key_value_heads}
    for name, weight in load_file(folder / "model.safetensors").items():
        for part, count in heads.items():
            if f".{part}." in name:
                # transformers rotates the first half of a head with the second, llama.cpp even rows with odd.
                halves = weight.view(count, 2, -1, weight.shape[-1])
                weight = halves.transpose(1, 2).reshape(weight.shape)
        written = kind if weight.dim() > 1 else GGMLQuantizationType.F32
        data = quantize(weight.float().numpy(), written)
        file.add_tensor(f"{names[name.removesuffix('.weight')]}.weight", data, raw_dtype=written)
    file.write_header_to_file()
    file.write_kv_data_to_file()
    file.write_tensors_to_file()
    file.close()
