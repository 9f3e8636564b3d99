import tracemalloc

from hypothesis import given
from hypothesis import strategies as st

from specedit.proposers import Request
from specedit.proposers.ngram import NgramProposer
from specedit.types import Draft


def started(prompt=()):
    proposer = NgramProposer()
    proposer.start(Request(list(prompt), [], list, str))
    return proposer


def drafts(proposer, history, limit):
    """But not the tokens that compete for the next place alone."""
    return [draft for draft in proposer.propose(history, limit) if not draft.rivals]


def best(proposer, history, limit):
    return next(iter(drafts(proposer, history, limit)), Draft([]))


def propose(text: str, limit: int = 100) -> tuple[str, int]:
    """Letters as tokens."""
    draft = best(started(), [ord(c) for c in text], limit)
    return "".join(map(chr, draft.tokens)), draft.match


def test_what_followed_before_is_expected_again():
    assert propose("the old file. the old f", limit=4) == ("ile.", 9)


def test_the_longest_suffix_wins_over_a_later_shorter_one():
    assert propose("abcX bcY abc", limit=1) == ("X", 3)


def test_of_equals_the_latest_wins():
    assert propose("abX-abY ab", limit=1) == ("Y", 2)


def test_a_text_that_repeats_is_continued_with_its_period():
    assert propose("abcabc", limit=8) == ("abcabcab", 3)


def test_nothing_is_expected_after_something_new():
    assert propose("abc") == ("", 0)
    assert propose("") == ("", 0)


def test_what_is_sure_has_no_rivals():
    assert len(started().propose(list(b"abcdefgh!abcdefg"), 8)) > 1
    assert len(started().propose(list(b"abcdefgh!abcdefgh"), 8)) == 1


def test_it_learns_from_the_answer_as_it_grows():
    proposer, history = started(), list(b"one:two,")
    assert drafts(proposer, history, 3) == []
    history += b"three,one"
    assert bytes(best(proposer, history, 4).tokens) == b":two"


def test_asking_twice_gives_the_same_draft():
    proposer, history = started(), list(b"abcdabc")
    assert proposer.propose(history, 5) == proposer.propose(history, 5)


@given(st.lists(st.integers(0, 2), max_size=60), st.integers(1, 20))
def test_the_match_is_the_longest_suffix_that_occurred_before(history, limit):
    longest = max(
        (
            n
            for n in range(1, len(history))
            if any(history[i : i + n] == history[-n:] for i in range(len(history) - n))
        ),
        default=0,
    )
    draft = best(started(), history, limit)
    assert draft.match == longest
    assert len(draft.tokens) == (limit if longest else 0)
    if longest:  # and the draft is what followed it somewhere, going round if it reaches the present
        starts = [
            i + longest
            for i in range(len(history) - longest)
            if history[i : i + longest] == history[-longest:]
        ]
        round_from = [(history + history[i:] * limit)[i : i + limit] for i in starts]
        assert draft.tokens in round_from


@given(st.lists(st.integers(0, 3), max_size=80), st.data())
def test_growing_step_by_step_is_the_same_as_all_at_once(history, data):
    grown = started()
    at = 0
    while at < len(history):
        at += data.draw(st.integers(1, 9))
        grown.propose(history[:at], 4)
    assert best(grown, history, 4).match == best(started(), history, 4).match


def test_the_index_grows_with_the_text_and_no_faster():
    """At most two states a token (Blumer et al. 1985): the work per token does not depend on the context."""
    proposer = started()
    proposer.propose([n * n % 97 for n in range(5000)], 4)
    assert len(proposer._next) <= 2 * 5000


def ranked(proposer, text: str) -> list[str]:
    """What is expected besides what followed the longest suffix."""
    return [
        "".join(map(chr, draft.tokens)) for draft in drafts(proposer, [ord(c) for c in text], 9) if draft.kind
    ]


def test_what_followed_the_last_tokens_most_often_comes_first():
    assert [draft[0] for draft in ranked(started(), "ax ax ay az ax;a")] == ["x", "y", "z"]


def test_it_goes_on_as_long_as_one_token_mostly_followed():
    assert "bcde " in ranked(started(), "abcde abcxx abcde .a")


def test_the_tokens_of_late_compete_for_the_next_place():
    (rivals,) = (draft for draft in started().propose(list(b"abcab"), 9) if draft.rivals)
    assert bytes(rivals.tokens) == b"bac"


def test_the_next_answer_profits_from_the_last_until_all_is_forgotten():
    proposer = started()
    proposer.propose(list(b"import os"), 1)
    for forget, expected in ((lambda: None, ["r", "s"]), (proposer.forget, [])):
        forget()
        proposer.start(Request([], [], list, str))
        assert [draft[0] for draft in ranked(proposer, "o")] == expected


def test_clients_do_not_learn_from_one_another():
    proposer = started()
    for client, said in (("alice", "secret"), ("bob", "second")):
        proposer.start(Request([], [], list, str, client=client))
        proposer.propose(list(said.encode()), 1)
    for client, expected in (("alice", ["r"]), ("bob", ["o"]), ("carol", [])):
        proposer.start(Request([], [], list, str, client=client))
        assert [draft[0] for draft in ranked(proposer, "sec")] == expected


def test_the_memory_has_a_limit():
    proposer = NgramProposer(memory=100_000)
    proposer.start(Request([], [], list, str))
    tracemalloc.start()
    proposer.propose(list(range(20_000)), 1)
    before, _ = tracemalloc.get_traced_memory()
    proposer.forget()
    after, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert 50_000 < before - after < 100_000
