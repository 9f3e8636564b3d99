"""The edits that the default model learns from: what is asked determines what comes out."""

from random import Random

import pytest

pytest.importorskip("tomllib")

from bench.default_model import python_edits, text_edits
from bench.default_model.dataset import WEIGHTS
from bench.default_model.words import PHRASES, Names, say

TRIES = 60


@pytest.fixture(scope="module")
def names():
    """As few names as there can be. What is renamed is called `renamed`."""
    names = Names()
    names.functions, names.variables, names.classes = ["parse_header"], ["limit"], ["Session"]
    names.constants, names.words, names.strings = ["MAX_SIZE"], ["fresh"], ["some text"]
    names.docstrings, names.comments = ["Do the work at once."], ["Nobody knows why"]
    names.instead_of = lambda old, rng, taken: "renamed"
    return names


@pytest.fixture
def edits(names):
    """edits(source, kind): every edit of a kind that some seeds give, as a dict from instruction to text."""

    def make(source, kind, language="python"):
        made = {}
        for seed in range(TRIES):
            rng = Random(seed)
            if language == "python" and kind in python_edits.KINDS:
                edit = python_edits.make(source, kind, rng, names)
            else:
                edit = text_edits.make(source, language, kind, rng, names)
            if edit is not None:
                made[edit[0]] = edit[1]
        return made

    return make


def only(made, part):
    """The one text that the instructions with `part` in them lead to."""
    (text,) = {text for instruction, text in made.items() if part in instruction}
    return text


class TestNames:
    @pytest.mark.parametrize("old", ["load", "_load_all", "Reader", "MAX", "x"])
    def test_a_new_name_is_of_the_same_style(self, names, old):
        for seed in range(TRIES):
            new = Names.instead_of(names, old, Random(seed), "text")
            assert new.startswith("_") == old.startswith("_")
            assert new.isupper() == old.isupper()
            assert new.islower() == old.islower()

    def test_a_new_name_is_not_taken(self, names):
        found = {Names.instead_of(names, "load", Random(seed), "fresh = limit") for seed in range(TRIES)}
        assert found
        assert not found & {"fresh", "limit", "load"}


class TestRenameInPython:
    def test_a_function_and_its_calls(self, edits):
        made = edits("def load(a):\n    return a\n\n\nx = load(load(1))\n", "rename function")
        assert {*made.values()} == {"def renamed(a):\n    return a\n\n\nx = renamed(renamed(1))\n"}

    def test_an_attribute_of_that_name_is_another_thing(self, edits):
        made = edits("def load(a):\n    return a.load\n\n\nload(1)\n", "rename function")
        assert {*made.values()} == {"def renamed(a):\n    return a.load\n\n\nrenamed(1)\n"}
        assert all("the function" in instruction for instruction in made)

    @pytest.mark.parametrize(
        "use", ["print('load it')", "# load it", "for x in 1, 2:\n    h = lambda load: 1"]
    )
    def test_not_where_its_name_is_said_or_bound_elsewhere(self, edits, use):
        assert not edits(f"def load(a):\n    return a\n\n\n{use}\n", "rename function")

    def test_a_method_and_its_uses(self, edits):
        source = "class A:\n    def go(self):\n        return self.go\n\n\na = A()\na.go()\n"
        assert {*edits(source, "rename function").values()} == {source.replace("go", "renamed")}

    def test_not_a_method_that_another_object_may_have(self, edits):
        source = "class A:\n    def get(self, d):\n        return d.get(1)\n"
        assert not edits(source, "rename function")

    def test_a_class(self, edits):
        made = edits("class Box:\n    pass\n\n\nb = Box()\n", "rename class")
        assert {*made.values()} == {"class renamed:\n    pass\n\n\nb = renamed()\n"}

    def test_a_local_variable_stays_in_its_function(self, edits):
        f = "def f():\n    value = 1\n    return value\n\n\n"
        g = f.replace("f()", "g()")
        made = edits(f + g, "rename variable")
        assert only(made, " f ") == f.replace("value", "renamed") + g
        assert only(made, " g ") == f + g.replace("value", "renamed")

    def test_a_default_that_has_the_same_name_is_another_variable(self, edits):
        assert not edits("def f(size=size):\n    return size\n", "rename variable")

    def test_a_variable_of_an_inner_function_is_another_one(self, edits):
        source = "def f(nn):\n    def g():\n        nn = 1\n        return nn\n\n    return g() + nn\n"
        made = edits(source, "rename variable")
        assert {*made.values()} == {
            source.replace("nn = 1\n        return nn", "renamed = 1\n        return renamed")
        }

    def test_an_attribute(self, edits):
        made = edits("class A:\n    def f(self, size):\n        self.size = size\n", "rename attribute")
        assert {*made.values()} == {"class A:\n    def f(self, size):\n        self.renamed = size\n"}

    def test_not_an_attribute_that_two_classes_have(self, edits):
        one = "class A:\n    def f(self):\n        self.size = 1\n\n\n"
        assert not edits(one + one.replace("A", "B"), "rename attribute")


