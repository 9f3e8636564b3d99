"""Time every way to decode on real edits whose outcome is known: `python bench/replay.py`.

The answers are those of `bench/corpus`: each token is forced, and paid for with a pass of the model, so any
model will do, one with random weights included. The order of the ways is drawn anew for every edit,
since machines drift. Ratios are of two runs of the same edit in the same round; a table gives their medians.
The results are written after every round.
"""

from __future__ import annotations

import ctypes
import gc
import shlex
import sys
from collections.abc import Callable
from datetime import date
from functools import partial
from itertools import groupby
from pathlib import Path
from random import Random
from typing import Any

import click
import torch
from rich.progress import Progress
from transformers import AutoModelForCausalLM, LlamaConfig, PretrainedConfig, Qwen2Config

sys.path.insert(0, str(Path(__file__).parents[1]))

from bench.corpus import FORMS, Pair, load
from bench.count import cases
from bench.markdown import RESULTS, keep
from bench.replay_report import draw, report
from bench.ways import Ways, described, editor_with
from specedit import SpecEditError, models
from specedit.editing.diff import share_of_new_lines
from specedit.proposers import DEFAULT, Request
from specedit.replay import Forced, fewest_passes

SHORTEST = 100  # tokens of an answer
WARM_UP = 24
WAYS = ["plain", "specedit", *DEFAULT, "transformers", "lookup", "lookup32"]


def _llama(**sizes: int) -> Callable[[], PretrainedConfig]:
    return partial(LlamaConfig, **sizes, vocab_size=49152, max_position_embeddings=8192)


def _qwen(
    hidden: int, between: int, layers: int, heads: int, shared: int, **more: Any
) -> Callable[[], PretrainedConfig]:
    return partial(
        Qwen2Config,
        hidden_size=hidden,
        intermediate_size=between,
        num_hidden_layers=layers,
        num_attention_heads=heads,
        num_key_value_heads=shared,
        **more,
    )


# Models to fill with random weights. Those of Llama's kind have the default model's vocabulary, so that it
# can draft for them; the others are Qwen2.5-Coder's, as on the hub.
SHAPES = {
    "360m": _llama(hidden_size=960, intermediate_size=2560, num_hidden_layers=32, num_attention_heads=15),
    "1.7b": _llama(hidden_size=2048, intermediate_size=8192, num_hidden_layers=24, num_attention_heads=32),
    "qwen-1.5b": _qwen(1536, 8960, 28, heads=12, shared=2, vocab_size=151936, tie_word_embeddings=True),
    "qwen-7b": _qwen(3584, 18944, 28, heads=28, shared=4, vocab_size=152064),
    "qwen-32b": _qwen(5120, 27648, 64, heads=40, shared=8, vocab_size=152064),
}


def chosen(tokenizer, per: int, longest: int) -> list[tuple[Pair, str, Request, list[int]]]:
    """Of every language in a fence, and of Python in every other form, the `per` shortest answers.

    Not those under `SHORTEST` tokens, and none that takes more than `longest` with its prompt.
    """
    pairs = load()
    python = [pair for pair in pairs if pair.language == "python"]
    others = [form for form in FORMS if form != "fence"]
    fitting = [
        case
        for case in cases(pairs, tokenizer, ["fence"]) + cases(python, tokenizer, others)
        if len(case[3]) >= SHORTEST and len(case[2].prompt) + len(case[3]) <= longest
    ]

    def place(case) -> tuple[str, str]:
        return case[1], case[0].language

    fitting.sort(key=lambda case: (place(case), len(case[3])))
    return [case for _, group in groupby(fitting, place) for case in list(group)[:per]]


def ways_of(model: str | None, device: str | None, dtype: str | None, shape: str | None) -> Ways:
    """A model: with random weights if a shape is named, and then the default one drafts for it, if it can."""
    loaded = models.load(model, device=device, dtype=dtype, progress=click.echo)
    if not shape:
        return Ways(editor_with(loaded.model, loaded.name, loaded.tokenizer), loaded.model)
    drafter, config = loaded.model, SHAPES[shape]()
    torch.manual_seed(0)
    with torch.device(drafter.device):
        random = AutoModelForCausalLM.from_config(config, dtype=drafter.dtype).eval()
    random.generation_config.eos_token_id = drafter.generation_config.eos_token_id
    drafts = config.vocab_size == drafter.config.vocab_size
    editor = editor_with(random, f"{shape}-random", loaded.tokenizer)
    return Ways(editor, random, drafter if drafts else None)


