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
        "@@ -2,6 +2,6 @@\n \n \n-def load(path):\n+def read(path):\n     return os.open(path)\n| \n \n@@ -",
        grammar,
    )


def test_there_is_no_hunk_after_the_end_of_the_text(grammar):
    answer = '@@ -9,3 +9,3 @@\n-    first = load("a")\n+    first = 1\n     second = load("b")\n'
    assert expected(answer, grammar) == "     return first, second\n"


def test_lines_are_found_where_the_numbers_are_wrong(grammar):
    check('@@ -99,3 +99,3 @@\n def main():\n-    first = load("a")\n|+    first = load("a")\n', grammar)


def read(answer, grammar, old=OLD, pieces=1):
    """What of an answer is in no such form, and whether it is in one at the end."""
    blocks = Blocks(Rules(old, grammar), old)
    begun = range(0, len(answer), pieces)
    return "".join(blocks.read(answer[at : at + pieces]) for at in begun), blocks.inside


@pytest.mark.parametrize("pieces", [1, 3, 7, 1000])
def test_what_follows_a_diff_is_read(pieces, grammar):
    diff = "@@ -1,2 +1,3 @@\n import os\n+import sys\n \n"
    assert read(f"{diff}```\nThat's it.\n    Bye.\n", grammar, pieces=pieces)[1] is False
    block = "<<<<<<< SEARCH\ndef load(path):\n=======\n"
    assert expected(f"{diff}```\n{block}", grammar, pieces=pieces).startswith("def load(path):\n")
    assert read(f"{diff}\nThat's it.\n", grammar, pieces=pieces)[1] is False


@pytest.mark.parametrize("pieces", [1, 3, 7, 1000])
@pytest.mark.parametrize(
    "answer",
    [
        'mark = "@@ -1"\n' + OLD,
        "# <<<<<<< HEAD\n" + OLD,
        'text = """\n<<<<<<< HEAD\nours\n=======\ntheirs\n"""\n' + OLD,
        'X = {"old": "path", "kind": 3}\n' + OLD,
        'X = {"old": "none", "new": "none"}\n' + OLD,
        'TEXT = """\n@@ -1,2 +1,2 @@\n no line of it\n"""\n' + OLD,
    ],
)
def test_what_only_looks_like_a_mark_costs_nothing(answer, pieces, grammar):
    assert read(answer, grammar, pieces=pieces) == (answer, False)


def test_marks_that_are_in_the_old_text_are_none(grammar):
    for old in ('a = {"search": "b"}\n', "<<<<<<< HEAD\nx\n=======\n", "@@ -1,2 +1,2 @@\n"):
        assert read(old, grammar, old) == (old, False)


def test_a_line_of_the_text_may_look_like_the_divider(grammar):
    old = "Title\n=======\n\nText.\n"
    answer = "<<<<<<< SEARCH\nTitle\n=======\n"
    assert expected(answer, grammar, old) is None
    assert expected(f"{answer}\n=======\n", grammar, old) == old[:15] + ">>>>>>> REPLACE\n"


def test_the_last_line_may_have_no_newline(grammar):
    answer = "<<<<<<< SEARCH\nb\n=======\n"
    assert expected(answer, grammar, "a = 1\nb") == "b\n>>>>>>> REPLACE\n"


def test_what_rules_changed_around_a_piece_is_not_of_it(grammar):
    changed = '{"old_str": "def load(path)", "new_str": "def load(file)"}\n'
    coming = expected(f'{changed}{{"old_str": "os.open(", "new_str": "', grammar)
    assert coming in (None, "", 'os.open("}')


def test_tags_of_tools(grammar):
    check(
        "<parameter=old_string>\ndef load(path):\n</parameter>\n<parameter=new_string>\n|def load(path):\n",
        grammar,
    )
    check(
        '<parameter name="old_str">    return os</parameter>\n<parameter name="new_str">|    return os</',
        grammar,
    )


MARKS = ("<<<<<<< SEARCH\n", "=======\n", ">>>>>>> REPLACE\n", '"old_str": "', '", "new_str": "', '"}')
MARKS += ("@@ -1,2 +1,3 @@\n", "@@ -999999999999", "@@ -0,0 +1", "-", "+", " ", "\n", "\\", '"', *LINES)


@given(st.lists(st.sampled_from(MARKS) | st.text(max_size=5), max_size=30))
def test_no_answer_is_too_much(pieces):
    grammar = grammar_of("python")
    blocks = Blocks(Rules(OLD, grammar), OLD)
    for piece in pieces:
        assert isinstance(blocks.read(piece), str)
        blocks.coming(50)
