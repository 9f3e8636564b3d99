"""Where specedit keeps what it can make again (models, measured costs, locks), and paths as text."""

from __future__ import annotations

import os
from pathlib import Path

from platformdirs import user_cache_path


def cache_folder() -> Path:
    """The folder that SPECEDIT_CACHE names, else this platform's place for caches. It may not exist yet."""
    return Path(os.environ.get("SPECEDIT_CACHE") or user_cache_path("specedit"))


def readable(path: str | os.PathLike[str]) -> str:
    """A path as text, for models and people: a name on disk may be any bytes."""
    return os.fsencode(path).decode("utf-8", "replace")
