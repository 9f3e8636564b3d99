"""Whole Python files: real edits, and names changed throughout."""

from __future__ import annotations

import ast
import re
from dataclasses import replace
from difflib import SequenceMatcher
from random import Random

from bench.corpus.corpus import Pair, choose, everything
from bench.corpus.forms import FORMS
from specedit.decoding.encode import encode_text

_FILES = 150
_MOST_TOKENS = 4_000
_USES = 10


def python_files(tokenizer, seed: int = 0) -> list[Pair]:
    """A sample of the Python pairs at least half of whose lines agree, those with very long answers left
    out."""

    def tokens(pair: Pair) -> int:
        return len(encode_text(tokenizer, FORMS["fence"].answer(pair)))

    fit = [pair for pair in everything()["python"] if _agree(pair) and tokens(pair) <= _MOST_TOKENS]
    return choose(fit, _FILES, f"{seed}")


def _agree(pair: Pair) -> bool:
    lines = SequenceMatcher(None, pair.before.split("\n"), pair.after.split("\n"), autojunk=False)
    return lines.real_quick_ratio() >= 0.5 and lines.quick_ratio() >= 0.5 and lines.ratio() >= 0.5


def renames(pairs: list[Pair], seed: int = 0) -> list[Pair]:
    """Of each of these files that uses a function or class of its own often: that one, renamed like one of
    another file."""
    defined = {pair.path: _definitions(pair.before) for pair in pairs}
    names = sorted({name for found in defined.values() for name in found})
    random = Random(seed)
    made = []
    for pair in pairs:
        for name in defined[pair.path]:
            word = re.compile(rf"\b{name}\b")
            if len(word.findall(pair.before)) >= _USES:
                new = random.choice([name for name in names if name not in pair.before])
                asked = f"Rename `{name}` to `{new}`."
                made.append(replace(pair, after=word.sub(new, pair.before), instruction=asked))
                break
    return made


def _definitions(text: str) -> list[str]:
    kinds = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
    nodes = [node for node in ast.walk(ast.parse(text)) if isinstance(node, kinds)]
    return list(dict.fromkeys(node.name for node in nodes if not node.name.startswith("__")))
