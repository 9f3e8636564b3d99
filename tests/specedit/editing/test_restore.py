"""The bytes that an edit does not touch stay the same bytes."""

import re
from itertools import pairwise

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from specedit.editing import SourceFile
from specedit.types import Refused

CODECS = ["utf-8", "utf-8-sig", "utf-16-le", "utf-16-be", "utf-32-le", "cp1252", "shift_jis"]
NEWLINES = st.sampled_from(["\n", "\r\n", "\r"])
LINES = st.text(st.sampled_from("ab\t }é#\u2028\f"), max_size=6)


@st.composite
def files(draw):
    """(lines with their endings, codec) of a file as hand, habit and other systems may have left it."""
    lines = draw(st.lists(st.tuples(LINES, NEWLINES), max_size=12))
    last = draw(LINES)
    pairs = [list(pair) for pair in [*lines, (last, "")]]
    for before, after in pairwise(pairs):
        if before[1] == "\r" and after == ["", "\n"]:
            after[1] = "\r\n"  # or the two would be one ending
    codec = draw(st.sampled_from(CODECS))
    return pairs, codec


def encode(text, codec):
    try:
        return text.encode(codec)
    except UnicodeEncodeError:
        assume(False)


def source_of(data, codec, tmp_path_factory):
    path = tmp_path_factory.mktemp("file") / "a.txt"
    path.write_bytes(data)
    return SourceFile.read(path, encoding=None if codec == "utf-8-sig" else codec)


@given(files(), st.sampled_from(["", "add a newline", "fix tabs"]))
def test_an_answer_that_changes_nothing_gives_the_same_bytes(tmp_path_factory, file, instruction):
    pairs, codec = file
    data = encode("".join(line + end for line, end in pairs), codec)
    source = source_of(data, codec, tmp_path_factory)
    assert source.restore(source.text, instruction) == data


@given(files(), st.data())
def test_a_one_line_edit_changes_only_that_line(tmp_path_factory, file, choice):
    pairs, codec = file
    data = encode("".join(line + end for line, end in pairs), codec)
    source = source_of(data, codec, tmp_path_factory)
    at = choice.draw(st.integers(0, len(pairs) - 1))
    line = choice.draw(LINES.filter(bool))
    lines = source.text.split("\n")
    assume(lines[at] != "" and not lines[at].startswith("\ufeff"))
    lines[at] = line
    before = "".join(line + end for line, end in pairs[:at])
    after = pairs[at][1] + "".join(line + end for line, end in pairs[at + 1 :])
    encode(line, codec)

    restored = source.restore("\n".join(lines))

    if codec == "utf-8-sig":
        restored, codec = restored.removeprefix(b"\xef\xbb\xbf"), "utf-8"
    assert restored.startswith(before.encode(codec))
    assert restored.endswith(after.encode(codec))
    middle = restored[len(before.encode(codec)) : len(restored) - len(after.encode(codec))].decode(codec)
    # Its indentation may be spelled in the file's own tabs and spaces.
    assert middle.lstrip(" \t") == line.lstrip(" \t")


@given(files(), st.lists(LINES, max_size=12).map("\n".join))
def test_what_is_restored_reads_as_the_answer(tmp_path_factory, file, answer):
    pairs, codec = file
    data = encode("".join(line + end for line, end in pairs), codec)
    encode(answer, codec)
    source = source_of(data, codec, tmp_path_factory)

    restored = source_of(source.restore(answer, "tabs and newlines"), codec, tmp_path_factory)

    assert restored.text.rstrip("\n") == answer.rstrip("\n")


@pytest.mark.parametrize("newline", ["\n", "\r\n", "\r"])
def test_new_lines_end_as_the_others_do(newline):
    source = SourceFile.from_text(f"a{newline}b{newline}")
    assert source.restore("top\na\nnew\nb\n") == newline.join(["top", "a", "new", "b", ""]).encode()


def test_in_a_file_of_mixed_endings_each_line_keeps_its_own():
    source = SourceFile.from_text("a\r\nb\nc\rd\n")
    assert source.restore("a\nB\nb2\nc\nd\n") == b"a\r\nB\nb2\nc\rd\n"


def test_a_line_keeps_its_ending_when_its_neighbour_goes():
    assert SourceFile.from_text("a\r\nb\nc\n").restore("b\nc\n") == b"b\nc\n"


