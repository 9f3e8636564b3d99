"""The edits that a git repository remembers: changed text files, commit by commit."""

from __future__ import annotations

import os
import stat
from collections import Counter
from dataclasses import dataclass
from itertools import islice
from pathlib import PurePath

from dulwich.diff_tree import RenameDetector, TreeChange
from dulwich.errors import ChecksumMismatch, FileFormatException, NotGitRepository
from dulwich.objects import Commit
from dulwich.repo import Repo

from specedit.editing.source import SourceFile
from specedit.types import SpecEditError

_LARGEST = 1_000_000  # bytes of a file


@dataclass(frozen=True, slots=True)
class PastEdit:
    """One file in one commit.

    Attributes:
        commit: the beginning of its hash.
        message: the first line of the commit's message.
        path: the file's path after the commit.
        before: its text before, with "\\n" newlines.
        after: its text after.
    """

    commit: str
    message: str
    path: str
    before: str
    after: str


def past_edits(repository: str | os.PathLike[str], last: int) -> tuple[list[PastEdit], Counter[str]]:
    """The edits in the last commits of the branch that is checked out, newest first; merges are not counted.

    Args:
        repository: a folder in a git repository.
        last: how many commits.

    Returns:
        The edits, and how many files of these commits were left out, by reason.

    Raises:
        SpecEditError: it is no git repository, it has no commits, or it is damaged.
    """
    edits: list[PastEdit] = []
    left_out: Counter[str] = Counter()
    try:
        with Repo.discover(repository) as repo:
            commits = repo.get_walker(rename_detector=RenameDetector(repo.object_store))
            alone = (entry for entry in commits if len(repo.get_parents(entry.commit.id)) < 2)
            for entry in islice(alone, last):
                for change in entry.changes():
                    assert isinstance(change, TreeChange)  # a list would be a merge's
                    found = _edit(repo, entry.commit, change)
                    if isinstance(found, str):
                        left_out[found] += 1
                    else:
                        edits.append(found)
    except (NotGitRepository, FileNotFoundError) as error:
        raise SpecEditError(f"{repository} is not in a git repository: name one with --repo.") from error
    except (KeyError, ChecksumMismatch, FileFormatException) as error:
        raise SpecEditError(
            f"The git repository of {repository} lacks commits or is damaged: commit something, or see what "
            f"`git fsck` says ({error})."
        ) from error
    return edits, left_out


def _edit(repo: Repo, commit: Commit, change: TreeChange) -> PastEdit | str:
    """The edit, or why it is left out."""
    old, new = change.old, change.new
    if old is None or old.sha is None:
        return "new"
    if new is None or new.sha is None:
        return "deleted"
    if not stat.S_ISREG(old.mode) or not stat.S_ISREG(new.mode):
        return "no regular files"
    if old.sha == new.sha:
        return "unchanged but for their name or mode"
    if old.sha not in repo or new.sha not in repo:
        return "not in this partial clone"
    data = [repo[entry.sha].as_raw_string() for entry in (old, new)]
    if max(map(len, data)) > _LARGEST:
        return f"larger than {_LARGEST // 1_000_000} MB"
    path = new.path.decode("utf-8", "replace")
    try:
        before, after = (SourceFile.from_bytes(version, path).text for version in data)
    except SpecEditError:
        return "not text in a known encoding"
    if before == after:
        return "unchanged but for their line endings"
    if not after:
        return "emptied"
    lines = commit.message.decode(errors="replace").strip().splitlines()
    message = lines[0] if lines else f"Update {PurePath(path).name}"
    return PastEdit(commit.id.decode()[:10], message, path, before, after)
