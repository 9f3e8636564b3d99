"""specedit beside its peers: `python bench/peers/run.py`.

Drafters replay the edits of `bench/corpus`, and passes are counted under one cost curve. Engines write the
default model's own answers greedily, timed one after the other on this machine. `peers.toml` says
how each peer is installed, into an environment of its own in specedit's cache, and which are left out. What
does not install or run here is named as absent.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from datetime import date
from hashlib import sha256
from pathlib import Path
from shutil import rmtree

import click
import tomllib
from tqdm import tqdm

sys.path.insert(0, str(Path(__file__).parents[2]))

from bench.corpus import load
from bench.corpus.python_files import python_files, renames
from bench.count import CURVES, cases, default_tokenizer, seconds_of, table
from bench.edits import load_edits
from bench.markdown import RESULTS, head, keep, machine, row
from bench.rewrite import Bench
from specedit import Sampling, SpecEditError, default_model, models
from specedit.decoding.cost import FixedCost
from specedit.decoding.planner import Planner
from specedit.measure import sample
from specedit.paths import cache_folder
from specedit.proposers import DEFAULT, create
from specedit.replay import count, fewest_passes

HERE = Path(__file__).parent
FILE = RESULTS / "peers.json"
CURVE = "float32"
# What runs in this process: the ways of `bench/ways.py`.
HERE_TOO = {
    "specedit": {"plain": "plain", "**specedit**": "specedit"},
    "transformers": {"plain": "transformers", "look-up, 10 tokens": "lookup"},
}


class Absent(Exception):
    """A peer that does not install or run here; says why."""


def python(name: str, environment: dict) -> tuple[str, dict[str, str]]:
    """The interpreter of a peer's environment, installed if need be, and its variables.

    Raises:
        Absent: it does not install.
    """
    recipe = sha256(json.dumps(environment, sort_keys=True).encode()).hexdigest()[:8]
    folder = cache_folder() / "peers" / f"{name}-{recipe}"
    binaries = folder / "bin"
    if not (folder / "ready").exists():
        rmtree(folder, ignore_errors=True)
        _run([sys.executable, "-m", "venv", folder])
        pip = [binaries / "python", "-m", "pip", "--disable-pip-version-check"]
        click.echo(f"installing {name}")
        _run([*pip, "install", "--quiet", "--upgrade", "pip"])
        for packages in environment["install"]:
            named = (package.format(root=HERE.parents[1]) for package in packages)
            _run([*pip, "install", "--quiet", *named])
        if environment.get("remove"):
            _run([*pip, "uninstall", "--quiet", "--yes", *environment["remove"]])
        (folder / "ready").touch()
    variables = dict(os.environ) | environment.get("set", {})
    if library := environment.get("preload"):
        found = next(folder.rglob(library), None)
        variables |= {"LD_PRELOAD": str(found)} if found else {}
    return str(binaries / "python"), variables


def _run(command: Sequence[object], **options) -> str:
    done = subprocess.run([str(part) for part in command], capture_output=True, text=True, **options)
    if done.returncode:
        raise Absent((done.stderr.strip().splitlines() or ["it failed"])[-1])
    return done.stdout


def ask(peer: list[str], environments: dict, lines: list[dict], *arguments: str) -> list:
    """What a peer's script prints for each line of its input.

    Raises:
        Absent: it does not install, or fails.
    """
    name, script, *given = peer
    interpreter, variables = python(name, environments[name])
    entered = "".join(json.dumps(line) + "\n" for line in lines)
    command = [interpreter, HERE / script, *given, *arguments]
    said = _run(command, input=entered, env=variables).splitlines()
    printed = [line for line in said if line.startswith(("[", "{"))]
    if len(printed) != len(lines):
        raise Absent(f"{script} printed {len(printed)} results for {len(lines)} cases")
    return [json.loads(line) for line in printed]


def drafters(listed: dict, limit: int) -> tuple[list[dict], dict[str, str]]:
    """For every case how many passes each drafter needs and what they cost, and who is absent."""
    tokenizer = default_tokenizer()
    pairs = load()
    chosen = cases(sample(pairs, limit), tokenizer)
    renamed = renames(python_files(tokenizer))
    renamed = cases(sample(renamed, limit), tokenizer, ["fence"])
    chosen += [(pair, "a name changed throughout", *case) for pair, _, *case in renamed]
    chosen = [case for case in chosen if len(case[3]) > 1]
    cost = FixedCost(CURVES[CURVE])
    planner = Planner(create(DEFAULT), cost)
    found = []
    for pair, form, request, answer in tqdm(chosen, "specedit"):
        planner.forget()  # as peers do
        stats = count(request, answer, planner, cost)
        ways = {
            "**specedit**": {"passes": stats.target_calls, "seconds": stats.verify},
            "a perfect copier": {"passes": fewest_passes(request, answer)},
        }
        found.append({"language": pair.language, "form": form, "tokens": len(answer), "ways": ways})
    lines = [{"prompt": list(request.prompt), "answer": answer} for _, _, request, answer in chosen]
    absent = {}
    for drafter in listed["drafters"]:
        click.echo(drafter["name"])
        try:
            answers = ask(drafter["run"], listed["environments"], lines)
        except Absent as error:
            absent[drafter["name"]] = str(error)
            continue
        for entry, scored in zip(found, answers, strict=True):
            way = {"passes": len(scored), "seconds": seconds_of(scored, cost)}
            entry["ways"][drafter["name"]] = way
    return found, absent


def engines(listed: dict, dtype: str, limit: int, most: int) -> tuple[list[dict], dict[str, str], dict]:
    """For every edit what each engine took and wrote, who is absent, and the machine."""
    bench = Bench(dtype, most)
    edits = load_edits()[:limit]
    asked = [(edit, *bench.prompt(edit)) for edit in edits]
    found: list[dict] = []
    for edit, prompt, budget in tqdm(asked, f"specedit and transformers, {dtype}"):
        entry: dict = {}
        for engine, ways in HERE_TOO.items():
            for name, way in ways.items():
                tokens, run = bench.run(way, edit, prompt, budget, Sampling())
                entry.setdefault(engine, {})[name] = taken(tokens, run["seconds"])
        found.append({"name": edit.name, "engines": entry})
    absent = {}
    folder = str(default_model.ensure(click.echo))
    lines = [{"prompt": prompt, "max_tokens": budget} for _, prompt, budget in asked]
    for engine in listed["engines"]:
        for way, settings in engine["ways"].items():
            name = f"{engine['name']}, {way}, {dtype}"
            click.echo(name)
            try:
                answers = ask(
                    engine["run"], listed["environments"], lines, folder, dtype, json.dumps(settings)
                )
            except Absent as error:
                absent[name] = str(error)
                continue
            for entry, answer in zip(found, answers, strict=True):
                entry["engines"].setdefault(engine["name"], {})[way] = taken(**answer)
    return found, absent, bench.ways.about()


def taken(tokens: list[int], seconds: float) -> dict:
    """What is kept of an answer: how long it took, and by what another is known to be the same."""
    return {"seconds": seconds, "digest": sha256(json.dumps(tokens).encode()).hexdigest()[:16]}


def engines_table(found: list[dict]) -> str:
    """Seconds, times as fast as the same engine decodes plainly, and whether the tokens are specedit's."""
    lines = [
        head(
            "engine", "seconds", "times as fast as its plain decoding", "tokens as specedit's plain decoding"
        )
    ]
    for engine in dict.fromkeys(name for entry in found for name in entry["engines"]):
        ways = [entry["engines"][engine] for entry in found]
        for way in ways[0]:
            took = sum(entry[way]["seconds"] for entry in ways)
            plain = sum(entry["plain"]["seconds"] for entry in ways) if "plain" in ways[0] else None
            alike = sum(
                entry["engines"]["specedit"]["plain"]["digest"] == entry["engines"][engine][way]["digest"]
                for entry in found
            )
            lines.append(
                row(
                    f"{engine}, {way}",
                    f"{took:.1f}",
                    f"{plain / took:.2f}×" if plain else "–",
                    f"{alike} of {len(found)}",
                )
            )
    return "\n".join(lines)


