import pytest

from specedit.editing.references import found_in, unnumbered

FILE = "def load(path):\n    return open(path).read()\n"
OTHER = "class Loader:\n    '''Loads and loads and loads.'''\n"


def user(content):
    return {"role": "user", "content": content}


def texts(messages) -> list[str]:
    return [file.text for file in found_in(messages)]


@pytest.mark.parametrize(
    "prompt",
    [
        f"Change this:\n```python\n{FILE}```\nplease",
        f"Change this:\n~~~~\n{FILE}~~~~",
        f"<file path='a.py'>\n{FILE}</file>",
        f"See <code>{FILE}</code>.",
        "```\n" + "".join(f"{n:6}\t{line}\n" for n, line in enumerate(FILE.splitlines(), 1)) + "```",
    ],
)
def test_a_file_is_found_in_the_prompt(prompt):
    assert texts([user(prompt)]) == [FILE]


@pytest.mark.parametrize(
    ("opening", "closing", "language"),
    [
        ("```python\n", "```", "python"),
        ("```py title=x\n", "```", "python"),
        ("```src/app.ts\n", "```", "typescript"),
        ("<file path='src/a.rs'>", "</file>", "rust"),
        ("<file>", "</file>", ""),
        ("```\n", "```", ""),
    ],
)
def test_so_is_its_language(opening, closing, language):
    assert found_in([user(opening + FILE + closing)])[0].language == language


def test_what_a_tool_said_is_one():
    assert texts([user("Read it."), {"role": "tool", "content": FILE}]) == [FILE]


def test_the_latest_comes_first_and_each_once():
    messages = [user(f"```\n{FILE}```\n```\n{OTHER}```"), user(f"```\n{FILE}```")]
    assert texts(messages) == [FILE, OTHER]


@pytest.mark.parametrize("prompt", ["", "Say hello.", "```\nshort\n```", "```\nnever closed " + "x" * 50])
def test_where_there_is_none_none_is_found(prompt):
    assert found_in([user(prompt)]) == []


@pytest.mark.parametrize("text", ["1: one\n3: three\n", "1: one\nno number\n", "{\n1: 2,\n2: 3}\n", "", "\n"])
def test_numbers_that_do_not_count_up_belong_to_the_text(text):
    assert unnumbered(text) == text


def test_numbers_may_begin_anywhere():
    assert unnumbered("  9→a\n 10→  b") == "a\n  b"


@pytest.mark.parametrize(
    "prompt",
    [
        "<code " + "a" * 50_000 + "." + "b" * 50_000,
        "<source src='x.mp4'>" * 50_000,
        "```" + "a" * 100_000,
        "`" * 100_000,
        "".join("`" * (500 - number) + "\n" for number in range(490)),
        "~~~~\n```\n" * 20_000,
        "<file>\n" + "1" * 5000 + ": " + "x" * 50 + "\n</file>",
    ],
)
def test_no_text_takes_more_time_than_its_length(prompt):
    """Minutes, or an error, where it did."""
    found_in([user(prompt)])


def test_a_fence_ends_at_one_that_is_as_long():
    inside = "```\n" + FILE + "```\n"
    assert texts([user(f"````\n{inside}````\n")]) == [inside]
