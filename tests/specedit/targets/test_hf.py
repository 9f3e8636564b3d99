import pytest
import torch

from specedit.targets.hf import HFTarget
from specedit.types import SpecEditError


@pytest.mark.parametrize("kind", ["llama", "qwen2", "gemma3"])
@pytest.mark.parametrize("wrong", [1, 5, 20])
@pytest.mark.parametrize("before", [3, 30])  # inside and beyond gemma3's window of 8
def test_a_rollback_leaves_no_trace(tiny, kind, before, wrong):
    context = [n % 29 for n in range(before)]
    target = HFTarget(tiny(kind))
    target.extend(context)
    expected = target.extend([1, 2, 3])

    target.reset()
    target.extend(context)
    target.extend([7] * wrong)
    target.keep([])
    assert target.length == before
    torch.testing.assert_close(target.extend([1, 2, 3]), expected)


@pytest.mark.parametrize("kind", ["llama", "gemma3"])
def test_a_part_of_a_block_can_be_kept(tiny, kind):
    target = HFTarget(tiny(kind))
    target.extend(list(range(20)))
    target.extend([1, 2, 3, 9, 9, 9])
    target.keep(range(3))
    kept = target.extend([4])

    target.reset()
    target.extend([*range(20), 1, 2, 3])
    torch.testing.assert_close(target.extend([4]), kept)


# 1 ─ 2 ─ 3
#  └─ 4 ─ 5
TREE, PARENTS = [1, 2, 3, 4, 5], [0, 1, 0, 3]


@pytest.mark.parametrize("kind", ["llama", "qwen2", "gemma3"])
def test_a_branch_scores_as_it_would_alone(tiny, kind):
    target = HFTarget(tiny(kind))
    assert target.can_branch
    for path in ([0, 1, 2], [0, 3, 4]):
        target.reset()
        target.extend(list(range(20)))
        rows = target.extend([TREE[position] for position in path])
        after = target.extend([7])

        target.reset()
        target.extend(list(range(20)))
        torch.testing.assert_close(target.extend(TREE, PARENTS)[path], rows)
        target.keep(path)
        assert target.length == 23
        torch.testing.assert_close(target.extend([7]), after)


def test_models_that_cannot_verify_trees_say_so(tiny):
    assert not HFTarget(tiny("jamba")).can_branch


def test_a_model_with_attention_of_its_own_is_found_out(tiny, monkeypatch):
    monkeypatch.setattr("specedit.targets.packed._NAME", "sdpa")
    target = HFTarget(tiny("llama"))
    assert not target.can_rollback
    target.extend([1, 2, 3])
    torch.testing.assert_close(target.extend([4]), target.model(torch.tensor([[1, 2, 3, 4]])).logits[0, -1:])


def test_the_models_own_attention_is_left_as_it_was(tiny):
    model = tiny("llama")
    HFTarget(model).extend([1, 2, 3])
    assert model.config._attn_implementation == "sdpa"


def test_only_the_latest_tokens_can_be_rolled_back(tiny):
    target = HFTarget(tiny("gemma3"))
    target.extend(list(range(20)))
    target.extend([1, 2])
    with pytest.raises(ValueError, match="latest 2"):
        target.keep(range(3))


def test_a_rollback_of_nothing_changes_nothing(tiny):
    target = HFTarget(tiny("gemma3"))
    target.extend(list(range(20)))
    target.keep(range(20))
    assert target.length == 20


def test_the_last_row_alone_is_the_last_row(tiny):
    target = HFTarget(tiny("llama"))
    rows = target.extend([1, 2, 3])
    target.reset()
    torch.testing.assert_close(target.extend([1, 2, 3], last_only=True), rows[-1:])


def test_a_model_on_the_cpu_does_not_run_on_the_gpu_beside_it(tiny, monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda device=None: "a GPU")
    assert HFTarget(tiny("llama")).processor == torch.backends.cpu.get_cpu_capability()


@pytest.mark.parametrize(("ids", "expected"), [(2, {2}), ([2, 5], {2, 5}), (None, set())])
def test_every_end_token_counts(tiny, monkeypatch, ids, expected):
    model = tiny("llama")
    monkeypatch.setattr(model.generation_config, "eos_token_id", ids)
    assert HFTarget(model).eos_token_ids == expected


def test_the_context_limit_is_the_models(tiny):
    assert HFTarget(tiny("llama")).max_length == 512


def test_a_model_without_a_cache_is_refused():
    from transformers import RwkvConfig, RwkvForCausalLM

    model = RwkvForCausalLM(
        RwkvConfig(vocab_size=29, hidden_size=32, num_hidden_layers=2, attention_hidden_size=32)
    )
    with pytest.raises(SpecEditError, match="choose another model"):
        HFTarget(model)
