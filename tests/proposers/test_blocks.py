"""What is expected of an answer that shows what it replaces. `|` stands where the answer does."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tree_sitter import Language

from specedit.editing.languages import grammar_of
from specedit.proposers.blocks import Blocks
from specedit.proposers.rules import Rules

OLD = """\
import os


def load(path):
    return os.open(path)


def main():
    first = load("a")
    second = load("b")
    return first, second
"""
LINES = OLD.split("\n")


@pytest.fixture(scope="module")
def grammar() -> Language:
    return grammar_of("python")


def expected(answer, grammar, old=OLD, pieces=1):
    """What is expected after an answer that was read in pieces of so many letters."""
    blocks = Blocks(Rules(old, grammar), old)
    for begin in range(0, len(answer), pieces):
        blocks.read(answer[begin : begin + pieces])
    coming = blocks.coming(1000)
    return coming.text if coming else None


def check(wanted, grammar):
    """Whatever the answer is read in, this is expected at the `|`."""
    answer, coming = wanted.split("|")
    for pieces in (1, 3, 7, len(answer)):
        found = expected(answer, grammar, pieces=pieces)
        assert found is not None, f"nothing is expected in pieces of {pieces}"
        assert found.startswith(coming)


def test_a_replacement_begins_as_what_it_replaces(grammar):
    check("<<<<<<< SEARCH\ndef load(path):\n    return os.open(path)\n=======\n|def load(path):\n", grammar)


def test_and_ends_where_that_ends(grammar):
    check(
        "<<<<<<< SEARCH\ndef load(path):\n    return os.open(path)\n=======\n"
        "def load(path):\n    return open(|path)\n>>>>>>> REPLACE\n",
        grammar,
    )


def test_what_changed_in_one_block_changes_in_the_next(grammar):
    check(
        "<<<<<<< SEARCH\ndef load(path):\n=======\ndef read(path):\n>>>>>>> REPLACE\n\n"
        '<<<<<<< SEARCH\n    first = load("a")\n=======\n|    first = read("a")\n>>>>>>> REPLACE',
        grammar,
    )


def test_nothing_is_expected_of_what_is_being_searched(grammar):
    answer = "<<<<<<< SEARCH\ndef load(path):\n=======\ndef read(path):\n>>>>>>> REPLACE\n<<<<<<< SEARCH\n"
    assert expected(answer, grammar) is None
    assert expected(f'{answer}    first = load("a")\n', grammar) is None


@pytest.mark.parametrize(
    ("old", "new"), [("old_str", "new_str"), ("old_string", "new_string"), ("search", "replace")]
)
def test_strings_of_tools(old, new, grammar):
    check(f'{{"{old}": "    return os.open(path)\\n", "{new}": "|    return os.open(path)\\n"', grammar)


def test_strings_may_begin_and_end_within_lines(grammar):
    piece = "os.open(path)\\n\\n\\ndef main"
    check(f'{{"old_str": "{piece}", "new_str": "|{piece}"}}', grammar)
    check('{"old_str": "load(\\"a\\")", "new_str": "|load(\\"a\\")"}', grammar)


def test_a_string_may_end_in_a_backslash(grammar):
    old = "a = '\\\\'\nb = 1\n"
    answer = json.dumps({"old_str": "a = '\\\\", "new_str": "a = '\\\\"}).split("new_str")[0]
    assert expected(f'{answer}new_str": "', grammar, old) == r"a = '\\\\" + '"}'


def test_a_string_that_nothing_replaces(grammar):
    assert expected('{"search": "load"}\n' + "That is all that there is to say. " * 3, grammar) is None


def test_the_numbers_of_a_hunk_follow_from_the_first(grammar):
    check("--- a/x.py\n+++ b/x.py\n@@ -5|,7 +5,7 @@\n     return os.open(path)\n", grammar)
    check("@@ -5,|7 +5,7 @@\n", grammar)
    check("@@ -5,6 +|5,6 @@\n", grammar)
    check("@@ -5,6 +5,8| @@\n     return os.open(path)\n", grammar)


def test_the_next_hunk_is_as_much_further_down_as_lines_were_added(grammar):
    check("@@ -1,2 +1,3 @@\n import os\n+import sys\n \n@@ -5,3| +6,3 @@\n", grammar)


def test_a_hunk_shows_three_lines_before_its_change(grammar):
    above = "".join(f" {line}\n" for line in LINES[5:8])
    check(f"@@ -6,7 +6,7 @@\n|{above}-{LINES[8]}\n+{LINES[8]}\n", grammar)


def test_added_lines_begin_as_those_that_are_taken_away(grammar):
    check(
        '@@ -8,4 +8,4 @@\n def main():\n-    first = load("a")\n-    second = load("b")\n'
        '|+    first = load("a")\n+    second = load("b")\n     return first, second\n',
        grammar,
    )
    check(
        '@@ -8,4 +8,4 @@\n def main():\n-    first = load("a")\n-    second = load("b")\n'
        '+    first = read("a")\n|+    second = read("b")\n     return first, second\n',
        grammar,
    )


def test_after_three_lines_that_stay_comes_the_next_hunk(grammar):
    check(
        '@@ -6,3 +6,3 @@\n def main():\n-    first = load("a")\n+    first = load("c")\n'
        '     second = load("b")\n|     return first, second\n \n@@ -',
        grammar,
    )


def test_lines_are_found_where_the_numbers_are_wrong(grammar):
    check('@@ -99,3 +99,3 @@\n def main():\n-    first = load("a")\n|+    first = load("a")\n', grammar)


def test_a_diff_that_ends_is_left(grammar):
    blocks = Blocks(Rules(OLD, grammar), OLD)
    assert blocks.read("@@ -1,2 +1,2 @@\n import os\n")
    blocks.read("```\nThat")
    assert not blocks.read("'s it.\n")


def test_marks_that_are_in_the_old_text_are_none(grammar):
    for old in ('a = {"search": "b"}\n', "<<<<<<< HEAD\nx\n=======\n", "@@ -1,2 +1,2 @@\n"):
        blocks = Blocks(Rules(old, grammar), old)
        assert not blocks.read(old)
        assert not blocks.coming(100)


MARKS = ("<<<<<<< SEARCH\n", "=======\n", ">>>>>>> REPLACE\n", '"old_str": "', '", "new_str": "', '"}')
MARKS += ("@@ -1,2 +1,3 @@\n", "@@ -999999999999", "@@ -0,0 +1", "-", "+", " ", "\n", "\\", '"', *LINES)


@given(st.lists(st.sampled_from(MARKS) | st.text(max_size=5), max_size=30))
def test_no_answer_is_too_much(pieces):
    grammar = grammar_of("python")
    blocks = Blocks(Rules(OLD, grammar), OLD)
    for piece in pieces:
        blocks.read(piece)
        blocks.coming(50)