def test_newlines_never_fuse():
    assert SourceFile.from_text("a\rb\nc").restore("a\n\nc") == b"a\r\r\nc"


def test_an_answer_with_crlf_of_its_own():
    assert SourceFile.from_text("a\nb\n").restore("a\r\nc\r\n") == b"a\nc\n"


@pytest.mark.parametrize("end", ["", "\n", "\n\n"])
@pytest.mark.parametrize("answered", ["", "\n", "\n\n\n"])
def test_the_file_ends_in_as_many_newlines_as_before(end, answered):
    assert SourceFile.from_text("a" + end).restore("b" + answered) == ("b" + end).encode()


@pytest.mark.parametrize(
    ("old", "answer", "instruction", "new"),
    [
        ("a", "a\n", "Add the missing newline at the end of the file", "a\n"),
        ("a\n\n\n", "a\n", "Remove trailing blank lines", "a\n"),
        ("a\n\nb", "a\nb\n", "Remove the blank line", "a\nb"),
        ("a\n", "a\n\n", "Add an empty line at EOF", "a\n\n"),
    ],
)
def test_final_newlines_change_when_asked(old, answer, instruction, new):
    assert SourceFile.from_text(old).restore(answer, instruction) == new.encode()


@pytest.mark.parametrize("answer", ["", "\n"])
def test_an_empty_file_stays_empty(answer):
    assert SourceFile.from_text("").restore(answer) == b""


def test_an_empty_file_that_gets_its_first_line():
    assert SourceFile.from_text("").restore("x = 1\n") == b"x = 1\n"


def test_a_file_of_newlines_alone():
    assert SourceFile.from_text("\r\n\n").restore("\n") == b"\r\n\n"


def test_a_file_emptied_by_the_edit_has_no_newline_left():
    assert SourceFile.from_text("a\n").restore("\n") == b""


MAKEFILE = "all:\n\tcc a.c\n\tcc b.c\n"


@pytest.mark.parametrize("width", [2, 4, 8])
def test_tabs_that_the_answer_writes_as_spaces_come_back(width):
    answer = MAKEFILE.replace("all", "build").expandtabs(width)
    assert SourceFile.from_text(MAKEFILE).restore(answer) == MAKEFILE.replace("all", "build").encode()


@pytest.mark.parametrize("width", [2, 4, 8])
def test_changed_and_new_lines_get_tabs_too_when_the_answer_lost_them_all(width):
    wanted = MAKEFILE.replace("b.c", "-O2 b.c") + "\tcc d.c\n"
    assert SourceFile.from_text(MAKEFILE).restore(wanted.expandtabs(width)) == wanted.encode()


def test_a_line_moved_into_a_block_is_indented_anew():
    answer = "if x {\n\tif y {\n\t\tf()\n\t}\n}\n"
    assert SourceFile.from_text("if x {\n\tf()\n}\n").restore(answer) == answer.encode()


@pytest.mark.parametrize(
    "instruction", ["Use spaces, not tabs", "Reformat", "fix the indentation", "whitespace"]
)
def test_tabs_go_when_asked(instruction):
    answer = MAKEFILE.expandtabs(4)
    assert SourceFile.from_text(MAKEFILE).restore(answer, instruction) == answer.encode()


@pytest.mark.parametrize("instruction", ["Sort the table", "Rename the namespace"])
def test_words_that_only_sound_like_it_do_not_ask(instruction):
    assert SourceFile.from_text(MAKEFILE).restore(MAKEFILE.expandtabs(4), instruction) == MAKEFILE.encode()


def test_tabs_inside_a_line_are_text():
    assert SourceFile.from_text("a\tb\n").restore("a   b\n") == b"a   b\n"


def test_characters_that_the_encoding_lacks_are_refused(tmp_path):
    (tmp_path / "a.txt").write_bytes(b"\xe9\n")
    source = SourceFile.read(tmp_path / "a.txt", encoding="cp1252")
    with pytest.raises(Refused, match="cp1252 cannot express"):
        source.restore("日\n")


def test_a_coding_comment_that_no_longer_fits_the_bytes_is_refused(tmp_path):
    (tmp_path / "a.py").write_bytes(b"# coding: latin-1\nx = '\xc3\xa9'\n")
    source = SourceFile.read(tmp_path / "a.py")
    with pytest.raises(Refused, match=re.escape("changes the encoding")):
        source.restore(source.text.replace("latin-1", "utf-8"))
