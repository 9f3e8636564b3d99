"""Linear layers as this CPU multiplies them fastest."""

import pytest
import torch
from torch import nn
from transformers import AutoModelForCausalLM, GPT2Config, LlamaConfig, LlamaForCausalLM, MistralConfig

from specedit.targets import linear
from specedit.targets.hf import HFTarget
from specedit.targets.linear import PackedLinear, Siblings, UpcastLinear, _step, is_packed, pack

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


@pytest.fixture(params=[torch.bfloat16, torch.float16], ids=["bfloat16", "float16"])
def half(request, monkeypatch):
    """A dtype that this CPU has no instructions for, or seems to."""
    monkeypatch.setattr(linear, "_is_slow", lambda dtype: True)
    return request.param


@pytest.mark.parametrize("name", CONFIGS)
def test_a_packed_model_computes_the_same(name):
    model = made(CONFIGS[name])
    before = logits(model)
    pack(model)
    assert is_packed(model)
    assert not any(type(module) is nn.Linear for module in model.modules())
    torch.testing.assert_close(logits(model), before, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("name", CONFIGS)
def test_half_precision_is_multiplied_in_float32_where_it_is_slow(name, half):
    model = made(CONFIGS[name], half)
    before = logits(model)
    pack(model)
    assert {type(module) for module in model.modules() if isinstance(module, nn.Linear)} == {UpcastLinear}
    torch.testing.assert_close(logits(model), before, rtol=0.05, atol=0.05)


def test_a_weight_that_layers_share_stays_one(half):
    model = made(CONFIGS["tied, with biases"], half)
    before = len(list(model.parameters()))
    pack(model)
    assert model.lm_head.weight is model.get_input_embeddings().weight
    assert len(list(model.parameters())) == before


def test_half_precision_that_is_fast_stays_half_precision(monkeypatch):
    monkeypatch.setattr(linear, "_is_slow", lambda dtype: False)
    model = made(CONFIGS["llama"], torch.float16)
    pack(model)
    assert not any(type(module) is UpcastLinear for module in model.modules())


@pytest.mark.parametrize("shape", [(0, 5), (1, 5), (7, 5), (8, 5), (2, 37, 5)])
@pytest.mark.parametrize("bias", [True, False])
def test_a_weight_is_converted_piece_by_piece(half, shape, bias, monkeypatch):
    monkeypatch.setattr(linear, "_PIECE", 12)  # two of the weight's rows of five
    torch.manual_seed(0)
    layer, rows = nn.Linear(5, 3, bias, dtype=half), torch.randn(shape, dtype=half)
    with torch.inference_mode():
        ours = linear._made(UpcastLinear, layer.weight, layer.bias)(rows)
        torch.testing.assert_close(ours, layer(rows), rtol=0.01, atol=0.01)


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
        torch.testing.assert_close(PackedLinear(Siblings([layer]), 0)(rows), layer(rows))


@pytest.mark.parametrize("bias", [(True, True), (True, False), (False, False)])
def test_layers_of_the_same_input_are_multiplied_as_one(bias):
    torch.manual_seed(0)
    layers, rows = [nn.Linear(5, 3, bias[0]), nn.Linear(5, 4, bias[1])], torch.randn(37, 5)
    siblings = Siblings(layers)
    packed = [PackedLinear(siblings, number) for number in (0, 1)]
    with torch.inference_mode():
        for ours, layer in zip(packed, layers, strict=True):
            torch.testing.assert_close(ours(rows), layer(rows))
            assert (ours.unpacked().bias is None) == (layer.bias is None)
        assert siblings._latest == (None, {})


def test_the_layers_of_one_input_may_be_asked_in_any_order_and_again():
    torch.manual_seed(0)
    layers, some, others = [nn.Linear(5, 3), nn.Linear(5, 4)], torch.randn(2, 5), torch.randn(3, 5)
    siblings = Siblings(layers)
    with torch.inference_mode():
        for number, rows in [(1, some), (1, some), (0, others), (0, some), (1, others), (0, some)]:
            torch.testing.assert_close(siblings.made(rows, number), layers[number](rows))


def test_only_layers_that_read_the_same_are_siblings():
    model = made(CONFIGS["llama"])
    pack(model)
    attention, mlp = model.model.layers[0].self_attn, model.model.layers[0].mlp
    assert attention.q_proj._siblings is attention.k_proj._siblings is attention.v_proj._siblings
    assert attention.o_proj._siblings is not attention.q_proj._siblings
    assert mlp.gate_proj._siblings is mlp.up_proj._siblings is not mlp.down_proj._siblings


def test_oneDNN_meets_few_numbers_of_rows():
    assert len({rows + -rows % _step(rows) for rows in range(1, 513)}) < 100


def test_packed_layers_can_be_unpacked():
    layer = nn.Linear(5, 3)
    again = PackedLinear(Siblings([layer]), 0).unpacked()
    torch.testing.assert_close((again.weight, again.bias), (layer.weight.detach(), layer.bias.detach()))


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


class Choosy(LlamaForCausalLM):
    """Knows its own kind of head only."""

    def forward(self, **options):
        assert type(self.lm_head) is nn.Linear
        return super().forward(**options)


def test_a_model_that_refuses_upcast_layers_is_put_back(half):
    model = Choosy(CONFIGS["llama"]).to(half).eval()
    before = logits(model)
    pack(model)
    assert not is_packed(model)
    assert logits(model).equal(before)


def test_upcast_layers_that_compute_something_else_are_put_back(half, monkeypatch):
    def wrong(layer, hidden):
        made = hidden @ layer.weight.T
        return made if hidden.numel() // layer.in_features < linear._FEW else -made

    monkeypatch.setattr(UpcastLinear, "forward", wrong)
    model = made(CONFIGS["llama"], half)
    pack(model)
    assert not is_packed(model)
