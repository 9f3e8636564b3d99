"""Which language a file is written in, by its name, and the grammar that reads it."""

from __future__ import annotations

import importlib
import os
from functools import cache
from pathlib import PurePath

from tree_sitter import Language, Parser

_BY_EXTENSION = {
    "bash": "bash",
    "c": "c",
    "c#": "csharp",
    "c++": "cpp",
    "cc": "cpp",
    "cjs": "javascript",
    "cpp": "cpp",
    "cs": "csharp",
    "css": "css",
    "cts": "typescript",
    "cxx": "cpp",
    "go": "go",
    "h": "c",
    "h++": "cpp",
    "hh": "cpp",
    "hpp": "cpp",
    "htm": "html",
    "html": "html",
    "hxx": "cpp",
    "java": "java",
    "js": "javascript",
    "json": "json",
    "jsx": "jsx",
    "kt": "kotlin",
    "markdown": "markdown",
    "md": "markdown",
    "mdx": "markdown",
    "mjs": "javascript",
    "mk": "makefile",
    "mts": "typescript",
    "pl": "perl",
    "ps1": "powershell",
    "py": "python",
    "pyi": "python",
    "pyw": "python",
    "rb": "ruby",
    "rs": "rust",
    "sh": "bash",
    "ts": "typescript",
    "tsx": "tsx",
    "txt": "text",
    "yml": "yaml",
}

_BY_NAME = {
    "cmakelists.txt": "cmake",
    "dockerfile": "dockerfile",
    "gemfile": "ruby",
    "makefile": "makefile",
    "rakefile": "ruby",
}

# Language: the module of its grammar, and that module's function.
GRAMMARS = {
    "bash": ("tree_sitter_bash", "language"),
    "c": ("tree_sitter_c", "language"),
    "cpp": ("tree_sitter_cpp", "language"),
    "csharp": ("tree_sitter_c_sharp", "language"),
    "css": ("tree_sitter_css", "language"),
    "go": ("tree_sitter_go", "language"),
    "html": ("tree_sitter_html", "language"),
    "java": ("tree_sitter_java", "language"),
    "javascript": ("tree_sitter_javascript", "language"),
    "json": ("tree_sitter_json", "language"),
    "jsx": ("tree_sitter_javascript", "language"),
    "python": ("tree_sitter_python", "language"),
    "ruby": ("tree_sitter_ruby", "language"),
    "rust": ("tree_sitter_rust", "language"),
    "tsx": ("tree_sitter_typescript", "language_tsx"),
    "typescript": ("tree_sitter_typescript", "language_typescript"),
}


def language_of(name: str | os.PathLike[str]) -> str:
    """The language of a file name, as written after a code fence: `python` for `src/app.py`.

    An extension that the table lacks names itself (`yaml`); a name without one gives "".
    """
    path = PurePath(name)
    if path.name.lower() in _BY_NAME:
        return _BY_NAME[path.name.lower()]
    extension = path.suffix.removeprefix(".").lower()
    # Anything else in an info string could end the fence line early.
    return _BY_EXTENSION.get(extension, extension if extension.isalnum() else "")


@cache
def grammar_of(language: str) -> Language | None:
    """The tree-sitter grammar of a language that `language_of` gave, or None where there is none."""
    if language not in GRAMMARS:
        return None
    module, function = GRAMMARS[language]
    return Language(getattr(importlib.import_module(module), function)())


def first_error(text: str, language: str) -> int | None:
    """The line (1 is the first) where `text` stops being valid in `language`.

    None when it is valid, or when there is no grammar to tell.
    """
    grammar = grammar_of(language)
    if grammar is None:
        return None
    # A lone surrogate is no reason to fail here: writing the text refuses it with a better message.
    node = Parser(grammar).parse(text.encode("utf-8", "replace")).root_node
    if not node.has_error:
        return None
    while inner := next((child for child in node.children if child.has_error), None):
        node = inner
    return node.start_point.row + 1
