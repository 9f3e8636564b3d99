"""The edits: parts of real files, each with several instructions and what the file is after each of them."""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from email.parser import Parser as MetadataParser
from functools import cache
from pathlib import Path, PurePosixPath
from random import Random

import tomllib

from bench import packages
from bench.default_model import python_edits, text_edits
from bench.default_model.words import Names
from specedit.editing.languages import language_of

LIST = Path(__file__).with_name("packages.toml")

# How often each language is drawn. How often a kind is tried next to 1 for those not named: what people ask
# for most, and what few files give an occasion for.
LANGUAGES = {"python": 80, "javascript": 9, "json": 3, "toml": 3, "markdown": 5}
WEIGHTS = {
    "rename function": 5, "rename class": 2, "rename variable": 4, "rename attribute": 2,
    "constant": 4, "string": 3, "default": 3, "operator": 3,
    "add parameter": 3, "remove parameter": 2, "reorder parameters": 2, "add docstring": 2, "guard": 2,
    "delete function": 2, "wrap body": 2, "statement at end": 2, "add import": 1.5, "nothing to change": 0.5,
}  # fmt: skip
LINES = [6, 10, 14, 18, 22, 26, 30, 35, 40, 50, 60, 80, 100]  # the longest part of a file that may be drawn
LINE_WEIGHTS = [3, 5, 6, 6, 6, 5, 5, 4, 4, 3, 3, 1.5, 1]


@dataclass(frozen=True, slots=True)
class Edit:
    """What is asked, and what must come out. `text` ends with a newline, as `after` does."""

    kind: str
    language: str
    name: str
    text: str
    instruction: str
    after: str


@dataclass(frozen=True, slots=True)
class Source:
    name: str
    language: str
    text: str


class Corpus:
    """The files of one list of `packages.toml`: "train" or "held_out".

    Raises:
        SpecEditError: a package cannot be fetched.
    """

    def __init__(self, split: str) -> None:
        self.sources: dict[str, list[Source]] = {language: [] for language in LANGUAGES}
        for source in _sources(split):
            self.sources[source.language].append(source)
        self.names = Names()
        for source in self.sources["python"]:
            self.names.read(source.text)
        self.names.finish()
        # Packages carry copies of each other: no line of the held-out ones may be learnt by heart.
        self._known = _long_lines("held_out") if split == "train" else frozenset()

    def group(self, rng: Random, count: int, lines: Sequence[int] = ()) -> list[Edit]:
        """Up to `count` edits of one part of one file, of different kinds.

        The part has at most as many lines as one of `lines`, each as likely; without them short parts are
        drawn more often than long ones.
        """
        while True:
            language = rng.choices(list(LANGUAGES), list(LANGUAGES.values()))[0]
            source = rng.choice(self.sources[language])
            limit = rng.choice(lines) if lines else rng.choices(LINES, LINE_WEIGHTS)[0]
            text = cut(source, rng, limit)
            if text is None or self._is_known(text):
                continue
            if edits := self._edits(source, text, rng, count):
                return edits

    def _edits(self, source: Source, text: str, rng: Random, count: int) -> list[Edit]:
        kinds = [*text_edits.KINDS[source.language]]
        kinds += python_edits.KINDS if source.language == "python" else []
        weights = {kind: WEIGHTS.get(kind, 1) for kind in kinds}
        edits: list[Edit] = []
        for _ in range(4 * count):
            if len(edits) == count or not weights:
                break
            kind = rng.choices(list(weights), list(weights.values()))[0]
            if source.language == "python" and kind in python_edits.KINDS:
                made = python_edits.make(text, kind, rng, self.names)
            else:
                made = text_edits.make(text, source.language, kind, rng, self.names)
            if made is not None:
                del weights[kind]
                edits.append(Edit(kind, source.language, source.name, text, *made))
        return edits

    def _is_known(self, text: str) -> bool:
        lines = [line.strip() for line in text.splitlines() if len(line.strip()) > 30]
        return sum(line in self._known for line in lines) > 0.3 * len(lines)


def cut(source: Source, rng: Random, limit: int) -> str | None:
    """A part of a file, of up to `limit` lines, that could be a file by itself."""
    if source.language == "python":
        return _cut_python(source.text, rng, limit)
    lines = source.text.splitlines(keepends=True)
    if source.language == "json":
        return source.text if len(lines) <= max(limit, 30) else None
    # What begins in the first column after an empty line begins a part.
    starts = [0] + [n for n in range(1, len(lines)) if not lines[n - 1].strip() and re.match(r"\S", lines[n])]
    start = 0 if rng.random() < 0.4 else rng.choice(starts)
    ends = [n for n in [*starts, len(lines)] if start < n <= start + limit]
    if not ends:
        return None
    text = "".join(lines[start : ends[-1]]).rstrip("\n") + "\n"
    return text if len(text.splitlines()) > 3 and text_edits.is_valid(text, source.language) else None


