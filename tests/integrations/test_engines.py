"""The adapters of engines that do not run here, called as their sources say that they are called."""

import ast
import subprocess
import sys
from types import SimpleNamespace
from zipfile import ZipFile

import numpy as np
import pytest

from specedit import SpecEditError
from specedit.decoding.encode import encode_text
from specedit.integrations import sglang
from specedit.integrations.tensorrt_llm import drafter

FILE = "def load(path):\n    return path\n\n\nload(1)\nload(2)\n"
WIDTH = 8


@pytest.fixture
def worker(tokenizer):
    runner = SimpleNamespace(model_config=SimpleNamespace(vocab_size=len(tokenizer)))
    target = SimpleNamespace(tokenizer=tokenizer, model_runner=runner)
    return type("Worker", (), {"draft_token_num": WIDTH, "max_batch_size": 4, "target_worker": target})()


def request(tokenizer, rid, written):
    return SimpleNamespace(
        rid=rid,
        origin_input_ids=encode_text(tokenizer, f"```python\n{FILE}```\n"),
        output_ids=written,
        sampling_params=SimpleNamespace(custom_params=None),
    )


def drafted(worker, *requests, roots=None):
    """What the hook makes of an n-gram tree that knows nothing."""
    roots = roots or [request.output_ids[-1] for request in requests]
    ids = np.array([[root] + [7] * (WIDTH - 1) for root in roots]).reshape(-1)
    sees = np.stack([np.eye(WIDTH, dtype=bool)] * len(requests)).reshape(-1)
    batch = SimpleNamespace(reqs=requests)
    ids, sees = sglang.around(lambda worker, batch: (ids, sees), worker, batch)
    return ids.reshape(-1, WIDTH), sees.reshape(-1, WIDTH, WIDTH)


def test_sglang_verifies_our_chain_after_the_latest_token(worker, tokenizer):
    answer = encode_text(tokenizer, FILE)
    ids, sees = drafted(worker, request(tokenizer, "a", answer[:3]))
    chain = ids[0].tolist()
    assert chain[0] == answer[2]
    assert chain[1:5] == answer[3:7]
    assert (sees[0] == np.tril(np.ones((WIDTH, WIDTH)))).all()


def test_sglang_keeps_its_own_tree_where_a_request_is_behind(worker, tokenizer):
    answer = encode_text(tokenizer, FILE)
    ids, sees = drafted(worker, request(tokenizer, "a", answer[:3]), roots=[answer[3]])
    assert ids[0].tolist() == [answer[3]] + [7] * (WIDTH - 1)
    assert (sees[0] == np.eye(WIDTH)).all()


def test_sglang_goes_on_when_something_is_wrong(worker):
    broken = SimpleNamespace(rid="a", origin_input_ids=None, output_ids=[1], sampling_params=None)
    ids, _ = drafted(worker, broken)
    assert ids[0].tolist() == [1] + [7] * (WIDTH - 1)


@pytest.fixture
def tensorrt(monkeypatch):
    """As much of TensorRT-LLM as a drafter inherits."""

    class Drafter:
        def __init__(self, max_draft_len=None, max_total_draft_tokens=None, max_concurrency=None):
            self.max_draft_len = max_draft_len

        def prepare_draft_tokens(self, scheduled_requests, resource_manager=None):
            raise NotImplementedError

    module = SimpleNamespace(Drafter=Drafter)
    monkeypatch.setitem(sys.modules, "tensorrt_llm._torch.speculative.drafter", module)
    for name in ("tensorrt_llm", "tensorrt_llm._torch", "tensorrt_llm._torch.speculative"):
        monkeypatch.setitem(sys.modules, name, SimpleNamespace())
    return Drafter


def test_tensorrt_llm_gets_a_draft_for_every_request(tensorrt, tokenizer):
    prompt, answer = encode_text(tokenizer, f"```python\n{FILE}```\n"), encode_text(tokenizer, FILE)
    one = SimpleNamespace(
        py_request_id=1, py_prompt_len=len(prompt), get_tokens=lambda _: prompt + answer[:3]
    )
    ours = drafter(WIDTH, tokenizer)
    ours.prepare_draft_tokens(SimpleNamespace(generation_requests=[one]))
    assert ours.max_draft_len == WIDTH
    assert one.py_draft_tokens[:4] == answer[3:7]


def test_a_tensorrt_llm_that_calls_otherwise_is_refused(tensorrt, tokenizer, monkeypatch):
    monkeypatch.setattr(tensorrt, "prepare_draft_tokens", lambda self, batch: None)
    with pytest.raises(SpecEditError, match="calls drafters otherwise"):
        drafter(WIDTH, tokenizer)


@pytest.mark.slow
def test_the_released_sglang_calls_it_so(tmp_path):
    pip = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--only-binary=:all:"]
    subprocess.run([*pip, "--dest", tmp_path, "sglang==0.5.23"], check=True)
    (wheel,) = tmp_path.glob("*.whl")
    module, worker = sglang._WORKER.rsplit(".", 1)
    source = ZipFile(wheel).read(f"{module.replace('.', '/')}.py").decode()
    classes = {node.name: node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.ClassDef)}
    methods = {node.name: node for node in classes[worker].body if isinstance(node, ast.FunctionDef)}
    assert [argument.arg for argument in methods[sglang._METHOD].args.args] == sglang._PARAMETERS
