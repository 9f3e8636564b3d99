"""The forms in which models answer with an edit: made by code from a pair of texts, and turned back."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from difflib import SequenceMatcher, unified_diff
from itertools import count

from bench.corpus.corpus import Pair
from specedit.editing.answer import extract
from specedit.editing.languages import language_of
from specedit.editing.prompt import fence_for

# Diffs say this of a last line without newline. Other forms made of whole lines say it after the last fence.
_NO_NEWLINE = "\\ No newline at end of file"


@dataclass(frozen=True, slots=True)
class Form:
    """A form of answer. For every pair, `apply(pair.before, answer(pair)) == pair.after`.

    Attributes:
        prompt_text: how the file stands in the prompt.
        answer: what the model writes.
        apply: the file's new text, from its old text and such an answer. No judge of what real models write.
    """

    prompt_text: Callable[[Pair], str]
    answer: Callable[[Pair], str]
    apply: Callable[[str, str], str]


def _shown(pair: Pair) -> str:
    return f"{pair.path}\n{_fenced(pair, pair.before)}"


def _shown_numbered(pair: Pair) -> str:
    """As `cat -n` prints it."""
    numbered = "".join(f"{number:6}\t{line}" for number, line in enumerate(_lines(pair.before), 1))
    return f"{pair.path}\n{_fenced(pair, numbered)}"


def _fenced(pair: Pair, text: str) -> str:
    language = language_of(pair.path)
    fence = fence_for(language, pair.before, pair.after)
    return f"{fence}{language}\n{_whole_lines(text)}{fence}\n{_end(text)}"


def _fence(pair: Pair) -> str:
    return _fenced(pair, pair.after)


def _apply_fence(before: str, answer: str) -> str:
    opening, _, rest = answer.partition("\n")
    return _as_ended(extract(rest, fence=opening[: opening.rindex("`") + 1]).text, answer)


def _write_file(pair: Pair) -> str:
    return _call("write_file", path=pair.path, content=pair.after)


def _apply_write_file(before: str, answer: str) -> str:
    (call,) = _calls(answer)
    return call["content"]


def _str_replace(pair: Pair) -> str:
    edits = _edits(pair.before, pair.after)
    return "".join(_call("str_replace", path=pair.path, old_str=old, new_str=new) for old, new in edits)


def _apply_str_replace(before: str, answer: str) -> str:
    text = before
    for call in _calls(answer):
        text = _replaced(text, call["old_str"], call["new_str"])
    return text


def _search_replace(pair: Pair) -> str:
    """As aider has it. Like git's conflict markers, these are longer where a line could be taken for one."""
    language = language_of(pair.path)
    fence = fence_for(language, pair.before, pair.after)
    lines = {*pair.before.split("\n"), *pair.after.split("\n")}
    size = next(n for n in count(7) if lines.isdisjoint(_markers(n)))
    search, divide, replace = _markers(size)
    return "".join(
        f"{pair.path}\n{fence}{language}\n{search}\n{old}{divide}\n{new}{replace}\n{fence}\n"
        for old, new in _edits(_whole_lines(pair.before), _whole_lines(pair.after))
    ) + _end(pair.after)


def _apply_search_replace(before: str, answer: str) -> str:
    text = _whole_lines(before)
    if first := re.search("^(<{7,}) SEARCH$", answer, re.MULTILINE):
        search, divide, replace = _markers(len(first[1]))
        block = rf"^{search}\n(.*?)^{divide}\n(.*?)^{replace}$"
        for old, new in re.findall(block, answer, re.MULTILINE | re.DOTALL):
            text = _replaced(text, old, new)
    return _as_ended(text, answer)


def _markers(size: int) -> tuple[str, str, str]:
    return f"{'<' * size} SEARCH", "=" * size, f"{'>' * size} REPLACE"


def _unified_diff(pair: Pair) -> str:
    diff = unified_diff(_lines(pair.before), _lines(pair.after), f"a/{pair.path}", f"b/{pair.path}")
    return "".join(line if line.endswith("\n") else f"{line}\n{_NO_NEWLINE}\n" for line in diff)


def _apply_unified_diff(before: str, answer: str) -> str:
    old, new = _lines(before), list[str]()
    at, kind = 0, ""
    for line in _lines(answer)[2:]:
        previous, kind = kind, line[0]
        if kind == "@":
            ((number, length),) = re.findall(r"^@@ -(\d+)(?:,(\d+))?", line)
            # A hunk that takes no line names the one before it.
            start = int(number) - (length != "0")
            new += old[at:start]
            at = start
        elif kind == "\\":
            if previous != "-":
                new[-1] = new[-1].removesuffix("\n")
        else:
            at += kind != "+"
            new += [line[1:]] if kind != "-" else []
    return "".join(new + old[at:])


FORMS = {
    "fence": Form(_shown, _fence, _apply_fence),
    "write_file": Form(_shown, _write_file, _apply_write_file),
    "search_replace": Form(_shown, _search_replace, _apply_search_replace),
    "unified_diff": Form(_shown, _unified_diff, _apply_unified_diff),
    "str_replace": Form(_shown, _str_replace, _apply_str_replace),
    "numbered": Form(_shown_numbered, _fence, _apply_fence),
}


def _lines(text: str) -> list[str]:
    """Its lines with their newlines. Unlike str.splitlines, at nothing but newlines."""
    return re.findall(r"[^\n]*\n|[^\n]+", text)


def _whole_lines(text: str) -> str:
    return text if not text or text.endswith("\n") else text + "\n"


def _end(text: str) -> str:
    return "" if text == _whole_lines(text) else _NO_NEWLINE


def _as_ended(text: str, answer: str) -> str:
    return text.removesuffix("\n") if answer.endswith(_NO_NEWLINE) else text


def _edits(before: str, after: str) -> Iterator[tuple[str, str]]:
    """Replacements to make one after the other: the old string and the new.

    Each has a line of context, and as many more as it takes for the old string to stand in the text once.
    """
    old, new = _lines(before), _lines(after)
    for group in SequenceMatcher(None, old, new, autojunk=False).get_grouped_opcodes(1):
        (_, i1, _, j1, _), (_, _, i2, _, j2) = group[0], group[-1]
        text = "".join(new[:j1] + old[i1:])
        for more in count():
            above, below = new[max(0, j1 - more) : j1], old[i2 : i2 + more]
            found = "".join(above + old[i1:i2] + below)
            if text.find(found) == text.rfind(found):
                yield found, "".join(above + new[j1:j2] + below)
                break


def _replaced(text: str, old: str, new: str) -> str:
    at = text.find(old)
    if at < 0 or at != text.rfind(old):
        raise ValueError("What is to be replaced does not stand in the file exactly once.")
    return text[:at] + new + text[at + len(old) :]


def _call(name: str, **arguments: str) -> str:
    """A tool call as Qwen and Hermes models write it. JSON keeps it in one line."""
    call = json.dumps({"name": name, "arguments": arguments}, ensure_ascii=False)
    return f"<tool_call>\n{call}\n</tool_call>\n"


def _calls(answer: str) -> list[dict[str, str]]:
    """The arguments of each call."""
    return [json.loads(line)["arguments"] for line in answer.split("\n") if line.startswith("{")]
