"""The results of `rewrite.py` as Markdown."""

from __future__ import annotations

from collections import Counter
from statistics import median

from bench.markdown import head, machine, row
from bench.ways import NAMES


def summary(result: dict) -> str:
    """What each way took, all edits together."""
    edits = [edit["runs"] for edit in result["edits"].values()]
    about = result["about"]
    kind = "sampled, " if "transformers" not in edits[0] else ""
    reference = "plain" if kind else "`generate`"
    what = f"{len(edits)} edit{'s' * (len(edits) > 1)}, {kind}{about['dtype']}"
    columns = ["seconds", "of plain", "median of edits", "tokens", "tokens per pass", f"same as {reference}"]
    lines = [head(what, *columns)]
    for way in edits[0]:
        runs = [edit[way] for edit in edits]
        seconds, tokens = sum(run["seconds"] for run in runs), sum(run["tokens"] for run in runs)
        share = seconds / sum(edit["plain"]["seconds"] for edit in edits)
        middle = median(edit[way]["seconds"] / edit["plain"]["seconds"] for edit in edits)
        pace = tokens / sum(run["passes"] for run in runs)
        same = f"{sum(run['parts_at'] is None for run in runs)} of {len(runs)}"
        figures = [f"{seconds:.1f}", f"{share:.1%}", f"{middle:.1%}", f"{tokens:,}", f"{pace:.2f}", same]
        lines.append(row(NAMES[way], *figures))

    ours = [edit["specedit"] for edit in edits]
    overhead = sum(run["draft"] + run["coordination"] for run in ours) / sum(run["seconds"] for run in ours)
    drafted: Counter[str] = Counter()
    accepted: Counter[str] = Counter()
    for run in ours:
        drafted.update(run["drafted"])
        accepted.update(run["accepted"])
    shares = [f"{name} {accepted[name]:,} of {drafted[name]:,}" for name in sorted(drafted)]
    cut = f" Answers were cut at {about['max_tokens']} tokens." if about["max_tokens"] else ""
    lines += [
        "",
        f"Drafting and coordination took {overhead:.1%} of specedit's time. Drafted tokens that were right: "
        f"{', '.join(shares) or 'none were drafted'}.{cut}",
        machine(result),
    ]
    return "\n".join(lines)


def report(result: dict) -> str:
    """The summary, then every edit."""
    ways = list(next(iter(result["edits"].values()))["runs"])
    lines = [f"# `{result['command']}`", "", summary(result), "", "Seconds to the last token, by edit:", ""]
    lines.append(row("edit", "lines", "tokens", *ways, "specedit of plain", "tokens per pass", "differs at"))
    lines.append("|---|" + "---:|" * (len(ways) + 4) + "---|")
    for name, edit in result["edits"].items():
        runs = edit["runs"]
        ours, plain = runs["specedit"], runs["plain"]
        parts = [f"{way} {run['parts_at']}" for way, run in runs.items() if run["parts_at"] is not None]
        figures = [f"{run['seconds']:.2f}" for run in runs.values()]
        figures += [f"{ours['seconds'] / plain['seconds']:.1%}", f"{ours['tokens'] / ours['passes']:.2f}"]
        lines.append(row(name, edit["lines"], plain["tokens"], *figures, ", ".join(parts)))
    return "\n".join(lines) + "\n"
