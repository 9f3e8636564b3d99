import os

import pytest

from specedit.editing import SourceFile
from specedit.types import Refused, SpecEditError


def read(tmp_path, data, name="a.txt", **options):
    path = tmp_path / name
    path.write_bytes(data)
    return SourceFile.read(path, **options)


@pytest.mark.parametrize("codec", ["utf-8-sig", "utf-16", "utf-32"])
def test_a_byte_order_mark_names_the_encoding_and_is_not_shown(tmp_path, codec):
    source = read(tmp_path, "é\r\n".encode(codec))
    assert source.text == "é\n"
    assert source.original == "\ufeffé\r\n"


@pytest.mark.parametrize("data", ["\ufeffé".encode("utf-16-be"), "é".encode("utf-16-le")])
def test_an_encoding_given_as_utf_16_goes_by_the_mark_if_there_is_one(tmp_path, data):
    source = read(tmp_path, data, encoding="utf-16")
    assert source.text == "é"
    assert source.restore("ü").decode("utf-16-be" if data[:1] == b"\xfe" else "utf-16-le").endswith("ü")


@pytest.mark.parametrize("newline", [b"\n", b"\r\n", b"\r"])
def test_pythons_coding_comment_names_the_encoding(tmp_path, newline):
    source = read(tmp_path, b"# coding: latin-1" + newline + b"x = '\xe9'", name="a.py")
    assert source.text == "# coding: latin-1\nx = 'é'"
    assert source.encoding == "iso-8859-1"


def test_the_model_sees_one_kind_of_newline(tmp_path):
    assert read(tmp_path, b"a\r\nb\nc\rd\r\r\n").text == "a\nb\nc\nd\n\n"


def test_other_line_separators_are_text(tmp_path):
    text = "a\fb\vc\x85d\u2028e\n"
    assert read(tmp_path, text.encode()).text == text


@pytest.mark.parametrize("name", ["a.txt", "a.py"])
def test_bytes_that_do_not_decode_are_refused(tmp_path, name):
    with pytest.raises(Refused, match=f"{name} is not utf-8; name its encoding, for example"):
        read(tmp_path, b"x = '\xe9'\n", name=name)


def test_a_coding_comment_that_python_does_not_know(tmp_path):
    with pytest.raises(Refused, match=r"does not decode \(unknown encoding: klingon\); name its encoding"):
        read(tmp_path, b"# coding: klingon\n", name="a.py")


def test_an_encoding_given_that_does_not_fit_is_named(tmp_path):
    with pytest.raises(Refused, match=r"a\.txt is not cp1252; name its encoding"):
        read(tmp_path, b"\x81", encoding="cp1252")


def test_the_encoding_given_is_used(tmp_path):
    assert read(tmp_path, b"\xe9\n", encoding="cp1252").text == "é\n"


def test_bytes_that_would_come_back_as_others_are_refused(tmp_path):
    with pytest.raises(Refused, match="would not keep its bytes"):
        read(tmp_path, b"+AGEAYg-", encoding="utf-7")  # "ab", which utf-7 writes as it is


@pytest.mark.parametrize("name", ["nonsense", "hex", "a\0b"])
def test_an_unknown_encoding_is_named(tmp_path, name):
    with pytest.raises(SpecEditError, match="No encoding is called"):
        read(tmp_path, b"", encoding=name)


@pytest.mark.parametrize("data", [b"\x7fELF\0\0", "ab".encode("utf-16-le")])
def test_nul_bytes_are_refused(tmp_path, data):
    with pytest.raises(Refused, match="NUL"):
        read(tmp_path, data)


def test_a_missing_file(tmp_path):
    with pytest.raises(SpecEditError, match="There is no file"):
        SourceFile.read(tmp_path / "none.py")


def test_a_directory(tmp_path):
    with pytest.raises(SpecEditError, match="is a directory"):
        SourceFile.read(tmp_path)


def test_a_pipe_does_not_hang(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(SpecEditError, match="not a regular file"):
        SourceFile.read(tmp_path / "pipe")


def test_a_file_larger_than_any_context(tmp_path):
    with (tmp_path / "big.txt").open("wb") as file:
        file.truncate(65_000_000)  # takes no room on the disk
    with pytest.raises(SpecEditError, match="65 MB, more than any model takes in; name a smaller file"):
        SourceFile.read(tmp_path / "big.txt")


def test_a_symlink_to_itself(tmp_path):
    (tmp_path / "loop").symlink_to("loop")
    with pytest.raises(SpecEditError, match="Cannot read"):
        SourceFile.read(tmp_path / "loop")


def test_text_that_is_in_no_file():
    source = SourceFile.from_text("a\r\nb")
    assert source.text == "a\nb"
    assert source.restore("a\nc") == b"a\r\nc"


def test_half_a_surrogate_pair():
    with pytest.raises(SpecEditError, match="surrogate"):
        SourceFile.from_text("\ud800")
