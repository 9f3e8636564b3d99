"""GGUF models that llama.cpp runs (see README.md beside this file)."""

from specedit.integrations.llamacpp.editor import editor
from specedit.integrations.llamacpp.target import LlamaCppTarget

__all__ = ["LlamaCppTarget", "editor"]
