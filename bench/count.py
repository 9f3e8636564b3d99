"""Count what each proposer saves on real edits, without a model: `python bench/count.py`.

Pairs of `bench.corpus`, in every form in which agents answer, are replayed: the answer is known, the
proposers guess it, and a pass costs what a cost curve says. So the figures are the same on every machine.
"""

from __future__ import annotations

import sys
from collections import defaultdict
from collections.abc import Iterable
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import click
from tqdm import tqdm
from transformers import AutoTokenizer, PreTrainedTokenizerBase

sys.path.insert(0, str(Path(__file__).parents[1]))

from bench.corpus import FORMS, Pair, load
from bench.markdown import RESULTS, head, keep, row
from specedit import SpecEditError, default_model
from specedit.decoding.cost import CostCurve, FixedCost
from specedit.decoding.encode import encode_chat, encode_text, make_request
from specedit.decoding.planner import MAX_DRAFT, Planner
from specedit.editing.languages import language_of
from specedit.measure import sample
from specedit.proposers import DEFAULT, Request, create
from specedit.replay import count, fewest_passes

INTRODUCTION = """Tokens a pass, and how many times as fast as plain decoding, on {pairs} of the {all} pairs
of `bench/corpus` in every form, counted with the {curve} cost curve of `bench/count.py`. Each answer is met
without memory of the others, but in one column, where they are a client's answers one after the other. A
perfect copier drafts the longest run of tokens that occurs anywhere before; what is made of other tokens,
as a JSON string of the file is, and a changed name, it cannot copy.
"""
# Seconds for 1, 2, 4, … 256 tokens: SmolLM2-135M on two cores of an AMD EPYC with AVX512-BF16, torch 2.13.0.
CURVES = {
    "float32": (0.040, 0.042, 0.048, 0.062, 0.071, 0.096, 0.149, 0.253, 0.460),
    "bfloat16": (0.027, 0.027, 0.0275, 0.028, 0.035, 0.043, 0.063, 0.107, 0.200),
}
REMEMBERING = "all, remembering"


def default_tokenizer() -> PreTrainedTokenizerBase:
    """The default model's."""
    return AutoTokenizer.from_pretrained(default_model.ensure(click.echo))


def cases(
    pairs: Iterable[Pair], tokenizer, forms: Iterable[str] = FORMS
) -> list[tuple[Pair, str, Request, list[int]]]:
    """Each pair in each of these forms: what the proposers may know, and the token ids of the answer."""

    found = []
    for pair in pairs:
        for name in forms:
            form = FORMS[name]
            messages = [{"role": "user", "content": f"{form.prompt_text(pair)}\n{pair.instruction}"}]
            prompt = encode_chat(tokenizer, messages, "")
            references = [pair.before] if pair.before else []
            request = make_request(tokenizer, prompt, references, language_of(pair.path))
            found.append((pair, name, request, encode_text(tokenizer, form.answer(pair))))
    return found


def seconds_of(scored: Iterable[int], cost: CostCurve) -> float:
    """What passes of so many tokens cost."""
    seconds = cost(MAX_DRAFT + 1)
    return float(sum(seconds[tokens - 1] for tokens in scored))


@click.command()
@click.option("--curve", type=click.Choice(list(CURVES)), default="float32", show_default=True)
@click.option("--forms", "chosen", default=",".join(FORMS), show_default=True, metavar="A,B")
@click.option("--pairs", "wanted", default=66, show_default=True, type=click.IntRange(min=1))
@click.option("--out", type=click.Path(path_type=Path), default=RESULTS, help="Folder of the results.")
def main(curve: str, chosen: str, wanted: int, out: Path) -> None:
    """Count and print a table: tokens a pass, and how many times as fast as plain decoding."""
    tokenizer = default_tokenizer()
    every = load()
    pairs = sample(every, wanted)
    forms = [form for form in FORMS if form in chosen.split(",")]
    if not forms:
        raise click.UsageError(f"--forms names none of {', '.join(FORMS)}.")
    with ProcessPoolExecutor() as pool:
        counted = pool.map(count_form, [(form, pairs, tokenizer, curve) for form in forms])
        rows = [entry for entries in tqdm(counted, "forms", len(forms)) for entry in entries]
    shown = table(rows, CURVES[curve][0])
    introduction = INTRODUCTION.format(curve=curve, pairs=len(pairs), all=len(every))
    keep(out / "count.json", {"curve": curve, "rows": rows}, f"{introduction}\n{shown}\n")
    click.echo(shown)


def count_form(work: tuple[str, list[Pair], PreTrainedTokenizerBase, str]) -> list[dict]:
    """An entry for every pair in one form."""
    form, pairs, tokenizer, curve = work
    cost = FixedCost(CURVES[curve])
    ways = {name: [name] for name in DEFAULT} | {"all": DEFAULT, REMEMBERING: DEFAULT}
    planners = {way: Planner(create(names), cost) for way, names in ways.items()}
    entries = []
    for pair, _, request, answer in cases(pairs, tokenizer, [form]):
        if len(answer) < 2:
            continue
        about = {"language": pair.language, "path": pair.path, "form": form, "tokens": len(answer)}
        counts = {}
        for way, planner in planners.items():
            if way != REMEMBERING:
                planner.forget()
            stats = count(request, answer, planner, cost)
            counts[way] = {"passes": stats.target_calls, "seconds": stats.verify}
        counts["perfect copier"] = {"passes": fewest_passes(request, answer)}
        entries.append(about | {"ways": counts})
    return entries


def table(rows: list[dict], plain: float) -> str:
    """Tokens a pass (and how many times as fast as plain decoding), by form and by language, as Markdown."""
    ways = list(rows[0]["ways"])
    lines = [head("", "tokens", *ways)]
    groups: dict[str, list[dict]] = defaultdict(list)
    for entry in rows:
        for group in ("all", f"form {entry['form']}", entry["language"]):
            groups[group].append(entry)
    for group in sorted(groups, key=lambda name: (name != "all", not name.startswith("form"), name)):
        found = groups[group]
        tokens = sum(entry["tokens"] - 1 for entry in found)
        cells = []
        for way in ways:
            runs = [entry["ways"][way] for entry in found]
            cell = f"{tokens / sum(run['passes'] for run in runs):.1f}"
            if "seconds" in runs[0]:
                cell += f" ({tokens * plain / sum(run['seconds'] for run in runs):.1f}×)"
            cells.append(cell)
        lines.append(row(group, f"{tokens:,}", *cells))
    return "\n".join(lines)


if __name__ == "__main__":
    try:
        main()
    except SpecEditError as error:
        sys.exit(f"Error: {error}")