def _cut_python(text: str, rng: Random, limit: int) -> str | None:
    body = ast.parse(text).body
    if not body:
        return None
    lines = text.splitlines(keepends=True)

    begin = 0 if rng.random() < 0.3 else rng.randrange(len(body))
    start = python_edits.first_line(body[begin])
    end = start - 1
    for node in body[begin:]:
        if node.end_lineno - start >= limit:
            if isinstance(node, ast.ClassDef):  # its first methods are a class, too
                inner = [n.end_lineno for n in node.body if n.end_lineno - start < limit]
                end = inner[-1] if inner and node.body[0].lineno > node.lineno else end
            break
        end = node.end_lineno
    part = "".join(lines[start - 1 : end])
    if part.count("\n") < 4 or "```" in part or len(part) > 60 * limit or re.search(r"[^\n]{160}", part):
        return None
    try:
        ast.parse(part)
    except SyntaxError:
        return None
    return part


@cache
def _long_lines(split: str) -> frozenset[str]:
    lines = (line.strip() for source in _sources(split) for line in source.text.splitlines())
    return frozenset(line for line in lines if len(line) > 30)


def _sources(split: str) -> Iterator[Source]:
    listed = tomllib.loads(LIST.read_text("utf-8"))[split]
    folder = packages.fetch(listed)
    for package in listed:
        for path, data in packages.read(folder / package):
            if source := _source(path, data):
                yield source
            elif path.endswith(".dist-info/METADATA"):
                yield from _metadata(data.decode("utf-8", "replace"))


def _source(path: str, data: bytes) -> Source | None:
    name = PurePosixPath(path)
    language = language_of(name)
    if language not in LANGUAGES or not 60 < len(data) < 120_000:
        return None
    if re.search(r"(^|/)(tests?|_?vendor|vendored|dist|node_modules|locale)/|\.min\.|\.map$|\.pyi$", path):
        return None
    try:
        text = data.decode("utf-8").replace("\r\n", "\n")
    except UnicodeDecodeError:
        return None
    if "\r" in text or "\f" in text or ("\t" in text and language == "python"):
        return None
    if language == "json":
        text = _tidy_json(text)
    if not text or not text_edits.is_valid(text, language):
        return None
    # Sometimes people name the file, sometimes the path.
    shown = name.name if sum(data[:64]) % 3 else "/".join(name.parts[-2:])
    return Source(shown, language, text if text.endswith("\n") else text + "\n")


def _tidy_json(text: str) -> str:
    """The start of a JSON object with no more than 30 keys, as editors lay it out."""
    value = json.loads(text) if text.lstrip().startswith("{") else {}
    value = dict(list(value.items())[:14])
    tidy = json.dumps(value, indent=2, ensure_ascii=False) + "\n"
    return tidy if 4 < tidy.count("\n") < 60 else ""


def _metadata(text: str) -> Iterator[Source]:
    """The README of a wheel, and the `pyproject.toml` that its metadata came from, as far as they tell it."""
    fields = MetadataParser().parsestr(text)
    if "markdown" in (fields["Description-Content-Type"] or ""):
        body = fields.get_payload()
        if isinstance(body, str) and 200 < len(body) < 120_000:
            yield Source("README.md", "markdown", body.strip("\n") + "\n")

    def quoted(value: str) -> str:
        return json.dumps(value, ensure_ascii=False)

    lines = ["[project]", f"name = {quoted(fields['Name'])}", f"version = {quoted(fields['Version'])}"]
    for key, field in (
        ("description", "Summary"),
        ("requires-python", "Requires-Python"),
        ("license", "License-Expression"),
    ):
        if fields[field] and "\n" not in fields[field]:
            lines.append(f"{key} = {quoted(fields[field])}")
    for key, field in (("classifiers", "Classifier"), ("dependencies", "Requires-Dist")):
        if found := [value for value in fields.get_all(field, []) if "extra ==" not in value][:12]:
            lines += [f"{key} = [", *(f"  {quoted(value)}," for value in found), "]"]
    if found := fields.get_all("Project-URL", []):
        lines += ["", "[project.urls]"]
        for name, _, url in (value.partition(", ") for value in found):
            key = name if re.fullmatch(r"[\w-]+", name) else quoted(name)
            lines.append(f"{key} = {quoted(url)}")
    yield Source("pyproject.toml", "toml", "\n".join(lines) + "\n")
