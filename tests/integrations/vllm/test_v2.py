"""The adapter of vLLM's V2 model runner, called as that calls it. `test_v2_engine.py` runs the real one."""

import sys
from types import ModuleType, SimpleNamespace

import numpy as np
import pytest
import torch

from specedit.decoding.encode import encode_text
from specedit.integrations.vllm import v2

FILE = "def load(path):\n    return path\n\n\nload(1)\nload(2)\nprint(load(3), load)\n"
DRAFTED, LONGEST, ROWS = 8, 400, 4
OURS = {"specedit": {}}


class NgramGPUSpeculator:
    """vLLM's own, which drafts sevens."""

    def __init__(self, vllm_config, device, req_states):
        self.req_states = req_states

    def propose(self, input_batch, num_sampled, dummy_run=False, num_speculative_tokens=None):
        return torch.full((input_batch.num_reqs, DRAFTED), 7)


class GPUModelRunner:
    speculator = None

    def add_requests(self, scheduler_output):
        pass


def init_speculator(vllm_config, device, req_states):
    return NgramGPUSpeculator(vllm_config, device, req_states)


@pytest.fixture
def vllm(monkeypatch):
    """As much of vLLM as the adapter knows, in its modules."""
    group = SimpleNamespace(world_size=1, rank_in_group=0)
    parts = {
        "vllm": {},
        "vllm.distributed": {"get_tp_group": lambda: group},
        "vllm.v1": {},
        "vllm.v1.worker": {},
        "vllm.v1.worker.gpu": {},
        "vllm.v1.worker.gpu.model_runner": {
            "GPUModelRunner": type("GPUModelRunner", (GPUModelRunner,), {}),
            "init_speculator": init_speculator,
        },
        "vllm.v1.worker.gpu.spec_decode": {"init_speculator": init_speculator},
        "vllm.v1.worker.gpu.spec_decode.ngram": {},
        "vllm.v1.worker.gpu.spec_decode.ngram.speculator": {"NgramGPUSpeculator": NgramGPUSpeculator},
    }
    for name, contents in parts.items():
        module = ModuleType(name)
        vars(module).update(contents)
        monkeypatch.setitem(sys.modules, name, module)
        if "." in name:
            above, own = name.rsplit(".", 1)
            monkeypatch.setattr(sys.modules[above], own, module, raising=False)
    v2._speculator.cache_clear()
    return SimpleNamespace(runner=sys.modules["vllm.v1.worker.gpu.model_runner"], group=group)


@pytest.fixture
def states():
    def held(*shape):
        return SimpleNamespace(gpu=torch.zeros(shape, dtype=torch.int32))

    return SimpleNamespace(all_token_ids=held(ROWS, LONGEST), total_len=held(ROWS))


@pytest.fixture
def made(vllm, states, config):
    """made(settings): the speculator that a runner with this `additional_config` gets."""

    def make(settings=OURS):
        v2.register()
        return vllm.runner.init_speculator(config(settings, DRAFTED, LONGEST, ROWS), "cpu", states)

    return make


def step(speculator, row, tokens, sampled, **options):
    """The drafts of a step in which the request in this row of the runner's got so many tokens."""
    states = speculator.req_states
    states.all_token_ids.gpu[row, : len(tokens)] = torch.tensor(tokens, dtype=torch.int32)
    states.total_len.gpu[row] = len(tokens)
    batch = SimpleNamespace(
        num_reqs=1, req_ids=["a"], idx_mapping=torch.tensor([row]), idx_mapping_np=np.array([row])
    )
    return speculator.propose(batch, torch.tensor([sampled]), **options)[0].tolist()


def test_it_drafts_what_the_prompt_shows(made, tokenizer):
    prompt, answer = encode_text(tokenizer, f"```python\n{FILE}```\n"), encode_text(tokenizer, FILE)
    speculator = made()
    assert step(speculator, 2, prompt + answer[:1], 1)[:4] == answer[1:5]
    assert step(speculator, 2, prompt + answer[:6], 5)[:4] == answer[6:10]


def test_a_request_that_comes_back_into_another_row_is_read_again(made, tokenizer):
    prompt, answer = encode_text(tokenizer, f"```python\n{FILE}```\n"), encode_text(tokenizer, FILE)
    speculator = made()
    step(speculator, 2, prompt + answer[:1], 1)
    assert step(speculator, 0, prompt + answer[:9], 1)[:4] == answer[9:13]