class TestParameters:
    def test_one_is_added_where_the_function_is_called(self, edits):
        made = edits("def f(a):\n    return a\n\n\nf(1)\n", "add parameter")
        assert {
            "def f(a, limit):\n    return a\n\n\nf(1, None)\n",
            "def f(a, limit=0):\n    return a\n\n\nf(1)\n",
        } <= {*made.values()}

    def test_one_is_added_behind_what_stands_in_brackets(self, edits):
        made = edits("def f(a=(1)):\n    return a\n", "add parameter")
        assert all("(1, limit" not in text for text in made.values())

    def test_one_is_removed_with_what_is_passed(self, edits):
        made = edits(
            "def f(a, b, c):\n    return a + c\n\n\nf(1, 2, 3)\nf(1, c=3, b=2)\n", "remove parameter"
        )
        assert {*made.values()} == {"def f(a, c):\n    return a + c\n\n\nf(1, 3)\nf(1, c=3)\n"}

    def test_two_are_swapped_with_what_is_passed(self, edits):
        made = edits("def f(a, b):\n    return a - b\n\n\nf(1, 2)\nf(a=1, b=2)\n", "reorder parameters")
        assert {*made.values()} == {"def f(b, a):\n    return a - b\n\n\nf(2, 1)\nf(a=1, b=2)\n"}

    def test_those_of_a_method_count_from_self(self, edits):
        source = "class A:\n    def f(self, a, b):\n        self.f(1, 2)\n"
        made = edits(source, "reorder parameters")
        assert {*made.values()} == {source.replace("self, a, b", "self, b, a").replace("1, 2", "2, 1")}

    def test_the_call_of_a_base_class_is_not_one_of_the_class(self, edits):
        source = "class A(B):\n    def __init__(self, a):\n        super().__init__(a)\n"
        made = edits(source, "add parameter")
        assert made
        assert all("super().__init__(a)\n" in text for text in made.values())


