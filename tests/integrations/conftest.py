"""Real servers on free ports, with a real small model or one that writes a given answer."""

import copy
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass

import httpx
import openai
import pytest

from specedit import SpecEditor
from specedit.decoding.cost import CostCurve
from specedit.integrations.http.runner import Runner
from specedit.integrations.http.serve import Server, listen
from specedit.integrations.http.settings import Settings
from specedit.targets.replay import ReplayTarget

TOOLS = "{% for t in tools or [] %}<tool>{{ t | tojson }}</tool>\n{% endfor %}"


@dataclass
class Served:
    """A running server and clients for it."""

    url: str
    runner: Runner
    server: Server
    http: httpx.Client
    openai: openai.OpenAI


@contextmanager
def serving(editor: SpecEditor, **settings) -> Iterator[Served]:
    chosen = Settings(port=0, **settings)
    with listen(chosen) as sock:
        url = f"http://127.0.0.1:{sock.getsockname()[1]}"
        server = Server(runner := Runner(editor, chosen))
        thread = threading.Thread(target=server.run, kwargs={"sockets": [sock]})
        thread.start()
        while not server.started:
            assert thread.is_alive(), "the server did not start"
        try:
            with httpx.Client(base_url=url, timeout=60) as http:
                client = openai.OpenAI(base_url=f"{url}/v1", api_key="unused", max_retries=0)
                yield Served(url, runner, server, http, client)
        finally:
            server.should_exit = True
            thread.join(30)
            assert not thread.is_alive(), "the server did not stop"


@pytest.fixture
def serve():
    """serve(editor, **settings): a server, until the test ends."""
    with ExitStack() as stack:
        yield lambda editor, **settings: stack.enter_context(serving(editor, **{"grace": 0} | settings))


@pytest.fixture(scope="module")
def small(edit_model) -> Iterator[Served]:
    """A server with the model of `edit_model`."""
    editor = SpecEditor.from_pretrained(str(edit_model), device="cpu", dtype="float32")
    editor._cost = CostCurve([1.0] * 9)  # every draft pays, and no time goes into measuring
    with serving(editor, grace=0) as served:
        yield served


@pytest.fixture(scope="session")
def knows_tools(replay, tokenizer):
    """Makes editors as `replay` does, whose chat template shows tools."""
    other = copy.deepcopy(tokenizer)
    other.chat_template = TOOLS + tokenizer.chat_template

    def make(answer: str) -> SpecEditor:
        return SpecEditor(replay(answer).target, other, cost=CostCurve([1.0] * 9))

    return make


class Gated(ReplayTarget):
    """Writes nothing while `gate` is closed, and fails when `broken` is set."""

    def __init__(self, *arguments) -> None:
        self.gate = threading.Event()
        self.broken = False
        self.calls = 0
        super().__init__(*arguments)

    def extend(self, tokens, parents=None, last_only=False):
        self.calls += 1
        if not self.gate.wait(20):
            raise TimeoutError("the gate stayed closed")
        if self.broken:
            raise RuntimeError("CUDA error: out of cake")
        return super().extend(tokens, parents, last_only)


@pytest.fixture
def gated(tokenizer):
    """An editor that is stuck until `editor.target.gate.set()`."""
    answer = [*tokenizer("abc " * 50).input_ids, tokenizer.eos_token_id]
    editor = SpecEditor(Gated(answer, len(tokenizer), [tokenizer.eos_token_id]), tokenizer, [])
    yield editor
    editor.target.gate.set()
