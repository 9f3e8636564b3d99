"""The command line. Run `specedit --help`."""

from __future__ import annotations

import json
import sys
import warnings
from io import TextIOWrapper
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import click
from rich.console import Console
from rich.progress import track
from rich.text import Text

from specedit import __version__
from specedit.options import chosen_here, hosted_options, model_options, sampling_options, stops
from specedit.paths import readable
from specedit.terminal import (
    LINE_CONTROLS,
    agreed,
    compared,
    emit,
    is_terminal,
    log,
    outcome,
    show_diff,
    watch,
)
from specedit.types import Sampling, SpecEditError

if TYPE_CHECKING:
    from specedit.editor import SpecEditor
    from specedit.integrations.hosted import HostedEditor
    from specedit.integrations.http.client import RemoteEditor


def main() -> NoReturn:
    """The console script: 0 done, 1 refused or failed, 2 wrong usage, 130 interrupted."""
    if isinstance(sys.stdout, TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")  # rather a question mark than no answer
    try:
        sys.exit(cli.main(standalone_mode=False))
    except click.ClickException as error:
        error.show()
        sys.exit(error.exit_code)
    except (click.Abort, KeyboardInterrupt):
        log.print("specedit: interrupted.", style="yellow")
        sys.exit(130)
    except SpecEditError as error:
        log.print(f"specedit: {error}", style="red", markup=False, soft_wrap=True)
        sys.exit(1)
    except OSError as error:  # what concerns the user's files is a SpecEditError: this is standard output
        log.print(f"specedit: Cannot write the output ({error.strerror}).", style="red", soft_wrap=True)
        sys.exit(1)


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__)
def cli() -> None:
    """Rewrite code with a language model, several times faster, without changing what it writes."""
    # Notices are for the user of a command, in one line each.
    warnings.showwarning = lambda message, *_, **__: log.print(
        f"specedit: {message}", style="yellow", markup=False
    )