@click.command(help=__doc__)
@click.option("--model", help="By default the default model.")
@click.option("--shape", type=click.Choice(list(SHAPES)), help="A target of this size with random weights.")
@click.option("--device")
@click.option("--dtype", help="By default what the machine does natively.")
@click.option("--per", default=1, show_default=True, help="Edits of each language and form.")
@click.option("--repeats", default=3, show_default=True)
@click.option("--longest", default=2000, show_default=True, help="Tokens of a prompt and its answer.")
@click.option("--ways", "names", default=",".join(WAYS), show_default=True)
@click.option("--out", type=click.Path(path_type=Path), default=RESULTS, help="Folder of the results.")
def main(
    model: str | None,
    shape: str | None,
    device: str | None,
    dtype: str | None,
    per: int,
    repeats: int,
    longest: int,
    names: str,
    out: Path,
) -> None:
    ways = ways_of(model, device, dtype, shape)
    listed = chosen(ways.tokenizer, per, longest)
    order = names.split(",") + ["assisted"] * ways.assisted
    if not {"plain", "specedit"} <= set(order):
        raise click.UsageError("--ways needs plain and specedit, which all is compared with.")
    about = described(ways.target)
    result = {"about": about, "date": f"{date.today()}", "command": shlex.join(["python", *sys.argv])}
    result["floor"] = ways.floor()
    result["edits"] = [
        {
            "language": pair.language,
            "package": pair.package,
            "path": pair.path,
            "form": form,
            "changed": share_of_new_lines(pair.before, pair.after),
            "prompt_tokens": len(request.prompt),
            "tokens": len(answer),
            "fewest_passes": fewest_passes(request, answer),
            "runs": {way: [] for way in order},
        }
        for pair, form, request, answer in listed
    ]
    file = out / f"replay-{shape + '-' if shape else ''}{about['dtype']}.json"
    # A thread that refreshes the bar would take time from what is measured.
    with Progress(auto_refresh=False) as progress:
        task = progress.add_task("warming up", total=repeats * len(listed) * len(order))
        for way in order:
            ways.run(way, listed[0][2], WARM_UP, Forced(listed[0][3]))
        result["memory"] = peaks(ways, order, listed)
        for turn in range(repeats):
            ways.forget()
            for entry, (pair, form, request, answer) in zip(result["edits"], listed, strict=True):
                ways.forget_texts()  # the same edit may have come in another form
                for way in Random(f"{turn} {pair.path} {form}").sample(order, len(order)):
                    progress.update(task, description=f"{pair.path}: {form}, {way}", refresh=True)
                    tokens, run = ways.run(way, request, len(answer), Forced(answer))
                    if tokens != answer:
                        raise SystemExit(f"{way} did not write the answer that was forced on it.")
                    entry["runs"][way].append(run)
                    progress.update(task, advance=1, refresh=True)
            result["about"]["repeats"] = turn + 1
            keep(file, result, report(result))
            draw(result, file.with_suffix(".png"))
    click.echo(report(result))


def peaks(ways: Ways, order: list[str], listed: list) -> dict[str, int]:
    """The most bytes that each way takes, beside the model, for the largest of the edits."""
    _, _, request, answer = max(listed, key=lambda case: len(case[2].prompt) + len(case[3]))
    runs = {way: partial(ways.run, way, request, len(answer), Forced(answer)) for way in order}
    for run in runs.values():
        run()  # what is kept for good, as compiled kernels are, is no way's own
    found = {}
    for way, run in runs.items():
        ways.target.release()  # what graphs keep is ours
        found[way] = memory(run)
    return found


def memory(run: Callable[[], object]) -> int:
    """The most bytes that are held meanwhile and were not before: of the GPU if there is one.

    What was freed before goes back to the system first, or else nobody sees it taken again.
    """
    if torch.cuda.is_available():
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
        run()
        return torch.cuda.max_memory_allocated() - before
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)
    Path("/proc/self/clear_refs").write_text("5")  # proc(5): resets the peak
    before = _held("VmRSS")
    run()
    return _held("VmHWM") - before


def _held(field: str) -> int:
    line = next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith(field))
    return int(line.split()[1]) * 1024


if __name__ == "__main__":
    try:
        main()
    except SpecEditError as error:
        sys.exit(f"Error: {error}")
