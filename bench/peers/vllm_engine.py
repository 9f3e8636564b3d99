"""vLLM's engine, one request at a time. Arguments: the model's folder, the dtype, speculative settings.

Reads prompts with their budget from standard input, prints what was written and the seconds it took.
"""

import json
import sys
from time import perf_counter

from vllm import LLM, SamplingParams

folder, dtype, settings = sys.argv[1:]
requests = [json.loads(line) for line in sys.stdin]
engine = LLM(
    folder,
    dtype=dtype,
    max_model_len=8192,
    max_num_seqs=1,
    speculative_config=json.loads(settings) or None,
    enable_prefix_caching=False,  # every way reads every prompt
)


def answer(request):
    sampling = SamplingParams(temperature=0, max_tokens=request["max_tokens"])
    prompt = {"prompt_token_ids": request["prompt"]}
    return list(engine.generate(prompt, sampling, use_tqdm=False)[0].outputs[0].token_ids)


answer(requests[0])  # the first one compiles
for request in requests:
    begin = perf_counter()
    tokens = answer(request)
    print(json.dumps({"tokens": tokens, "seconds": perf_counter() - begin}), flush=True)
