"""Linear layers in oneDNN's layout."""

import pytest
import torch
from torch import nn
from transformers import AutoModelForCausalLM, GPT2Config, LlamaConfig, LlamaForCausalLM, MistralConfig

from specedit.targets.hf import HFTarget
from specedit.targets.linear import PackedLinear, _step, is_packed, pack

SHAPE = {
    "vocab_size": 40,
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "num_hidden_layers": 2,
    "max_position_embeddings": 512,
    "pad_token_id": 0,
}
CONFIGS = {
    "llama": LlamaConfig(**SHAPE),
    "tied, with biases": LlamaConfig(**SHAPE, tie_word_embeddings=True, attention_bias=True, mlp_bias=True),
    "sliding windows": MistralConfig(**SHAPE, sliding_window=8),
    "only its head is linear": GPT2Config(vocab_size=40, n_embd=32, n_layer=2, n_head=4),
}
IDS = torch.arange(20)[None]


def made(config, dtype=torch.float32):
    torch.manual_seed(0)
    return AutoModelForCausalLM.from_config(config, dtype=dtype).eval()


@torch.no_grad()
def logits(model):
    return model(input_ids=IDS).logits


@pytest.mark.parametrize("name", CONFIGS)
@pytest.mark.parametrize(
    ("dtype", "near"), [(torch.float32, 1e-5), (torch.bfloat16, 0.05)], ids=["float32", "bfloat16"]
)
def test_a_packed_model_computes_the_same(name, dtype, near):
    model = made(CONFIGS[name], dtype)
    before = logits(model)
    pack(model)
    possible = dtype == torch.float32 or torch.ops.mkldnn._is_mkldnn_bf16_supported()
    assert is_packed(model) == possible
    assert any(type(module) is nn.Linear for module in model.modules()) != possible
    torch.testing.assert_close(logits(model), before, rtol=near, atol=near)


def test_a_packed_model_is_another_one_to_the_cost_curve():
    model = made(CONFIGS["llama"])
    before = HFTarget(model).processor
    pack(model)
    assert HFTarget(model).processor != before


@pytest.mark.parametrize("shape", [(0, 5), (1, 5), (37, 5), (2, 37, 5), (1, 300, 5)])
def test_any_number_of_rows_is_multiplied(shape):
    torch.manual_seed(0)
    layer, rows = nn.Linear(5, 3), torch.randn(shape)
    with torch.inference_mode():
        torch.testing.assert_close(PackedLinear(layer)(rows), layer(rows))


def test_oneDNN_meets_few_numbers_of_rows():
    assert len({rows + -rows % _step(rows) for rows in range(1, 513)}) < 100


def test_packed_layers_can_be_unpacked():
    layer = nn.Linear(5, 3)
    again = PackedLinear(layer).unpacked()
    torch.testing.assert_close((again.weight, again.bias), (layer.weight.detach(), layer.bias.detach()))


def test_what_oneDNN_does_not_know_stays_as_it_is():
    model = made(CONFIGS["llama"], torch.float16)
    pack(model)
    assert not is_packed(model)


class Peeking(LlamaForCausalLM):
    """Looks at a weight itself, as some models do to know its dtype."""

    def forward(self, **options):
        assert self.lm_head.weight.dtype
        return super().forward(**options)


def test_a_model_that_looks_at_its_weights_is_put_back():
    torch.manual_seed(0)
    model = Peeking(CONFIGS["llama"]).eval()
    before = logits(model)
    pack(model)
    assert not is_packed(model)
    assert logits(model).equal(before)
