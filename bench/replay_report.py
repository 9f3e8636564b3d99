"""The results of `replay.py` for people: Markdown and plots."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from statistics import median

from bench.markdown import head, machine, row
from bench.ways import NAMES

PARTS = ("prefill", "draft", "verify", "coordination")
SIZES = {"up to 5 % of the lines new": 0.05, "up to 25 %": 0.25, "more": 1.0}
POSITIONS = 64


def report(result: dict) -> str:
    """Everything."""
    return (
        "\n\n".join(
            [
                f"# `{result['command']}`",
                summary(result),
                "Times as fast as plain decoding, the prompt included, median of the edits:",
                breakdown(result),
                "Acceptance of drafted tokens:",
                acceptance(result),
            ]
        )
        + "\n"
    )


def summary(result: dict) -> str:
    """A row a way, all edits together."""
    edits = result["edits"]
    columns = ["seconds", "times as fast", "median of edits", "first token", "between tokens p50, p95"]
    what = f"{len(edits)} edits, {result['about']['dtype']}"
    lines = [head(what, *columns, "tokens per pass", "memory")]
    for way in edits[0]["runs"]:
        cells = [
            f"{sum(typical(edit, way) for edit in edits):.1f}",
            f"{whole(edits, way):.2f}×",
            f"{median(ratios(edits, way)):.2f}×",
            f"{1000 * median(run['first'] for run in runs(edits, way)):.0f} ms",
            ", ".join(f"{1000 * median(run['between'][i] for run in runs(edits, way)):.0f}" for i in (0, 1))
            + " ms",
            f"{sum(e['tokens'] for e in edits) / sum(e['runs'][way][0]['passes'] for e in edits):.2f}",
            f"{result['memory'][way] / 1e6:,.0f} MB",
        ]
        lines.append(row(NAMES.get(way, f"specedit, {way} alone"), *cells))
    tokens, fewest = sum(e["tokens"] for e in edits), sum(e["fewest_passes"] + 1 for e in edits)
    lines.append(row("a perfect copier", "", "", "", "", "", f"{tokens / fewest:.2f}", ""))
    ours = list(runs(edits, "specedit"))
    total = sum(run["seconds"] for run in ours)
    split = ", ".join(f"{part} {sum(run[part] for run in ours) / total:.1%}" for part in PARTS)
    return "\n".join([*lines, "", f"Where specedit's time goes: {split}. {_floor(result)}{machine(result)}"])


def _floor(result: dict) -> str:
    if not (floor := result.get("floor")):
        return ""
    size, bandwidth = floor["bytes"], floor["bandwidth"]
    return (
        f"To read the weights once, {size / 1e9:.2f} GB, takes {1000 * size / bandwidth:.1f} ms at the "
        f"{bandwidth / 1e9:,.1f} GB/s at which memory is copied. "
    )


def breakdown(result: dict) -> str:
    """The median ratio of each way by language, form and size of the edit."""
    ways = [way for way in result["edits"][0]["runs"] if way != "plain"]
    lines = [head("", "edits", *(NAMES.get(way, way) for way in ways))]
    for name, edits in groups(result["edits"]):
        lines.append(row(name, len(edits), *(f"{median(ratios(edits, way)):.2f}×" for way in ways)))
    return "\n".join(lines)


def acceptance(result: dict) -> str:
    """By proposer, and by position in the draft."""
    drafted, accepted = Counter[str](), Counter[str]()
    for run in runs(result["edits"], "specedit"):
        drafted.update(run["drafted"])
        accepted.update(run["accepted"])
    lines = [head("proposer", "drafted", "accepted")]
    lines += [row(name, f"{n:,}", f"{accepted[name] / n:.0%}") for name, n in drafted.most_common()]
    at = by_position(result["edits"], "specedit")
    shown = [position for position in (0, 1, 3, 7, 15, 31, 63) if position in at]
    lines += ["", head("position in the draft", *(position + 1 for position in shown))]
    return "\n".join([*lines, row("accepted", *(f"{at[position]:.0%}" for position in shown))])


def draw(result: dict, file: Path) -> None:
    """The same as one picture."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(13, 4.5), layout="constrained")
    left, right = figure.subplots(1, 2, width_ratios=[3, 1])
    ways = [way for way in result["edits"][0]["runs"] if way != "plain"]
    named = list(groups(result["edits"]))
    for number, way in enumerate(ways):
        places = [place + (number - len(ways) / 2) * 0.8 / len(ways) for place in range(len(named))]
        heights = [median(ratios(edits, way)) for _, edits in named]
        left.bar(
            places, heights, width=0.8 / len(ways), label=NAMES.get(way, way).strip("*").replace("`", "")
        )
    left.set_xticks(range(len(named)), [name for name, _ in named], rotation=25, ha="right")
    left.axhline(1, color="grey", linewidth=0.8)
    left.set(title="Times as fast as plain decoding, median of edits")
    figure.legend(*left.get_legend_handles_labels(), loc="outside upper left", ncols=4, fontsize=8)
    for way in ("specedit", "predicted", "ngram"):
        if way in ways:
            at = by_position(result["edits"], way)
            right.plot([p + 1 for p in at if p < POSITIONS], [at[p] for p in at if p < POSITIONS], label=way)
    right.set(title="Acceptance", xlabel="position in the draft", ylim=(0, 1))
    right.legend(fontsize=8)
    for axes in (left, right):
        axes.spines[["top", "right"]].set_visible(False)
    figure.savefig(file, dpi=120)


def runs(edits: Iterable[dict], way: str) -> Iterable[dict]:
    return (run for edit in edits for run in edit["runs"][way])


def typical(edit: dict, way: str) -> float:
    """Seconds; the median of the rounds."""
    return median(run["seconds"] for run in edit["runs"][way])


def ratios(edits: Iterable[dict], way: str) -> list[float]:
    """How many times as fast as plain decoding in the same round; the median of the rounds, for each edit."""
    return [
        median(
            plain["seconds"] / run["seconds"]
            for plain, run in zip(edit["runs"]["plain"], edit["runs"][way], strict=True)
        )
        for edit in edits
    ]


def whole(edits: list[dict], way: str) -> float:
    """How many times as fast all edits are done; the median of the rounds."""
    rounds = range(len(edits[0]["runs"][way]))
    return median(
        sum(edit["runs"]["plain"][i]["seconds"] for edit in edits)
        / sum(edit["runs"][way][i]["seconds"] for edit in edits)
        for i in rounds
    )


def groups(edits: list[dict]) -> Iterable[tuple[str, list[dict]]]:
    """Edits by language (in a fence), form (of Python) and size."""
    fenced = [edit for edit in edits if edit["form"] == "fence"]
    python = [edit for edit in edits if edit["language"] == "python"]
    for language in sorted({edit["language"] for edit in fenced}):
        yield language, [edit for edit in fenced if edit["language"] == language]
    for form in sorted({edit["form"] for edit in python}):
        yield f"form {form}", [edit for edit in python if edit["form"] == form]
    above = -1.0
    for name, limit in SIZES.items():
        if sized := [edit for edit in fenced if above < edit["changed"] <= limit]:
            yield name, sized
        above = limit


def by_position(edits: list[dict], way: str) -> dict[int, float]:
    """The share of drafted tokens that were accepted, by position in the draft."""
    drafted, accepted = Counter[int](), Counter[int]()
    for run in runs(edits, way):
        drafted.update({int(at): n for at, n in run["drafted_at"].items()})
        accepted.update({int(at): n for at, n in run["accepted_at"].items()})
    return {at: accepted[at] / drafted[at] for at in sorted(drafted)}
