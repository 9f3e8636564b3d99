"""Real edits: files that changed between two releases of a package."""

from bench.corpus.corpus import Pair, load

__all__ = ["Pair", "load"]
