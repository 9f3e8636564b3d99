"""What the model is asked: the file, the instruction, and the beginning of its answer."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from specedit.editing.languages import grammar_of, language_of
from specedit.types import SpecEditError

SYSTEM = (
    "You edit source files. Apply the instruction and reply with the complete updated file in one code "
    "block. Leave everything else exactly as it is."
)


@dataclass(frozen=True, slots=True)
class EditPrompt:
    """A request for one edit.

    Attributes:
        messages: the chat, system first, as `{"role": ..., "content": ...}`.
        prefill: what the answer is made to begin with; the file's new text follows it.
        fence: the backticks that open and close the answer's code block.
    """

    messages: list[dict[str, str]]
    prefill: str
    fence: str


def build_prompt(
    text: str,
    instruction: str,
    name: str,
    language: str | None = None,
    references: Mapping[str, str] | None = None,
) -> EditPrompt:
    """Ask for the edit `instruction` of the file `name`, which holds `text` ("\\n" newlines).

    Args:
        language: the word after the fence; by default the one that the name gives.
        references: other texts to show, by name, before the file.

    Raises:
        SpecEditError: the instruction is empty.
    """
    check_instruction(instruction)
    references = references or {}
    language = language_of(name) if language is None else language
    fence = fence_for(language, text, instruction, *references.values())

    shown = [_block(other, fence, language_of(other), body) for other, body in references.items()]
    shown.append(_block(name, fence, language, text))
    user = "\n\n".join([*shown, instruction])
    messages = [{"role": "system", "content": SYSTEM}, {"role": "user", "content": user}]
    return EditPrompt(messages, prefill=f"{fence}{language}\n", fence=fence)


def check_instruction(instruction: str) -> None:
    """Raises SpecEditError if it is empty."""
    if not instruction.strip():
        raise SpecEditError("The instruction is empty; say what to change, for example 'Add type hints'.")


def fence_for(language: str, *texts: str) -> str:
    """Backticks that no line of `texts` can be taken for: at least three, and four where there is no grammar.

    An edit of Markdown or plain text may add a block of its own, whose fence must not end the answer, and no
    syntax check would see that it did.
    """
    longest = max((len(run) for text in texts for run in re.findall(r"`+", text)), default=0)
    return "`" * max(3 if grammar_of(language) else 4, longest + 1)


def _block(name: str, fence: str, language: str, text: str) -> str:
    # The fence needs a line of its own; an empty file has no line to end.
    newline = "" if text.endswith("\n") or not text else "\n"
    return f"{name}\n{fence}{language}\n{text}{newline}{fence}"
