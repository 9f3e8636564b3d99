"""Files that changed between two releases. `releases.toml` names those; no line of theirs is kept here."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from random import Random

from bench.packages import fetch, read
from specedit.editing.languages import language_of

LIST = Path(__file__).with_name("releases.toml")

# How many pairs of each language at most.
SAMPLE = {"python": 60, "javascript": 12, "typescript": 12, "rust": 12, "c": 12, "new": 12, "prose": 12}

_PROSE = {"markdown", "rst"}
_GENERATED = re.compile(r"@generated|auto-?generated|generated (by|from)|do not edit", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Pair:
    """A file before and after a real edit.

    Attributes:
        language: what it is counted under: one that `language_of` gives, "prose" for a changed document, or
            "new" for a file of any language that only the newer release has, or that was empty.
        package: whose file it is.
        path: its path in the package, without the folder that names the release.
        before: its text with "\\n" newlines; "" if it is new.
        after: its text in the newer release.
        instruction: what a model would be told.
    """

    language: str
    package: str
    path: str
    before: str
    after: str
    instruction: str = "Make the change that the next release makes."


def load(seed: int = 0, folder: Path | None = None) -> list[Pair]:
    """A sample of pairs, ordered by language; `seed` settles which.

    Args:
        folder: where the packages are kept; by default in specedit's cache. Missing ones are fetched.

    Raises:
        SpecEditError: a package cannot be fetched.
    """
    sample = []
    found = everything(folder)
    for language, size in SAMPLE.items():
        # One generator a language, so that a new package does not change the sample of the others.
        sample += choose(found[language], size, f"{seed} {language}")
    return sample


def choose(pairs: list[Pair], size: int, seed: str) -> list[Pair]:
    """At most so many of them, in their order."""
    return [pairs[at] for at in sorted(Random(seed).sample(range(len(pairs)), min(size, len(pairs))))]


def everything(folder: Path | None = None) -> dict[str, list[Pair]]:
    """All pairs, by language, in a settled order. Arguments and errors are those of `load`."""
    import tomllib  # Python 3.11; tests that import this module are collected with 3.10 too

    listed = [
        (language, package, list(releases.items()))
        for language, packages in tomllib.loads(LIST.read_text("utf-8")).items()
        for package, releases in packages.items()
    ]
    for one_of_each in zip(*(releases for _, _, releases in listed), strict=True):
        folder = fetch(dict(one_of_each), folder)

    found = defaultdict(list)
    for language, package, releases in listed:
        old, new = (_texts(folder / name) for name, _ in releases)
        for pair in _pairs(language, package, old, new):
            found[pair.language].append(pair)
    for pairs in found.values():
        pairs.sort(key=lambda pair: (pair.package, pair.path))
    return found


def _pairs(language: str, package: str, old: dict[str, str], new: dict[str, str]) -> Iterator[Pair]:
    moved = set(old.values())
    for path, after in new.items():
        before = old.get(path, "")
        if after in moved or not _fits(after) or (before and not _fits(before)):
            continue
        if before and language_of(path) in _PROSE:
            yield Pair("prose", package, path, before, after)
        elif language_of(path) == language:
            yield Pair(language if before else "new", package, path, before, after)


def _fits(text: str) -> bool:
    """Whether it is of a size to be edited, and written by hand."""
    minified = max(map(len, text.split("\n"))) > 1000
    return 10 <= text.count("\n") <= 1500 and not minified and not _GENERATED.search(text[:1000])


def _texts(package: Path) -> dict[str, str]:
    """The text files of a package, but for what was built out of others of its files."""
    texts = {}
    for name, data in read(package):
        # Wheels have no folder around everything; tarballs have one, with the version in its name.
        path = PurePosixPath(name if package.suffix == ".whl" else name.partition("/")[2])
        if "dist" not in path.parts and b"\r" not in data:
            try:
                texts[str(path)] = data.decode("utf-8")
            except UnicodeDecodeError:
                continue
    return texts
