"""The file side of an edit: bytes to text, prompt, answer, checks, and back to bytes."""

from specedit.editing.answer import Extracted, closing_stop, extract
from specedit.editing.checks import Problem, check
from specedit.editing.diff import unified
from specedit.editing.languages import language_of
from specedit.editing.prompt import EditPrompt, build_prompt
from specedit.editing.source import SourceFile

__all__ = [
    "EditPrompt",
    "Extracted",
    "Problem",
    "SourceFile",
    "build_prompt",
    "check",
    "closing_stop",
    "extract",
    "language_of",
    "unified",
]
