"""The edits in a git history, read from real repositories."""

import os
import subprocess
from collections import Counter
from pathlib import Path

import pytest

from specedit import SpecEditError
from specedit.history import past_edits

ENVIRONMENT = {
    **os.environ,
    "GIT_CONFIG_GLOBAL": os.devnull,
    "GIT_CONFIG_SYSTEM": os.devnull,
    **{f"GIT_{who}_{what}": "a@b" for who in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")},
}


class Repository:
    """A git repository to be made commit by commit."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.git("init", "-b", "main")

    def git(self, *arguments: str) -> None:
        subprocess.run(["git", *arguments], cwd=self.folder, env=ENVIRONMENT, check=True, capture_output=True)

    def commit(self, message: str, files: dict[str, bytes | str]) -> None:
        for name, content in files.items():
            data = content.encode() if isinstance(content, str) else content
            (self.folder / name).write_bytes(data)
        self.git("add", "-A")
        self.git("commit", "--allow-empty", "--allow-empty-message", "-m", message)

    def edits(self, last: int = 50) -> list[tuple[str, str, str]]:
        return [(edit.path, edit.before, edit.after) for edit in past_edits(self.folder, last)[0]]

    def left_out(self) -> Counter[str]:
        return past_edits(self.folder, 50)[1]


@pytest.fixture
def repository(tmp_path):
    return Repository(tmp_path)


def test_a_changed_file_is_an_edit(repository):
    repository.commit("Begin.", {"a.py": "x = 1\n"})
    repository.commit("Say 2.\n\nIt is more.", {"a.py": "x = 2\n"})
    (edit,), left_out = past_edits(repository.folder, 50)
    assert (edit.path, edit.before, edit.after, edit.message) == ("a.py", "x = 1\n", "x = 2\n", "Say 2.")
    assert left_out == {"new": 1}


def test_the_newest_commits_come_first_and_no_more_than_asked_for(repository):
    for number in range(5):
        repository.commit("More.", {"a.txt": f"{number}\n"})
    assert [after for _, _, after in repository.edits(last=2)] == ["4\n", "3\n"]


def test_a_commit_without_a_message_names_the_file(repository):
    repository.commit("", {"a.py": "x = 1\n"})
    repository.commit("", {"a.py": "x = 2\n"})
    assert past_edits(repository.folder, 50)[0][0].message == "Update a.py"


def test_a_folder_in_the_repository_will_do(repository):
    (repository.folder / "inner").mkdir()
    repository.commit("Begin.", {"inner/a.py": "x = 1\n"})
    assert past_edits(repository.folder / "inner", 50) == ([], {"new": 1})


def test_a_merge_is_not_counted_but_what_it_merged_is(repository):
    repository.commit("Begin.", {"a.txt": "a\n", "b.txt": "b\n"})
    repository.git("switch", "-c", "side")
    repository.commit("On the side.", {"a.txt": "A\n"})
    repository.git("switch", "main")
    repository.commit("Meanwhile.", {"b.txt": "B\n"})
    repository.git("merge", "side", "-m", "Merge.")
    assert sorted(repository.edits()) == [("a.txt", "a\n", "A\n"), ("b.txt", "b\n", "B\n")]


def test_a_renamed_file_that_changed_is_an_edit(repository):
    text = "".join(f"line {number}\n" for number in range(20))
    repository.commit("Begin.", {"old.txt": text})
    (repository.folder / "old.txt").unlink()
    repository.commit("Move.", {"new.txt": text + "more\n"})
    assert repository.edits() == [("new.txt", text, text + "more\n")]


def test_a_new_file_that_is_like_a_changed_one_is_new(repository):
    text = "".join(f"line {number}\n" for number in range(20))
    repository.commit("Begin.", {"a.txt": text})
    repository.commit("Copy.", {"a.txt": text + "more\n", "b.txt": text, "c.txt": text + "else\n"})
    assert [path for path, _, _ in repository.edits(last=1)] == ["a.txt"]
    assert past_edits(repository.folder, 1)[1] == {"new": 2}


def test_a_message_in_its_own_encoding_is_decoded(repository):
    repository.commit("Begin.", {"a.txt": "a\n"})
    (repository.folder / "a.txt").write_text("b\n")
    message = repository.folder / ".git" / "message"
    message.write_bytes("Caf\xe9.".encode("latin-1"))
    repository.git("-c", "i18n.commitEncoding=latin1", "commit", "-a", "-F", str(message))
    assert past_edits(repository.folder, 1)[0][0].message == "Caf\xe9."


def test_a_file_in_its_own_encoding_is_decoded(repository):
    head = "# -*- coding: latin-1 -*-\n"
    repository.commit("Begin.", {"a.py": f"{head}x = '\xe9'\n".encode("latin-1")})
    repository.commit("Edit.", {"a.py": f"{head}y = '\xe9'\n".encode("latin-1")})
    assert repository.edits() == [("a.py", f"{head}x = '\xe9'\n", f"{head}y = '\xe9'\n")]


def test_text_that_unicode_does_not_have_is_left_out(repository):
    for name in "xy":
        repository.commit("Edit.", {"a.py": f'# coding: raw_unicode_escape\n{name} = "\\ud800"\n'.encode()})
    assert past_edits(repository.folder, 1) == ([], {"not text in a known encoding": 1})


@pytest.mark.parametrize(
    ("before", "after", "reason"),
    [
        (b"\xff\xfe\xfd", b"\xfe\xff\xfd", "not text in a known encoding"),
        (b"a\0b", b"a\0c", "not text in a known encoding"),
        (b"a" * 1_100_000, b"b", "larger than 1 MB"),
        (b"a\r\n", b"a\n", "unchanged but for their line endings"),
        (b"a\n", b"", "emptied"),
        (b"version https://git-lfs.github.com/spec/v1\n", b"", "kept elsewhere (git LFS)"),
    ],
    ids=["no utf-8", "binary", "huge", "line endings", "emptied", "git lfs"],
)
def test_what_is_left_out_is_counted(repository, before, after, reason):
    repository.commit("Begin.", {"a.txt": before})
    repository.commit("Edit.", {"a.txt": after})
    assert past_edits(repository.folder, 1) == ([], {reason: 1})


def test_deletions_links_modes_and_submodules_are_left_out(repository):
    text = "one line that is long enough\n"
    link = repository.folder / "link"
    link.symlink_to("gone.txt")
    repository.commit("Begin.", {"gone.txt": text, "tool.sh": "true\n", "kept.txt": "kept\n"})
    for file in (link, repository.folder / "gone.txt"):
        file.unlink()
    link.symlink_to("kept.txt")
    (repository.folder / "tool.sh").chmod(0o755)
    inner = repository.folder / "inner"
    inner.mkdir()
    Repository(inner).commit("Inner.", {"a.txt": "a\n"})
    repository.commit("Edit.", {})
    edits, left_out = past_edits(repository.folder, 1)
    assert edits == []
    expected = ["new", "deleted", "no regular files", "unchanged but for their name or mode"]
    assert left_out == dict.fromkeys(expected, 1)


def test_a_name_that_is_no_text(repository):
    name = os.fsdecode(b"caf\xe9.txt")
    repository.commit("Begin.", {name: "a\n"})
    repository.commit("Edit.", {name: "b\n"})
    assert repository.edits() == [("caf\ufffd.txt", "a\n", "b\n")]


def test_a_shallow_clone_ends_where_it_ends(repository, tmp_path_factory):
    for number in range(4):
        repository.commit("More.", {"a.txt": f"{number}\n"})
    clone = tmp_path_factory.mktemp("shallow")
    subprocess.run(
        ["git", "clone", "--depth", "2", repository.folder.as_uri(), clone], check=True, capture_output=True
    )
    edits, left_out = past_edits(clone, 50)
    assert [(edit.before, edit.after) for edit in edits] == [("2\n", "3\n")]
    assert left_out == {"new": 1}


def test_no_repository_is_said(tmp_path):
    with pytest.raises(SpecEditError, match="is not in a git repository: name one with --repo"):
        past_edits(tmp_path, 50)


def test_a_folder_that_is_not_there_is_said(repository):
    with pytest.raises(SpecEditError, match=r"There is no folder .*nowhere: name"):
        past_edits(repository.folder / "nowhere", 50)


def test_a_repository_without_commits_is_said(repository):
    with pytest.raises(SpecEditError, match="commit something"):
        repository.edits()


def test_a_damaged_repository_is_said(repository):
    repository.commit("Begin.", {"a.txt": "a\n"})
    repository.commit("Edit.", {"a.txt": "b\n"})
    for file in (repository.folder / ".git" / "objects").rglob("??????????*"):
        file.chmod(0o600)
        file.write_bytes(b"not what it was")
    with pytest.raises(SpecEditError, match="git fsck"):
        repository.edits()


@pytest.mark.parametrize(("file", "content"), [("HEAD", b"rubbish"), ("config", b"[[[")])
def test_files_of_git_that_are_damaged_are_said(repository, file, content):
    repository.commit("Begin.", {"a.txt": "a\n"})
    (repository.folder / ".git" / file).write_bytes(content)
    with pytest.raises(SpecEditError, match="git fsck"):
        repository.edits()


def test_a_partial_clone_lacks_what_it_lacks(repository, tmp_path_factory):
    for number in range(3):
        repository.commit("More.", {"a.txt": f"{number}\n"})
    repository.git("config", "uploadpack.allowFilter", "true")
    clone = tmp_path_factory.mktemp("partial")
    command = ["git", "clone", "--filter=blob:none", repository.folder.as_uri(), clone]
    subprocess.run(command, check=True, capture_output=True)
    edits, left_out = past_edits(clone, 50)
    assert edits == []
    assert left_out == {"not in this partial clone": 2, "new": 1}
