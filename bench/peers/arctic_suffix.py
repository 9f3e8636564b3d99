"""Suffix decoding (Oliaro et al. 2024, arXiv 2411.04975) as arctic-inference has it."""

import itertools

import numpy as np
from arctic_inference.suffix_decoding import SuffixDecodingCache
from drafts import replay

DEPTH = 64

cache = SuffixDecodingCache(
    max_tree_depth=DEPTH, max_cached_requests=0
)  # an answer must not help the next one
numbers = itertools.count()


def start(prompt):
    number = next(numbers)
    if number:
        cache.stop_request(number - 1)
    cache.start_request(number, np.array(prompt, dtype=np.int32))
    known = 0

    def propose(written):
        nonlocal known
        cache.add_active_response(number, np.array(written[known:], dtype=np.int32))
        known = len(written)
        recent = np.array([*prompt, *written][-DEPTH:], dtype=np.int32)
        return cache.speculate(number, recent, max_spec_tokens=DEPTH).token_ids

    return propose


replay(start)
