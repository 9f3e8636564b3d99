"""A file as the model sees it, and the way back to bytes and to disk."""

from __future__ import annotations

import codecs
import hashlib
import os
import re
import secrets
import shutil
import stat
import tokenize
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path

from filelock import FileLock, Timeout
from rapidfuzz.distance import Indel

from specedit.editing.languages import language_of
from specedit.paths import cache_folder, readable
from specedit.types import Refused, SpecEditError

# UTF-32 before UTF-16, whose mark begins UTF-32's.
_BOMS = [
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF32_LE, "utf-32-le"),
    (codecs.BOM_UTF32_BE, "utf-32-be"),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
]
_BOM = "\ufeff"
_LOCK_SECONDS = 10.0
_LARGEST = 64_000_000  # bytes of a file: 16 million tokens
_NEWLINE = re.compile(r"\r\n|\n|\r")

# Instructions under which the answer's own final newlines, or its own tabs and spaces, count.
_ABOUT_NEWLINES = re.compile(
    r"\b(?:new[- ]?lines?|(?:blank|empty) lines?|line (?:breaks?|endings?)|trailing|"
    r"end of (?:the )?file|eof)\b",
    re.IGNORECASE,
)
_ABOUT_BLANK_LINES = re.compile(r"\b(?:blank|empty) lines?\b", re.IGNORECASE)
_ABOUT_INDENTATION = re.compile(
    r"\b(?:tab(?:s|error)?|(?:white)?spaces?|(?:re|un|de)?indent\w*|dedent\w*|"
    r"(?:re)?format\w*|gofmt|pep ?8)\b",
    re.IGNORECASE,
)


