"""What speculation costs where there is nothing to copy: `python bench/nothing.py`.

The model is forced to write tokens drawn at random, none of them twice, so that every draft is wrong. Plain
decoding and specedit, with what it has learnt from the answers before, write the same answer in lockstep, one
step of each in turn: whatever else the machine does meanwhile meets both.
"""

from __future__ import annotations

import random
import sys
from collections.abc import Iterator
from datetime import date
from pathlib import Path

import click
from tqdm import tqdm
from transformers import PreTrainedModel

sys.path.insert(0, str(Path(__file__).parents[1]))

from bench.edits import load_edits
from bench.markdown import RESULTS, head, keep, machine, row
from bench.ways import described, editor_with
from specedit import models
from specedit.decoding.cost import CostCurve
from specedit.decoding.encode import encode_chat, encode_text, make_request
from specedit.decoding.loop import decode
from specedit.decoding.planner import Planner
from specedit.decoding.statistics import Statistics
from specedit.proposers import DEFAULT, Request, create
from specedit.replay import Forced
from specedit.targets.hf import HFTarget

FILE = RESULTS / "nothing.json"
WAYS = ("plain", "specedit")
INTRODUCTION = """Answers of {tokens} tokens drawn at random, none of them twice, so that no draft is right,
written by plain decoding and by specedit in lockstep. Seconds without prefill, of {repeats} answers together.
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


def together(
    model: PreTrainedModel, request: Request, planner: Planner, answer: list[int]
) -> dict[str, dict]:
    """What plain decoding and specedit take to write this answer, a step of each in turn."""
    found = {way: Statistics() for way in WAYS}
    running = [
        decode(
            HFTarget(model, way),
            request,
            Forced(answer),
            None if way == "plain" else planner,
            max_tokens=len(answer),
            ends=lambda token: False,
            stats=stats,
        )
        for way, stats in found.items()
    ]
    for steps in zip(*running, strict=True):
        assert steps == ([steps[0][0]],) * 2, "a draft was right"
    for steps in running:
        assert next(steps, None) is None
    return {way: stats.as_dict()["seconds"] for way, stats in found.items()}


@click.command(help=__doc__)
@click.option("--tokens", default=120, show_default=True)
@click.option("--repeats", default=5, show_default=True)
@click.option("--dtype", help="float32, bfloat16 or float16; by default what the machine does natively.")
def main(tokens: int, repeats: int, dtype: str | None) -> None:
    loaded = models.load(dtype=dtype, progress=click.echo)
    editor = editor_with(loaded.model, loaded.name, loaded.tokenizer)
    tokenizer, model = loaded.tokenizer, editor.target.model
    planner = Planner(create(DEFAULT), CostCurve.measure(editor.target))
    cases = [
        (name, encode_chat(tokenizer, [{"role": "user", "content": asked}], ""), text)
        for name, asked, text in references()
    ]
    copied = {token for _, prompt, text in cases for token in (*prompt, *encode_text(tokenizer, text))}
    ordinary = sorted(set(range(len(tokenizer))) - set(tokenizer.all_special_ids) - copied)
    random.Random(0).shuffle(ordinary)
    rows = []
    for name, prompt, text in tqdm(cases[:1] + cases, "references"):  # the first of them warms up
        request = make_request(tokenizer, prompt, [text] if text else [], "python")
        runs = []
        for _ in range(repeats):
            # What was written before could be copied.
            written, ordinary = ordinary[:tokens], ordinary[tokens:]
            runs.append(together(model, request, planner, written))
        rows.append({"reference": name, "prompt": len(prompt), "letters": len(text), "runs": runs})
    settings = described(editor.target) | {"tokens": tokens, "repeats": repeats}
    result = {"about": settings, "date": f"{date.today()}", "rows": rows[1:]}
    keep(FILE, result, report(result))
    click.echo(report(result))


def report(result: dict) -> str:
    """As Markdown."""
    lines = [head("expected answer", "prompt", "plain", "specedit", "slower", "drafting")]
    for entry in result["rows"]:
        plain, ours = (sum(run[way]["total"] - run[way]["prefill"] for run in entry["runs"]) for way in WAYS)
        drafting = sum(run["specedit"]["draft"] for run in entry["runs"])
        lines.append(
            row(
                entry["reference"],
                f"{entry['prompt']:,} tokens",
                f"{plain:.1f} s",
                f"{ours:.1f} s",
                f"{ours / plain - 1:+.1%}",
                f"{drafting / plain:.1%}",
            )
        )
    table = "\n".join(lines)
    return f"{INTRODUCTION.format(**result['about'])}\n{table}\n\n{machine(result)}\n"


if __name__ == "__main__":
    main()
