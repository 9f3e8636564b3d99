import pytest

from specedit.editing import build_prompt
from specedit.types import SpecEditError


def test_the_prompt_of_a_python_file():
    prompt = build_prompt("x = 1\n", "Rename x to y.", "a.py")
    assert prompt.messages == [
        {
            "role": "system",
            "content": "You edit source files. Apply the instruction and reply with the complete updated "
            "file in one code block. Leave everything else exactly as it is.",
        },
        {"role": "user", "content": "a.py\n```python\nx = 1\n```\n\nRename x to y."},
    ]
    assert prompt.prefill == "```python\n"
    assert prompt.fence == "```"


def test_the_fence_stands_on_its_own_line():
    assert "\nx = 1\n```\n" in build_prompt("x = 1", "edit", "a.py").messages[1]["content"]


def test_an_empty_file():
    assert build_prompt("", "edit", "a.py").messages[1]["content"] == "a.py\n```python\n```\n\nedit"


@pytest.mark.parametrize(
    ("text", "instruction", "name", "fence"),
    [
        ("`x`", "edit", "a.py", "```"),
        ('"""\n```\n"""', "edit", "a.py", "````"),
        ("x = '`````'", "edit", "a.py", "``````"),
        ("x", "add\n```\ny\n```", "a.py", "````"),
        ("# Title", "edit", "README.md", "````"),
        ("~~~~\nx\n~~~~", "edit", "a.txt", "````"),
    ],
)
def test_the_fence_is_longer_than_any_in_the_texts(text, instruction, name, fence):
    prompt = build_prompt(text, instruction, name)
    assert prompt.fence == fence
    assert prompt.prefill.startswith(fence)


def test_references_come_before_the_file():
    prompt = build_prompt("x", "edit", "a.py", references={"b.js": "````"})
    assert prompt.messages[1][
        "content"
    ] == "b.js\n`````js\n````\n`````\n\na.py\n`````python\nx\n`````\n\nedit".replace("`js", "`javascript")


def test_a_language_given():
    assert build_prompt("x", "edit", "a.py", language="").prefill == "````\n"


@pytest.mark.parametrize("instruction", ["", " \n"])
def test_an_empty_instruction(instruction):
    with pytest.raises(SpecEditError, match="instruction is empty"):
        build_prompt("x", instruction, "a.py")