class TestValues:
    def test_a_constant(self, edits):
        made = edits("SIZE = 10\nnames = [10]\n", "constant")
        assert made
        for instruction, text in made.items():
            assert (text.splitlines()[0] == "SIZE = 10") == ("names" in instruction)

    def test_a_name_that_is_set_twice_does_not_say_where(self, edits):
        made = edits("size = 1\nsize = 2\n", "constant")
        assert made
        assert all("size = " in instruction for instruction in made)

    def test_a_number_is_not_put_in_quotation_marks(self, names):
        said = {say(Random(n), "set", name="size", old="1", new="20") for n in range(TRIES)}
        assert not any('"20"' in instruction or "'20'" in instruction for instruction in said)
        assert any('"size"' in instruction for instruction in said)

    def test_one_operator_of_two_is_not_named_by_itself(self, edits):
        made = edits("x = a - b - c\n", "operator")
        assert {*made.values()} == {"x = a + b - c\n", "x = a - b + c\n"}
        assert all("a - b + c" in instruction for instruction in made if "a - b - c" in instruction)

    def test_an_operator_named_by_its_function_has_spaces_around_it(self, edits):
        made = edits("def f(a, b):\n    a = a+b\n    return a + b\n", "operator")
        assert all("a+b" in instruction for instruction, text in made.items() if "a+b" not in text)
        assert any("a+b" not in instruction for instruction in made)

    def test_a_condition_is_not_about_the_function_that_it_calls(self, edits):
        made = edits("if len(texts) > 3:\n    x = 1\n", "condition")
        assert made
        assert not any("len is" in text or "(len" in text.replace("(len(", "") for text in made.values())

    def test_a_default(self, edits):
        made = edits("def f(a, quiet=True):\n    return a\n", "default")
        assert {*made.values()} == {"def f(a, quiet=False):\n    return a\n"}


class TestPartsOfAFunction:
    SOURCE = "import os\n\n\ndef f(a: int, b=1):\n    return a\n"

    @pytest.mark.parametrize(
        ("kind", "old", "new"),
        [
            ("add docstring", "    return", '    """Do the work at once."""\n    return'),
            ("add comment", "def f", "# Nobody knows why\ndef f"),
            ("remove annotation", "a: int", "a"),
        ],
    )
    def test_what_becomes_of_it(self, edits, kind, old, new):
        assert {*edits(self.SOURCE, kind).values()} == {self.SOURCE.replace(old, new)}

    def test_an_annotation_puts_spaces_around_the_default(self, edits):
        assert self.SOURCE.replace("b=1", "b: str = 1") in edits(self.SOURCE, "add annotation").values()

    def test_a_return_type(self, edits):
        assert self.SOURCE.replace("):", ") -> None:") in edits(self.SOURCE, "return type").values()

    def test_a_decorator(self, edits):
        made = edits(self.SOURCE, "add decorator")
        assert self.SOURCE.replace("def f", "@parse_header\ndef f") in made.values()
        back = edits(self.SOURCE.replace("def f", "@cache\ndef f"), "remove decorator")
        assert {*back.values()} == {self.SOURCE}

    def test_an_import_stands_below_the_others(self, edits):
        for instruction, text in edits(self.SOURCE, "add import").items():
            assert text.splitlines()[0] == "import os"
            assert text.splitlines()[1] in instruction

    def test_the_last_import_is_not_meant_where_more_follow(self, edits):
        made = edits("import os\n\nif os.name:\n    import pwd\n", "add import")
        assert made
        assert not any("imports" in instruction or "last" in instruction for instruction in made)

    def test_the_name_of_a_relative_import(self, edits):
        made = edits("from .a import b, c\n\nb()\nc()\n", "remove import")
        assert {*made.values()} == {"from .a import c\n\nb()\nc()\n", "from .a import b\n\nb()\nc()\n"}
        assert not any("from a " in instruction for instruction in made)

    def test_a_comment(self, edits):
        made = edits("x = 1\n# It is one.\ny = '''\n# no comment\n'''\n", "remove comment")
        assert {*made.values()} == {"x = 1\ny = '''\n# no comment\n'''\n"}

    def test_a_docstring_goes_with_the_line_that_sets_it_apart(self, edits):
        made = edits('class A:\n    """An A."""\n\n    x = 1\n', "remove docstring")
        assert {*made.values()} == {"class A:\n    x = 1\n"}


