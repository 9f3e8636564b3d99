"""Twenty edits of real files. `edits.toml` names them, PyPI has them, and no line of theirs is kept here."""

from __future__ import annotations

from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from zipfile import ZipFile

from bench.packages import fetch
from specedit.types import SpecEditError

LIST = Path(__file__).with_name("edits.toml")


@dataclass(frozen=True, slots=True)
class Edit:
    """A file and what to change in it.

    Attributes:
        name: its path in the wheel.
        text: what it holds, with "\\n" newlines.
        instruction: what a developer would ask for.
    """

    name: str
    text: str
    instruction: str


def load_edits(folder: Path | None = None) -> list[Edit]:
    """The edits of `edits.toml`, in its order.

    Args:
        folder: where the wheels are kept; by default in specedit's cache. Missing ones are fetched with pip.

    Raises:
        SpecEditError: a wheel cannot be fetched, or a file is not the one that was listed.
    """
    import tomllib  # Python 3.11; tests that import this module are collected with 3.10 too

    listed = tomllib.loads(LIST.read_text("utf-8"))
    folder = fetch(listed["wheels"], folder)
    edits = []
    for entry in listed["edits"]:
        with ZipFile(folder / entry["wheel"]) as wheel:
            data = wheel.read(entry["path"])
        if sha256(data).hexdigest() != entry["sha256"]:
            raise SpecEditError(f"{entry['path']} in {entry['wheel']} is not the file that edits.toml lists.")
        edits.append(Edit(entry["path"], data.decode("utf-8"), entry["instruction"]))
    return edits