@cli.command()
@click.argument("file", type=click.Path(path_type=Path))
@click.option("-i", "--instruction", required=True, help="What to change; - reads it from standard input.")
@click.option(
    "-r",
    "--reference",
    "references",
    multiple=True,
    type=click.Path(path_type=Path),
    help="Another file to show the model; may be repeated.",
)
@click.option("--write", "-w", is_flag=True, help="Write the file without asking.")
@click.option("--diff", "diff_only", is_flag=True, help="Only show the diff; never ask or write.")
@click.option(
    "--output", "-o", type=click.Path(path_type=Path), help="Write here instead; - is standard output."
)
@click.option(
    "--json",
    "as_json",
    is_flag=True,
    help="Print one JSON object: text, diff, finish_reason, problems, written, stats, compare.",
)
@click.option(
    "--compare",
    is_flag=True,
    help="Also decode plainly; print both times and whether the texts are identical.",
)
@click.option(
    "--force", is_flag=True, help="Take a complete answer in spite of placeholders or broken syntax."
)
@click.option("--no-speculation", is_flag=True, help="Decode plainly.")
@click.option(
    "--server",
    metavar="URL",
    help="Let a running `specedit serve` write it.  [default: the one on the default port, if there is one]",
)
@click.option("--no-server", is_flag=True, help="Load the model here, even if a server is running.")
@click.option(
    "--stop",
    multiple=True,
    callback=stops,
    metavar="TEXT",
    help="End the answer before this text, without writing it; may be repeated.",
)
@click.option(
    "--max-new-tokens", type=click.IntRange(min=1), help="Longest answer.  [default: 1.5 × the file + 256]"
)
@click.option(
    "--encoding", help="The file's encoding.  [default: byte order mark, coding comment, else UTF-8]"
)
@hosted_options
@model_options
@sampling_options
def rewrite(
    file: Path,
    instruction: str,
    references: tuple[Path, ...],
    write: bool,
    diff_only: bool,
    output: Path | None,
    as_json: bool,
    compare: bool,
    force: bool,
    no_speculation: bool,
    server: str | None,
    no_server: bool,
    stop: tuple[str, ...],
    max_new_tokens: int | None,
    encoding: str | None,
    api_base: str | None,
    api_model: str | None,
    key_file: Path | None,
    price: float | None,
    model: str | None,
    device: str,
    dtype: str,
    proposers: list[str],
    **sampling: Any,
) -> int:
    """Rewrite FILE as the instruction says: shows a diff, and writes only when told to."""
    from specedit.editing.prompt import check_instruction
    from specedit.editing.source import SourceFile, check_writable

    if sum([write, diff_only, output is not None]) > 1:
        raise click.UsageError("--write, --diff and --output exclude each other.")
    try:
        drawing = Sampling(**sampling)
    except SpecEditError as error:
        raise click.UsageError(str(error)) from error
    source = SourceFile.read(file, encoding)
    if write or (output and str(output) != "-"):
        check_writable(output or file)
    shown = {readable(path): SourceFile.read(path).text for path in references}
    if instruction == "-":
        instruction = sys.stdin.buffer.read().decode("utf-8", "surrogateescape") if sys.stdin else ""
    check_instruction(instruction)

    ask = not (diff_only or as_json or output) and is_terminal(sys.stdin, sys.stdout, sys.stderr)
    options: dict[str, Any] = {
        "references": shown,
        "sampling": drawing,
        "stop": stop,
        "max_new_tokens": max_new_tokens,
    }
    own = no_server or compare or no_speculation or chosen_here(("model", "device", "dtype", "proposers"))
    if server and own:
        raise click.UsageError(
            "--server excludes --no-server, --compare, --no-speculation and the choice of a model."
        )
    if bool(api_base) != bool(api_model):
        raise click.UsageError("--api-base and --api-model go together.")
    if api_base and (own or server):
        raise click.UsageError(
            "--api-base excludes --server, --no-server, --compare, --no-speculation and a model here."
        )
    comparison = {}
    if api_base and api_model:
        provider = hosted(api_base, api_model, key_file, price)
        result = watch(provider.stream_rewrite(source, instruction, **options))
        if said := provider.rejected(result.stats):
            log.print(f"specedit: {said}", style="dim", soft_wrap=True)
    elif not own and (elsewhere := remote(server)):
        result = watch(elsewhere.stream_rewrite(source, instruction, **options))
    else:
        editor = load(model, device, dtype, [] if no_speculation else proposers)
        result = watch(editor.stream_rewrite(source, instruction, **options))
        if compare:
            log.print("decoding plainly, to compare", style="dim")
            editor.forget()  # what is known of the prompt by now would spare it work
            plain = watch(editor.stream_rewrite(source, instruction, speculate=False, **options))
            comparison = {"compare": compared(editor, result, plain, greedy=sampling["temperature"] == 0)}

    printed = str(output) == "-"
    if not as_json and not printed:
        show_diff(result.diff)
    written = False
    try:
        result.require(force)
        if printed and not as_json:
            emit(result.data)
        elif (output and not printed) or (result.diff and (write or (ask and agreed(file)))):
            result.write(output, force)
            written = True
    finally:
        if as_json:
            report = {
                "text": result.text,
                "diff": result.diff,
                "finish_reason": result.finish_reason,
                "problems": [problem.message for problem in result.problems],
                "written": written,
                "stats": result.stats.as_dict(),
            }
            click.echo(json.dumps(report | comparison))
    if not as_json:
        log.print(outcome(file, output, result, written, ask), markup=False, soft_wrap=True)
    return 0


