"""The training loss of many edits in one row is that of each edit by itself."""

import pytest
import torch
from transformers import LlamaConfig, LlamaForCausalLM

from bench.default_model.dataset import Edit
from bench.default_model.loss import ATTENTION, losses
from bench.default_model.train import Example, weights


def example(prompt, answer, changed=()):
    return Example(
        Edit("kind", "python", "a.py", "", "", ""), prompt, answer, [i in changed for i in range(len(answer))]
    )


FILES = [
    [example([1, 2, 3, 4, 5], [6, 7, 8]), example([1, 2, 3, 9], [7, 6, 5, 4, 3])],
    [example([5, 4, 3], [2])],
]


@pytest.fixture(scope="module")
def models():
    """The same small model with the row's attention and with transformers' own."""
    shape = {
        "vocab_size": 12,
        "hidden_size": 32,
        "intermediate_size": 64,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
    }
    torch.manual_seed(0)
    own = LlamaForCausalLM(LlamaConfig(**shape, attn_implementation="eager"))
    packed = LlamaForCausalLM(LlamaConfig(**shape, attn_implementation=ATTENTION))
    packed.load_state_dict(own.state_dict())
    return packed, own


def alone(model, example):
    """The cross entropy of the answer's tokens, by the plain forward pass."""
    ids = torch.tensor([example.prompt + example.answer])
    logits = model(ids).logits[0, len(example.prompt) - 1 : -1]
    return torch.nn.functional.cross_entropy(logits, torch.tensor(example.answer), reduction="none")


def test_every_edit_has_its_own_loss(models):
    packed, own = models
    loss, _ = losses(packed, FILES)
    expected = torch.cat([alone(own, example) for file in FILES for example in file])
    torch.testing.assert_close(loss, expected)


def test_gradients_are_those_of_the_edits_alone(models):
    packed, own = models
    losses(packed, FILES)[0].sum().backward()
    sum(alone(own, example).sum() for file in FILES for example in file).backward()
    for (name, one), other in zip(packed.named_parameters(), own.parameters(), strict=True):
        torch.testing.assert_close(one.grad, other.grad, msg=name)


def test_hits_are_the_tokens_that_greedy_decoding_would_write(models):
    packed, own = models
    greedy = own(torch.tensor([[5, 4, 3]])).logits[0, -1].argmax().item()
    _, hits = losses(packed, [[example([5, 4, 3], [greedy])], [example([5, 4, 3], [(greedy + 1) % 12])]])
    assert hits.tolist() == [True, False]


@pytest.mark.parametrize(
    ("changed", "expected"), [((), [1, 1, 1, 1]), ((1,), [1, 4, 1, 1]), ((0, 1), [2, 2, 1, 1])]
)
def test_the_changed_tokens_of_an_edit_share_their_weight(changed, expected):
    assert weights(example([1], [2, 3, 4, 5], changed), 4.0) == expected
