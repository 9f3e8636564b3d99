"""vLLM's n-gram proposer: its own class, fed directly. Arguments: tokens to draft, least, most to match."""

import sys
from types import SimpleNamespace

import numpy as np
from drafts import replay
from vllm.v1.spec_decode.ngram_proposer import NgramProposer

LONGEST = 65_536  # tokens of a prompt and its answer
k, shortest, longest = map(int, sys.argv[1:])

proposer = NgramProposer(
    SimpleNamespace(
        speculative_config=SimpleNamespace(
            prompt_lookup_min=shortest, prompt_lookup_max=longest, num_speculative_tokens=k
        ),
        model_config=SimpleNamespace(max_model_len=LONGEST),
        scheduler_config=SimpleNamespace(max_num_seqs=1024),  # it warms up with as many
        parallel_config=SimpleNamespace(tensor_parallel_size=1),
    )
)


def start(prompt):
    ids = np.zeros((1, LONGEST), dtype=np.int32)
    ids[0, : len(prompt)] = prompt
    known = 0

    def propose(written):
        nonlocal known
        ids[0, len(prompt) + known : len(prompt) + len(written)] = written[known:]
        known = len(written)
        return proposer.propose(k, [[1]], np.array([len(prompt) + known], dtype=np.int32), ids)[0]

    return propose


replay(start)
