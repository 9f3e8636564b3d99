"""Every form of answer, decoded, is the file that it was made from."""

import json
import shutil
import subprocess

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from bench.corpus import FORMS, Pair, load

# Lines that repeat, that a form could take for its own, or that str.splitlines would split.
LINES = [
    "", "x", "xx", "    x", "```", "```python", "````", "~~~", "x.py",
    "<<<<<<< SEARCH", "=======", "========", ">>>>>>> REPLACE", "</tool_call>", '{"name": "write_file"}',
    "@@ -1 +1 @@", "--- a/x.py", "+++ b/x.py", "\\ No newline at end of file",
    '"\\n\t\x00', "a\fb\x85c\u2028d", "é🙂",
]  # fmt: skip
ENDS = st.sampled_from(["", "\n"])


def text_of(lines: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    return st.builds(lambda lines, end: "\n".join(lines) + end, st.lists(lines, max_size=12), ENDS)


letters = st.characters(exclude_categories=["Cs"], exclude_characters="\r")
texts = text_of(st.sampled_from(LINES) | st.text(letters))


@st.composite
def edited(draw) -> tuple[str, str]:
    """A file of lines that repeat, and the same after some of its lines were replaced."""
    lines = draw(st.lists(st.sampled_from(LINES), max_size=40))
    before = "\n".join(lines) + draw(ENDS)
    for _ in range(draw(st.integers(0, 4))):
        start, end = sorted(draw(st.tuples(*[st.integers(0, len(lines))] * 2)))
        lines[start : min(end, start + 5)] = draw(st.lists(st.sampled_from(LINES), max_size=3))
    return before, "\n".join(lines) + draw(ENDS)


def pair_of(before: str, after: str, path: str = "src/x.py") -> Pair:
    return Pair("python", "p", path, before, after)


@pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)
@settings(deadline=None)
@given(st.tuples(texts, texts) | edited(), st.sampled_from(["x.py", "x.md", "x", "src/x y.rs"]))
@example(("", ""), "x.py")
@example(("", "\n"), "x.py")
@example(("x", ""), "x.py")
@example(("x", "x\n"), "x.py")
@example(("x\n", "x"), "x.py")
def test_round_trip(form, texts, path):
    before, after = texts
    assert form.apply(before, form.answer(pair_of(before, after, path))) == after


@pytest.mark.slow
@pytest.mark.model  # as with the model, what was fetched stays in the user's cache
def test_every_real_pair_round_trips_in_every_form():
    for pair in load():
        for name, form in FORMS.items():
            assert form.apply(pair.before, form.answer(pair)) == pair.after, (name, pair.package, pair.path)


BEFORE = "def a():\n    return 1\n\n\ndef b():\n    return 1\n"
AFTER = "def a():\n    return 1\n\n\ndef b():\n    return 2\n"


def test_fence():
    assert FORMS["fence"].answer(pair_of("", "x = 1\n")) == "```python\nx = 1\n```\n"
    assert FORMS["fence"].answer(pair_of("```\n", "x = 1\n")) == "````python\nx = 1\n````\n"
    assert FORMS["fence"].prompt_text(pair_of("x = 1\n", "")) == "src/x.py\n```python\nx = 1\n```\n"


def test_numbered_shows_the_file_as_cat_does():
    shown = FORMS["numbered"].prompt_text(pair_of("x = 1\ny = 2\n", "x = 1\n"))
    assert shown == "src/x.py\n```python\n     1\tx = 1\n     2\ty = 2\n```\n"
    assert FORMS["numbered"].answer(pair_of("x = 1\ny = 2\n", "x = 1\n")) == "```python\nx = 1\n```\n"


def test_write_file_is_one_tool_call():
    opening, call, closing = FORMS["write_file"].answer(pair_of("", 'print("é")\n')).splitlines()
    assert (opening, closing) == ("<tool_call>", "</tool_call>")
    assert json.loads(call) == {
        "name": "write_file",
        "arguments": {"path": "src/x.py", "content": 'print("é")\n'},
    }
    assert r"\"é\")\n" in call  # as models write it, not \u00e9


def test_search_replace_takes_as_much_context_as_it_needs():
    assert FORMS["search_replace"].answer(pair_of(BEFORE, AFTER)) == (
        "src/x.py\n```python\n<<<<<<< SEARCH\ndef b():\n    return 1\n=======\n"
        "def b():\n    return 2\n>>>>>>> REPLACE\n```\n"
    )
    twice = FORMS["search_replace"].answer(pair_of("x\n" * 3 + "y\n", "x\n" * 2 + "z\ny\n"))
    assert "SEARCH\nx\nx\ny\n=======" in twice


def test_search_replace_of_a_new_file_has_nothing_to_search():
    assert FORMS["search_replace"].answer(pair_of("", "x = 1\n")) == (
        "src/x.py\n```python\n<<<<<<< SEARCH\n=======\nx = 1\n>>>>>>> REPLACE\n```\n"
    )


def test_str_replace_makes_a_call_for_each_place():
    answer = FORMS["str_replace"].answer(pair_of("a\n" + BEFORE, "b\n" + AFTER))
    calls = [json.loads(line)["arguments"] for line in answer.splitlines() if line.startswith("{")]
    assert [(call["old_str"], call["new_str"]) for call in calls] == [
        ("a\ndef a():\n", "b\ndef a():\n"),
        ("def b():\n    return 1\n", "def b():\n    return 2\n"),
    ]


@pytest.mark.parametrize("form", ["search_replace", "str_replace"])
def test_a_place_that_is_not_there_is_not_replaced(form):
    answer = FORMS[form].answer(pair_of(BEFORE, AFTER))
    with pytest.raises(ValueError, match="exactly once"):
        FORMS[form].apply(AFTER, answer)
    with pytest.raises(ValueError, match="exactly once"):
        FORMS[form].apply(BEFORE * 2, answer)


@pytest.mark.skipif(shutil.which("git") is None, reason="needs git")
@pytest.mark.parametrize(
    ("before", "after"),
    [(BEFORE, AFTER), ("x\ny", "x\nz\n"), ("x\ny\n", "x\nz"), ("x", "y"), ("x\n", "y\nx\n")],
)
def test_git_applies_the_unified_diff(tmp_path, before, after):
    file = tmp_path / "x.py"
    file.write_text(before)
    diff = FORMS["unified_diff"].answer(pair_of(before, after, "x.py"))
    subprocess.run(["git", "apply", "-"], input=diff, text=True, check=True, cwd=tmp_path)
    assert file.read_text() == after
