import pytest

from specedit.editing.languages import grammar_of
from specedit.proposers.rules import Rules


def rewritten(text: str, *lines: str, language: str = "python") -> list[str]:
    """The rest of a text as it is expected after an answer has begun with these lines."""
    rules = Rules(text, grammar_of(language))
    for number, line in enumerate(lines):
        rules.learn(number, line)
    return [rules.expected(number)[0] for number in range(len(lines), len(rules.lines))]


def test_a_name_that_changed_changes_wherever_it_stands():
    assert rewritten("def old():\nprint(old(), older, x.old)", "def new():") == ["print(new(), older, x.new)"]


def test_a_variable_changes_only_in_its_function():
    text = "def f(size):\n    return size + box.size\ndef g(size):\n    return size"
    assert rewritten(text, "def f(length):") == [
        "    return length + box.size",
        "def g(size):",
        "    return size",
    ]


def test_a_change_around_something_is_made_around_anything():
    text = "a: t.Optional[str]\nb: t.Optional[list[int]] = None\nc: t.Union[int, str]"
    assert rewritten(text, "a: str | None") == ["b: list[int] | None = None", "c: t.Union[int, str]"]


def test_changes_are_made_inside_one_another():
    text = "a: t.Optional[A]\nb: t.List[B]\nc: t.Optional[t.List[C]]"
    assert rewritten(text, "a: A | None", "b: list[B]") == ["c: list[C] | None"]


def test_an_added_argument_follows_to_the_calls():
    assert rewritten("run(a)\nx = run(b + 1)\nwalk(a)", "run(a, timeout=5)") == [
        "x = run(b + 1, timeout=5)",
        "walk(a)",
    ]


def test_arguments_change_places():
    assert rewritten("move(x, y)\nmove(first(), z)", "move(y, x)") == ["move(z, first())"]


@pytest.mark.parametrize(
    ("language", "text", "first", "rest"),
    [
        ("javascript", "var a = f(1);\nvar b = f(2);", "const a = f(1);", "const b = f(2);"),
        ("typescript", "let a: Array<A>;\nlet b: Array<B>;", "let a: A[];", "let b: B[];"),
        ("rust", "a.get(x).unwrap();\nb.get(y).unwrap();", "a.get(x)?;", "b.get(y).unwrap();"),
        ("go", "fmt.Println(a)\nfmt.Println(b)", "log.Println(a)", "log.Println(b)"),
        ("", "size = 1\nuse(size)", "length = 1", "use(length)"),  # a language without a grammar
    ],
)
def test_other_languages(language, text, first, rest):
    assert rewritten(text, first, language=language) == [rest]


def test_a_rule_that_fails_is_dropped():
    rules = Rules("old = 1\nold = 2\nold = 3\nold = 4", grammar_of("python"))
    rules.learn(0, "new = 1")
    for number in (1, 2):
        assert rules.expected(number)[0] == f"new = {number + 1}"
        rules.judge(number, f"old = {number + 1}")
    assert rules.expected(3)[0] == "old = 4"


@pytest.mark.parametrize(
    "text", ["é = 'ü'\nprint(é)", "x = '\U0001f600'; old()\n'\U0001f600', old()", "\x00\n(", ""]
)
def test_any_text_can_be_followed(text):
    rules = Rules(text, grammar_of("python"))
    rules.learn(0, rules.lines[0].replace("old", "new"))
    assert [
        rules.expected(number)[0].replace("new", "old") for number in range(len(rules.lines))
    ] == rules.lines
