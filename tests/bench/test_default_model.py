"""The adapter that the package carries fits the prompts that the package writes."""

import json

from bench.default_model.ship import TRAINED, prompt_hash
from specedit.default_model import ADAPTER, WHEEL


def test_the_adapter_was_trained_on_the_prompts_that_are_sent():
    assert json.loads(TRAINED.read_text())["prompt"] == prompt_hash()


def test_the_adapter_was_trained_on_the_model_that_is_fetched():
    assert json.loads(TRAINED.read_text())["base"] == WHEEL.gguf_sha256


def test_the_adapter_is_small():
    assert (ADAPTER / "adapter_model.safetensors").stat().st_size < 12_000_000
