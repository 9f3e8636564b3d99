"""specedit beside its peers: `python bench/peers/run.py`.

Drafters replay the edits of `bench/corpus`, and passes are counted under one cost curve. Engines write the
default model's own answers greedily, each edit by all in turn: all are loaded, one of them works. So they
meet the same machine, however it drifts. `peers.toml` says how each peer is installed, into an environment of
its own in specedit's cache, and which are left out. What does not install or run here is named as absent.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from datetime import date
from functools import partial
from hashlib import sha256
from pathlib import Path
from shutil import rmtree
from tempfile import TemporaryFile
from typing import Any

import click
import tomllib
from tqdm import tqdm

sys.path.insert(0, str(Path(__file__).parents[2]))

from bench.corpus import load
from bench.corpus.python_files import python_files, renames
from bench.count import CURVES, cases, default_tokenizer, seconds_of, table
from bench.edits import Edit, load_edits
from bench.markdown import RESULTS, head, keep, machine, row
from bench.rewrite import Bench
from bench.ways import described
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
KNOWING = ("specedit", "if it knew the answer")
Answering = Callable[[Edit, list[int], int], tuple[list[int], float]]


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


class Peer:
    """A peer's script, running: it prints a line of JSON for each line of its input.

    Raises:
        Absent: it does not install.
    """

    def __init__(self, peer: list[str], environments: dict, *arguments: str) -> None:
        name, script, *given = peer
        interpreter, variables = python(name, environments[name])
        self._said = TemporaryFile("w+", encoding="utf-8")  # noqa: SIM115 (open as long as it runs)
        self._running = subprocess.Popen(
            [interpreter, HERE / script, *given, *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._said,
            text=True,
            env=variables,
        )

    def ask(self, case: dict) -> Any:
        """What it prints for this case.

        Raises:
            Absent: it has failed.
        """
        assert self._running.stdin
        assert self._running.stdout
        with suppress(BrokenPipeError):
            self._running.stdin.write(json.dumps(case) + "\n")
            self._running.stdin.flush()
        for line in self._running.stdout:
            if line.startswith(("[", "{")):
                return json.loads(line)
        self._said.seek(0)
        raise Absent((self._said.read().strip().splitlines() or ["it ended early"])[-1])

    def end(self) -> None:
        self._running.kill()
        self._running.communicate()


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
        try:
            peer = Peer(drafter["run"], listed["environments"])
            answers = [peer.ask(line) for line in tqdm(lines, drafter["name"])]
            peer.end()
        except Absent as error:
            absent[drafter["name"]] = str(error)
            continue
        for entry, scored in zip(found, answers, strict=True):
            way = {"passes": len(scored), "seconds": seconds_of(scored, cost)}
            entry["ways"][drafter["name"]] = way
    return found, absent


def engines(
    listed: dict, dtype: str, limit: int, most: int | None
) -> tuple[list[dict], dict[str, str], dict]:
    """For every edit what each engine took and wrote, who is absent, and the machine.

    Args:
        most: the most tokens of an answer; None for whole ones, which are not decoded plainly, too.
    """
    bench = Bench(dtype, most)
    asked = [(edit, *bench.prompt(edit)) for edit in load_edits()[:limit]]
    answering: dict[tuple[str, str], Answering] = {
        (engine, name): partial(_answer_here, bench, way)
        for engine, ways in HERE_TOO.items()
        for name, way in ways.items()
        if most or name != "plain"
    }
    answering[KNOWING] = partial(_answer_here, bench, "knowing")
    for answer in answering.values():
        answer(*asked[0])  # warms up
    bench.ways.forget()
    folder = str(default_model.ensure(click.echo))
    peers, absent = [], {}
    for engine in listed["engines"]:
        for way, settings in engine["ways"].items():
            if not most and way == "plain":
                continue
            name = f"{engine['name']}, {way}, {dtype}"
            click.echo(f"starting {name}")
            try:
                peer = Peer(engine["run"], listed["environments"], folder, dtype, json.dumps(settings))
                peers.append(peer)
                _answer_there(peer, *asked[0])  # the first one compiles
                answering[engine["name"], way] = partial(_answer_there, peer)
            except Absent as error:
                absent[name] = str(error)
    rounds = []
    for turn, (edit, prompt, budget) in enumerate(tqdm(asked, f"engines, {dtype}")):
        order = [who for who in answering if who != KNOWING]
        first = turn % len(order)
        took = {}
        for who in (*order[first:], *order[:first], KNOWING):
            try:
                tokens, seconds = answering[who](edit, prompt, budget)
            except Absent as error:
                absent[f"{', '.join(who)}, {dtype}"] = str(error)
                del answering[who]
                continue
            bench.ways.knowing.answer = tokens  # all write the same, but for what rounding does
            digest = sha256(json.dumps(tokens).encode()).hexdigest()[:16]
            took[who] = {"seconds": seconds, "digest": digest}
        rounds.append((edit.name, took))
    found: list[dict] = []
    for name, took in rounds:
        ways: dict = {}
        for engine, way in answering:
            ways.setdefault(engine, {})[way] = took[engine, way]
        found.append({"name": name, "engines": ways})
    for peer in peers:
        peer.end()
    return found, absent, described(bench.target)


def _answer_here(
    bench: Bench, way: str, edit: Edit, prompt: list[int], budget: int
) -> tuple[list[int], float]:
    tokens, run = bench.run(way, edit, prompt, budget, Sampling())
    return tokens, run["seconds"]


def _answer_there(peer: Peer, edit: Edit, prompt: list[int], budget: int) -> tuple[list[int], float]:
    said = peer.ask({"prompt": prompt, "max_tokens": budget})
    return said["tokens"], said["seconds"]


def engines_table(found: list[dict]) -> str:
    """Seconds, times as fast as the same engine decodes plainly, and where the tokens are the first row's."""
    columns = ["seconds", "times as fast as its plain decoding", "same tokens as the first row"]
    plainly = any("plain" in ways for ways in found[0]["engines"].values())
    lines = [head("engine", *columns if plainly else (columns[0], columns[2]))]
    first = None
    for engine in dict.fromkeys(name for entry in found for name in entry["engines"]):
        ways = [entry["engines"][engine] for entry in found]
        for way in ways[0]:
            took = sum(entry[way]["seconds"] for entry in ways)
            digests = [entry[way]["digest"] for entry in ways]
            first = first or digests
            alike = sum(a == b for a, b in zip(digests, first, strict=True))
            cells = [f"{took:.1f}", f"{alike} of {len(found)}"]
            if plainly:
                plain = sum(entry["plain"]["seconds"] for entry in ways) if "plain" in ways[0] else None
                cells.insert(1, f"{plain / took:.2f}×" if plain else "–")
            lines.append(row(f"{engine}, {way}", *cells))
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
@click.option("--whole", is_flag=True, help="Cut none, and leave out plain decoding, which would take hours.")
@click.option("--engines", "only", is_flag=True, help="Only these: what drafters were counted to need stays.")
@click.option("--out", type=click.Path(path_type=Path), default=RESULTS, help="Folder of the results.")
def main(
    pairs: int,
    edits: int,
    dtypes: tuple[str, ...],
    max_tokens: int,
    whole: bool,
    only: bool,
    out: Path,
) -> None:
    listed = tomllib.loads((HERE / "peers.toml").read_text("utf-8"))
    if only:
        result = json.loads((out / FILE.name).read_text("utf-8"))
    else:
        replayed, gone = drafters(listed, pairs)
        result = {"drafters": replayed, "absent": gone, "engines": {}}
    native = str(models.default_dtype(models.default_device())).removeprefix("torch.")
    for dtype in dtypes or dict.fromkeys(["float32", native]):
        most = None if whole else max_tokens
        written, gone, about = engines(listed, dtype, edits, most)
        run = {"edits": written, "max_tokens": most, "about": about, "date": f"{date.today()}"}
        result["engines"][f"{dtype}, whole" if whole else dtype] = run
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
    written = []
    for run in result["engines"].values():
        cut = f"up to {run['max_tokens']} tokens each" if run["max_tokens"] else "whole files"
        about = f"{len(run['edits'])} edits written by the default model in {run['about']['dtype']}, {cut}:"
        written += [about, engines_table(run["edits"]), machine(run)]
    return "\n\n".join([*written, "`bench/peers/peers.toml` has the peers' versions and settings."])


if __name__ == "__main__":
    try:
        main()
    except SpecEditError as error:
        sys.exit(f"Error: {error}")
