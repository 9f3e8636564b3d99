"""`specedit mcp`, asked by the official client: over pipes, or in this process where that is enough."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import anyio
import pytest

pytest.importorskip("mcp.server.mcpserver")

from mcp import Client, StdioServerParameters

from specedit import SpecEditError
from specedit.integrations.agents.mcp import Editors, Files, build

RUN = "from specedit.cli import main; main()"
NOWHERE = "127.0.0.1:9"


@pytest.fixture
def project(tmp_path):
    """The folder that the tool may work in."""
    (folder := tmp_path / "project").mkdir()
    return folder


@pytest.fixture
def put(project):
    """put(edit): the edit's file in the project."""

    def write(edit) -> Path:
        path = project / edit.name
        path.write_bytes(edit.old)
        return path

    return write


@pytest.fixture
def command(project):
    """command(*options): `specedit mcp`, to be started in the project."""

    def parameters(*options: str) -> StdioServerParameters:
        env = {name: os.environ[name] for name in ("SPECEDIT_CACHE", "OMP_NUM_THREADS") if name in os.environ}
        arguments = ["-c", RUN, "mcp", *options]
        return StdioServerParameters(command=sys.executable, args=arguments, env=env, cwd=project)

    return parameters


@pytest.fixture
def here(project):
    """here(url, *roots): the same, asking a server, in this process."""
    return lambda url, *roots: build(Files(roots or [project]), Editors(url, False))


def rewrite(server, **arguments) -> tuple[str, bool]:
    """Call the tool once; what it says, and whether that is an error."""

    async def session():
        async with Client(server) as client:
            return await client.call_tool("rewrite_file", arguments)

    result = anyio.run(session)
    return result.content[0].text, bool(result.is_error)


def test_a_diff_and_nothing_written(small, command, put, edits):
    path = put(edit := edits["rename"])
    server = command("--server", small.url)
    said, failed = rewrite(server, path=edit.name, instruction=edit.instruction)
    assert not failed
    assert said.startswith("greet.py is unchanged")
    assert "--- a/greet.py\n+++ b/greet.py\n" in said
    assert "\n+def read_config(path):\n" in said
    assert path.read_bytes() == edit.old


def test_a_model_is_loaded_where_there_is_no_server(edit_model, command, put, edits):
    path = put(edit := edits["rename"])
    server = command("--model", str(edit_model), "--device", "cpu", "--dtype", "float32")
    said, failed = rewrite(server, path=edit.name, instruction=edit.instruction, write=True)
    assert not failed, said
    assert path.read_bytes() == edit.new


def test_a_call_that_is_cancelled_ends_at_the_server_too(serve, replay, command, project, metric):
    (project / "a.py").write_text("x = 1\n" * 4000)
    served = serve(replay("x = 2\n" * 4000 + "```", proposers=[]))  # a step for each letter: many seconds

    async def session():
        async with Client(command("--server", served.url)) as client:
            async with anyio.create_task_group() as group:
                group.start_soon(client.call_tool, "rewrite_file", {"path": "a.py", "instruction": "Say 2."})
                with anyio.fail_after(30):
                    while not served.runner.running:
                        await anyio.sleep(0.01)
                group.cancel_scope.cancel()
            with anyio.fail_after(10):
                while served.runner.running:
                    await anyio.sleep(0.01)

    anyio.run(session)
    assert metric(served, 'specedit_answers_total{outcome="cancelled"}') == 1


def test_the_tool_is_described(here):
    async def session():
        async with Client(here(NOWHERE)) as client:
            return (await client.list_tools()).tools

    (tool,) = anyio.run(session)
    assert tool.name == "rewrite_file"
    assert set(tool.input_schema["properties"]) == {"path", "instruction", "references", "write"}
    assert set(tool.input_schema["required"]) == {"path", "instruction"}


