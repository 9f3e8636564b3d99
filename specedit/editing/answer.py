"""The file's new text, taken out of what the model wrote."""

from __future__ import annotations

import re
from dataclasses import dataclass

from specedit.editing.languages import first_error, language_of

# CommonMark's fence: up to three spaces, a run of one character, and an info string, in which a backtick
# fence may have no backtick (that would be inline code).
FENCE = re.compile(r"( {0,3})(`{3,}(?=[^`]*$)|~{3,})\s*(.*?)\s*")


@dataclass(frozen=True, slots=True)
class Extracted:
    """Code found in an answer.

    Attributes:
        text: the code, with "\\n" newlines; every line has its own, the last one too.
        closed: whether the fence that ends the code was seen. If not, the answer may be cut short.
    """

    text: str
    closed: bool


@dataclass(frozen=True, slots=True)
class Block:
    """A code block of an answer.

    Attributes:
        fence: what opens it.
        info: what stands behind that.
        code: what is in it.
        end: the number of its last line.
    """

    fence: str
    info: str
    code: Extracted
    end: int


def closing_stop(fence: str) -> str:
    """The string at which decoding may stop when the answer began with `EditPrompt.prefill`.

    An answer can also end with the fence and no newline after it, or (an empty file) be the fence alone.
    """
    return f"\n{fence}\n"


def extract(answer: str, fence: str = "```", opened: bool = True, language: str = "") -> Extracted:
    """The code in an answer.

    A fence is closed by the next line of the same character, at least as long and with nothing behind it.
    Inside a block, such a line *with* an info string (`bash`, say) opens a nested block, which takes the next
    closing line for itself.

    Args:
        answer: what the model wrote.
        fence: the fence that the prompt opened; matters only if `opened`.
        opened: True if `answer` goes on where `EditPrompt.prefill` ended. False for a free chat answer, with
            prose around the code and fences of its own. Of several blocks the largest in `language` counts,
            or else the largest. A block that is not yet valid code at its closing line, but is at a later
            one (bare fences in a docstring), goes on to there; one in Markdown goes on to the last, as bare
            fences are ordinary text there.
        language: what `language_of` says of the file; matters only if not `opened`.

    An answer of this second kind without any fence is all code. Nothing marks its end, so `closed` is True
    and the caller must ask whether a limit cut it.
    """
    lines = answer.replace("\r\n", "\n").split("\n")
    if opened:
        return _read_block([fence, *lines], 0, "").code

    found = blocks(answer, language)
    if not found:
        return Extracted("\n".join(lines), closed=True)
    named = [block for block in found if _is_in(block.info, language)]
    return max(named or found, key=lambda block: len(block.code.text)).code


def blocks(answer: str, language: str = "") -> list[Block]:
    """All code blocks of a free chat answer. `language` settles where one ends that holds bare fences."""
    lines = answer.replace("\r\n", "\n").split("\n")
    found, at = list[Block](), 0
    while at < len(lines):
        if FENCE.fullmatch(lines[at]):
            found.append(_read_block(lines, at, language))
            at = found[-1].end
        at += 1
    return found


def fences(text: str) -> int:
    """How many lines of a text could open or close a code block."""
    return sum(FENCE.fullmatch(line) is not None for line in text.split("\n"))


def _read_block(lines: list[str], start: int, language: str) -> Block:
    """The block that `lines[start]` opens. `language` settles which of several bare fences closes it."""
    opening = FENCE.fullmatch(lines[start])
    assert opening is not None
    indent, fence, info = opening.groups()

    ends = []
    nested: list[str] = []
    for at in range(start + 1, len(lines)):
        line = FENCE.fullmatch(lines[at])
        if line is None or not line[2].startswith(nested[-1] if nested else fence):
            continue
        if line[3]:
            nested.append(line[2])
        elif nested:
            nested.pop()
        else:
            ends.append(at)

    def code(end: int) -> str:
        # A block in a list item is indented with its fence.
        return "".join(re.sub(f"^ {{0,{len(indent)}}}", "", line) + "\n" for line in lines[start + 1 : end])

    if not ends:
        rest = code(len(lines)).removesuffix("\n")
        return Block(fence, info, Extracted(rest, closed=False), len(lines))
    end = ends[0]
    if language and _is_in(info, language):
        if language == "markdown":
            end = ends[-1]
        else:
            end = next((at for at in ends if first_error(code(at), language) is None), end)
    return Block(fence, info, Extracted(code(end), closed=True), end)


def _is_in(info: str, language: str) -> bool:
    """Whether an info string such as `c++`, `python title="x"` or `src/app.py` names `language`."""
    word = info.split()[0].strip("{}.").lower() if info.split() else ""
    return bool(word) and language in (word, language_of(f"x.{word}"), language_of(word))