class TestStatements:
    def test_a_first_statement_stands_below_the_docstring(self, edits):
        made = edits('def f(a):\n    """Do."""\n    return a\n', "guard")
        assert made
        for text in made.values():
            assert text.startswith('def f(a):\n    """Do."""\n    if ')
            assert text.endswith("\n    return a\n")

    @pytest.mark.parametrize("kind", ["statement at start", "log line", "guard"])
    def test_no_first_statement_next_to_a_comment(self, edits, kind):
        assert not edits("def f(a):\n    # It is a.\n    return a\n", kind)

    def test_a_last_statement(self, edits):
        made = edits("def f(a):\n    if a:\n        a()\n\n\nf(1)\n", "statement at end")
        assert made
        for text in made.values():
            assert text.startswith("def f(a):\n    if a:\n        a()\n    ")
            assert text.endswith("\n\n\nf(1)\n")

    def test_a_body_is_wrapped(self, edits):
        for text in edits("def f():\n    if a:\n        b()\n\n    return 1\n", "wrap body").values():
            assert "\n        if a:\n            b()\n\n        return 1\n" in text

    def test_no_body_with_a_long_string_is_wrapped(self, edits):
        assert not edits("def f():\n    return '''a\n    b'''\n", "wrap body")

    @pytest.mark.parametrize(
        ("source", "after"),
        [
            ("x = 1\n\n\ndef f():\n    pass\n\n\ny = 1\n", "x = 1\n\n\ny = 1\n"),
            ("x = 1\n\n\ndef f():\n    pass\n", "x = 1\n"),
            ("def f():\n    pass\n\n\n# Part two\n\nx = 1\n", "# Part two\n\nx = 1\n"),
            ("x = 1\n\n\n@d\ndef f():\n    pass\n\n\ny = 1\n", "x = 1\n\n\ny = 1\n"),
        ],
    )
    def test_a_function_is_deleted_with_its_empty_lines(self, edits, source, after):
        assert {*edits(source, "delete function").values()} == {after}

    def test_the_last_method_is_deleted(self, edits):
        source = "class A:\n    x = 1\n\n    def f(self):\n        pass\n\n\ny = A()\n"
        assert {*edits(source, "delete function").values()} == {"class A:\n    x = 1\n\n\ny = A()\n"}

    def test_no_function_is_deleted_that_is_used(self, edits):
        assert not edits("def f():\n    pass\n\n\nf()\n", "delete function")


JAVASCRIPT = "const max = 10;\n\nfunction load(a) {\n  return a === max;\n}\n\nload(1);\n"


class TestOtherLanguages:
    def test_a_javascript_function(self, edits):
        made = edits(JAVASCRIPT, "rename function", "javascript")
        assert {*made.values()} == {JAVASCRIPT.replace("load", "renamed")}

    def test_not_a_javascript_variable_that_is_a_parameter_elsewhere(self, edits):
        assert not edits("const a = 1;\nfunction f(a) {\n  return a;\n}\n", "rename variable", "javascript")

    def test_a_javascript_operator(self, edits):
        made = edits(JAVASCRIPT, "operator", "javascript")
        assert {*made.values()} == {JAVASCRIPT.replace("===", "!==")}

    def test_an_apostrophe_begins_no_string(self, edits):
        assert not edits("// I don't know, they can't either\nx();\n", "string", "javascript")

    def test_a_json_value(self, edits):
        source = '{\n  "name": "a",\n  "on": true\n}\n'
        made = edits(source, "change value", "json")
        assert only(made, "on") == source.replace("true", "false")

    def test_a_json_key_that_objects_share_is_not_named(self, edits):
        assert not edits(
            '{\n  "a": {\n    "b": 1\n  },\n  "c": {\n    "b": 2\n  }\n}\n', "rename key", "json"
        )

    def test_a_json_key_is_removed_with_its_comma(self, edits):
        made = edits('{\n  "a": 1,\n  "b": 2\n}\n', "remove key", "json")
        assert {*made.values()} == {'{\n  "b": 2\n}\n'}

    @pytest.mark.parametrize("kind", ["add key", "change value", "remove key", "rename key"])
    def test_toml_that_begins_with_a_table(self, edits, kind):
        assert edits('[project]\nname = "a"\nversion = "1.0"\n', kind, "toml")

    def test_a_heading_is_not_a_comment_in_code(self, edits):
        source = "# One\n\n```\n# Two\n```\n"
        made = edits(source, "change heading", "markdown")
        assert made
        assert all("# Two\n" in text for text in made.values())

    def test_a_section_ends_at_the_next_heading_of_its_level(self, edits):
        made = edits("# A\n\n## B\n\ntext\n\n### C\n\n## D\n\nmore\n", "delete section", "markdown")
        assert only(made, '"B"') == "# A\n\n## D\n\nmore\n"

    def test_no_item_comes_between_another_and_its_own_items(self, edits):
        made = edits("- first\n  - inner\n- second\n", "add item", "markdown")
        assert not any(text.startswith("- first\n- ") for text in made.values())

    def test_a_word_in_two_cases_is_not_replaced(self, edits):
        assert not [i for i in edits("Flask is fine, flask is.\n", "replace word", "markdown") if "lask" in i]

    def test_a_line_whose_text_stands_in_another_is_called_a_line(self, edits):
        for instruction in edits("size = 1\nother_size = 1\nlast = 2\n", "delete line", "python"):
            assert "line" in instruction or "other_size" in instruction or "last" in instruction

    def test_no_line_is_deleted_between_empty_ones(self, edits):
        made = edits("One line.\n\nAnother line.\n\nThird line.\nFourth.\n", "delete line", "markdown")
        assert {*made.values()} == {
            "One line.\n\nAnother line.\n\nFourth.\n",
            "One line.\n\nAnother line.\n\nThird line.\n",
        }


