"""specedit's proposers inside vLLM (see README.md beside this file).

What vLLM finds here by name is imported when it asks: its plugins are loaded by everyone.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from specedit.integrations.vllm.predictions import Predictions
    from specedit.integrations.vllm.proposer import SpecEditProposer

__all__ = ["Predictions", "SpecEditProposer"]
_MODULES = {"Predictions": "predictions", "SpecEditProposer": "proposer"}


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__} has no attribute {name}")
    return getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)