@dataclass(frozen=True)
class SourceFile:
    """One file, read. Make one with `read`, `from_bytes` or `from_text`.

    Attributes:
        name: the file's name as the caller gave it.
        text: what the model is shown: "\\n" newlines, no byte order mark.
        original: the decoded file, with its own newlines and byte order mark (U+FEFF).
        data: the file's bytes.
        encoding: the codec that turns `original` into `data`.
        path: where the file really is, symlinks followed; None for text that came from no file.
        mode: its permission bits.
    """

    name: str
    text: str
    original: str = field(repr=False)
    data: bytes = field(repr=False)
    encoding: str = "utf-8"
    path: Path | None = None
    mode: int = 0o666
    _encoding_given: str | None = field(default=None, repr=False)

    @classmethod
    def read(cls, path: str | os.PathLike[str], encoding: str | None = None) -> SourceFile:
        """Read a file.

        The encoding is the one given, or what a byte order mark says, or a Python file's coding comment, or
        else UTF-8.

        Raises:
            SpecEditError: there is no such file, it is no regular file, it is larger than any model takes in,
                it cannot be read, or `encoding` is unknown.
            Refused: the bytes are not text in that encoding, or would come back as other bytes.
        """
        name = os.fspath(path)
        try:
            real = Path(os.path.realpath(name, strict=True))
            found = real.stat()
            mode = found.st_mode
            if stat.S_ISDIR(mode):
                raise SpecEditError(f"{name} is a directory; name one file.")
            if not stat.S_ISREG(mode):
                raise SpecEditError(f"{name} is not a regular file; name one that is.")
            if found.st_size > _LARGEST:
                raise SpecEditError(
                    f"{name} has {found.st_size // 1_000_000} MB, more than any model takes in; name a "
                    "smaller file."
                )
            data = real.read_bytes()
        except FileNotFoundError as error:
            raise SpecEditError(f"There is no file {name}; check its name.") from error
        except OSError as error:
            raise SpecEditError(
                f"Cannot read {name} ({_reason(error)}); put that right and run again."
            ) from error
        made = cls.from_bytes(data, name, encoding)
        return replace(made, path=real, mode=stat.S_IMODE(mode))

    @classmethod
    def from_bytes(cls, data: bytes, name: str, encoding: str | None = None) -> SourceFile:
        """What a file of this name would be read as. The encoding is found as `read` finds it.

        Raises:
            SpecEditError: `encoding` is unknown.
            Refused: the bytes are not text in that encoding, or would come back as other bytes.
        """
        codec, original = _decode(data, name, encoding)
        return cls(name, _shown(original), original, data, codec, _encoding_given=encoding)

    @classmethod
    def of(cls, source: str | os.PathLike[str] | SourceFile, name: str = "") -> SourceFile:
        """What a caller gives: text (str) with a name, the path of a file, or one that is read already.

        Raises:
            SpecEditError, Refused: as `read` and `from_text` do.
        """
        if isinstance(source, str):
            return cls.from_text(source, name)
        return source if isinstance(source, SourceFile) else cls.read(source)

    @property
    def shown_name(self) -> str:
        """The last part of its name, for a model to read."""
        return readable(Path(self.name).name)

    @classmethod
    def from_text(cls, text: str, name: str = "") -> SourceFile:
        """Text that is in no file yet; `restore` gives it back in UTF-8.

        Raises:
            SpecEditError: the text holds half a surrogate pair.
        """
        try:
            data = text.encode()
        except UnicodeEncodeError as error:
            raise SpecEditError(
                "The text holds half a surrogate pair; decode it anew from its bytes."
            ) from error
        return cls(name, _shown(text), text, data, _encoding_given="utf-8")

    def restore(self, answer: str, instruction: str = "") -> bytes:
        """The bytes of the file after the edit; what the edit does not touch keeps its bytes.

        - The byte order mark and the encoding stay. A line that stays keeps its line ending; a changed line
          has the one that stood there, a new line that of the line above it.
        - The file ends in as many newlines as before, unless `instruction` speaks of newlines.
        - A line that differs only in tabs or spaces before it keeps its own, unless `instruction` speaks of
          them. New lines get tabs if the file had nothing else and the answer has none.

        If the answer is `text` itself, these are `data`.

        Raises:
            Refused: the file's encoding cannot express the answer.
        """
        text = self._with_final_newlines(_NEWLINE.sub("\n", answer), instruction)
        if text == self.text:
            return self.data
        bom = _BOM if self.original.startswith(_BOM) else ""
        keep_indentation = not _ABOUT_INDENTATION.search(instruction)
        restored = bom + _restore_lines(self.original.removeprefix(_BOM), text, keep_indentation)
        try:
            data = restored.encode(self.encoding)
        except UnicodeEncodeError as error:
            raise Refused(
                f"The answer holds {restored[error.start]!r}, which {self.encoding} cannot express; "
                f"convert {self.name} to UTF-8 first."
            ) from error
        # The answer may have changed a Python coding comment, which does not change the bytes.
        if _decode(data, self.name, self._encoding_given)[1] != restored:
            raise Refused(
                f"The answer changes the encoding that {self.name} declares; convert the file yourself first."
            )
        return data

    def write(self, data: bytes, path: str | os.PathLike[str] | None = None) -> None:
        """Put `data` in the file's place, or in `path`'s, all at once or not at all.

        A file that was there keeps its mode, owner and extended attributes; a new one gets this file's mode.
        A symlink stays, and what it points to is replaced.

        Raises:
            Refused: the file is no longer what was read.
            SpecEditError: it cannot be written. What was there is untouched.
        """
        path = self.path if path is None else path
        if path is None:
            raise SpecEditError("This text came from no file; name the file to write.")
        target = check_writable(path)
        expected = self.data if target == self.path else None
        try:
            with _lock(target):
                _replace(target, data, expected, self.mode)
        except Timeout as error:
            raise SpecEditError(
                f"Another specedit is writing {target}; run again when it is done."
            ) from error
        except OSError as error:
            raise _cannot_write(target, error) from error

    def _with_final_newlines(self, answer: str, instruction: str) -> str:
        body = answer.rstrip("\n")
        had = len(self.text) - len(self.text.rstrip("\n"))
        if not self.text:
            return answer if body else ""
        if not body and self.text.strip("\n"):
            return ""
        if not _ABOUT_NEWLINES.search(instruction):
            return body + "\n" * had
        # The prompt and the answer need a newline before the fence, so one newline where there was none may
        # mean nothing. It does when the instruction asks for blank lines only.
        if (
            had == 0
            and answer == body + "\n"
            and not _ABOUT_NEWLINES.search(_ABOUT_BLANK_LINES.sub("", instruction))
        ):
            return body
        return answer


