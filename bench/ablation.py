"""What each proposer adds on whole Python files, without a model: `python bench/ablation.py`.

150 edits between releases and as many of their files as have a name to change are replayed as in `count.py`,
with each proposer alone, with all, with all but one, and with transformers' prompt look-up.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from datetime import date
from functools import partial
from pathlib import Path
from time import perf_counter
from typing import NamedTuple

import click
import numpy as np
from tqdm import tqdm

sys.path.insert(0, str(Path(__file__).parents[1]))

from bench.corpus import Pair
from bench.corpus.python_files import python_files, renames
from bench.count import CURVES, REMEMBERING, cases, default_tokenizer, seconds_of
from bench.markdown import RESULTS, head, keep, row
from bench.ways import processor
from specedit.decoding.cost import FixedCost
from specedit.decoding.encode import encode_text, make_request
from specedit.decoding.planner import Planner
from specedit.measure import sample
from specedit.proposers import DEFAULT, create
from specedit.replay import count, fewest_passes

FILE = RESULTS / "ablation.json"
# Passes: no dearer for up to 64 tokens, as on a GPU, then by 1/256 of a pass for each token.
FLAT = (1, 1, 1, 1, 1, 1, 1, 1.25, 1.75)
LOOKUPS = ((10, 2), (5, 8), (64, 16))  # tokens to draft, most to match
CONTEXTS = (8_000, 50_000)
REPEATS = 5  # what else the machine does only ever adds time
INTRODUCTION = """Whole Python files: {files} edits between releases, and {renames} files in which a function
or class with ten uses or more is renamed. Tokens a pass where a pass costs the same for up to 64 tokens and
1/256 more for each further one; how many times as fast as plain decoding there, and under the float32 curve
of `bench/count.py`, for the file in a fence, as the JSON string of a `write_file` call, and with numbered
lines in the prompt; the passes that the renames take. Every answer is met without memory of the others, but
in one row. Look-up is transformers' own class, which drafts as much as it is set to; it was not counted in
the other forms, where it finds little and takes hours.
"""
TIMES = """Milliseconds a step that proposing and choosing take, in whole files one after the other, each step
at the least of {repeats} runs, on one core of {processor}:
"""


class Set(NamedTuple):
    """Edits in a form, under a cost curve."""

    title: str
    renamed: bool
    form: str
    curve: Sequence[float]


SETS = (
    Set("flat", False, "fence", FLAT),
    Set("float32", False, "fence", CURVES["float32"]),
    Set("write_file", False, "write_file", CURVES["float32"]),
    Set("numbered", False, "numbered", CURVES["float32"]),
    Set("renames", True, "fence", CURVES["float32"]),
)
WAYS = (
    {name: (name,) for name in DEFAULT}
    | {f"all but {name}": tuple(other for other in DEFAULT if other != name) for name in DEFAULT}
    | {"**all**": DEFAULT, REMEMBERING: DEFAULT}
)


class Totals(NamedTuple):
    tokens: int
    passes: int
    seconds: float


def ours(way: str, chosen: Set, pairs: list[Pair], tokenizer) -> Totals:
    """What the edits take with these proposers."""
    cost = FixedCost(chosen.curve)
    planner = Planner(create(WAYS[way]), cost)
    totals = Totals(0, 0, 0.0)
    for _, _, request, answer in cases(pairs, tokenizer, [chosen.form]):
        if way != REMEMBERING:
            planner.forget()
        stats = count(request, answer, planner, cost)
        totals = _add(totals, len(answer) - 1, stats.target_calls, stats.verify)
    return totals


def lookup(setting: tuple[int, int], chosen: Set, pairs: list[Pair], tokenizer) -> Totals | None:
    """What they take with transformers' prompt look-up, where that is counted."""
    if chosen.form != "fence":
        return None
    found = [(request, answer) for _, _, request, answer in cases(pairs, tokenizer, [chosen.form])]
    lines = [json.dumps({"prompt": list(request.prompt), "answer": answer}) for request, answer in found]
    script = Path(__file__).parent / "peers" / "prompt_lookup.py"
    printed = subprocess.run(
        [sys.executable, script, *map(str, setting)],
        input="\n".join(lines),
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    ).stdout.splitlines()
    cost = FixedCost(chosen.curve)
    totals = Totals(0, 0, 0.0)
    for (_, answer), line in zip(found, printed, strict=True):
        scored = json.loads(line)
        totals = _add(totals, len(answer) - 1, len(scored), seconds_of(scored, cost))
    return totals


def copier(chosen: Set, pairs: list[Pair], tokenizer) -> Totals:
    """The passes that a perfect copier takes."""
    totals = Totals(0, 0, 0.0)
    for _, _, request, answer in cases(pairs, tokenizer, [chosen.form]):
        totals = _add(totals, len(answer) - 1, fewest_passes(request, answer), 0.0)
    return totals


