from specedit.proposers.changes import Changes


def applied(text: str, *changes: tuple[str, str]) -> str:
    """Letters as tokens."""
    made = Changes()
    for old, new in changes:
        made.learn([ord(c) for c in old], [ord(c) for c in new])
    return "".join(map(chr, made.applied([ord(c) for c in text])))


def test_a_change_is_made_wherever_the_same_tokens_stand():
    assert applied("a.x b.x c.y", (".x", ".z")) == "a.z b.z c.y"


def test_the_longest_that_fits_is_made():
    assert applied("f(x) f(y)", ("f(", "g("), ("f(x", "h(x")) == "h(x) g(y)"


def test_of_the_same_tokens_the_latest_change_counts():
    assert applied("ab", ("a", "x"), ("a", "y")) == "yb"


def test_what_is_long_or_no_change_is_not_learnt():
    assert applied("ab" * 30, ("ab" * 30, "x"), ("a", "a"), ("", "b")) == "ab" * 30
