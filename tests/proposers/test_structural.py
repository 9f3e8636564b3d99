from specedit.proposers import Request
from specedit.proposers.structural import StructuralProposer

OLD = """\
import os

def load(path):
    return os.open(path)

def main():
    return load("a") or load("b")
"""


def expected(
    answer: str, instruction: str = "", reference: str = OLD, limit: int = 40, stripped: str = ""
) -> str:
    """What is expected after an answer; letters are the tokens."""

    def encode(text):
        return [ord(letter) for letter in text]

    def decode(tokens):
        return "".join(map(chr, tokens)).removeprefix(stripped)

    prompt = encode(f"{instruction}\n{reference}")
    proposer = StructuralProposer()
    proposer.start(Request(prompt, [reference], encode, decode, "python"))
    drafts = proposer.propose(prompt, limit)
    for end in range(1, len(answer) + 1):
        drafts = proposer.propose(prompt + encode(answer[:end]), limit)
    return decode(drafts[0].tokens) if drafts else ""


def test_what_changed_before_changes_in_the_lines_to_come():
    answer = OLD[: OLD.index("return load")].replace("load", "read")
    assert expected(answer).startswith('return read("a") or read("b")\n')


def test_it_goes_on_from_the_middle_of_a_word():
    answer = OLD[: OLD.index("return load")].replace("load", "read") + "return re"
    assert expected(answer).startswith('ad("a") or read("b")\n')


def test_the_instruction_is_read():
    for asked in (
        "Rename load to read.",
        "rename `load` -> `read`",
        "Replace 'load' by 'read'",
        "load() to read()",
    ):
        assert expected("import os\n\ndef ", asked).startswith("read(path):\n")


def test_a_line_goes_on_after_what_was_put_into_it():
    answer = OLD[: OLD.index("os.open")] + "await os.o"
    assert expected(answer).startswith("pen(path)\n\ndef main():\n")


def test_tokenizers_may_drop_a_space_at_the_start_of_a_text():
    answer = OLD[: OLD.index('"a"')].replace("load", "read")
    assert expected(answer, stripped=" ").startswith('"a") or read("b")\n')


def test_what_no_rule_changes_is_left_to_others():
    assert expected("import os\n\ndef ") == ""
    assert expected("import os\n\nclass ") == ""


def test_lines_may_be_inserted_deleted_and_repeated():
    begun = "# New.\n\nimport os\n\ndef read(path):\n    return os.open(path)\n\n# Also new.\n\ndef main():\n"
    assert expected(begun).startswith('    return read("a")')


def test_nothing_is_expected_after_the_end():
    assert expected(OLD.replace("load", "read") + "more") == ""


def test_an_empty_a_huge_and_a_deep_reference_do_no_harm():
    deep = "x = " + "(" * 3000 + "old" + ")" * 3000 + "\ny = old\n"
    for reference in ("", "old = 1\n" * 50_000, deep):
        assert expected("new = 1\n", "rename old to new", reference) in ("", "new = 1\n" * 5)


def test_a_block_keeps_its_new_indentation_to_its_end():
    old = "def f():\n    a = 1\n    b = 2\n\n    c = 3\n\ndef g():\n    d = 4\n"
    begun = "def f():\n    try:\n        a = 1\n"
    assert expected(begun, reference=old) == "        b = 2\n\n        c = 3\n\ndef g():\n "
    begun = "a = 1\nb"
    assert expected(begun, reference=old).startswith(" = 2\n\nc = 3\n\ndef g():\n    d")


def test_a_change_is_expected_in_a_json_string_too():
    answer = '{"content": "' + OLD[: OLD.index("return load")].replace("load", "read").replace("\n", "\\n")
    assert expected(answer).startswith('return read(\\"a\\") or read(\\"b\\")\\n')


def test_a_change_is_expected_with_crlf_and_in_xml_too():
    answer = OLD[: OLD.index("return load")].replace("load", "read")
    assert expected(answer.replace("\n", "\r\n")).startswith('return read("a") or read("b")\r\n')
    old = f"x < y\n{OLD}"
    assert expected(f"x &lt; y\n{answer}", reference=old).startswith('return read("a")')


def test_a_dictionary_in_a_file_is_no_other_form():
    old = f'x = {{"name": "a",\n  "b": "c"}}\n{OLD}'
    answer = old[: old.index("return load")].replace("load", "read")
    assert expected(answer, reference=old).startswith('return read("a") or read("b")\n')
