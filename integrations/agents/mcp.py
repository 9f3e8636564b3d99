"""`specedit mcp`: a server of one tool, which rewrites a file, over the Model Context Protocol.

An agent starts it and talks to it over standard input and output. Only `build` needs the package `mcp`.
"""

import os
import signal
import sys
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from threading import Lock
from time import monotonic
from typing import TYPE_CHECKING, Annotated, Any

from specedit import __version__
from specedit.terminal import is_terminal, log, progress
from specedit.types import Sampling, SpecEditError

if TYPE_CHECKING:
    from mcp.server.mcpserver import MCPServer

    from specedit.editing.source import SourceFile
    from specedit.editor import SpecEditor
    from specedit.integrations.http.client import RemoteEditor
    from specedit.results import EditResult, Stream

_ABOUT = """Rewrite one existing text file as an instruction says, and get the diff.

The tool reads the file itself and rewrites it with a small local model: do not send its text. Say
completely what to change, as the model sees this file, the references and the instruction alone. Unless
`write` is true the file stays as it is. An answer that leaves code out or breaks the syntax is refused."""
_PERIOD = 1.0  # seconds between two reports of progress


def serve(roots: Sequence[Path], server: str | None, own: bool, **model: Any) -> None:
    """Offer the tool until the agent closes the pipe. The arguments are those of `Files` and `Editors`."""
    tools = build(Files(roots), Editors(server, own, **model))
    # A thread waits for the next line of the agent, and no exception reaches it.
    signal.signal(signal.SIGINT, _interrupted)
    if is_terminal(sys.stdin):
        log.print(
            "specedit: waiting for an agent; name this command in its settings. Ctrl-C ends it.",
            soft_wrap=True,
        )
    tools.run()


def _interrupted(*_: object) -> None:
    log.print("specedit: interrupted.", style="yellow")
    os._exit(130)


class Files:
    """The files in some folders and below, and no others.

    Raises:
        SpecEditError: one of the folders is none.
    """

    def __init__(self, roots: Sequence[Path]) -> None:
        self._roots = [Path(os.path.realpath(root)) for root in roots]
        for root, real in zip(roots, self._roots, strict=True):
            if not real.is_dir():
                raise SpecEditError(f"{root} is no folder; give --root one.")

    def read(self, path: str) -> "SourceFile":
        """A file, by its path from the first folder or from the root of the disk, symlinks followed.

        Raises:
            SpecEditError: it is elsewhere, or cannot be read.
        """
        from specedit.editing.source import SourceFile

        real = Path(os.path.realpath(self._roots[0] / path.replace("\0", "\ufffd")))
        for root in self._roots:
            if real.is_relative_to(root):
                return replace(SourceFile.read(real), name=str(real.relative_to(root)))
        folders = " and ".join(map(str, self._roots))
        raise SpecEditError(
            f"{path} is not in {folders}: name a file there, or let the user add its folder with --root."
        )


class Editors:
    """Who rewrites: the server that was named or is running, or else a model that is loaded here, once.

    Args:
        server: its address, if one was named.
        own: never ask a server.
        options: what model to load.
    """

    def __init__(self, server: str | None, own: bool, **options: Any) -> None:
        from specedit.integrations.http.client import running

        self._running = partial(running, server)
        self._own = own
        if server:
            self._running()  # an address that is none is to be said now
        self._options = options
        self._loaded: SpecEditor | None = None
        self._loading = Lock()

    def choose(self) -> "SpecEditor | RemoteEditor":
        """The one for the next call. A server may come and go meanwhile."""
        with self._loading:
            if self._loaded is None and not self._own and (server := self._running()):
                return server
            if self._loaded is None:
                self._loaded = self._load()
            return self._loaded

    def _load(self) -> "SpecEditor":
        from specedit.editor import SpecEditor  # takes seconds, in which agents would wait for the first word

        def say(line: str) -> None:
            log.print(f"specedit: {line}", markup=False, soft_wrap=True)

        editor = SpecEditor.from_pretrained(**self._options, progress=say)
        editor.calibrate()
        return editor


def build(files: Files, editors: Editors) -> "MCPServer":
    """The server, which has yet to run.

    Raises:
        SpecEditError: the package `mcp` is missing or too old.
    """
    try:
        from anyio import to_thread
        from mcp.server.mcpserver import Context, MCPServer
        from mcp.types import CallToolResult, TextContent, ToolAnnotations
        from pydantic import Field
    except ModuleNotFoundError as error:
        raise SpecEditError("The tool server needs mcp 2: pip install 'specedit[mcp]'.") from error

    # Other levels say on standard error what was asked.
    server: MCPServer = MCPServer("specedit", version=__version__, log_level="WARNING")

    @server.tool(
        description=_ABOUT,
        annotations=ToolAnnotations(title="Rewrite a file", destructive_hint=True, open_world_hint=False),
    )
    async def rewrite_file(
        path: Annotated[str, Field(description="The file, from the project's folder, or absolute.")],
        instruction: Annotated[str, Field(description="What to change, completely.")],
        context: Context,
        references: Annotated[
            tuple[str, ...], Field(description="Paths of other files that the model should see.")
        ] = (),
        write: Annotated[bool, Field(description="Write the file; false only shows the diff.")] = False,
    ) -> CallToolResult:
        try:
            source, stream = await to_thread.run_sync(
                partial(_begin, files, editors, path, instruction, references, write), abandon_on_cancel=True
            )
            told = monotonic()
            try:
                while (
                    await to_thread.run_sync(partial(next, stream, None), abandon_on_cancel=True) is not None
                ):
                    if monotonic() - told > _PERIOD:
                        await context.report_progress(stream.stats.tokens)
                        told = monotonic()
            finally:
                stream.cancel()  # if the call is cancelled, at the next pass of the model
            said = await to_thread.run_sync(_end, source, stream.result, write)
        except SpecEditError as error:
            return CallToolResult(content=[TextContent(type="text", text=str(error))], is_error=True)
        return CallToolResult(content=[TextContent(type="text", text=said)])

    return server


def _begin(
    files: Files, editors: Editors, path: str, instruction: str, references: Sequence[str], write: bool
) -> "tuple[SourceFile, Stream[EditResult]]":
    from specedit.editing.prompt import check_instruction
    from specedit.editing.source import check_writable

    check_instruction(instruction)
    source = files.read(path)
    if write and source.path:
        check_writable(source.path)
    shown = {other.name: other.text for other in map(files.read, references)}
    editor = editors.choose()
    return source, editor.stream_rewrite(source, instruction, references=shown, sampling=Sampling())


def _end(source: "SourceFile", result: "EditResult", write: bool) -> str:
    """What the agent is told. Writes the file if it shall."""
    result.require()
    if not result.diff:
        did = f"The model changed nothing in {source.name}"
    elif write:
        result.write()
        did = f"Wrote {source.name}"
    else:
        did = f"{source.name} is unchanged, as write was false"
    return f"{did}; {progress(result.stats)}\n\n{result.diff}"
