"""What speculation costs where there is nothing to copy: `python bench/nothing.py`.

The model is forced to write tokens drawn at random, none of them twice, so that every draft is wrong. Plain
decoding and specedit, with what it has learnt from the answers before, take turns.
"""

from __future__ import annotations

import random
import sys
from collections.abc import Iterator
from datetime import date
from pathlib import Path
from statistics import median

import click
from tqdm import tqdm

sys.path.insert(0, str(Path(__file__).parents[1]))

from bench.edits import load_edits
from bench.markdown import RESULTS, head, keep, machine, row
from bench.ways import Ways, editor_with
from specedit import models
from specedit.decoding.encode import encode_chat, encode_text, make_request
from specedit.replay import Forced

FILE = RESULTS / "nothing.json"
INTRODUCTION = """Answers of {tokens} tokens drawn at random, none of them twice, so that no draft is right.
Seconds with the prompt, median of {repeats}; the slowdown is the median of the pairs.
"""


def references() -> Iterator[tuple[str, str, str]]:
    """What a caller may give as the expected answer: its name, the prompt, and the text."""
    file = max((edit.text for edit in load_edits()), key=len)
    yield "none", "Write something.", ""
    yield "the file in the prompt", f"Write something.\n```python\n{file}```", file
    yield "another file", "Write something.", file
    yield "a file that does not parse", "Write something.", file.replace("(", "((").replace("\n", "\n)]}", 99)
    yield "control tokens as text", "Write something.", "<|im_start|>system\n<|im_end|>\n<|endoftext|>" * 200
    yield "half a million letters", "Write something.", (file * (1 + (1 << 19) // len(file)))[: 1 << 19]
    yield "ten million letters", "Write something.", (file * (1 + 10_000_000 // len(file)))[:10_000_000]


@click.command(help=__doc__)
@click.option("--tokens", default=150, show_default=True)
@click.option("--repeats", default=5, show_default=True)
@click.option("--dtype", help="float32, bfloat16 or float16; by default what the machine does natively.")
def main(tokens: int, repeats: int, dtype: str | None) -> None:
    loaded = models.load(dtype=dtype, progress=click.echo)
    editor = editor_with(loaded.model, loaded.name, loaded.tokenizer)
    ways = Ways(editor)
    tokenizer = loaded.tokenizer
    cases = [
        (name, encode_chat(tokenizer, [{"role": "user", "content": asked}], ""), text)
        for name, asked, text in references()
    ]
    copied = {token for _, prompt, text in cases for token in (*prompt, *encode_text(tokenizer, text))}
    ordinary = sorted(set(range(len(tokenizer))) - set(tokenizer.all_special_ids) - copied)
    random.Random(0).shuffle(ordinary)
    rows = []
    for name, prompt, text in tqdm(cases, "references"):
        runs: dict[str, list[dict]] = {"plain": [], "specedit": []}
        for repeat in range(repeats + 1):  # the first warms up
            # What was written before could be copied.
            written, ordinary = ordinary[:tokens], ordinary[tokens:]
            for way in sorted(runs, reverse=repeat % 2 == 1):
                request = make_request(tokenizer, prompt, [text] if text else [], "python")
                answer, run = ways.run(way, request, tokens, Forced(written))
                assert answer == written
                assert not sum(run["accepted"].values())
                runs[way] += [run] if repeat else []
        rows.append({"reference": name, "prompt": len(prompt), "letters": len(text), "runs": runs})
    about = ways.about() | {"tokens": tokens, "repeats": repeats}
    result = {"about": about, "date": f"{date.today()}", "rows": rows}
    keep(FILE, result, report(result))
    click.echo(report(result))


def report(result: dict) -> str:
    """As Markdown."""
    lines = [head("expected answer", "prompt", "plain", "specedit", "slower", "drafting")]
    for entry in result["rows"]:
        plain, ours = entry["runs"]["plain"], entry["runs"]["specedit"]
        slower = median(b["seconds"] / a["seconds"] for a, b in zip(plain, ours, strict=True)) - 1
        seconds = [median(run["seconds"] for run in runs) for runs in (plain, ours)]
        lines.append(
            row(
                entry["reference"],
                f"{entry['prompt']:,} tokens",
                *(f"{second:.2f} s" for second in seconds),
                f"{slower:+.1%}",
                f"{1000 * median(run['draft'] for run in ours):.0f} ms",
            )
        )
    table = "\n".join(lines)
    return f"{INTRODUCTION.format(**result['about'])}\n{table}\n\n{machine(result)}\n"


if __name__ == "__main__":
    main()
