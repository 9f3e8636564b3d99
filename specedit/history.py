"""The edits that a git repository remembers: changed text files, commit by commit."""

from __future__ import annotations

import os
import stat
from collections import Counter
from dataclasses import dataclass
from itertools import islice
from pathlib import PurePath

from dulwich.diff_tree import CHANGE_COPY, CHANGE_MODIFY, RenameDetector, TreeChange, TreeEntry
from dulwich.errors import NotGitRepository
from dulwich.objects import Commit
from dulwich.refs import HEADREF
from dulwich.repo import Repo

from specedit.editing.source import SourceFile
from specedit.pretrained import first_sentence
from specedit.types import SpecEditError

_LARGEST = 1_000_000  # bytes of a file
_STORED_ELSEWHERE = b"version https://git-lfs"


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
        SpecEditError: it is no git repository, it has no commits, or it cannot be read.
    """
    if not os.path.isdir(repository):  # git would look for it further up
        raise SpecEditError(f"There is no folder {repository}: name a git repository with --repo.")
    edits: list[PastEdit] = []
    left_out: Counter[str] = Counter()
    try:
        with Repo.discover(repository) as repo:
            if repo.refs.follow(HEADREF)[1] is None:
                raise SpecEditError(f"The git repository of {repository} has no commits: commit something.")
            commits = repo.get_walker(rename_detector=_Renames(repo.object_store, rewrite_threshold=None))
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
    except SpecEditError:
        raise
    except Exception as error:  # whatever dulwich stumbles over
        raise SpecEditError(
            f"The git repository of {repository} cannot be read ({type(error).__name__}: "
            f"{first_sentence(error)}): see what `git fsck` says, or measure a whole, fresh clone of it."
        ) from error
    return edits, left_out


class _Renames(RenameDetector):
    """Takes files for renamed only if one of them was deleted, and reads no others."""

    def _add_change(self, change: TreeChange) -> None:
        if change.type == CHANGE_MODIFY or not all(map(self._is_here, (change.old, change.new))):
            self._changes.append(change)
        else:
            super()._add_change(change)

    def _is_here(self, entry: TreeEntry | None) -> bool:
        """Not so in a partial clone."""
        return entry is None or entry.sha is None or entry.sha in self._store


def _edit(repo: Repo, commit: Commit, change: TreeChange) -> PastEdit | str:
    """The edit, or why it is left out."""
    old, new = change.old, change.new
    if old is None or old.sha is None or change.type == CHANGE_COPY:
        return "new"
    if new is None or new.sha is None:
        return "deleted"
    if not stat.S_ISREG(old.mode) or not stat.S_ISREG(new.mode):
        return "no regular files"
    if old.sha == new.sha:
        return "unchanged but for their name or mode"
    if old.sha not in repo or new.sha not in repo:
        return "not in this partial clone"
    data = list[bytes]()
    for entry in (old, new):
        data.append(repo[entry.sha].as_raw_string())
        if len(data[-1]) > _LARGEST:
            return f"larger than {_LARGEST // 1_000_000} MB"
        if data[-1].startswith(_STORED_ELSEWHERE):
            return "kept elsewhere (git LFS)"
    path = new.path.decode("utf-8", "replace")
    try:
        before, after = (SourceFile.from_bytes(version, path).text for version in data)
        f"{before}{after}".encode()  # some encodings have what is no text
    except (SpecEditError, UnicodeEncodeError):
        return "not text in a known encoding"
    if before == after:
        return "unchanged but for their line endings"
    if not after:
        return "emptied"
    lines = _message(commit).strip().splitlines()
    message = lines[0] if lines else f"Update {PurePath(path).name}"
    return PastEdit(commit.id.decode()[:10], message, path, before, after)


def _message(commit: Commit) -> str:
    try:
        return commit.message.decode((commit.encoding or b"utf-8").decode("ascii", "replace"), "replace")
    except LookupError:  # an encoding that Python does not know
        return commit.message.decode("utf-8", "replace")
