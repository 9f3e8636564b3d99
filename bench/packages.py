"""Packages from PyPI and npm, fetched by pip and npm, checked by sha256 and kept in the cache of specedit."""

from __future__ import annotations

import subprocess
import sys
import tarfile
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path
from tempfile import TemporaryDirectory
from zipfile import ZipFile

from specedit.paths import cache_folder
from specedit.types import SpecEditError

PIP = ["pip", "download", "--quiet", "--no-deps", "--only-binary", ":all:", "--require-hashes"]


def fetch(packages: dict[str, str], folder: Path | None = None) -> Path:
    """Bring the packages into a folder and return it.

    Args:
        packages: wheels, sdists (`.tar.gz`) and npm tarballs (`.tgz`) by file name, with the sha256 of each.
            One release of each package, as pip takes no two at once.
        folder: by default one in specedit's cache. What it holds already is not fetched again.

    Raises:
        SpecEditError: a package cannot be fetched.
    """
    folder = folder or cache_folder() / "bench"
    folder.mkdir(parents=True, exist_ok=True)
    missing = _missing(packages, folder)
    said = _pip([n for n in missing if n.endswith((".whl", ".tar.gz"))], packages, folder)
    said += _npm([n for n in missing if n.endswith(".tgz")], folder)
    if missing := _missing(packages, folder):
        raise SpecEditError(
            f"Could not fetch {', '.join(missing)}; check the network and try again.\n{said.strip()}"
        )
    return folder


def read(package: Path) -> Iterator[tuple[str, bytes]]:
    """The files of a package: path and bytes."""
    if package.suffix == ".whl":
        with ZipFile(package) as wheel:
            for name in wheel.namelist():
                yield name, wheel.read(name)
    else:
        with tarfile.open(package) as tarball:
            for member in tarball:
                if member.isfile():
                    yield member.name, tarball.extractfile(member).read()


def _missing(packages: dict[str, str], folder: Path) -> list[str]:
    def whole(file: Path, digest: str) -> bool:
        return file.is_file() and sha256(file.read_bytes()).hexdigest() == digest

    return [name for name, digest in packages.items() if not whole(folder / name, digest)]


def _pip(files: list[str], packages: dict[str, str], folder: Path) -> str:
    if not files:
        return ""
    command = [sys.executable, "-m", *PIP, "--dest", str(folder)]
    with TemporaryDirectory() as temporary:
        pinned = Path(temporary) / "requirements.txt"
        with pinned.open("w") as lines:
            for file in files:
                package, version = file.removesuffix(".tar.gz").split("-")[:2]
                lines.write(f"{package}=={version} --hash=sha256:{packages[file]}\n")
                if file.endswith(".tar.gz"):
                    # Once the hash fits, pip has the build backend tell the metadata, in an environment of
                    # its own. So list no sdist that needs a compiler for that, as those built by maturin do.
                    command += ["--no-binary", package]
        return subprocess.run([*command, "-r", pinned], capture_output=True, text=True).stderr


def _npm(tarballs: list[str], folder: Path) -> str:
    if not tarballs:
        return ""
    wanted = ["@".join(name.removesuffix(".tgz").rsplit("-", 1)) for name in tarballs]
    command = ["npm", "pack", "--silent", "--ignore-scripts", "--pack-destination", str(folder), *wanted]
    try:
        return subprocess.run(command, capture_output=True, text=True).stderr
    except OSError as exc:
        return f"npm is needed for {', '.join(tarballs)}: {exc}"
