"""vLLM's V2 model runner itself, whose kernels Triton interprets on the CPU. Alone in its process: see
integrations/vllm/README.md for how to run this."""

import os
import sys
from types import SimpleNamespace

import pytest

pytestmark = [pytest.mark.slow, pytest.mark.model]
if "vllm" in sys.modules:
    pytest.skip("vLLM was loaded for its V1 runner in this process", allow_module_level=True)
os.environ |= {
    "TRITON_INTERPRET": "1",
    "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
    "VLLM_CPU_KVCACHE_SPACE": "1",
    "VLLM_USE_V2_MODEL_RUNNER": "1",
}
backends = pytest.importorskip("triton.backends", reason="vLLM is not in this environment").backends
# vLLM looks whether there is a back end for CPUs. Interpreted kernels do not ask it for anything.
backends["cpu"] = SimpleNamespace(driver=SimpleNamespace(is_active=lambda: True))
vllm = pytest.importorskip("vllm", reason="vLLM is not in this environment")

from specedit import default_model  # noqa: E402

FILE = "".join(f"def load_{name}(path):\n    return open(path).read()\n\n\n" for name in ("a", "b"))
LONGEST = 60


@pytest.fixture(scope="module")
def engine():
    """With drafts of ours, unless a row is told to draft nothing."""
    return vllm.LLM(
        str(default_model.ensure(print)),
        dtype="float32",
        max_model_len=1024,
        max_num_seqs=4,
        enforce_eager=True,
        speculative_config={"method": "ngram_gpu", "num_speculative_tokens": 24},
        additional_config={"specedit": {}},
    )


@pytest.fixture
def runner(engine):
    return engine.llm_engine.model_executor.driver_worker.worker.model_runner


@pytest.fixture
def steps(runner, monkeypatch):
    """The rows of every step that is drafted for."""
    seen = []
    propose = runner.speculator.propose

    def counted(batch, *arguments, **options):
        seen.append(batch.num_reqs)
        return propose(batch, *arguments, **options)

    monkeypatch.setattr(runner.speculator, "propose", counted)
    return seen


def answers(engine, texts, **about):
    sampling = vllm.SamplingParams(temperature=0, max_tokens=LONGEST, extra_args=about or None)
    chats = [[{"role": "user", "content": f"Rename path to file:\n```python\n{text}```"}] for text in texts]
    return [out.outputs[0].token_ids for out in engine.chat(chats, sampling, use_tqdm=False)]


def test_the_answers_are_the_same_in_fewer_steps(engine, runner, steps, monkeypatch):
    texts = [FILE, FILE.replace("path", "source")]
    drafted = answers(engine, texts)
    taken = len(steps)
    assert max(steps) == 2
    monkeypatch.setattr(runner.speculator._rows, "draft", lambda rows: [[] for _ in rows])
    assert answers(engine, texts) == drafted  # the latest token again and again is what is verified now
    assert taken < (len(steps) - taken) / 2


def test_the_prediction_of_a_request_is_used(engine, steps):
    sampling = vllm.SamplingParams(temperature=0, max_tokens=LONGEST)
    asked = [{"role": "user", "content": "Write a haiku about the sea."}]
    plain = engine.chat([asked], sampling, use_tqdm=False)[0].outputs[0]
    alone = len(steps)
    sampling.extra_args = {"specedit_prediction": plain.text}
    again = engine.chat([asked], sampling, use_tqdm=False)[0].outputs[0]
    assert again.token_ids == plain.token_ids
    assert len(steps) - alone < alone / 2