def test_it_drafts_what_a_request_predicts(made, vllm, tokenizer):
    prompt, answer = encode_text(tokenizer, "Go."), encode_text(tokenizer, FILE)
    speculator = made()
    runner = vllm.runner.GPUModelRunner()
    runner.speculator = speculator
    told = SimpleNamespace(extra_args={"specedit_prediction": FILE})
    new = SimpleNamespace(req_id="a", sampling_params=told)
    runner.add_requests(SimpleNamespace(finished_req_ids=set(), scheduled_new_reqs=[new]))
    assert step(speculator, 0, prompt + answer[:1], 1)[:4] == answer[1:5]
    runner.add_requests(SimpleNamespace(finished_req_ids={"a"}, scheduled_new_reqs=[]))
    assert not speculator._tokens
    assert not speculator._about


def test_no_draft_is_longer_than_the_step_wants_or_the_context_has_room_for(made, tokenizer):
    prompt, answer = encode_text(tokenizer, f"```python\n{FILE}```\n"), encode_text(tokenizer, FILE)
    last = answer[3]
    drafts = step(made(), 0, prompt + answer[:4], 1, num_speculative_tokens=2)
    assert drafts == answer[4:6] + [last] * (DRAFTED - 2)
    full = [*prompt * (LONGEST // len(prompt) + 1)][: LONGEST - 1]
    assert step(made(), 0, full, 1) == [full[-1]] * DRAFTED


def test_a_prompt_that_is_being_read_gets_no_draft(made, tokenizer):
    prompt = encode_text(tokenizer, FILE)
    assert len(step(made(), 0, prompt, 0)) == DRAFTED


def test_vllms_own_drafts_when_something_is_wrong(made, monkeypatch):
    speculator = made()
    monkeypatch.delattr(speculator.req_states, "total_len")
    assert speculator.propose(SimpleNamespace(num_reqs=1), None)[0].tolist() == [7] * DRAFTED


def test_a_model_in_parts_verifies_the_drafts_of_the_first(made, vllm, tokenizer):
    vllm.group.world_size = 2
    vllm.group.broadcast = lambda drafts, src: drafts + 1 - src
    prompt, answer = encode_text(tokenizer, f"```python\n{FILE}```\n"), encode_text(tokenizer, FILE)
    assert step(made(), 0, prompt + answer[:1], 1)[0] == answer[1] + 1
    vllm.group.rank_in_group = 1
    assert step(made(), 0, prompt + answer[:1], 1)[0] == 7 + 1


def test_a_request_with_the_id_of_another_gets_its_own_prediction(made, vllm, tokenizer):
    prompt, other = encode_text(tokenizer, "Go."), FILE.replace("load", "read")
    speculator = made()
    runner = vllm.runner.GPUModelRunner()
    runner.speculator = speculator
    for text in (FILE, other):
        told = SimpleNamespace(extra_args={"specedit_prediction": text})
        new = SimpleNamespace(req_id="a", sampling_params=told)
        runner.add_requests(SimpleNamespace(finished_req_ids=set(), scheduled_new_reqs=[new]))
        answer = encode_text(tokenizer, text)
        assert step(speculator, 0, prompt + answer[:1], 1)[:4] == answer[1:5]


def test_only_who_asks_for_it_gets_it(made):
    assert type(made({})) is NgramGPUSpeculator
    assert type(made(None)) is NgramGPUSpeculator
    assert type(made(object())) is NgramGPUSpeculator


def test_registering_again_changes_nothing(made, vllm):
    made()
    once = vllm.runner.init_speculator
    made()
    assert vllm.runner.init_speculator is once


def test_nothing_is_registered_in_a_release_with_another_seam(vllm):
    def other(config, device):
        pass

    sys.modules["vllm.v1.worker.gpu.spec_decode"].init_speculator = other
    v2.register()
    assert sys.modules["vllm.v1.worker.gpu.spec_decode"].init_speculator is other


def test_a_seam_with_more_parameters_gets_them(vllm):
    def more(vllm_config, device, req_states, target=None):
        return target

    sys.modules["vllm.v1.worker.gpu.spec_decode"].init_speculator = more
    v2.register()
    config = SimpleNamespace(additional_config={})
    assert sys.modules["vllm.v1.worker.gpu.spec_decode"].init_speculator(config, "cpu", None, target=1) == 1


def test_nor_where_the_runner_is_another(made, vllm, monkeypatch, caplog):
    monkeypatch.delattr(vllm.runner.GPUModelRunner.__mro__[1], "add_requests")
    assert type(made()) is NgramGPUSpeculator
    assert "does not know this release" in caplog.text
