import pytest
from hypothesis import given
from hypothesis import strategies as st

from specedit.proposers import Request
from specedit.proposers.predicted import PredictedProposer

OLD = "def add(first, second): return first + second # sum"


def encode(text):
    return [ord(letter) for letter in text]


def decode(tokens):
    return "".join(map(chr, tokens))


def started(*references: str):
    proposer = PredictedProposer()
    proposer.start(Request([0], references, encode, decode))
    return proposer


def expected(answer: str, *references: str, limit: int = 8) -> list[str]:
    """What is expected after an answer that arrived letter by letter, the likeliest first; letters are the
    tokens."""
    proposer = started(*(references or [OLD]))
    history = [0]
    drafts = proposer.propose(history, limit)
    for letter in answer:
        history.append(ord(letter))
        drafts = proposer.propose(history, limit)
    return [decode(draft.tokens) for draft in drafts]


def test_the_old_file_is_expected_from_its_first_token():
    assert expected("") == ["def add("]


def test_the_cursor_walks_with_the_answer():
    assert expected("def add(") == ["first, s"]


def test_after_a_deletion_the_place_is_found_with_the_next_token():
    assert expected("def add(second")[0] == "): retur"
    assert expected("def (fir")[0] == "st, seco"


def test_after_an_insertion_the_place_is_found_within_two_tokens():
    assert expected("def add(zero, fi")[0] == "rst, sec"


def test_an_insertion_may_end_at_any_time():
    assert "add(firs" in expected("def zz")


def test_a_replacement_may_be_as_long_as_what_it_replaces():
    assert "d(first," in expected("def zz")  # "ad" became "zz"


def test_after_a_longer_replacement_the_place_is_found_within_two_tokens():
    assert expected("def subtract(f")[0] == "irst, se"


def test_however_long_an_answer_is_elsewhere_nothing_speaks_for_a_guess():
    proposer, history = started(OLD), [0, *encode("def zzzzzzzzzzzz")]
    assert {draft.match for draft in proposer.propose(history, 8)} == {0}


def test_a_new_line_may_be_followed_by_the_old_one_or_the_next():
    drafts = expected("a = 1\nnew", "a = 1\nb = 2\nc = 3\n")
    assert {"\nb = 2\nc", "\nc = 3\n`"} <= set(drafts)


def test_a_repeated_place_resumes_near_the_one_that_was_left():
    old = "a = 1;\nb = 2;\nc = 3;\nd = 4;\n"
    assert expected("a = 1;\nb = 9;\n", old)[0] == "c = 3;\nd"


def test_places_that_the_answer_may_have_moved_to_compete():
    assert {"= 1; aa ", "= 2; xx "} <= set(expected("xx aa ", "aa = 1; aa = 2; xx = 3"))


def test_a_place_that_many_tokens_agree_with_has_no_rivals():
    old = "aaaaaa = 1; aaaaaa = 2;"
    assert len(expected("x aaaa", old)) > 1
    assert expected("aaaaaa = 1; aaaaaa =", old) == [" 2;\n```"]


def test_a_second_reference_is_found_when_the_answer_turns_to_it():
    assert expected("xyz import os", OLD, "import os, sys")[0].startswith(", sys")


def test_behind_a_reference_the_code_block_and_the_answer_are_expected_to_end():
    assert expected("ab", "abc", "def") == ["c\n```"]
    proposer, prompt = PredictedProposer(), encode("File:\n````md\n")
    proposer.start(Request(prompt, ["abc\n"], encode, decode, ends=[7, 9]))
    assert proposer.propose([*prompt, ord("a")], 8)[0].tokens == [*encode("bc\n````"), 7]


def test_nothing_is_expected_without_a_reference():
    assert expected("abc", "") == []
    assert started().propose([0], 5) == []


def test_nothing_is_expected_after_the_end():
    assert not any(expected(f"{OLD}\n```"))


def test_an_answer_may_go_on_where_its_end_was_expected():
    assert "int b;\n``" in expected("int a;\n``zint a;\n", "int a;\nint b;\n", limit=9)


def test_what_was_replaced_is_expected_to_be_replaced_again():
    old = "();\nint a;\nint b;\nchar c;\nint d;\n"
    assert "\nlong b;" in expected("();\nlong a;", old)
    assert "\nlong d;" in expected("();\nlong a;\nlong b;\nchar c;", old)


TEXT = "def say(word):\n    print(word)\n    return 'said'\n"


@pytest.mark.parametrize(
    ("answer", "expectation"),
    [
        ('{"path": "a.py", "content": "', "def say(word):\\n    print"),
        ("# def say(word):\n# ", "    print(word)\n#     re"),
        ("if True:\n    def say(word):\n     ", "   print(word)\n       "),
        ("print(word)\nre", "turn 'said'\n"),
        ("@@ -1,3 +1,3 @@\n def say(word):\n     ", "print(word)\n     ret"),
        ("def say(word):\r\n", "    print(word)\r\n    ret"),
    ],
    ids=["JSON", "quoted", "indented", "dedented", "diff", "CRLF"],
)
def test_a_reference_is_expected_in_the_form_that_the_answer_has(answer, expectation):
    assert any(draft.startswith(expectation) for draft in expected(answer, TEXT, limit=40))


def test_markup_is_expected_escaped_once_it_was():
    assert "&lt;/b&gt;" in expected("&lt;b&gt;bold", "<b>bold</b>", limit=10)


@given(st.text("abc\n", max_size=60), st.text("abc\n", max_size=60), st.integers(1, 9))
def test_any_answer_to_any_reference_gives_drafts_within_the_limit(reference, answer, limit):
    assert all(len(draft) <= limit for draft in expected(answer, reference, limit=limit))


@given(st.text("abcdefg", min_size=30, max_size=80), st.integers(5, 25), st.integers(0, 4))
def test_after_any_single_edit_the_cursor_is_back_once_the_context_is_unmistakable(old, at, cut):
    """An edit that puts a new letter in place of `cut` old ones, then eight letters of agreement."""
    new = old[:at] + "Z" + old[at + cut :]
    agreed = at + 9
    follows = new[agreed : agreed + 3]
    if follows and old.count(new[at + 1 : agreed]) == 1:
        assert expected(new[:agreed], old, limit=3)[0].startswith(follows)


def test_of_enormous_references_the_beginning_is_read():
    read = []
    proposer = PredictedProposer()
    huge = "x" * 10_000_000
    proposer.start(Request([0], [huge, huge], lambda text: read.append(text) or [1], decode))
    assert sum(map(len, read)) < 1_000_000
    assert proposer.propose([0], 8)
