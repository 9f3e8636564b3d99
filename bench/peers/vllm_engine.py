"""vLLM's engine, one request at a time. Arguments: the model's folder, the dtype, speculative settings.

Reads prompts with their budget from standard input, and prints for each what was written and the seconds.
"""

import json
import sys
from time import perf_counter

from vllm import LLM, SamplingParams

folder, dtype, settings = sys.argv[1:]
engine = LLM(
    folder,
    dtype=dtype,
    max_model_len=8192,
    max_num_seqs=1,
    speculative_config=json.loads(settings) or None,
    enable_prefix_caching=False,  # every way reads every prompt
)
for line in sys.stdin:
    request = json.loads(line)
    sampling = SamplingParams(temperature=0, max_tokens=request["max_tokens"])
    begin = perf_counter()
    answer = engine.generate({"prompt_token_ids": request["prompt"]}, sampling, use_tqdm=False)[0]
    tokens = list(answer.outputs[0].token_ids)
    print(json.dumps({"tokens": tokens, "seconds": perf_counter() - begin}), flush=True)
