"""Rewrite real files with llama.cpp: plainly, with specedit, and with llama-cpp-python's prompt look-up.

The default model is written as a GGUF file in each format. Every way gets the same prompt, threads and
cache, and writes greedily up to the same budget; only the end of a message ends an answer sooner. Prefill
is timed, loading and calibration are not. The order of the ways turns from edit to edit, since machines
drift. What `specedit` has learnt is kept from edit to edit, as in one user's process.

llama-cpp-python's look-up scores the vocabulary at every token of the prompt, so the time that follows the
first token is told as well.
"""

from __future__ import annotations

import os
import platform
import shlex
import sys
from datetime import date
from importlib.metadata import version
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Any

import click
import llama_cpp
import torch
from llama_cpp.llama_speculative import LlamaPromptLookupDecoding
from rich.progress import Progress

sys.path.insert(0, str(Path(__file__).parents[1]))

from bench.edits import Edit, load_edits
from bench.markdown import RESULTS, head, keep, machine, row
from bench.peers.llamacpp_engine import CONTEXT, answer, options
from bench.ways import Ways, processor
from specedit import Sampling, SpecEditError, SpecEditor
from specedit.decoding.encode import encode_text, make_request
from specedit.decoding.sampling import Sampler
from specedit.editing import build_prompt
from specedit.editing.languages import language_of
from specedit.integrations.llamacpp import editor
from specedit.integrations.llamacpp.convert import default_gguf
from specedit.types import agreeing

OURS = {"plain": "plain decoding, by specedit", "specedit": "**specedit**"}
# As llama-cpp-python's own: with its default of 10 tokens, and with more.
THEIRS = {
    "llama": "llama-cpp-python `generate`",
    "lookup": "its `LlamaPromptLookupDecoding(num_pred_tokens=10)`",
    "lookup32": "its `LlamaPromptLookupDecoding(max_ngram_size=8, num_pred_tokens=32)`",
}
LOOKUPS = {
    "llama": None,
    "lookup": LlamaPromptLookupDecoding(num_pred_tokens=10),
    "lookup32": LlamaPromptLookupDecoding(max_ngram_size=8, num_pred_tokens=32),
}
NAMES = OURS | THEIRS
WARM_UP = 24  # tokens


class Counting(llama_cpp.Llama):
    """Counts its passes."""

    passes = 0

    def eval(self, tokens: Any) -> None:
        self.passes += 1
        super().eval(tokens)


class Bench:
    """One file, and the ways to decode with it."""

    def __init__(self, numbers: str, threads: int, most: int | None) -> None:
        self._most = most
        path = default_gguf(numbers, click.echo)
        self.editor: SpecEditor = editor(
            path, tokenizer=str(path.parent), n_ctx=CONTEXT, n_batch=512, n_threads=threads
        )
        self.ways = Ways(self.editor)
        self._theirs = Counting(str(path), logits_all=True, verbose=False, **options(numbers, threads))

    def close(self) -> None:
        self.editor.target.close()
        self._theirs.close()

    def prompt(self, edit: Edit) -> tuple[list[int], int]:
        """The prompt's token ids, and how many tokens the answer may have."""
        asked = build_prompt(edit.text, edit.instruction, Path(edit.name).name)
        one = self.editor.generate(asked.messages, prefill=asked.prefill, max_new_tokens=1, speculate=False)
        budget = int(len(encode_text(self.editor.tokenizer, edit.text)) * 1.1) + 64
        return one.prompt, min(budget, self._most or budget, CONTEXT - len(one.prompt))

    def run(self, way: str, edit: Edit, prompt: list[int], limit: int) -> tuple[list[int], dict]:
        """The tokens of the answer, and what they took."""
        if way in THEIRS:
            return self._generate(way, prompt, limit)
        ends = self.editor.target.eos_token_ids
        request = make_request(self.editor.tokenizer, prompt, [edit.text], language_of(edit.name), ends)
        return self.ways.run(way, request, limit, Sampler(Sampling(), prompt), ends.__contains__)

    def _generate(self, way: str, prompt: list[int], limit: int) -> tuple[list[int], dict]:
        llama = self._theirs
        llama.draft_model = LOOKUPS[way]
        llama._logits_all = way != "llama"  # what its constructor does with this draft model
        llama.passes = 0
        begin = perf_counter()
        tokens = answer(llama, prompt, limit)
        written = [next(tokens)]
        first = perf_counter() - begin
        written += tokens
        return written, {"seconds": perf_counter() - begin, "first": first, "passes": llama.passes}


