"""The server under load: `python bench/serve.py`; `--soak 600` for ten minutes of clients that come and go.

Edits that the default model never saw in training are sent by so many clients at a time, each with the next
one as soon as it has an answer, once speculatively and once plainly. Every round meets a server that was just
started, so that none profits from another. Then a file is edited twice: of the second prompt only what is
new is scored.
"""

from __future__ import annotations

import asyncio
import json
import os
import platform
import random
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import date
from importlib.metadata import version
from pathlib import Path

import click
import httpx
import numpy as np
import psutil
from tqdm import tqdm

sys.path.insert(0, str(Path(__file__).parents[1]))

from bench.default_model.dataset import Edit
from bench.default_model.evaluate import held_out
from bench.edits import load_edits
from bench.markdown import RESULTS, head, keep, row
from bench.ways import processor

FILE = RESULTS / "serve.json"
CLIENTS = (1, 2, 4, 8, 16)
EDITS = 32  # of each round
MOST = 200  # tokens of an answer
LINES = range(15, 61)  # of the files
KEPT = 256  # MiB of finished answers' caches in the soak, so that they are full soon
SETTLING = 30  # seconds after it
AGAIN = range(90, 301)  # lines of those that are edited twice


@contextmanager
def server(*options: str) -> Iterator[str]:
    """A server of its own for the default model; its address."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [Path(sys.executable).with_name("specedit"), "serve", "--port", str(port), "--dtype", "float32"]
    process = subprocess.Popen([*command, *options], stderr=subprocess.DEVNULL)
    url = f"http://127.0.0.1:{port}"
    try:
        while True:
            try:
                if httpx.get(f"{url}/health", timeout=1).is_success:
                    break
            except httpx.HTTPError:
                if process.poll() is not None:
                    raise click.ClickException("The server did not start: run specedit serve.") from None
                time.sleep(0.2)
        yield url
    finally:
        process.terminate()
        process.wait()


def body(edit: Edit, **fields: object) -> dict:
    asked = {"text": edit.text, "instruction": edit.instruction, "name": edit.name, "max_tokens": MOST}
    return asked | fields


async def load(url: str, edits: list[Edit], clients: int, speculate: bool) -> dict:
    """So many clients share the edits out. Tokens, seconds of the whole, and of each answer."""
    todo, took, tokens = iter(edits), list[float](), 0

    async def client(http: httpx.AsyncClient) -> None:
        nonlocal tokens
        for edit in todo:
            begun = time.perf_counter()
            answer = await http.post("/v1/rewrite", json=body(edit, speculate=speculate))
            took.append(time.perf_counter() - begun)
            tokens += answer.raise_for_status().json()["stats"]["completion_tokens"]

    async with httpx.AsyncClient(base_url=url, timeout=600) as http:
        await http.post("/v1/rewrite", json=body(edits[0], max_tokens=4, speculate=speculate))
        begun = time.perf_counter()
        await asyncio.gather(*(client(http) for _ in range(clients)))
        return {"tokens": tokens, "seconds": time.perf_counter() - begun, "answers": took}


def first_token(url: str, asked: dict) -> float:
    """Seconds to the first piece of an answer."""
    begun, first = time.perf_counter(), None
    with httpx.stream("POST", f"{url}/v1/rewrite", json=asked | {"stream": True}, timeout=600) as stream:
        for line in stream.iter_lines():  # to the end, so that the next answer finds this one finished
            if line.startswith("data:") and first is None:
                first = time.perf_counter() - begun
    if first is not None:
        return first
    raise click.ClickException("The server gave no answer: look at its log.")


def twice() -> list[dict]:
    """Files of about 200 lines, each edited twice: seconds to the first token."""
    found = []
    files = [edit for edit in load_edits() if edit.text.count("\n") in AGAIN]
    for edit in tqdm(files, "again"):
        with server() as url:
            asked = {"text": edit.text, "name": Path(edit.name).name, "max_tokens": 4}
            times = [
                first_token(url, asked | {"instruction": instruction})
                for instruction in (edit.instruction, "Add a comment to the first function.")
            ]
        found.append({"file": edit.name, "lines": edit.text.count("\n"), "seconds": times})
    return found


async def soak(url: str, edits: list[Edit], seconds: float, clients: int = 16) -> dict:
    """Clients that stream, wait, or leave midway, for so long: MiB of the server before, meanwhile (with the
    seconds), and when all have gone."""
    [process] = [
        process for process in psutil.Process().children(recursive=True) if "serve" in process.cmdline()
    ]
    end, rng, memory = time.perf_counter() + seconds, random.Random(0), list[tuple[float, float]]()

    def taken() -> float:
        memory = process.memory_info()
        # Without pages of the model's file, which come and go as the system likes.
        return (memory.rss - memory.shared) / 2**20

    before = taken()

    async def client(http: httpx.AsyncClient) -> None:
        while time.perf_counter() < end:
            asked = body(rng.choice(edits), stream=rng.random() < 0.7)
            patience = rng.choice([0.5, 2.0, 600.0])
            try:
                async with http.stream("POST", "/v1/rewrite", json=asked, timeout=patience) as answer:
                    async for _ in answer.aiter_lines():
                        pass
            except httpx.TimeoutException:
                pass  # it has left

    async def watch() -> None:
        begun = time.perf_counter()
        while time.perf_counter() < end:
            memory.append((time.perf_counter() - begun, taken()))
            await asyncio.sleep(5)

    async with httpx.AsyncClient(base_url=url) as http:
        await asyncio.gather(watch(), *(client(http) for _ in range(clients)))
        await asyncio.sleep(SETTLING)
        health = (await http.get("/health")).json()
    click.echo(f"afterwards: {health}")
    return {"before": before, "meanwhile": memory, "afterwards": taken()}


def table(rounds: dict[str, dict]) -> str:
    """Tokens a second and the latency of an edit, by how many clients there are, as Markdown."""
    lines = [
        head("clients", "tokens/s", "plainly", "gain", "seconds an edit, p50", "p95", "plainly, p50", "p95")
    ]
    for clients in dict.fromkeys(name.split()[0] for name in rounds):
        fast, plain = rounds[f"{clients} speculating"], rounds[f"{clients} plain"]
        rates = [one["tokens"] / one["seconds"] for one in (fast, plain)]
        waits = [f"{np.percentile(one['answers'], q):.1f}" for one in (fast, plain) for q in (50, 95)]
        lines.append(row(clients, *(f"{rate:.0f}" for rate in rates), f"{rates[0] / rates[1]:.2f}×", *waits))
    return "\n".join(lines)


def report(result: dict) -> str:
    parts = []
    if rounds := result.get("rounds"):
        parts += [
            f"{EDITS} edits of files of {LINES[0]} to {LINES[-1]} lines, at most {MOST} tokens each, default "
            f"model in float32, a fresh server for every row and way; one run. {result['about']}",
            table(rounds),
        ]
    if again := [one["seconds"] for one in result.get("again", [])]:
        shares = [second / first for first, second in again]
        parts.append(
            f"A second edit of the same file ({len(again)} files of {AGAIN[0]} to {AGAIN[-1]} lines): the "
            f"first token comes after {np.median(shares):.0%} of the time that it took with the first edit "
            f"(median; worst {max(shares):.0%}; medians {np.median([a for a, _ in again]):.2f} s and "
            f"{np.median([b for _, b in again]):.2f} s)."
        )
    if soaked := result.get("soak"):
        memory = soaked["meanwhile"]
        early = np.median([mib for at, mib in memory if 60 <= at < 180])
        late = np.median([mib for at, mib in memory if at > memory[-1][0] - 120])
        parts.append(
            f"Soak: 16 clients for {memory[-1][0] / 60:.0f} minutes, a third of them leaving after half a "
            f"second and a third after two, `--kept {KEPT}`: the server took {soaked['before']:.0f} MiB "
            f"before, {early:.0f} in the second and third minute, {late:.0f} in the last two (medians), and "
            f"{soaked['afterwards']:.0f} when all had gone. {soaked['about']}"
        )
    return "\n\n".join(parts)


@click.command(help=__doc__)
@click.option("--soak", "soaking", type=float, metavar="SECONDS", help="Only the soak, for so long.")
@click.option("--limit", type=int, metavar="N", help="Only so many edits a round; nothing is kept then.")
@click.option("--clients", "only", multiple=True, type=int, help="Only with so many clients.")
def main(soaking: float | None, limit: int | None, only: tuple[int, ...]) -> None:
    edits = [edit for edit in held_out() if edit.language == "python" and edit.text.count("\n") in LINES]
    chosen = edits[:: len(edits) // EDITS][: limit or EDITS]
    result = json.loads(FILE.read_text()) if FILE.exists() else {"rounds": {}, "again": []}
    versions = ", ".join(f"{name} {version(name)}" for name in ("torch", "transformers", "specedit"))
    machine = f"{processor()}, {os.cpu_count()} cores; python {platform.python_version()}, {versions}"
    about = f"{machine}; {date.today()}."
    if soaking:
        with server("--kept", str(KEPT)) as url:
            result["soak"] = asyncio.run(soak(url, edits, soaking)) | {"about": about}
    else:
        rounds: dict[str, dict] = {}
        for clients in tqdm(only or CLIENTS, "clients"):
            for way in ("speculating", "plain"):
                with server("--kept", "0") as url:
                    asked = load(url, chosen, clients, way == "speculating")
                    rounds[f"{clients} {way}"] = asyncio.run(asked)
            if not limit:  # a run that is stopped keeps what it has measured
                result |= {"about": about, "rounds": rounds, "again": []}
                keep(FILE, result, report(result) + "\n")
        if limit:
            click.echo(table(rounds))
            return
        result["again"] = twice()
    keep(FILE, result, report(result) + "\n")
    click.echo(report(result))


if __name__ == "__main__":
    main()