def _add(totals: Totals, *more: float) -> Totals:
    return Totals(*(a + b for a, b in zip(totals, more, strict=True)))


def proposing(context: int, pairs: list[Pair], tokenizer) -> list[float]:
    """Seconds of each step that go into proposing, where prompt and answer grow to so many tokens."""
    before, after = (
        encode_text(tokenizer, "\n".join(getattr(pair, side) for pair in pairs))[: context // 2]
        for side in ("before", "after")
    )
    reference = tokenizer.decode(before)
    request = make_request(tokenizer, before, [reference], "python")
    planner = Planner(create(DEFAULT), FixedCost(CURVES["float32"]))
    planner.start(request, vocab_size=len(tokenizer), branching=True)
    history, at, times = [*before, after[0]], 1, list[float]()
    while at < len(after):
        begun = perf_counter()
        tree = planner.propose(history, len(after))
        times.append(perf_counter() - begun)
        emitted, position = list[int](), 0
        while position is not None and at + len(emitted) < len(after):
            emitted.append(after[at + len(emitted)])
            position = tree.child(position, emitted[-1])
        begun = perf_counter()
        planner.learn(emitted, 1 + len(tree.tokens), 0.05)
        times[-1] += perf_counter() - begun
        history += emitted
        at += len(emitted)
    return times


def counted(edits: list[Pair], renamed: list[Pair], tokenizer) -> dict[tuple[str, str], Totals | None]:
    """What all ways take, by way and set."""
    counters: dict[str, Callable[..., Totals | None]] = {
        **{f"look-up, {k} after {longest}": partial(lookup, (k, longest)) for k, longest in LOOKUPS},
        **{way: partial(ours, way) for way in WAYS},
        "a perfect copier": copier,
    }
    with ProcessPoolExecutor() as pool:
        running = {
            (name, chosen.title): pool.submit(
                counter, chosen, renamed if chosen.renamed else edits, tokenizer
            )
            for name, counter in counters.items()
            for chosen in SETS
        }
        return {key: future.result() for key, future in tqdm(running.items(), "counting")}


@click.command(help=__doc__)
@click.option("--limit", type=int, metavar="N", help="Only N edits.")
@click.option("--times", "timed", is_flag=True, help="Only time proposing: what was counted stays.")
def main(limit: int | None, timed: bool) -> None:
    tokenizer = default_tokenizer()
    edits = python_files(tokenizer)
    edits = sample(edits, limit or len(edits))
    renamed = renames(edits)
    if timed:
        entries = json.loads(FILE.read_text("utf-8"))["counts"]
        found = {(entry.pop("way"), entry.pop("set")): Totals(**entry) for entry in entries}
    else:
        found = counted(edits, renamed, tokenizer)
    times = {
        context: np.min([proposing(context, edits, tokenizer) for _ in range(REPEATS)], axis=0)
        for context in CONTEXTS
    }
    shown = f"{table(found)}\n\n{TIMES.format(processor=processor(), repeats=REPEATS)}\n{times_table(times)}"
    introduction = INTRODUCTION.format(files=len(edits), renames=len(renamed))
    if not limit:
        result = {
            "date": f"{date.today()}",
            "counts": [{"way": way, "set": title, **t._asdict()} for (way, title), t in found.items() if t],
            "proposing": {context: float(np.median(taken)) for context, taken in times.items()},
        }
        keep(FILE, result, f"{introduction}\n{shown}\n")
    click.echo(f"{introduction}\n{shown}")


def table(found: dict[tuple[str, str], Totals | None]) -> str:
    """A row for each way, as Markdown."""
    plain = CURVES["float32"][0]
    lines = [
        head(
            "", "tokens a pass, flat", "× flat", "× float32", "× `write_file`", "× numbered", "rename passes"
        )
    ]
    for way in dict.fromkeys(way for way, _ in found):
        cells = [f"{found[way, 'flat'].tokens / found[way, 'flat'].passes:.1f}"]
        for title, unit in (("flat", 1.0), ("float32", plain), ("write_file", plain), ("numbered", plain)):
            totals = found.get((way, title))
            known = totals and totals.seconds
            cells.append(f"{totals.tokens * unit / totals.seconds:.2f}" if known else "")
        lines.append(row(way, *cells, f"{found[way, 'renames'].passes:,}"))
    return "\n".join(lines)


def times_table(times: dict[int, np.ndarray]) -> str:
    """Median and 95th percentile, as Markdown."""
    lines = [head("context", "steps", "median", "p95")]
    for context, taken in times.items():
        median, p95 = 1000 * np.percentile(taken, [50, 95])
        lines.append(row(f"{context:,} tokens", f"{len(taken):,}", f"{median:.2f}", f"{p95:.2f}"))
    return "\n".join(lines)


if __name__ == "__main__":
    main()
