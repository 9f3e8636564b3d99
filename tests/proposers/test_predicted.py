from hypothesis import given
from hypothesis import strategies as st

from specedit.proposers import Request
from specedit.proposers.predicted import PredictedProposer

OLD = "def add(first, second): return first + second # sum"


def started(*references: str):
    proposer = PredictedProposer()
    proposer.start(Request([0], references, lambda text: [ord(c) for c in text]))
    return proposer


def expected(answer: str, *references: str, limit: int = 8) -> str:
    """What is expected after an answer that arrived letter by letter; letters are the tokens."""
    proposer = started(*(references or [OLD]))
    history = [0]
    draft = proposer.propose(history, limit)
    for letter in answer:
        history.append(ord(letter))
        draft = proposer.propose(history, limit)
    return "".join(map(chr, draft.tokens))


def test_the_old_file_is_expected_from_its_first_token():
    assert expected("") == "def add("


def test_the_cursor_walks_with_the_answer():
    assert expected("def add(") == "first, s"


def test_after_a_deletion_the_place_is_found_with_the_next_token():
    assert expected("def add(second").startswith("): retur")
    assert expected("def (fir").startswith("st, seco")


def test_after_an_insertion_the_place_is_found_within_two_tokens():
    assert expected("def add(zero, fi").startswith("rst, sec")


def test_a_replacement_is_taken_to_be_as_long_as_what_it_replaces():
    assert expected("def zz") == "d(first,"  # "ad" became "zz"


def test_after_a_longer_replacement_the_place_is_found_within_two_tokens():
    assert expected("def subtract(f").startswith("irst, se")


def test_a_repeated_place_resumes_near_the_one_that_was_left():
    old = "a = 1;\nb = 2;\nc = 3;\nd = 4;\n"
    assert expected("a = 1;\nb = 9;\n", old).startswith("c = 3")


def test_a_second_reference_is_found_when_the_answer_turns_to_it():
    assert expected("xyz import os", OLD, "import os, sys") == ", sys"


def test_a_draft_ends_with_its_reference():
    assert expected("ab", "abc", "def") == "c"


def test_nothing_is_expected_without_a_reference():
    assert expected("abc", "") == ""
    assert started().propose([0], 5).tokens == []


def test_nothing_is_expected_after_the_end():
    assert expected(OLD) == ""


@given(st.text("abc\n", max_size=60), st.text("abc\n", max_size=60), st.integers(1, 9))
def test_any_answer_to_any_reference_gives_a_draft_from_the_reference(reference, answer, limit):
    draft = expected(answer, reference, limit=limit)
    assert draft in reference
    assert len(draft) <= limit


@given(st.text("abcdefg", min_size=30, max_size=80), st.integers(5, 25), st.integers(0, 4))
def test_after_any_single_edit_the_cursor_is_back_once_the_context_is_unmistakable(old, at, cut):
    """An edit that puts a new letter in place of `cut` old ones, then eight letters of agreement."""
    new = old[:at] + "Z" + old[at + cut :]
    agreed = at + 9
    follows = new[agreed : agreed + 3]
    once = old.count(new[at + 1 : agreed]) == 1
    assert not once or expected(new[:agreed], old, limit=3) == follows
