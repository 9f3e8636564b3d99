"""What is wrong with an answer, before it may replace a file."""

from __future__ import annotations

import ast
import re
import warnings
from collections import Counter
from dataclasses import dataclass

from specedit.editing.languages import first_error, language_of


@dataclass(frozen=True, slots=True)
class Problem:
    """A reason not to take an answer.

    Attributes:
        line: the line of the new text, 1 being the first; 0 if it is the whole.
        message: one sentence that says what is wrong and what to do.
    """

    line: int
    message: str


def check(old: str, new: str, name: str, language: str | None = None) -> list[Problem]:
    """Problems with `new` as the next version of `old`, the text of the file `name`; empty if there is none.

    An answer is a problem if it is empty and the file was not, if it holds a comment such as "... rest of the
    code unchanged ..." in place of code, or if it breaks the syntax of a file that had no fault.
    """
    language = language_of(name) if language is None else language
    if old.strip() and not new.strip():
        return [Problem(0, f"The answer would empty {name}; word the instruction differently, or force it.")]
    problems = [
        Problem(line, f"Line {line} stands for code that is left out ({text}); ask again, or force it.")
        for line, text in _placeholders(old, new, language)
    ]
    line = _broken_at(new, language)
    if line is not None and _broken_at(old, language) is None:
        problems.append(
            Problem(line, f"The answer breaks the {language} syntax at line {line}; ask again, or force it.")
        )
    return problems


def _broken_at(text: str, language: str) -> int | None:
    line = first_error(text, language)
    if line is not None or language != "python":
        return line
    # tree-sitter reads on where Python's indentation is wrong, and a wrong indentation is what models write.
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            ast.parse(text)
    except SyntaxError as error:
        return error.lineno or 1
    except (ValueError, MemoryError, RecursionError):
        pass  # too deep to read, which is no fault of the text
    return None


# A comment: what stands before it on the line, its marker, its text.
_COMMENT = re.compile(r"(?P<code>^|.*?(?<=[\s({]))(?:#+|//+|/\*+|<!--|\{/\*|--+|;+|%+)\s*(?P<text>.*)")
# Documents have no comments but HTML's, and their headings and lists look like other languages' comments.
_HTML_COMMENT = re.compile(r"(?P<code>.*?)<!--\s*(?P<text>.*)")
# "[... rest of the document ...]", " * ... existing code ..." inside a block comment.
_BARE = re.compile(r"(?P<code>)(?:\*\s*)?(?P<text>[\[(<*]*\s*(?:\.\.\.|…).*)")

# What may enclose the words: closing markers, brackets, dots, dashes.
_AROUND = " \t.…*/\\-–—=~>]})[({<:!#"

_PART = (
    r"(?:code|files?|class(?:es)?|functions?|methods?|module|script|program|implementations?|imports?|"
    r"contents?|document|definitions?|logic|body|tests?|styles?|rules?|fields?|properties|parts?|sections?|"
    r"lines?|text|page|markup|component|everything)"
)
_SAME = (
    r"(?:(?:(?:is|are|remains?|stays?|kept|left|goes|go|continues?)\s+)*"
    r"(?:here|unchanged|unmodified|untouched|the same|same|as is|as-is|as before|as it was|"
    r"as in the original|omitted(?: for brevity)?|identical))"
)
_OF = rf"(?:\s+of\s+(?:the\s+|your\s+|this\s+|my\s+)?(?:\w+\s+){{0,2}}?{_PART})"
# Sentences that only a placeholder says.
_PLACEHOLDER = re.compile(
    rf"(?:the\s+)?(?:rest|remainder){_OF}(?:\s+\w+)?(?:\s+{_SAME})?"
    rf"|(?:the\s+)?rest\s+{_SAME}"
    rf"|(?:the\s+|your\s+|my\s+)?(?:existing|previous|original|unchanged)\s+code(?:\s+{_SAME})?"
    r"|(?:all\s+)?(?:the\s+|your\s+)?(?:other|remaining|existing|previous|original)\s+"
    rf"(?:\w+\s+){{0,2}}?{_PART}\s+{_SAME}"
    rf"|(?:{_PART}|everything else)\s+(?:\w+\s+)?(?:remains?|stays?)\s+(?:unchanged|the same|as is|as before)"
    r"|(?:keep|leave)\s+(?:the\s+|your\s+|all\s+)?(?:rest|remaining|existing|everything else)"
    rf"{_OF}?(?:\s+{_PART})?(?:\s+{_SAME})?"
    r"|unchanged|unmodified|same as (?:before|in the original|the original)|as before|snip(?:ped)?|omitted"
    r"|.*\b(?:omitted|removed|skipped|elided|truncated|not shown)\s+for brevity",
    re.IGNORECASE,
)
# Dots that stand for code. "...then the rest" goes on with the sentence of the line before.
_DOTS = re.compile(r"[ *\[({<-]*(?:\.\.\.|…)(?:(?P<closed>.*(?:\.\.\.|…)\W*$)|\W|$)")
# Words that make a placeholder of a comment that begins with such dots.
_AFTER_DOTS = re.compile(
    r"\b(?:rest|remaining|remainder|existing|unchanged|same|previous|other|others|omitted|original|before|more|code|here)\b"
    r"|其余|其他|剩余|不变|省略|现有",
    re.IGNORECASE,
)
# A placeholder may share its line with what it stands in: `pass  # unchanged`, `{ /* existing code */ }`.
_STUB = re.compile(r"(?:.*[{(:]|.*\bpass|.*\.\.\.|\s*)\s*$")


def _placeholders(old: str, new: str, language: str) -> list[tuple[int, str]]:
    """The lines of `new` that stand for left-out code, and that `old` did not have."""
    known = Counter(line.strip() for line in old.split("\n"))
    found = []
    for number, line in enumerate(new.split("\n"), start=1):
        text = line.strip()
        if known[text] > 0:
            known[text] -= 1
        elif _is_placeholder(text, language):
            found.append((number, text))
    return found


def _is_placeholder(line: str, language: str) -> bool:
    comment = _HTML_COMMENT if language == "markdown" else _COMMENT
    match = comment.fullmatch(line) or _BARE.fullmatch(line)
    if match is None:
        return False
    text, words = match["text"], match["text"].strip(_AROUND)
    dots = _DOTS.match(text)
    if not words:
        # "# ..." alone; `...` alone is Python, and so is `def f(): ...  # ...`.
        return dots is not None and match.re is comment and not match["code"]
    # Without a comment's marker, dots in front may be a doctest's.
    if dots and (match.re is comment or dots["closed"]) and _AFTER_DOTS.search(words):
        return True
    return bool(_PLACEHOLDER.fullmatch(words) and _STUB.fullmatch(match["code"]))