@click.command(help=__doc__)
@click.option(
    "--pairs",
    default=44,
    show_default=True,
    type=click.IntRange(min=1),
    help="How many pairs drafters replay.",
)
@click.option("--edits", default=20, show_default=True, help="How many edits engines write.")
@click.option(
    "--dtype",
    "dtypes",
    multiple=True,
    help="By default float32, and bfloat16 where the machine does it natively.",
)
@click.option("--max-tokens", default=200, show_default=True, help="Cut every written answer here.")
@click.option("--engines", "only", is_flag=True, help="Only these: what drafters were counted to need stays.")
@click.option("--out", type=click.Path(path_type=Path), default=RESULTS, help="Folder of the results.")
def main(pairs: int, edits: int, dtypes: tuple[str, ...], max_tokens: int, only: bool, out: Path) -> None:
    listed = tomllib.loads((HERE / "peers.toml").read_text("utf-8"))
    if only:
        result = json.loads((out / FILE.name).read_text("utf-8"))
    else:
        replayed, gone = drafters(listed, pairs)
        result = {"drafters": replayed, "absent": listed["absent"] | gone, "engines": {}}
    native = str(models.default_dtype(models.default_device())).removeprefix("torch.")
    for dtype in dtypes or dict.fromkeys(["float32", native]):
        written, gone, about = engines(listed, dtype, edits, max_tokens)
        run = {"edits": written, "max_tokens": max_tokens, "about": about, "date": f"{date.today()}"}
        result["engines"][dtype] = run
        asked = {
            f"{engine['name']}, {way}, {dtype}" for engine in listed["engines"] for way in engine["ways"]
        }
        result["absent"] = {peer: why for peer, why in result["absent"].items() if peer not in asked} | gone
        keep(out / FILE.name, result, report(result))
    click.echo(report(result))


def report(result: dict) -> str:
    """Everything as Markdown."""
    absent = "\n".join(f"- {name}: {why}" for name, why in result["absent"].items())
    parts = [
        "# specedit beside its peers",
        f"Tokens a pass (and times as fast as plain decoding under the {CURVE} cost curve of "
        f"`bench/count.py`), on some pairs of `bench/corpus`:",
        table(result["drafters"], CURVES[CURVE][0]),
        summary(result),
        f"Absent:\n\n{absent}",
    ]
    return "\n\n".join(parts) + "\n"


def summary(result: dict) -> str:
    """The engines' tables, each with its machine."""
    written = [
        f"{len(run['edits'])} edits written by the default model in {dtype}, up to {run['max_tokens']} "
        f"tokens each:\n\n{engines_table(run['edits'])}\n\n{machine(run)}"
        for dtype, run in result["engines"].items()
    ]
    return "\n\n".join([*written, "`bench/peers/peers.toml` has the peers' versions and settings."])


if __name__ == "__main__":
    try:
        main()
    except SpecEditError as error:
        sys.exit(f"Error: {error}")