SOURCES = {
    "python": '''"""A module."""

import os
from pathlib import Path, PurePath

LIMIT = 30
# How it begins
START = "the first one"


class Reader(Base):
    """Reads."""

    kind = "plain text"

    def __init__(self, path: Path, strict=False):
        self.path = path
        self.strict = strict

    @property
    def size(self) -> int:
        return os.stat(self.path).st_size

    def read(self, count, unused=None):
        if count > LIMIT and self.strict:
            raise ValueError("too many of them")
        return self._take(count, 2)

    def _take(self, first, last):
        return first - last


def résumé(texts, mark):
    total = 0
    for text in texts:
        total += len(text) * 2
    print(total, mark, sep="→")


résumé(["a"], "b")
''',
    "javascript": """'use strict';

const limit = 30;

function check(value) {
  // The most there can be
  return value > limit && value !== null;
}

function unused() {
  return 'nothing at all';
}

class Reader {
  read(value) {
    return check(value);
  }
}
""",
    "json": '{\n  "name": "tool",\n  "version": "1.0.2",\n  "on": true,\n  "size": 30,\n  "last": null\n}\n',
    "toml": '[project]\nname = "a tool"\nversion = "1.0.2"\nsize = 30\n\n[tool.x]\nstrict = true\nlast = 1\n',
    "markdown": """# Title

Some words here,
more there.

## List

- first item
- second item

## End

It ends.
""",
}
ALL = [(language, kind) for language in SOURCES for kind in text_edits.KINDS[language]]
ALL += [("python", kind) for kind in python_edits.KINDS]


@pytest.mark.parametrize(("language", "kind"), ALL)
def test_each_kind_has_edits_and_they_are_valid(edits, language, kind):
    source = SOURCES[language]
    made = edits(source, kind, language)
    assert made
    for instruction, text in made.items():
        assert instruction.strip(" .")
        assert "{" not in instruction or "{" in source + text
        assert text_edits.is_valid(text, language)
        assert (text == source) == (kind == "nothing to change")


def test_weights_are_those_of_kinds():
    assert set(WEIGHTS) <= {kind for _, kind in ALL}


def test_no_phrase_stands_twice():
    assert all(len(set(phrases)) == len(phrases) for phrases in PHRASES.values())