def check_writable(path: str | os.PathLike[str]) -> Path:
    """The file that `path` leads to, there or not, symlinks followed.

    Raises:
        SpecEditError: its directory is missing, or what is there is no regular file or read-only.
    """
    target = Path(os.path.realpath(path))
    try:
        if not target.parent.is_dir():
            raise SpecEditError(f"There is no directory {target.parent}; make it first.")
        if target.exists() and not target.is_file():
            raise SpecEditError(f"{target} is not a regular file; name one that is.")
        if target.exists() and not os.access(target, os.W_OK):
            # os.replace asks only for the directory's permission.
            raise SpecEditError(f"{target} is read-only; make it writable and run again.")
    except OSError as error:
        raise _cannot_write(target, error) from error
    return target


def _cannot_write(target: Path, error: OSError) -> SpecEditError:
    return SpecEditError(f"Cannot write {target} ({_reason(error)}); put that right and run again.")


def _shown(original: str) -> str:
    return _NEWLINE.sub("\n", original.removeprefix(_BOM))


def _reason(error: OSError) -> str:
    return (error.strerror or str(error)).lower()


def _decode(data: bytes, name: str, encoding: str | None) -> tuple[str, str]:
    """The codec of `data`, and the text it gives, byte order mark included."""
    codec = "utf-8"
    try:
        codec = _codec(data, name, encoding)
        text = data.decode(codec)
        same = text.encode(codec) == data
    except (SyntaxError, UnicodeError, LookupError) as error:
        if b"\0" in data and encoding is None:
            raise Refused(f"{name} holds NUL bytes, so it looks binary; name a text file.") from error
        why = f"is not {codec}" if isinstance(error, UnicodeError) else f"does not decode ({error})"
        raise Refused(f"{name} {why}; name its encoding, for example --encoding cp1252.") from error
    if not same:
        raise Refused(
            f"{name} would not keep its bytes in {codec}; name its encoding, for example --encoding cp1252."
        )
    if "\0" in text:
        raise Refused(
            f"{name} holds NUL bytes, so it looks binary; if it is text, name its encoding with --encoding."
        )
    return codec, text


def _codec(data: bytes, name: str, encoding: str | None) -> str:
    marked = next((codec for bom, codec in _BOMS if data.startswith(bom)), None)
    if encoding is not None:
        try:
            "a".encode(encoding)  # codecs.lookup also knows codecs that are not for text, such as hex
            codec = codecs.lookup(encoding).name
        except (LookupError, ValueError) as error:
            raise SpecEditError(
                f"No encoding is called {encoding!r}; give --encoding a name such as cp1252."
            ) from error
        # These three drop and add a mark of their own; here the mark is part of the text.
        plain = {"utf-8-sig": "utf-8", "utf-16": "utf-16-le", "utf-32": "utf-32-le"}.get(codec)
        if plain and marked and marked[:6] == plain[:6]:
            return marked
        return plain or codec
    if marked:
        return marked
    if language_of(name) == "python":
        try:
            return tokenize.detect_encoding(iter(data.splitlines(keepends=True)).__next__)[0]
        except SyntaxError:
            data.decode()  # without a coding comment it has to be UTF-8, which Python's message does not say
            raise
    return "utf-8"


