"""Exact speculative decoding for code editing.

from specedit import SpecEditor

editor = SpecEditor.from_pretrained()
result = editor.rewrite(Path("app.py"), "Rename the function load to read_config.")
print(result.diff)
result.write()
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from specedit.types import Draft, Refused, Sampling, SpecEditError

if TYPE_CHECKING:
    from specedit.editor import SpecEditor
    from specedit.results import EditResult, Generation, Stream

__version__ = "0.1.0"
__all__ = [
    "Draft",
    "EditResult",
    "Generation",
    "Refused",
    "Sampling",
    "SpecEditError",
    "SpecEditor",
    "Stream",
]


def __getattr__(name: str):
    # torch and transformers take seconds to import; a caller who only wants the types should not wait.
    if name == "SpecEditor":
        from specedit.editor import SpecEditor

        return SpecEditor
    if name in ("EditResult", "Generation", "Stream"):
        from specedit import results

        return getattr(results, name)
    raise AttributeError(f"module 'specedit' has no attribute '{name}'")
