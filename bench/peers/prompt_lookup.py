"""transformers' prompt look-up: its own class, fed directly. Arguments: tokens to draft, most to match."""

import sys

import torch
from drafts import replay
from transformers.generation.candidate_generator import PromptLookupCandidateGenerator

k, longest = map(int, sys.argv[1:])
generator = PromptLookupCandidateGenerator(
    num_output_tokens=k, max_matching_ngram_size=longest, max_length=1_000_000
)


def start(prompt):
    def propose(written):
        history = torch.tensor([[*prompt, *written]])
        return generator.get_candidates(history)[0][0, history.shape[1] :].tolist()

    return propose


replay(start)
