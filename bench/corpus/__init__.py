"""Real edits: files that changed between two releases of a package, and the forms in which agents answer."""

from bench.corpus.corpus import Pair, load
from bench.corpus.forms import FORMS, Form

__all__ = ["FORMS", "Form", "Pair", "load"]
