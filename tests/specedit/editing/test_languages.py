import pytest

from specedit.editing.languages import first_error, language_of

SOUND = {
    "a.py": "def f():\n    return 1\n",
    "a.js": "const f = () => `${1}`;\n",
    "a.jsx": "const f = () => <p>{1}</p>;\n",
    "a.ts": "const x: number = 1;\n",
    "a.tsx": "const f = (): any => <p>{1}</p>;\n",
    "a.go": "package a\n\nfunc f() int { return 1 }\n",
    "a.rs": "fn f() -> i32 { 1 }\n",
    "a.java": "class A { int f() { return 1; } }\n",
    "a.c": "int f(void) { return 1; }\n",
    "a.cpp": "class A { int f() { return 1; } };\n",
    "a.cs": "class A { int F() { return 1; } }\n",
    "a.rb": "def f\n  [1]\nend\n",
    "a.json": '{"a": [1]}\n',
    "a.html": "<p>a</p>\n",
    "a.css": "p { color: red; }\n",
    "a.sh": 'f() { echo "$1"; }\n',
}


@pytest.mark.parametrize("name", SOUND)
def test_sound_code_has_no_error(name):
    assert first_error(SOUND[name], language_of(name)) is None


@pytest.mark.parametrize("name", SOUND)
def test_an_error_is_found_on_its_line(name):
    broken = {"a.html": "<p <\n", "a.css": "p { color }}}\n", "a.sh": "echo )\n"}.get(name, "((]\n")
    at = SOUND[name].count("\n") + 1
    assert first_error(SOUND[name] + broken, language_of(name)) == at


@pytest.mark.parametrize("name", ["a.txt", "a.md", "a.zig", "a"])
def test_a_language_without_a_grammar_has_no_errors(name):
    assert first_error("((]", language_of(name)) is None


@pytest.mark.parametrize(
    ("name", "language"),
    [
        ("src/A.PY", "python"),
        ("a.c++", "cpp"),
        ("Makefile", "makefile"),
        ("a.yaml", "yaml"),
        ("a.zig", "zig"),
        ("LICENSE", ""),
        (".bashrc", ""),
        ("a.b`c", ""),
        ("", ""),
    ],
)
def test_a_name_tells_the_language(name, language):
    assert language_of(name) == language
