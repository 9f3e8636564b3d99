"""smolagents' agents with our model, against the local server."""

import pytest

pytest.importorskip("smolagents")

from smolagents import CodeAgent, OpenAIModel, ToolCallingAgent, tool
from smolagents.models import ChatMessage, MessageRole

from specedit.integrations.agents.smolagents import SpecEditModel, files_in
from specedit.types import SpecEditError

OLD = "def load(path):\n    return open(path).read()\n\n\nprint(load('a'))\n"
NEW = OLD.replace("load", "read_config")
READ = [
    {"role": "user", "content": [{"type": "text", "text": "Rename load to read_config in a.py."}]},
    {"role": "tool-response", "content": [{"type": "text", "text": f"Observation:\n{OLD}"}]},
]


@pytest.fixture
def tools(tmp_path):
    """Tools that read and write files in a folder."""

    @tool
    def read_file(name: str) -> str:
        """Read a file.

        Args:
            name: Its name.
        """
        return (tmp_path / name).read_text()

    @tool
    def write_file(name: str, text: str) -> str:
        """Write a file.

        Args:
            name: Its name.
            text: What it is to hold.
        """
        (tmp_path / name).write_text(text)
        return "Written."

    return [read_file, write_file]


@pytest.mark.parametrize("streamed", [False, True])
def test_an_agent_rewrites_a_file_with_its_tools(serve, script, call, tools, tmp_path, guessed, streamed):
    (tmp_path / "a.py").write_text(OLD)
    answers = [
        call("read_file", name="a.py"),
        call("write_file", name="a.py", text=NEW),
        call("final_answer", answer="Renamed."),
    ]
    served = serve(script(*answers))
    agent = ToolCallingAgent(tools, SpecEditModel(api_base=f"{served.url}/v1"), stream_outputs=streamed)
    assert agent.run("Rename load to read_config in a.py.") == "Renamed."
    assert (tmp_path / "a.py").read_text() == NEW
    assert guessed(served) > len(OLD) / 2


@pytest.mark.parametrize("streamed", [False, True])
def test_an_agent_that_writes_code(serve, script, tools, tmp_path, streamed):
    served = serve(
        script(f"Thought: I write it.\n<code>\nfinal_answer(write_file('a.py', {NEW!r}))\n</code>")
    )
    model = SpecEditModel(api_base=f"{served.url}/v1")
    assert CodeAgent(tools, model, stream_outputs=streamed).run("Write a.py.") == "Written."
    assert (tmp_path / "a.py").read_text() == NEW


def test_what_a_tool_has_read_is_guessed_only_with_our_model(serve, script, guessed):
    served = serve(script(NEW, NEW))
    OpenAIModel("default", f"{served.url}/v1", "none").generate(READ)
    assert guessed(served) == 0
    assert SpecEditModel(api_base=f"{served.url}/v1").generate(READ).content == NEW
    assert guessed(served) > 0


def test_a_prediction_is_passed_on(serve, script, guessed):
    served = serve(script(NEW))
    model = SpecEditModel(api_base=f"{served.url}/v1", prediction=NEW)
    assert model.generate([{"role": "user", "content": "Go on."}]).content == NEW
    assert guessed(served) > 0


def test_results_of_tools_and_files_shown_are_found():
    chat = [
        *READ,
        ChatMessage(MessageRole.USER, f"And b.go:\n```go\n{NEW}```"),
        ChatMessage(MessageRole.ASSISTANT, None),
    ]
    assert [(file.text, file.language) for file in files_in(chat)] == [(NEW, "go"), (OLD, "")]


def test_without_a_server_it_says_what_to_do():
    model = SpecEditModel(api_base="http://127.0.0.1:9/v1", client_kwargs={"max_retries": 0})
    with pytest.raises(SpecEditError, match="specedit serve"):
        model.generate(READ)
    with pytest.raises(SpecEditError, match="specedit serve"):
        list(model.generate_stream(READ))