@cli.command()
@click.option(
    "--repo", default=".", show_default=True, type=click.Path(path_type=Path), help="A git repository."
)
@click.option(
    "--last", default=50, show_default=True, type=click.IntRange(1, 1_000_000), help="How many commits."
)
@click.option(
    "--check",
    default=3,
    show_default=True,
    type=click.IntRange(min=0),
    help="How many edits to decode for real, as far as 200 tokens, to check the counting.",
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
@click.option("--html", type=click.Path(path_type=Path), help="Also write a page with plots here.")
@model_options
def measure(
    repo: Path,
    last: int,
    check: int,
    as_json: bool,
    html: Path | None,
    model: str | None,
    device: str,
    dtype: str,
    proposers: list[str],
) -> int:
    """Say whether speculation pays for you: replay the last commits of your git repository.

    Each file that a commit changed is an edit. Its outcome is known, so that no model has to write it: the
    proposers guess it, and every pass costs what your model on this machine was measured to take.
    """
    from specedit.history import past_edits

    if not proposers:
        raise click.UsageError("--proposers names none to measure.")
    with log.status("reading the history"):
        edits, left_out = past_edits(repo, last)
    if not edits:
        why = "".join(f"; {n:,} {reason}" for reason, n in left_out.most_common())
        raise SpecEditError(
            f"No text file was changed in the last {last} commits of {repo}{why}: try a larger --last, or a "
            "clone with the whole history."
        )
    if html:
        from specedit.editing.source import check_writable
        from specedit.page import check_plots, page

        check_plots()
        check_writable(html)
    editor = load(model, device, dtype, proposers)
    from specedit.measure import Meter, Report

    meter = Meter(editor, proposers)
    named = readable(repo.resolve())
    report = Report(meter.about | {"repository": named}, left_out)
    stopped = False
    bar: dict[str, Any] = {"console": log, "transient": True, "disable": not log.is_terminal}
    try:
        for edit in track(edits, "replaying", **bar):
            report.add(meter.measure(edit))
        for edit in track(report.sample(check), "timing", **bar):
            report.timed.append((edit, *meter.time(edit, report.best)))
    except SpecEditError as error:
        if not report.edits:
            raise
        log.print(f"specedit: {error} This is what was measured so far.", style="yellow", markup=False)
    except KeyboardInterrupt:
        stopped = True
        log.print("specedit: interrupted; this is what was measured so far.", style="yellow")
    if not report.edits and not stopped:
        raise SpecEditError(
            f"None of {len(edits)} edits fits into this model's context: choose a model with a longer one, "
            "or a larger --last."
        )
    if as_json:
        click.echo(json.dumps(report.as_dict()))
    else:
        for what, said in report.findings():
            click.echo(f"{what:>13}  {said.translate(LINE_CONTROLS)}")
    if html and report.edits:
        html.write_bytes(page(report).encode("utf-8", "replace"))
        log.print(f"wrote {html}", markup=False, soft_wrap=True)
    return 130 if stopped else 0


@cli.command()
@click.option("--host", default="127.0.0.1", show_default=True, help="Others need an --api-key.")
@click.option("--port", type=click.IntRange(0, 65535), default=8317, show_default=True, help="0 is any.")
@click.option(
    "--api-key",
    "api_keys",
    multiple=True,
    envvar="SPECEDIT_API_KEY",
    metavar="KEY",
    help="Answer only who sends it; may be repeated. Better in SPECEDIT_API_KEY: others see command lines.",
)
@click.option(
    "--allow-origin",
    "origins",
    multiple=True,
    metavar="URL",
    help="A web page that may call; may be repeated.",
)
@click.option(
    "--allow-host",
    "hosts",
    multiple=True,
    metavar="NAME",
    help="Another name of this server; may be repeated.",
)
@click.option("--name", default="", help="What clients call the model.  [default: its own name]")
@click.option(
    "--running", type=click.IntRange(min=1), default=16, show_default=True, help="Answers at a time."
)
@click.option(
    "--waiting", type=click.IntRange(min=0), default=64, show_default=True, help="How many more may wait."
)
@click.option(
    "--memory",
    type=click.IntRange(min=1),
    help="MiB for key-value caches of running answers.  [default: most of what is free]",
)
@click.option(
    "--kept",
    type=click.IntRange(min=0),
    default=1024,
    show_default=True,
    help="MiB for those of finished answers, for later ones that begin alike.",
)
@click.option(
    "--max-body", "body", type=click.IntRange(min=1), default=8 << 20, show_default=True, help="In bytes."
)
@click.option(
    "--grace",
    type=click.FloatRange(min=0),
    default=30,
    show_default=True,
    help="Seconds that running answers still have when the server is stopped.",
)
@model_options
def serve(
    model: str | None,
    device: str,
    dtype: str,
    proposers: list[str],
    kept: int,
    memory: int | None,
    **settings: Any,
) -> None:
    """Answer the OpenAI API and edit requests over HTTP, on this machine unless told otherwise."""
    try:
        from specedit.integrations.http import serve as server
        from specedit.integrations.http.settings import Settings
    except ModuleNotFoundError as error:
        raise SpecEditError(f"The server needs {error.name}: pip install 'specedit[serve]'.") from error

    chosen = Settings(**settings)
    with server.listen(chosen) as sock:
        sizes = {"kept": kept << 20, "memory": memory and memory << 20}
        editor = load(model, device, dtype, proposers, saving=False, **sizes)
        host, port = sock.getsockname()[:2]
        log.print(f"specedit: http://{f'[{host}]' if ':' in host else host}:{port}", soft_wrap=True)
        server.run(editor, chosen, sock)


@cli.command()
@click.option(
    "--root",
    "roots",
    multiple=True,
    default=["."],
    type=click.Path(path_type=Path),
    help="A folder whose files agents may have rewritten; may be repeated.  [default: the working directory]",
)
@click.option(
    "--server",
    metavar="URL",
    help="Let a running `specedit serve` write.  [default: the one on the default port, if there is one]",
)
@click.option("--no-server", is_flag=True, help="Load the model here, even if a server is running.")
@model_options
def mcp(
    roots: tuple[Path, ...],
    server: str | None,
    no_server: bool,
    model: str | None,
    device: str,
    dtype: str,
    proposers: list[str],
) -> None:
    """Offer agents a tool that rewrites files (MCP). They start this command and talk to it over pipes."""
    from specedit.integrations.agents import mcp as tool

    own = no_server or chosen_here(("model", "device", "dtype", "proposers"))
    if server and own:
        raise click.UsageError("--server excludes --no-server and the choice of a model.")
    tool.serve(roots, server, own, model=model, device=device, dtype=dtype, proposers=proposers)


@cli.group()
def models() -> None:
    """List, fetch and remove models on this machine."""


@models.command("list")
def list_models() -> None:
    """Models on this machine, with their size on disk."""
    from specedit import models

    cached = models.cached()
    for entry in cached:
        click.echo(f"{entry.name}\t{entry.bytes / 1e6:.0f} MB\t{entry.path}")
    if not cached:
        log.print("No model is on this machine yet: `specedit models fetch` brings the default one.")


@models.command()
@click.argument("name", required=False)
def fetch(name: str | None) -> None:
    """Bring a model onto this machine: a hub id, or the default model."""
    from specedit import models

    with log.status("fetching") as status:
        path = models.fetch(name, lambda line: status.update(Text(line)))
    click.echo(path)


@models.command()
@click.argument("name")
def remove(name: str) -> None:
    """Delete a model that `specedit models list` shows."""
    from specedit import models

    click.echo(f"Freed {models.remove(name) / 1e6:.0f} MB.")


@cli.command()
def doctor() -> int:
    """Say what was found on this machine and what is missing."""
    from specedit.doctor import findings

    out, sound = Console(highlight=False), True
    for finding in findings():
        sound &= finding.good
        mark = Text("✓", "green") if finding.good else Text("✗", "red")
        out.print(mark, f"{finding.what}:", finding.found, markup=False, soft_wrap=True)
    return 0 if sound else 1


def load(model: str | None, device: str, dtype: str, proposers: list[str], **options: Any) -> SpecEditor:
    """The editor, with a line about what takes long."""
    with log.status("starting") as status:
        from specedit.editor import SpecEditor  # takes seconds

        def say(line: str) -> None:
            status.update(Text(line))
            if not log.is_terminal and not line.startswith("loading"):
                log.print(f"specedit: {line}", markup=False, soft_wrap=True)

        editor = SpecEditor.from_pretrained(
            model, device=device, dtype=dtype, proposers=proposers, progress=say, **options
        )
        status.update("measuring what verifying costs here (once)")
        editor.calibrate()
    return editor


def hosted(base: str, model: str, key_file: Path | None, price: float | None) -> HostedEditor:
    """The editor for a provider's model."""
    from specedit.editing.source import SourceFile
    from specedit.integrations.hosted import HostedEditor

    key = SourceFile.read(key_file).text if key_file else None
    return HostedEditor(base, model, key, price)


def remote(server: str | None) -> RemoteEditor | None:
    """The server that was named, or one on the default port, if there is one."""
    from specedit.integrations.http.client import running

    editor = running(server)
    if editor and not server:
        log.print(f"specedit: {editor.url} writes it (--no-server loads a model here)", style="dim")
    return editor
