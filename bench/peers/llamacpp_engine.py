"""llama-cpp-python, one request at a time. Arguments: the model's folder, the dtype, settings of its look-up.

The default model is written as a GGUF file beside the one that it comes as. Reads prompts with their budget
from standard input, and prints for each what was written and the seconds.
"""

import json
import os
import sys
from collections.abc import Iterator
from time import perf_counter
from typing import Any

from llama_cpp import GGML_TYPE_F32, Llama
from llama_cpp.llama_speculative import LlamaPromptLookupDecoding

FORMATS = {"float32": "F32", "bfloat16": "BF16"}
CONTEXT = 8192


def options(numbers: str, threads: int) -> dict[str, Any]:
    """What a Llama is made with, for a file in this format."""
    shared = {"n_ctx": CONTEXT, "n_batch": 512, "n_threads": threads, "n_threads_batch": threads}
    if numbers == "F32":  # so that it computes what other engines do
        return shared | {"type_k": GGML_TYPE_F32, "type_v": GGML_TYPE_F32, "flash_attn": False}
    return shared | {"flash_attn": True}


def answer(llama: Llama, prompt: list[int], limit: int) -> Iterator[int]:
    """Greedily, to the end of the message or to so many tokens; nothing is left of earlier prompts."""
    llama.reset()
    for _, token in zip(range(limit), llama.generate(prompt, temp=0.0, repeat_penalty=1.0), strict=False):
        yield token
        if token == llama.token_eos():
            return


def main() -> None:
    from specedit.integrations.llamacpp.convert import default_gguf

    _, dtype, settings = sys.argv[1:]
    lookup = json.loads(settings)
    llama = Llama(
        str(default_gguf(FORMATS[dtype])),
        draft_model=LlamaPromptLookupDecoding(**lookup) if lookup else None,
        logits_all=bool(lookup),  # it makes no room for them by itself
        verbose=False,
        **options(FORMATS[dtype], os.cpu_count() or 1),
    )
    for line in sys.stdin:
        request = json.loads(line)
        begin = perf_counter()
        tokens = list(answer(llama, request["prompt"], request["max_tokens"]))
        print(json.dumps({"tokens": tokens, "seconds": perf_counter() - begin}), flush=True)


if __name__ == "__main__":
    main()
