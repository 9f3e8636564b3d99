"""The OpenAI Agents SDK, as it is, against the local server."""

import asyncio

import pytest

pytest.importorskip("agents")

from agents import (
    Agent,
    ModelSettings,
    OpenAIChatCompletionsModel,
    Runner,
    function_tool,
    set_tracing_disabled,
)
from openai import AsyncOpenAI

OLD = "def load(path):\n    return open(path).read()\n\n\nprint(load('a'))\n"
NEW = OLD.replace("load", "read_config")

set_tracing_disabled(True)


def model_of(served) -> OpenAIChatCompletionsModel:
    return OpenAIChatCompletionsModel("default", AsyncOpenAI(base_url=f"{served.url}/v1", api_key="none"))


@pytest.mark.parametrize("streamed", [False, True])
def test_an_agent_rewrites_a_file_with_its_tools(serve, script, call, tmp_path, guessed, streamed):
    path = tmp_path / "a.py"
    path.write_text(OLD)

    @function_tool
    def read_file() -> str:
        """Read a.py."""
        return path.read_text()

    @function_tool
    def write_file(text: str) -> str:
        """Write a.py."""
        path.write_text(text)
        return "Written."

    served = serve(script(call("read_file"), call("write_file", text=NEW), "Renamed."))
    agent = Agent("editor", instructions="Edit.", tools=[read_file, write_file], model=model_of(served))

    async def run() -> str:
        result = Runner.run_streamed(agent, "Rename load to read_config.")
        async for _ in result.stream_events():
            pass
        return result.final_output

    said = asyncio.run(run()) if streamed else Runner.run_sync(agent, "Rename it.").final_output
    assert said == "Renamed."
    assert path.read_text() == NEW
    assert guessed(served) > len(OLD) / 2  # the server knows results of tools


def test_a_prediction(serve, script, guessed):
    served = serve(script(NEW))
    hint = ModelSettings(extra_args={"prediction": {"type": "content", "content": OLD}})
    agent = Agent("editor", model=model_of(served), model_settings=hint)
    assert Runner.run_sync(agent, "Rename load to read_config.").final_output == NEW
    assert guessed(served) > 0