@pytest.mark.parametrize("name", ["rename", "crlf"])
def test_the_file_is_written_when_asked(small, here, put, edits, name):
    path = put(edit := edits[name])
    said, failed = rewrite(here(small.url), path=str(path), instruction=edit.instruction, write=True)
    assert not failed
    assert said.startswith(f"Wrote {edit.name}")
    assert path.read_bytes() == edit.new


@pytest.mark.parametrize(
    ("name", "says"),
    [("placeholder", "stands for code that is left out"), ("endless", "The answer was cut")],
)
def test_what_must_not_be_taken_is_refused(small, here, put, edits, name, says):
    path = put(edit := edits[name])
    said, failed = rewrite(here(small.url), path=edit.name, instruction=edit.instruction, write=True)
    assert failed
    assert says in said
    assert path.read_bytes() == edit.old


def test_references_are_shown_to_the_model(serve, replay, here, put, edits, project, metric):
    put(edit := edits["rename"])
    (project / "b.py").write_text("x = 1\n" * 500)
    served = serve(replay(edit.answer))
    said, failed = rewrite(here(served.url), path=edit.name, instruction="Rename.", references=["b.py"])
    assert not failed, said
    assert metric(served, 'specedit_prompt_tokens_total{kind="computed"}') > 3000  # a token is a byte


@pytest.mark.parametrize("argument", ["path", "references"])
@pytest.mark.parametrize("path", ["../secret.py", "link.py", "folder/secret.py", "/etc/passwd"])
def test_files_elsewhere_are_neither_read_nor_written(here, put, edits, project, path, argument):
    put(edits["rename"])
    secret = project.parent / "secret.py"
    secret.write_text("key = 1\n")
    (project / "link.py").symlink_to(secret)
    (project / "folder").symlink_to(project.parent)
    chosen = {"path": path} if argument == "path" else {"path": "greet.py", "references": [path]}
    said, failed = rewrite(here(NOWHERE), instruction="Say 2.", write=True, **chosen)
    assert failed
    assert said == (
        f"{path} is not in {project}: name a file there, or let the user add its folder with --root."
    )
    assert secret.read_text() == "key = 1\n"


@pytest.mark.parametrize(
    ("path", "says"), [("no.py", "There is no file"), (".", "is a directory"), ("a\0b", "There is no file")]
)
def test_what_is_no_file(here, project, path, says):
    said, failed = rewrite(here(NOWHERE), path=path, instruction="Say 2.")
    assert failed
    assert says in said


def test_links_within_a_folder_and_several_folders(small, here, put, edits, project, tmp_path):
    path = put(edit := edits["rename"])
    (other := tmp_path / "other").mkdir()
    (other / "link.py").symlink_to(path)
    server = here(small.url, other, project)
    said, failed = rewrite(server, path="link.py", instruction=edit.instruction, write=True)
    assert not failed, said
    assert (other / "link.py").is_symlink()
    assert path.read_bytes() == edit.new


def test_a_server_that_is_not_there(here, put, edits):
    put(edit := edits["rename"])
    said, failed = rewrite(here(NOWHERE), path=edit.name, instruction=edit.instruction)
    assert failed
    assert "specedit serve" in said


def test_an_instruction_is_needed(here, put, edits):
    put(edit := edits["rename"])
    said, failed = rewrite(here(NOWHERE), path=edit.name, instruction=" ")
    assert failed
    assert "instruction is empty" in said


def test_a_folder_that_is_none(tmp_path):
    with pytest.raises(SpecEditError, match="--root"):
        Files([tmp_path / "no"])


def test_ctrl_c_ends_it_while_it_waits(command):
    started = command("--server", NOWHERE)
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    process = subprocess.Popen(
        [started.command, *started.args], env=os.environ | started.env, cwd=started.cwd, text=True, **pipes
    )
    ask = {"jsonrpc": "2.0", "id": 1, "method": "ping"}
    process.stdin.write(json.dumps(ask) + "\n")
    process.stdin.flush()
    assert process.stdout.readline()  # it runs
    process.send_signal(signal.SIGINT)
    assert process.wait(20) == 130
