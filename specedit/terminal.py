"""What the commands show on a terminal, and what they print where there is none."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

import click
from rich.console import Console, Group
from rich.live import Live
from rich.text import Text

if TYPE_CHECKING:
    from specedit.decoding.statistics import Statistics
    from specedit.editor import SpecEditor
    from specedit.results import EditResult, Stream

# Everything about the run goes to standard error: standard output holds the diff, the text or the JSON alone.
log = Console(stderr=True, highlight=False)

_LIVE_LINES = 12
_DIFF_COLOURS = {"+": "green", "-": "red", "@": "cyan", "d": "bold"}  # by first letter, as in git
# What would do something on a terminal, made visible: in one line, and in a text of several.
LINE_CONTROLS = {code: f"\\x{code:02x}" for code in [*range(32), *range(127, 160)]}
CONTROLS = {code: shown for code, shown in LINE_CONTROLS.items() if chr(code) not in "\t\n\r"}


def watch(stream: Stream[EditResult]) -> EditResult:
    """Show the answer while it arrives, on a terminal."""
    if not log.is_terminal:
        return stream.result
    tail = ""
    with Live(console=log, transient=True, refresh_per_second=10) as live:
        for piece in stream:
            tail = "\n".join((tail + piece).split("\n")[-_LIVE_LINES:])
            text = Text(tail.translate(CONTROLS), overflow="ellipsis", no_wrap=True)
            live.update(Group(text, Text(progress(stream.stats), "cyan")))
    return stream.result


def compared(editor: SpecEditor, result: EditResult, plain: EditResult, greedy: bool) -> dict:
    """How the answer compares with the one of plain decoding."""
    margin = editor.margin(plain.generation, result.generation)
    same = "identical" if margin is None else "not identical"
    if margin is not None and greedy:
        near = f"the two best logits are {margin:.2g} apart" if margin else "two tokens are equally likely"
        advice = "" if editor.target.name.endswith("float32") else "; --dtype float32 is exact"
        same += f" (they part where {near}{advice})"
    ours, theirs = result.stats.total, plain.stats.total
    log.print(
        f"speculative {ours:.2f} s, plain {theirs:.2f} s: {theirs / ours:.1f}× as fast, {same}",
        soft_wrap=True,
    )
    comparison = {"identical": margin is None, "plain_seconds": theirs, "speculative_seconds": ours}
    return comparison if margin is None else comparison | {"margin": margin}


def show_diff(diff: str) -> None:
    """The diff on standard output: coloured on a terminal, else exactly as `git apply` takes it."""
    data = diff.encode("utf-8", "surrogateescape")
    if not is_terminal(sys.stdout):
        emit(data)
        return
    out = Console(highlight=False)
    for line in data.decode("utf-8", "replace").translate(CONTROLS).split("\n")[:-1]:
        out.print(line, style=_DIFF_COLOURS.get(line[:1]), markup=False, soft_wrap=True)


def agreed(file: Path) -> bool:
    """Whether the user says yes."""
    return click.confirm(f"Write {file}?", err=True)


def is_terminal(*streams: TextIO | None) -> bool:
    """Whether all of them are. A stream that was closed before the start is None."""
    return all(stream is not None and stream.isatty() for stream in streams)


def emit(data: bytes) -> None:
    """Bytes to standard output, now: what fails at exit fails unseen."""
    if sys.stdout:
        sys.stdout.buffer.write(data)
        sys.stdout.buffer.flush()


def outcome(file: Path, output: Path | None, result: EditResult, written: bool, asked: bool) -> str:
    """The last line: what happened to the file, and what the run was like."""
    if written:
        did = f"wrote {output or file}"
    elif str(output) == "-":
        did = "printed"
    elif not result.diff:
        did = f"the model changed nothing in {file}"
    else:
        did = f"{file} is unchanged" + ("" if asked else " (--write writes it)")
    return f"{did}; {progress(result.stats)}"


def progress(stats: Statistics) -> str:
    """Tokens, speed and accepted share so far."""
    speed = stats.tokens / max(stats.total, 1e-9)
    drafted = stats.drafted.total()
    share = f", {stats.accepted_tokens / drafted:.0%} of {drafted} drafted tokens accepted" if drafted else ""
    return f"{stats.tokens} tokens in {stats.total:.1f} s, {speed:.0f} tokens/s{share}"
