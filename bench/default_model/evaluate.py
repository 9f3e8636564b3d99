"""How well a model edits: `python bench/default_model/evaluate.py`, with `--model` for another one.

Edits of files from packages that training never saw, decoded greedily by specedit, judged by what the file
is after them. The results are kept in `bench/results/default-model.json`; the table goes into the model card.
"""

from __future__ import annotations

import difflib
import json
import platform
import sys
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import date
from importlib.metadata import version
from pathlib import Path
from random import Random

import click
from tqdm import tqdm

sys.path.insert(0, str(Path(__file__).parents[2]))

from bench.default_model.dataset import Corpus, Edit
from bench.default_model.text_edits import is_valid
from bench.markdown import RESULTS, head, insert, row
from specedit import SpecEditor
from specedit.default_model import ADAPTER, NAME, PLAIN, merge
from specedit.results import EditResult

FILE = RESULTS / "default-model.json"
PER_KIND = {"python": 8, "javascript": 4, "json": 3, "toml": 3, "markdown": 4}
TOGETHER = 8  # answers that share the model's passes
SIMPLE = ("rename", "constant", "string", "operator", "import")  # kinds whose names hold one of these words


def held_out() -> list[Edit]:
    """The same edits at every call: so many of each kind, as far as the held-out files give occasion."""
    corpus, rng = Corpus("held_out"), Random(1)
    chosen: list[Edit] = []
    counts: Counter[tuple[str, str]] = Counter()
    for _ in range(1500):
        for edit in corpus.group(rng, 4):
            if counts[edit.language, edit.kind] < PER_KIND[edit.language]:
                counts[edit.language, edit.kind] += 1
                chosen.append(edit)
    return chosen


def judge(edit: Edit, answer: str, closed: bool) -> dict:
    """What is right in an answer.

    Returns:
        exact: it is the expected text. applied: every difference asked for is there, at its place. kept, of:
        how many of the lines that should stay are there, in order. closed: the code block was ended. parses:
        it is valid in its language, as the file was.
    """
    before, wanted, got = (text.splitlines() for text in (edit.text, edit.after, answer))
    exact = closed and answer == edit.after
    asked, made = _changes(before, wanted), _changes(before, got)
    staying = [line for tag, a, b, _, _ in _opcodes(before, wanted) if tag == "equal" for line in before[a:b]]
    kept = sum(b - a for tag, a, b, _, _ in _opcodes(staying, got) if tag == "equal")
    return {
        "exact": exact,
        "applied": exact if not asked else asked <= made,
        "kept": kept,
        "of": len(staying),
        "closed": closed,
        "parses": is_valid(answer, edit.language),
    }


def _opcodes(a: list[str], b: list[str]) -> list[tuple[str, int, int, int, int]]:
    return difflib.SequenceMatcher(None, a, b, autojunk=False).get_opcodes()


def _changes(before: list[str], after: list[str]) -> set[tuple[int, int, tuple[str, ...]]]:
    return {(a, b, tuple(after[c:d])) for tag, a, b, c, d in _opcodes(before, after) if tag != "equal"}


def share(results: list[dict], chosen: Callable[[dict], bool] = lambda result: True) -> dict[str, float]:
    """The figures over the chosen results; NaN where there is none."""
    found = [result for result in results if chosen(result)]
    count = len(found) or float("nan")
    figures = {name: sum(r[name] for r in found) / count for name in ("exact", "applied", "closed", "parses")}
    figures["kept"] = sum(r["kept"] for r in found) / (sum(r["of"] for r in found) or float("nan"))
    return figures | {"edits": len(found)}


def table(models: dict[str, dict]) -> str:
    """The results of one or several models as Markdown."""
    lines = []
    for name, stored in models.items():
        results = stored["edits"]
        lines += [
            head(name, "edits", "exact", "applied", "untouched lines kept", "block closed", "parses"),
            _row("**all**", share(results)),
            _row("rename, constant, string, operator, import, up to 60 lines", share(results, is_simple)),
        ]
        for language in PER_KIND:
            kinds = sorted({r["kind"] for r in results if r["language"] == language})
            lines.append(_row(language, share(results, lambda r, of=language: r["language"] == of)))
            if language == "python":
                for kind in kinds:
                    of = (language, kind)
                    lines.append(
                        _row(f"· {kind}", share(results, lambda r, of=of: (r["language"], r["kind"]) == of))
                    )
        lines += ["", stored["about"], ""]
    return "\n".join(lines)


def is_simple(result: dict) -> bool:
    return result["lines"] <= 60 and any(word in result["kind"] for word in SIMPLE)


def _row(name: str, figures: dict[str, float]) -> str:
    shares = (f"{figures[key]:.1%}" for key in ("exact", "applied", "kept", "closed", "parses"))
    return row(name, figures["edits"], *shares)


@click.command()
@click.option("--model", default=NAME, show_default=True, help="What to evaluate.")
@click.option("--adapter", type=click.Path(path_type=Path), help="A folder to merge into the plain model.")
@click.option("--limit", type=int, help="Only so many edits, spread over the kinds; nothing is stored then.")
@click.option("--every", default=1, show_default=True, help="Only one edit out of so many.")
@click.option("--show", is_flag=True, help="Print what went wrong.")
def main(model: str, adapter: Path | None, limit: int | None, every: int, show: bool) -> None:
    """Evaluate a model and print the table."""
    editor = SpecEditor.from_pretrained(PLAIN if adapter else model, dtype="float32", progress=click.echo)
    if adapter:
        merge(editor.target.model, adapter)
    edits = held_out()[::every]
    if limit:
        edits = edits[:: max(1, len(edits) // limit)][:limit]
    results = []

    def rewrite(edit: Edit) -> EditResult:
        return editor.rewrite(edit.text, edit.instruction, name=edit.name)

    pool = ThreadPoolExecutor(TOGETHER)
    bar = tqdm(zip(edits, pool.map(rewrite, edits), strict=True), total=len(edits))
    for edit, result in bar:
        answer = result.generation
        closed = answer.matched_stop is not None or answer.text.endswith("```")
        about = {"kind": edit.kind, "language": edit.language, "lines": edit.text.count("\n")}
        results.append(about | judge(edit, result.text, closed))
        if show and not results[-1]["exact"]:
            wrong = difflib.unified_diff(
                edit.after.splitlines(), result.text.splitlines(), "wanted", "got", lineterm="", n=1
            )
            tqdm.write(f"\n--- {edit.kind}: {edit.instruction}\n" + "\n".join(wrong))
        bar.set_postfix(exact=f"{share(results)['exact']:.1%}", kept=f"{share(results)['kept']:.1%}")
    versions = ", ".join(f"{name} {version(name)}" for name in ("torch", "transformers", "specedit"))
    machine = f"float32, {platform.machine()}, python {platform.python_version()}, {versions}; {date.today()}"
    if limit or adapter:
        click.echo(table({model: {"edits": results, "about": machine}}))
        return
    stored = json.loads(FILE.read_text()) if FILE.exists() else {}
    stored[model] = {"about": machine, "edits": results}
    FILE.write_text(json.dumps(stored, indent=0) + "\n")
    click.echo(table(stored))
    insert(ADAPTER / "README.md", "figures", table(stored))


if __name__ == "__main__":
    main()