def summary(result: dict) -> str:
    """What each way took, all edits together, in one table for each format."""
    about = result["about"]
    parts = []
    for numbers, edits in result["formats"].items():
        runs = [edit["runs"] for edit in edits.values()]
        plain = [_rest(run["plain"]) for run in runs]
        columns = ["seconds", "after the first token", "of plain", "median of edits", "tokens per second"]
        columns += ["tokens per pass", "same as plain"]
        lines = [head(f"{len(runs)} edit{'s' * (len(runs) > 1)}, {numbers}", *columns)]
        for way in runs[0]:
            own = [run[way] for run in runs]
            seconds, rest = sum(run["seconds"] for run in own), [_rest(run) for run in own]
            tokens = sum(run["tokens"] for run in own)
            middle = median(a / b for a, b in zip(rest, plain, strict=True))
            figures = [f"{seconds:.1f}", f"{sum(rest):.1f}", f"{sum(rest) / sum(plain):.1%}", f"{middle:.1%}"]
            figures += [f"{(tokens - len(own)) / sum(rest):.0f}"]
            figures += [f"{tokens / sum(run['passes'] for run in own):.2f}"]
            figures += [f"{sum(run['parts_at'] is None for run in own)} of {len(own)}"]
            lines.append(row(NAMES[way], *figures))
        parts.append("\n".join(lines))
    cut = f"Answers were cut at {about['max_tokens']} tokens. " if about["max_tokens"] else ""
    shares = "Shares and tokens per second are of the time after the first token. "
    versions = f"llama-cpp-python {about['llama-cpp-python']}. {machine(result)}"
    return "\n\n".join([*parts, f"{shares}{cut}{versions}"])


def _rest(run: dict) -> float:
    return run["seconds"] - run["first"]


def report(result: dict) -> str:
    """The summary, then every edit."""
    lines = [f"# `{result['command']}`", "", summary(result)]
    for numbers, edits in result["formats"].items():
        lines += ["", f"Seconds after the first token, {numbers}:", ""]
        lines.append(head("edit", "tokens", *NAMES, "parts from plain"))
        for name, edit in edits.items():
            runs = edit["runs"]
            parted = {way: run["parts_at"] for way, run in runs.items() if run["parts_at"] is not None}
            figures = [f"{_rest(run):.2f}" for run in runs.values()]
            where = ", ".join(f"{way} at {at}" for way, at in parted.items())
            lines.append(row(name, runs["plain"]["tokens"], *figures, where))
    return "\n".join(lines) + "\n"


@click.command(help=__doc__)
@click.option("--formats", default="F32,BF16,Q8_0,Q4_1", metavar="A,B", help="Formats of the weights.")
@click.option("--limit", type=int, metavar="N", help="Only the first N edits.")
@click.option("--max-tokens", type=int, metavar="K", help="Cut every answer at K tokens.")
@click.option("--threads", type=int, default=torch.get_num_threads(), show_default=True)
@click.option("--out", type=click.Path(path_type=Path), default=RESULTS, help="Folder of the results.")
def main(formats: str, limit: int | None, max_tokens: int | None, threads: int, out: Path) -> None:
    about = {
        "model": "smollm2-135m-edit",
        "device": "cpu",
        "processor": processor(),
        "cores": os.cpu_count(),
        "threads": threads,
        "max_tokens": max_tokens,
        "python": platform.python_version(),
        **{name: version(name) for name in ("torch", "transformers", "specedit", "llama-cpp-python")},
    }
    command = shlex.join(["python", *sys.argv])
    result: dict = {"about": about, "date": f"{date.today()}", "command": command, "formats": {}}
    edits = load_edits()[:limit]
    ways = list(NAMES)
    # A thread that refreshes the bar would take time from what is measured.
    with Progress(auto_refresh=False) as progress:
        task = progress.add_task("", total=len(edits) * len(ways) * len(formats.split(",")))
        for numbers in formats.split(","):
            bench = Bench(numbers, threads, max_tokens)
            for way in ways:
                bench.run(way, edits[0], bench.prompt(edits[0])[0], WARM_UP)
            bench.ways.forget()
            done = result["formats"][numbers] = {}
            for seed, edit in enumerate(edits):
                prompt, budget = bench.prompt(edit)
                answers, runs = {}, {}
                turn = seed % len(ways)
                for way in ways[turn:] + ways[:turn]:
                    progress.update(task, description=f"{numbers} {edit.name}: {way}", refresh=True)
                    answers[way], runs[way] = bench.run(way, edit, prompt, budget)
                    progress.update(task, advance=1, refresh=True)
                for way in ways:
                    same = answers[way] == answers["plain"]
                    parts_at = None if same else agreeing(answers[way], answers["plain"])
                    runs[way] |= {"tokens": len(answers[way]), "parts_at": parts_at}
                done[edit.name] = {"prompt_tokens": len(prompt), "runs": {way: runs[way] for way in ways}}
                keep(out / "llamacpp.json", result, report(result))
            bench.close()
    click.echo(summary(result))


if __name__ == "__main__":
    try:
        main()
    except SpecEditError as error:
        sys.exit(f"Error: {error}")