def _restore_lines(original: str, text: str, keep_indentation: bool) -> str:
    """`text`, with the line endings and (if asked) the indentation of the lines it keeps of `original`."""
    old, endings = _NEWLINE.split(original), _NEWLINE.findall(original)
    new = text.split("\n")
    usual = Counter(endings).most_common(1)[0][0] if endings else "\n"
    tab = _tab_size(old, new) if keep_indentation else 0
    tabs_lost = tab > 0 and _tabs_lost(old, new, tab)

    kept: dict[int, int] = {}  # line of the answer: the old line that it is
    changed: dict[int, int] = {}  # line of the answer: the old line in whose place it stands
    i = j = 0
    edits = Indel.editops([_expand(line, tab) for line in old], [_expand(line, tab) for line in new])
    for block in edits.as_matching_blocks():
        changed.update(zip(range(j, block.b), range(i, block.a), strict=False))
        i, j = block.a + block.size, block.b + block.size
        kept.update(zip(range(block.b, j), range(block.a, i), strict=True))

    pieces: list[str] = []
    ending = usual
    for number, line in enumerate(new):
        source = kept.get(number, changed.get(number))
        if number in kept:
            line = old[kept[number]]
        elif tabs_lost:
            line = _with_tabs(line, tab)
        before = ending if pieces else ""
        if source is not None and source < len(endings):
            ending = endings[source]
        if before == "\r" and not line and ending == "\n":
            ending = "\r\n"  # "\r" and "\n" would be read as one line ending
        pieces += [line, ending]
    return "".join(pieces[:-1])


def _indent(line: str) -> int:
    """How many tabs and spaces `line` begins with."""
    return len(line) - len(line.lstrip(" \t"))


def _expand(line: str, tab: int) -> str:
    """`line` with the tabs of its indentation as spaces; as it is if `tab` is 0."""
    end = _indent(line)
    return line[:end].expandtabs(tab) + line[end:] if tab else line


def _with_tabs(line: str, tab: int) -> str:
    end = len(_expand(line, tab)) - len(line.lstrip(" \t"))
    return "\t" * (end // tab) + " " * (end % tab) + line.lstrip(" \t")


def _tab_size(old: list[str], new: list[str]) -> int:
    """The width that a model took a tab for when it wrote spaces in its place, or a tab in theirs.

    The one of 8, 4 and 2 at which most lines look alike, or else divides most of the new indentations. 0 if
    no indentation has a tab.
    """
    if not any("\t" in line[: _indent(line)] for line in old + new):
        return 0

    def fits(tab: int) -> tuple[int, int]:
        alike = Counter(_expand(line, tab) for line in old) & Counter(_expand(line, tab) for line in new)
        return alike.total(), sum(_indent(line) % tab == 0 for line in new)

    return max((8, 4, 2), key=fits)


def _tabs_lost(old: list[str], new: list[str], tab: int) -> bool:
    """Whether the file was indented with tabs alone, and the answer with spaces alone."""
    tabs_alone = any(line.startswith("\t") for line in old) and not any(
        line.startswith(" " * tab) for line in old
    )
    return tabs_alone and not any(line.startswith("\t") for line in new)


def _lock(target: Path) -> FileLock:
    """The lock that every specedit takes to write `target`."""
    locks = cache_folder() / "locks"
    try:
        locks.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise SpecEditError(
            f"Cannot make {locks} ({_reason(error)}); set SPECEDIT_CACHE to another place."
        ) from error
    return FileLock(locks / hashlib.sha256(os.fsencode(target)).hexdigest()[:32], timeout=_LOCK_SECONDS)


def _replace(target: Path, data: bytes, expected: bytes | None, mode: int) -> None:
    """Put `data` in `target`'s place, if `target` still holds `expected` (None: whatever it holds)."""
    old = target.stat() if target.exists() else None
    temporary = target.with_name(f".specedit-{secrets.token_hex(8)}")
    try:
        # Until it has the old file's mode, nobody else may look.
        with open(
            temporary, "xb", opener=lambda p, flags: os.open(p, flags, mode if old is None else 0o600)
        ) as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        if old is not None:
            _keep_attributes(target, old, temporary)
        if expected is not None and (not target.exists() or target.read_bytes() != expected):
            raise Refused(
                f"{target} changed on disk meanwhile and was left as it is; run again on the new version."
            )
        os.replace(temporary, target)
    finally:
        with suppress(OSError):
            temporary.unlink(missing_ok=True)


def _keep_attributes(old: Path, info: os.stat_result, new: Path) -> None:
    made = new.stat()
    if (made.st_uid, made.st_gid) != (info.st_uid, info.st_gid):
        os.chown(new, info.st_uid, info.st_gid)  # before the mode: chown clears the setuid bit
    shutil.copystat(old, new)
    os.utime(new)
