"""The difference between two texts, in git's form."""

from __future__ import annotations

import difflib
import re


def unified(old: str, new: str, name: str) -> str:
    r"""The change from `old` to `new` as a patch that `git apply` and `patch -p1` take; "" if there is none.

    Give both texts with the file's own newlines (`SourceFile.original`, and what `restore` made of the
    answer): as in git, a line ends at "\n", and a "\r" before it is part of the line. Write the patch out
    without translating newlines. `name` is the file's path from where the patch will be applied.
    """
    if old == new:
        return ""
    before, after = _quoted(f"a/{name.lstrip('/')}"), _quoted(f"b/{name.lstrip('/')}")
    # GNU patch takes a header's name to end at a space, unless a tab follows.
    tab = "\t" if " " in name else ""
    lines = difflib.unified_diff(split_lines(old), split_lines(new))
    header = [f"diff --git {before} {after}\n", f"--- {before}{tab}\n", f"+++ {after}{tab}\n"]
    body = [line if line.endswith("\n") else f"{line}\n\\ No newline at end of file\n" for line in lines]
    # difflib's own two header lines cannot quote a name.
    return "".join([*header, *body[2:]])


def split_lines(text: str) -> list[str]:
    """The lines of a text as git sees them, with their ends."""
    # str.splitlines would also cut at "\r", "\f" and others, which are no line ends to git.
    return re.findall(r"[^\n]*\n|[^\n]+", text)


def _quoted(path: str) -> str:
    """`path` in the C string that git writes where a name would not survive as it is."""
    if not re.search(r'[\x00-\x1f\x7f"\\]', path):
        return path
    named = {"\t": "\\t", "\n": "\\n", '"': '\\"', "\\": "\\\\"}
    return '"' + re.sub(r'[\x00-\x1f\x7f"\\]', lambda m: named.get(m[0], f"\\{ord(m[0]):03o}"), path) + '"'


def share_of_new_lines(before: str, after: str) -> float:
    """How many of `after`'s lines, 0 to 1, are not carried over from `before`; 0 if it has none."""
    old, new = split_lines(before), split_lines(after)
    blocks = difflib.SequenceMatcher(None, old, new, autojunk=False).get_matching_blocks()
    return 1 - sum(block.size for block in blocks) / len(new) if new else 0.0
