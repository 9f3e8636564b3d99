import pytest

from specedit.editing import check

CODE = "def f():\n    return 1\n\n\ndef g():\n    return 2\n"

PLACEHOLDERS = [
    ("a.py", "# ... rest of the code unchanged ..."),
    ("a.py", "# ... rest of code"),
    ("a.py", "# rest of the code remains the same"),
    ("a.py", "# The rest of the file is unchanged."),
    ("a.py", "# Rest of your code here"),
    ("a.py", "    # ... existing code ..."),
    ("a.py", "# (unchanged)"),
    ("a.py", "# [unchanged]"),
    ("a.py", "# --- unchanged ---"),
    ("a.py", "# ..."),
    ("a.py", "# …"),
    ("a.py", "# other methods remain unchanged"),
    ("a.py", "# ... (other functions) ..."),
    ("a.py", "# Remaining code omitted for brevity"),
    ("a.py", "# Keep the rest of the file as is"),
    ("a.py", "# <existing code>"),
    ("a.py", "# Existing code here"),
    ("a.py", "# same as before"),
    ("a.py", "    pass  # unchanged"),
    ("a.py", "    ...  # existing code"),
    ("a.js", "// ... existing code ..."),
    ("a.js", "// ...rest of code..."),
    ("a.js", "function f() { /* ... existing code ... */ }"),
    ("a.js", "function f() { // unchanged"),
    ("a.js", "foo(); // ... remaining calls"),
    ("a.jsx", "{/* ... rest of the component ... */}"),
    ("a.c", "/* ... rest of the file ... */"),
    ("a.c", " * ... existing code ..."),
    ("a.css", "/* existing styles remain unchanged */"),
    ("a.html", "<!-- rest of file -->"),
    ("a.html", "<!-- ... -->"),
    ("a.html", "<!-- Rest of the page content remains the same -->"),
    ("a.sql", "-- rest of the script unchanged"),
    ("a.lisp", ";; ... rest of the code ..."),
    ("a.tex", "% ... rest of the document ..."),
    ("a.md", "[... rest of the document unchanged ...]"),
    ("a.md", "<!-- unchanged -->"),
    ("a.md", "... other sections ..."),
    ("a.txt", "... (rest of the text unchanged)"),
    ("a.py", "# ... 其余代码保持不变 ..."),
]

HONEST = [
    ("a.py", "    ..."),
    ("a.py", "def f(): ..."),
    ("a.py", "x[..., 0] = 1"),
    ("a.py", "# Return the value unchanged."),
    ("a.py", "# Leaves the rest of the list alone"),
    ("a.py", "# The rest of the arguments are passed on"),
    ("a.py", "# Loading existing users..."),
    ("a.py", "# ...then the rest of the body"),
    ("a.py", "# Other imports"),
    ("a.py", "# Keep the connection open"),
    ("a.py", "# Keep the rest of the options in case another call needs them"),
    ("a.py", "...     return code"),
    ("a.py", "... print('before')"),
    ("a.py", "# TODO: handle the remaining cases"),
    ("a.py", "# The same code is used for files"),
    ("a.py", "x = y  # unchanged"),
    ("a.py", 'print("existing code")'),
    ("a.py", "rest = code[1:]"),
    ("a.js", "const {a, ...rest} = code;"),
    ("a.js", "...existing,"),
    ("a.js", "f(...rest)"),
    ("a.js", "// Spread the remaining props"),
    ("a.go", "f(rest...)"),
    ("a.css", "#existing { color: red }"),
    ("a.md", "# Unchanged"),
    ("a.md", "## Existing code"),
    ("a.md", "* Rest of the code"),
    ("a.md", "Wait..."),
    ("a.html", "<!-- The rest of the menu opens on hover -->"),
]


def problems_of_adding(line, name):
    old = "one\ntwo\n"
    return [problem for problem in check(old, old + line + "\n", name) if "left out" in problem.message]


@pytest.mark.parametrize(("name", "line"), PLACEHOLDERS)
def test_a_placeholder_is_found(name, line):
    (problem,) = problems_of_adding(line, name)
    assert problem.line == 3
    assert line.strip() in problem.message


@pytest.mark.parametrize(("name", "line"), HONEST)
def test_an_honest_line_is_not(name, line):
    assert problems_of_adding(line, name) == []


@pytest.mark.parametrize(("name", "line"), PLACEHOLDERS)
def test_one_that_the_file_has_is_not(name, line):
    old = f"one\n{line}\ntwo\n"
    assert check(old, f"two\n  {line}\n", name) == []


def test_one_more_than_the_file_has_is():
    old = "# ...\nx = 1\n"
    (problem,) = check(old, "# ...\n# ...\n", "a.py")
    assert problem.line == 2


def test_a_sound_edit_has_no_problem():
    assert check(CODE, CODE.replace("1", "3"), "a.py") == []


def test_broken_syntax():
    (problem,) = check(CODE, CODE.replace("g()", "g("), "a.py")
    assert problem.line == 5
    assert "python syntax at line 5" in problem.message


def test_broken_indentation():
    (problem,) = check(CODE, CODE.replace("    return 2", "return 2"), "a.py")
    assert problem.line == 6


def test_a_file_that_was_broken_before_may_stay_so():
    broken = CODE.replace("g()", "g(")
    assert check(broken, broken.replace("1", "3"), "a.py") == []


def test_syntax_newer_than_this_python_is_left_to_the_grammar():
    assert check("print 1\n", "print 2\n", "a.py") == []


@pytest.mark.parametrize("name", ["a.txt", "a"])
def test_no_grammar_no_syntax(name):
    assert check(CODE, "((]", name) == []


def test_code_too_deep_for_pythons_parser():
    deep = "x = " + "-" * 20_000 + "1\n"
    assert check("x\n", deep, "a.py") == []


def test_characters_of_several_bytes_do_not_move_the_line():
    (problem,) = check("x = 1\n", "é = '日本'\n\n((]\n", "a.py")
    assert problem.line == 3


@pytest.mark.parametrize("new", ["", "\n \n"])
def test_an_emptied_file(new):
    (problem,) = check(CODE, new, "a.py")
    assert "would empty a.py" in problem.message


@pytest.mark.parametrize("old", ["", "\n"])
def test_an_empty_file_may_stay_empty(old):
    assert check(old, "", "a.py") == []
