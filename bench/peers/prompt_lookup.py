"""transformers' prompt look-up: its own class, fed directly. Arguments: tokens to draft, most to match."""

import sys

import torch
from drafts import replay
from transformers.generation.candidate_generator import PromptLookupCandidateGenerator

LONGEST = 1 << 17  # tokens of a prompt and its answer
k, longest = map(int, sys.argv[1:])
generator = PromptLookupCandidateGenerator(
    num_output_tokens=k, max_matching_ngram_size=longest, max_length=1_000_000
)


def start(prompt):
    ids = torch.zeros(1, LONGEST, dtype=torch.int64)
    ids[0, : len(prompt)] = torch.tensor(prompt)
    known = 0

    def propose(written):
        nonlocal known
        size = len(prompt) + len(written)
        ids[0, len(prompt) + known : size] = torch.tensor(written[known:])
        known = len(written)
        return generator.get_candidates(ids[:, :size])[0][0, size:].tolist()

    return propose


replay(start)
