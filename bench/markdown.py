"""What the tables of all benchmarks share; run as a script, it puts their results into the README."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

RESULTS = Path(__file__).parent / "results"
README = Path(__file__).parents[1] / "README.md"


def row(*cells: object) -> str:
    """Of a table."""
    return f"| {' | '.join(map(str, cells))} |"


def head(*cells: object) -> str:
    """The first row of a table, in which all but the first column are numbers."""
    return f"{row(*cells)}\n|---|{'---:|' * (len(cells) - 1)}"


def machine(result: dict) -> str:
    """The model, the machine, the versions and the day of a run."""
    about = result["about"]
    versions = [f"{name} {about[name]}" for name in ("python", "torch", "transformers", "specedit")]
    return (
        f"Model {about['model']} on {about['device']}: {about['processor']}, {about['cores']} cores, "
        f"{about['threads']} threads; {', '.join(versions)}; {result['date']}."
    )


def keep(file: Path, result: dict, report: str) -> None:
    """Write a result as JSON and, beside it, as Markdown. A run that is stopped meanwhile harms neither."""
    file.parent.mkdir(parents=True, exist_ok=True)
    for path, text in ((file, json.dumps(result) + "\n"), (file.with_suffix(".md"), report)):
        part = path.with_suffix(".part")
        part.write_text(text, "utf-8")
        part.replace(path)


def insert(file: Path, name: str, text: str) -> None:
    """Put the text between the marks `<!-- name -->` and `<!-- /name -->` of a file."""
    marked = re.compile(f"(?s)(?<=<!-- {name} -->\n).*?(?=<!-- /{name} -->)")
    whole = file.read_text("utf-8")
    if not marked.search(whole):
        raise SystemExit(
            f"{file} lacks <!-- {name} --> and <!-- /{name} -->: put them where the text should be."
        )
    file.write_text(marked.sub(lambda _: f"{text}\n", whole), "utf-8")


def _rank(model: str, dtype: str, **_: object) -> tuple[bool, bool]:
    """Tables of random weights come last, and float32 first."""
    return model.endswith("-random"), dtype != "float32"


def main() -> None:
    from bench import replay_report, rewrite_report, serve
    from bench.peers import run as peers

    for name, report in (("rewrite", rewrite_report), ("replay", replay_report)):
        results = [json.loads(file.read_text("utf-8")) for file in sorted(RESULTS.glob(f"{name}-*.json"))]
        results.sort(key=lambda result: _rank(**result["about"]))
        if results:
            insert(README, f"bench:{name}", "\n\n".join(map(report.summary, results)))
    if serve.FILE.exists():
        insert(README, "bench:serve", serve.report(json.loads(serve.FILE.read_text("utf-8"))))
    if peers.FILE.exists():
        insert(README, "bench:peers", peers.summary(json.loads(peers.FILE.read_text("utf-8"))))


if __name__ == "__main__":
    main()
