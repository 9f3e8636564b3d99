"""Rewrite real files in several ways and compare the seconds to the last token.

Every way gets the same prompt (what `SpecEditor.rewrite` asks, the opening fence included) and the same
budget of tokens; only the end-of-sequence token ends an answer sooner, so that all can be compared with
`generate`. Prefill is timed, loading and calibration are not. The order of the ways turns from edit to
edit, since machines drift. What `specedit` and `nothing` have learnt is kept from edit to edit, as in one
user's process; `wrong` is met anew each time.
"""

from __future__ import annotations

import json
import shlex
import sys
from datetime import date
from pathlib import Path

import click
from rich.progress import Progress

sys.path.insert(0, str(Path(__file__).parents[1]))

from bench.edits import Edit, load_edits
from bench.markdown import RESULTS, keep
from bench.rewrite_report import report
from bench.ways import Ways, described, editor_with
from specedit import Sampling, SpecEditError, models
from specedit.decoding.encode import encode_text, make_request
from specedit.decoding.sampling import Sampler
from specedit.decoding.text import TextStream
from specedit.editing import build_prompt
from specedit.editing.languages import language_of
from specedit.types import agreeing

SAMPLED = ("plain", "specedit")
WAYS = ("plain", "specedit", "nothing", "wrong", "transformers", "lookup")
WARM_UP = 24  # tokens


class Bench:
    """One model, and the ways to decode with it."""

    def __init__(self, dtype: str | None, most: int | None) -> None:
        self._most = most
        loaded = models.load(dtype=dtype, progress=click.echo)
        self.editor = editor_with(loaded.model, loaded.name, loaded.tokenizer)
        self.target, self.tokenizer = self.editor.target, self.editor.tokenizer
        self.ways = Ways(self.editor, loaded.model)

    def prompt(self, edit: Edit) -> tuple[list[int], int]:
        """The prompt's token ids, and how many tokens the answer may have."""
        asked = build_prompt(edit.text, edit.instruction, Path(edit.name).name)
        one = self.editor.generate(asked.messages, prefill=asked.prefill, max_new_tokens=1, speculate=False)
        budget = int(len(self._encode(edit.text)) * 1.1) + 64
        return one.prompt, min(budget, self._most or budget, self.target.max_length - len(one.prompt))

    def run(
        self, way: str, edit: Edit, prompt: list[int], limit: int, sampling: Sampling
    ) -> tuple[list[int], dict]:
        """The tokens of the answer, and what they took."""
        answer = TextStream(self.tokenizer, self.target.eos_token_ids, after=prompt)

        def ends(token: int) -> bool:
            done = answer.push(token)
            answer.take()  # as an editor does that shows the answer
            return done

        request = make_request(
            self.tokenizer, prompt, [edit.text], language_of(edit.name), self.target.eos_token_ids
        )
        return self.ways.run(way, request, limit, Sampler(sampling, prompt), ends)

    def _encode(self, text: str) -> list[int]:
        return encode_text(self.tokenizer, text)


@click.command(help=__doc__)
@click.option("--dtype", help="float32, bfloat16 or float16; by default what the machine does natively.")
@click.option("--limit", type=int, metavar="N", help="Only the first N edits.")
@click.option(
    "--edits", "chosen", default="", metavar="A,B", help="Only edits whose path contains one of these."
)
@click.option("--max-tokens", type=int, metavar="K", help="Cut every answer at K tokens.")
@click.option("--sampled", is_flag=True, help="Sample instead (seed: the edit's number), against plain.")
@click.option("--resume", is_flag=True, help="Go on with a run that was stopped.")
@click.option("--out", type=click.Path(path_type=Path), default=RESULTS, help="Folder of the results.")
def main(
    dtype: str | None,
    limit: int | None,
    chosen: str,
    max_tokens: int | None,
    sampled: bool,
    resume: bool,
    out: Path,
) -> None:
    parts = chosen.split(",")
    listed = [(seed, e) for seed, e in enumerate(load_edits()) if any(part in e.name for part in parts)]
    if not listed:
        raise click.UsageError(f"edits.toml has no edit of {chosen}.")
    bench = Bench(dtype, max_tokens)
    ways = SAMPLED if sampled else WAYS
    about = described(bench.target) | {"max_tokens": max_tokens}
    file = out / f"{'sampled' if sampled else 'rewrite'}-{about['dtype']}.json"
    command = shlex.join(["python", *sys.argv])
    result = {"about": about, "date": f"{date.today()}", "command": command, "edits": {}}
    if resume and file.exists():
        result = json.loads(file.read_text("utf-8"))
        if result["about"] != about:
            raise click.UsageError(f"{file} is of another machine or other settings: leave out --resume.")
    todo = [(seed, edit) for seed, edit in listed[:limit] if edit.name not in result["edits"]]

    # A thread that refreshes the bar would take time from what is measured.
    with Progress(auto_refresh=False) as progress:
        task = progress.add_task("warming up", total=len(todo) * len(ways))
        for way in ways if todo else ():
            edit = todo[0][1]
            bench.run(way, edit, bench.prompt(edit)[0], WARM_UP, Sampling())
        bench.ways.forget()
        for seed, edit in todo:
            prompt, budget = bench.prompt(edit)
            sampling = Sampling(temperature=0.8, top_p=0.95, seed=seed) if sampled else Sampling()
            answers, runs = {}, {}
            turn = seed % len(ways)
            order = ways[turn:] + ways[:turn]
            for way in order:
                progress.update(task, description=f"{edit.name}: {way}", refresh=True)
                answers[way], runs[way] = bench.run(way, edit, prompt, budget, sampling)
                progress.update(task, advance=1, refresh=True)
            true = answers["plain" if sampled else "transformers"]
            for way in ways:
                same = None if answers[way] == true else agreeing(answers[way], true)
                runs[way] |= {"tokens": len(answers[way]), "parts_at": same}
            result["edits"][edit.name] = {
                "lines": edit.text.count("\n"),
                "prompt_tokens": len(prompt),
                "max_tokens": budget,
                "order": order,
                "runs": {way: runs[way] for way in ways},
            }
            keep(file, result, report(result))
            took = ", ".join(f"{way} {runs[way]['seconds']:.1f}" for way in ways)
            progress.console.print(f"{edit.name}: {took}", highlight=False, soft_wrap=True)
    if result["edits"]:
        click.echo(report(result))


if __name__ == "__main__":
    try:
        main()
    except SpecEditError as error:
        sys.exit(f"Error: {error}")
