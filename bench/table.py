"""Figures of `rewrite.py` as Markdown; run as a script, it puts them into the README, between the markers."""

from __future__ import annotations

import json
import re
from collections import Counter
from pathlib import Path
from statistics import median

RESULTS = Path(__file__).parent / "results"
README = Path(__file__).parents[1] / "README.md"
BEGIN, END = "<!-- bench:rewrite -->", "<!-- /bench:rewrite -->"
WAYS = {
    "plain": "plain decoding",
    "specedit": "**specedit**",
    "nothing": "specedit, a proposer that finds nothing",
    "wrong": "specedit, a proposer that is always wrong",
    "transformers": "transformers `generate`",
    "lookup": "transformers `prompt_lookup_num_tokens=10`",
}


def summary(result: dict) -> str:
    """What each way took, all edits together."""
    edits = [edit["runs"] for edit in result["edits"].values()]
    about = result["about"]
    kind = "sampled, " if "transformers" not in edits[0] else ""
    reference = "plain" if kind else "`generate`"
    head = [
        f"{len(edits)} edit{'s' * (len(edits) > 1)}, {kind}{about['dtype']}",
        "seconds",
        "of plain",
        "median of edits",
    ]
    lines = [_row(*head, "tokens", "tokens per pass", f"same as {reference}"), "|---|" + "---:|" * 6]
    for way in edits[0]:
        runs = [edit[way] for edit in edits]
        seconds, tokens = sum(run["seconds"] for run in runs), sum(run["tokens"] for run in runs)
        share = seconds / sum(edit["plain"]["seconds"] for edit in edits)
        middle = median(edit[way]["seconds"] / edit["plain"]["seconds"] for edit in edits)
        pace = tokens / sum(run["passes"] for run in runs)
        same = f"{sum(run['parts_at'] is None for run in runs)} of {len(runs)}"
        figures = [f"{seconds:.1f}", f"{share:.1%}", f"{middle:.1%}", f"{tokens:,}", f"{pace:.2f}", same]
        lines.append(_row(WAYS[way], *figures))

    ours = [edit["specedit"] for edit in edits]
    overhead = sum(run["draft"] + run["coordination"] for run in ours) / sum(run["seconds"] for run in ours)
    drafted: Counter[str] = Counter()
    accepted: Counter[str] = Counter()
    for run in ours:
        drafted.update(run["drafted"])
        accepted.update(run["accepted"])
    shares = [f"{name} {accepted[name]:,} of {drafted[name]:,}" for name in sorted(drafted)]
    cut = f" Answers were cut at {about['max_tokens']} tokens." if about["max_tokens"] else ""
    versions = [f"{name} {about[name]}" for name in ("python", "torch", "transformers", "specedit")]
    lines += [
        "",
        f"Drafting and coordination took {overhead:.1%} of specedit's time. Drafted tokens that were right: "
        f"{', '.join(shares) or 'none were drafted'}.{cut}",
        f"Model {about['model']} on {about['device']}: {about['processor']}, {about['cores']} cores, "
        f"{about['threads']} threads; {', '.join(versions)}; {result['date']}.",
    ]
    return "\n".join(lines)


def report(result: dict) -> str:
    """The summary, then every edit."""
    ways = list(next(iter(result["edits"].values()))["runs"])
    lines = [f"# `{result['command']}`", "", summary(result), "", "Seconds to the last token, by edit:", ""]
    lines.append(_row("edit", "lines", "tokens", *ways, "specedit of plain", "tokens per pass", "differs at"))
    lines.append("|---|" + "---:|" * (len(ways) + 4) + "---|")
    for name, edit in result["edits"].items():
        runs = edit["runs"]
        ours, plain = runs["specedit"], runs["plain"]
        parts = [f"{way} {run['parts_at']}" for way, run in runs.items() if run["parts_at"] is not None]
        figures = [f"{run['seconds']:.2f}" for run in runs.values()]
        figures += [f"{ours['seconds'] / plain['seconds']:.1%}", f"{ours['tokens'] / ours['passes']:.2f}"]
        lines.append(_row(name, edit["lines"], plain["tokens"], *figures, ", ".join(parts)))
    return "\n".join(lines) + "\n"


def _row(*cells: object) -> str:
    return f"| {' | '.join(map(str, cells))} |"


def main() -> None:
    results = [json.loads(file.read_text("utf-8")) for file in sorted(RESULTS.glob("rewrite-*.json"))]
    if not results:
        raise SystemExit(f"{RESULTS} holds no rewrite-*.json: run bench/rewrite.py first.")
    results.sort(key=lambda result: result["about"]["dtype"] != "float32")
    between = "\n\n".join(map(summary, results))
    text = README.read_text("utf-8")
    marked = re.compile(f"{re.escape(BEGIN)}.*?{re.escape(END)}", re.DOTALL)
    if not marked.search(text):
        raise SystemExit(f"{README} lacks {BEGIN} and {END}: put them where the table should stand.")
    README.write_text(marked.sub(lambda _: f"{BEGIN}\n{between}\n{END}", text), "utf-8")


if __name__ == "__main__":
    main()
