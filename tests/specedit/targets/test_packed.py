from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from transformers import (
    AutoModelForCausalLM,
    CohereConfig,
    DeepseekV3Config,
    Gemma2Config,
    GPT2Config,
    GPTNeoXConfig,
    GptOssConfig,
    MistralConfig,
    Olmo2Config,
    Phi3Config,
    Qwen3Config,
)

from specedit.targets.hf import HFTarget
from specedit.targets.packed import Context, Part, score

SHAPE = {
    "vocab_size": 29,
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "num_hidden_layers": 4,
    "max_position_embeddings": 512,
    "pad_token_id": 0,
}
MODELS = {
    "sliding windows": lambda: MistralConfig(**SHAPE, sliding_window=8),
    "capped scores": lambda: Gemma2Config(**SHAPE, head_dim=8, sliding_window=8),
    "sinks": lambda: GptOssConfig(
        **SHAPE, head_dim=8, sliding_window=8, num_local_experts=2, num_experts_per_tok=1
    ),
    "keys longer than values": lambda: DeepseekV3Config(
        **SHAPE | {"num_key_value_heads": 4},
        q_lora_rank=16,
        kv_lora_rank=16,
        qk_rope_head_dim=8,
        qk_nope_head_dim=8,
        v_head_dim=8,
        moe_intermediate_size=16,
        n_routed_experts=4,
        num_experts_per_tok=2,
        n_group=1,
        topk_group=1,
    ),
    "learned positions": lambda: GPT2Config(vocab_size=29, n_embd=32, n_layer=2, n_head=4),
    "neox": lambda: GPTNeoXConfig(**SHAPE),
    "qwen3": lambda: Qwen3Config(**SHAPE, head_dim=8),
    "olmo2": lambda: Olmo2Config(**SHAPE),
    "cohere": lambda: CohereConfig(**SHAPE),
    "phi3": lambda: Phi3Config(**SHAPE),
}
TEXT = [number % 29 for number in range(40)]


@pytest.fixture(params=MODELS)
def model(request):
    torch.manual_seed(1)
    return AutoModelForCausalLM.from_config(MODELS[request.param]()).eval()


def test_contexts_are_scored_together_as_each_would_be_alone(model):
    with torch.inference_mode():
        alone = model(torch.tensor([TEXT])).logits[0]
    a, b = Context(), Context()
    score(model, [Part(a, TEXT[:20]), Part(b, TEXT[:5])], True)
    # After 20 stand 3 and 21, and 22 after that.
    tree, last = score(model, [Part(a, [20, 3, 21, 22], [0, 0, 2]), Part(b, TEXT[5:7], last_only=True)], True)
    a.keep([0, 2, 3], scored=4)
    [after] = score(model, [Part(a, [23])], True)
    for scored, expected in ((tree[[0, 2, 3]], alone[20:23]), (last, alone[6:7]), (after, alone[23:24])):
        torch.testing.assert_close(scored, expected)
    assert (a.length, b.length) == (24, 7)


def test_static_passes_score_a_tree_and_what_follows_as_the_model_does(model):
    with torch.inference_mode():
        alone = model(torch.tensor([TEXT])).logits[0]
    target = HFTarget(model, static=True)
    target.extend(TEXT[:20])
    # After 20 stand 3 and 21, then 22 and 9. The pass has room for 8 tokens.
    tree = target.extend([20, 3, 21, 22, 9], [0, 0, 2, 3]).clone()
    target.keep([0, 2, 3])
    after = target.extend([23, 24, 25])
    assert target.pads
    torch.testing.assert_close(tree[[0, 2, 3]], alone[20:23])
    torch.testing.assert_close(after, alone[23:26])


def test_such_models_are_speculated_on(model):
    assert HFTarget(model).can_branch


def test_threads_may_share_a_model(tiny):
    model = tiny("llama")
    with torch.inference_mode():
        alone = model(torch.tensor([TEXT])).logits[0]

    def scored(_) -> torch.Tensor:
        context = Context()
        return torch.cat([score(model, [Part(context, [token])], True)[0] for token in TEXT])

    with ThreadPoolExecutor(4) as pool:
        for logits in pool.map(scored, range(8)):
            torch.testing.assert_close(logits, alone)
