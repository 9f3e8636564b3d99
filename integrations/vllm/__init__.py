"""specedit's proposers inside vLLM (see README.md beside this file)."""

from specedit.integrations.vllm.predictions import Predictions
from specedit.integrations.vllm.proposer import SpecEditProposer

__all__ = ["Predictions", "SpecEditProposer"]
