"""Twenty edits of real files. `edits.toml` names them, PyPI has them, and no line of theirs is kept here."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from tempfile import TemporaryDirectory
from zipfile import ZipFile

from specedit.paths import cache_folder
from specedit.types import SpecEditError

LIST = Path(__file__).with_name("edits.toml")
PIP = ["pip", "download", "--quiet", "--no-deps", "--only-binary", ":all:", "--require-hashes"]


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

    folder = folder or cache_folder() / "bench"
    listed = tomllib.loads(LIST.read_text("utf-8"))
    if missing := _missing(listed["wheels"], folder):
        _fetch(missing, folder)
    edits = []
    for entry in listed["edits"]:
        with ZipFile(folder / entry["wheel"]) as wheel:
            data = wheel.read(entry["path"])
        if sha256(data).hexdigest() != entry["sha256"]:
            raise SpecEditError(f"{entry['path']} in {entry['wheel']} is not the file that edits.toml lists.")
        edits.append(Edit(entry["path"], data.decode("utf-8"), entry["instruction"]))
    return edits


def _missing(wheels: dict[str, str], folder: Path) -> dict[str, str]:
    """Those of the wheels (file name: sha256) that `folder` does not hold whole."""

    def whole(file: Path, digest: str) -> bool:
        return file.is_file() and sha256(file.read_bytes()).hexdigest() == digest

    return {name: digest for name, digest in wheels.items() if not whole(folder / name, digest)}


def _fetch(wheels: dict[str, str], folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    with TemporaryDirectory() as temporary:
        pinned = Path(temporary) / "requirements.txt"
        with pinned.open("w") as lines:
            for name, digest in wheels.items():
                package, version = name.split("-")[:2]
                lines.write(f"{package}=={version} --hash=sha256:{digest}\n")
        run = subprocess.run(
            [sys.executable, "-m", *PIP, "--dest", folder, "-r", pinned], capture_output=True, text=True
        )
    if run.returncode or _missing(wheels, folder):
        said = run.stderr.strip() or "pip fetched other files than edits.toml lists"
        raise SpecEditError(
            f"The files to edit could not be fetched; check the network and try again.\n{said}"
        )
