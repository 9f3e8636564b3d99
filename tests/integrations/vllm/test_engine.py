"""vLLM itself, with the default model. See integrations/vllm/README.md for how to run this."""

import json
import os
import socket
import subprocess
import sys
import time
from urllib.request import urlopen

import pytest

vllm = pytest.importorskip("vllm", reason="vLLM is not in this environment")

from specedit import default_model  # noqa: E402
from specedit.integrations.vllm import SpecEditProposer  # noqa: E402

pytestmark = [pytest.mark.slow, pytest.mark.model]
SPECULATIVE = {
    "method": "custom_class",
    "model": "specedit.integrations.vllm.SpecEditProposer",
    "num_speculative_tokens": 64,
}
FILE = "".join(f"def load_{name}(path):\n    return open(path).read()\n\n\n" for name in ("a", "b", "c", "d"))
LONGEST = 160


def chat(text):
    return [{"role": "user", "content": f"Rename path to file:\n```python\n{text}```"}]


@pytest.fixture(scope="module")
def engine():
    """engine(speculative): in this process, so that what it asks the proposer can be seen."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("VLLM_ENABLE_V1_MULTIPROCESSING", "0")
        patch.setenv("VLLM_CPU_KVCACHE_SPACE", "1")
        folder = str(default_model.ensure(print))

        def make(speculative):
            return vllm.LLM(
                folder,
                dtype="float32",
                max_model_len=2048,
                max_num_seqs=8,
                enforce_eager=True,  # compiling takes minutes
                speculative_config=speculative,
            )

        yield make


@pytest.fixture(scope="module")
def plain(engine):
    """Answers of vLLM alone: to one chat, and to four at once."""
    alone = engine(None)
    return answers(alone, [FILE]), answers(alone, four())


@pytest.fixture(scope="module")
def speculating(engine):
    return engine(SPECULATIVE)


def four():
    return [FILE.replace("path", name) for name in ("path", "name", "where", "source")]


def answers(engine, texts, **about):
    sampling = vllm.SamplingParams(temperature=0, max_tokens=LONGEST, extra_args=about or None)
    outputs = engine.chat([chat(text) for text in texts], sampling, use_tqdm=False)
    return [output.outputs[0].token_ids for output in outputs]


@pytest.fixture
def steps(monkeypatch):
    """The rows of every step that the proposer is asked in."""
    seen = []
    propose = SpecEditProposer.propose

    def counted(self, sampled, *arguments, **options):
        seen.append(len(sampled))
        return propose(self, sampled, *arguments, **options)

    monkeypatch.setattr(SpecEditProposer, "propose", counted)
    return seen


def test_the_answer_is_the_same_in_fewer_steps(plain, speculating, steps):
    assert answers(speculating, [FILE]) == plain[0]
    assert len(steps) < len(plain[0][0]) / 3


def test_so_are_those_of_several_requests(plain, speculating, steps):
    assert answers(speculating, four()) == plain[1]
    assert max(steps) == 4
    assert len(steps) < max(map(len, plain[1])) / 2


def test_the_prediction_of_a_request_is_used(plain, speculating, steps):
    text = speculating.get_tokenizer().decode(plain[0][0])
    assert answers(speculating, [FILE], specedit_prediction=text) == plain[0]
    assert len(steps) < len(plain[0][0]) / 8


def test_predictions_over_http():
    openai = pytest.importorskip("openai")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [sys.executable, "-m", "vllm.entrypoints.openai.api_server"]
    command += ["--model", str(default_model.ensure(print)), "--served-model-name", "default"]
    command += ["--dtype", "float32", "--max-model-len", "2048", "--max-num-seqs", "8", "--port", str(port)]
    command += ["--enforce-eager", "--speculative-config", json.dumps(SPECULATIVE)]
    command += ["--middleware", "specedit.integrations.vllm.Predictions"]
    server = subprocess.Popen(command, env=os.environ | {"VLLM_CPU_KVCACHE_SPACE": "1"})
    try:
        for _ in range(300):
            try:
                urlopen(f"http://127.0.0.1:{port}/health", timeout=1).close()
                break
            except OSError:
                assert server.poll() is None, "vLLM ended"
                time.sleep(1)
        client = openai.OpenAI(base_url=f"http://127.0.0.1:{port}/v1", api_key="none")
        asked = {"model": "default", "messages": chat(FILE), "temperature": 0, "max_tokens": LONGEST}
        alone = client.chat.completions.create(**asked)
        said = alone.choices[0].message.content
        predicted = client.chat.completions.create(**asked, prediction={"type": "content", "content": said})
        assert predicted.choices[0].message.content == said
        details = predicted.usage.completion_tokens_details
        assert details.accepted_prediction_tokens > 0
        assert details.rejected_prediction_tokens == 0
    finally:
        server.terminate()
        server.wait(60)
