import subprocess

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from specedit.editing import unified

WORDS = st.sampled_from(["", "a", "b", "é", "\f", "\u2028", " ", "-- x", "\ufeff"])
LINES = st.tuples(WORDS, st.sampled_from(["\n", "\r\n", "\r"])).map("".join)
TEXTS = st.lists(LINES, max_size=8).map("".join)
ENDS = st.sampled_from(["", "c", "\r"])


def applied(tmp_path, command, old, new, name="a.py"):
    file = tmp_path / name
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(old.encode())
    done = subprocess.run(command, cwd=tmp_path, input=unified(old, new, name).encode(), capture_output=True)
    assert done.returncode == 0, done.stderr
    return file.read_bytes()


GIT = ["git", "apply", "-"]
PATCH = ["patch", "-p1", "--binary", "--silent"]

CASES = [
    ("a\nb\n", "a\nc\n"),
    ("a\r\nb\r\n", "a\r\nc\r\n"),
    ("a\r\n", "a\n"),
    ("a\rb\r", "a\rc\r"),
    ("a", "b"),
    ("a", "a\n"),
    ("a\n", "a"),
    ("", "a\n"),
    ("a\n", ""),
    ("\ufeffa\n", "\ufeffb\n"),
    ("a\n" * 50, "a\n" * 20 + "b\n" + "a\n" * 29),
]


@pytest.mark.parametrize(("old", "new"), CASES)
def test_git_takes_the_patch(tmp_path, old, new):
    assert applied(tmp_path, GIT, old, new) == new.encode()


@pytest.mark.parametrize(("old", "new"), CASES)
def test_patch_takes_the_patch(tmp_path, old, new):
    assert applied(tmp_path, PATCH, old, new) == new.encode()


@given(TEXTS, ENDS, TEXTS, ENDS)
@settings(max_examples=60, deadline=None)
def test_git_takes_any_patch(tmp_path_factory, old, old_end, new, new_end):
    if old + old_end != new + new_end:
        path = tmp_path_factory.mktemp("repo")
        assert applied(path, GIT, old + old_end, new + new_end) == (new + new_end).encode()


@pytest.mark.parametrize("name", ["src/a.py", "a b.py", "é.py", 'a"b.py', "a\\b.py", "a\tb.py", "a\nb.py"])
def test_git_finds_the_file(tmp_path, name):
    assert applied(tmp_path, GIT, "a\n", "b\n", name) == b"b\n"


def test_how_it_looks():
    assert unified("a\nb", "a\nc\n", "src/x.py") == (
        "diff --git a/src/x.py b/src/x.py\n--- a/src/x.py\n+++ b/src/x.py\n"
        "@@ -1,2 +1,2 @@\n a\n-b\n\\ No newline at end of file\n+c\n"
    )


def test_no_change_no_patch():
    assert unified("a\n", "a\n", "a.py") == ""


def test_an_absolute_name_is_taken_from_the_root():
    assert "--- a/tmp/x.py\n" in unified("a\n", "b\n", "/tmp/x.py")
