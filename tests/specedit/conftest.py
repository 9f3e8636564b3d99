"""Tiny models with random weights (real architectures and caches, milliseconds a step); the command line."""

from __future__ import annotations

import io
import sys
from dataclasses import dataclass
from functools import cache

import pytest
import torch
from transformers import (
    AutoModelForCausalLM,
    Gemma3TextConfig,
    JambaConfig,
    LlamaConfig,
    PreTrainedModel,
    Qwen2Config,
)

from specedit.cli import main
from specedit.decoding.cost import CostCurve
from specedit.decoding.loop import decode
from specedit.decoding.planner import Planner
from specedit.decoding.sampling import Sampler
from specedit.decoding.statistics import Statistics
from specedit.proposers import Request, create
from specedit.types import Sampling

VOCAB = 29
GREEDY = Sampling()
_SHAPE = {
    "vocab_size": VOCAB,
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 512,
}


@cache
def _tiny(kind: str) -> PreTrainedModel:
    config = {
        "llama": lambda: LlamaConfig(**_SHAPE, num_hidden_layers=3),
        "qwen2": lambda: Qwen2Config(**_SHAPE, num_hidden_layers=3),
        "gemma3": lambda: Gemma3TextConfig(**_SHAPE, num_hidden_layers=6, head_dim=8, sliding_window=8),
        "jamba": lambda: JambaConfig(
            **_SHAPE,
            num_hidden_layers=4,
            mamba_d_state=4,
            attn_layer_period=2,
            attn_layer_offset=1,
            num_experts=2,
        ),
    }[kind]()
    torch.manual_seed(1)
    model = AutoModelForCausalLM.from_config(config).eval()
    model.generation_config.eos_token_id = None
    return model


@pytest.fixture(scope="session")
def tiny():
    """tiny("llama" | "qwen2" | "gemma3" | "jamba"): a model with 29 tokens and no end-of-sequence token."""
    return _tiny


@pytest.fixture(scope="session")
def generate():
    """What transformers itself writes greedily, as a list of token ids."""

    def greedy(model: PreTrainedModel, prompt: list[int], tokens: int, **options) -> list[int]:
        ids = torch.tensor([prompt])
        out = model.generate(
            ids,
            attention_mask=torch.ones_like(ids),
            max_new_tokens=tokens,
            do_sample=False,
            pad_token_id=0,
            **options,
        )
        return out[0, len(prompt) :].tolist()

    return greedy


@pytest.fixture(scope="session")
def run():
    """Decode to a list: run(target, prompt) plainly, or with proposers (objects, or names)."""

    def decoded(
        target,
        prompt,
        proposers=(),
        sampling=GREEDY,
        max_tokens=60,
        ends=lambda token: False,
        reference=None,
        stats=None,
        sampler=None,
    ):
        proposers = [p for p in proposers if not isinstance(p, str)] + create(
            [p for p in proposers if isinstance(p, str)]
        )
        flat = CostCurve([1.0] * 9)  # drafting as much as possible is what finds faults
        request = Request(prompt, ["reference"], lambda text: list(reference or prompt), str)
        steps = decode(
            target,
            request,
            sampler or Sampler(sampling, prompt),
            Planner(proposers, flat) if proposers else None,
            max_tokens=max_tokens,
            ends=ends,
            stats=stats or Statistics(),
        )
        return [token for tokens in steps for token in tokens]

    return decoded


@dataclass(frozen=True)
class Ran:
    """A run of the command: its exit code, and what it left on the two streams and in the file."""

    code: int
    out: str
    err: str
    data: bytes = b""


@pytest.fixture
def specedit(monkeypatch, capsys):
    """Runs the command in this process, which need not import torch again: specedit("models", "list")."""

    def run(*arguments, stdin=b""):
        monkeypatch.setattr(sys, "argv", ["specedit", *map(str, arguments)])
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin)))
        capsys.readouterr()
        with pytest.raises(SystemExit) as end:
            main()
        return Ran(end.value.code or 0, *capsys.readouterr())

    return run
