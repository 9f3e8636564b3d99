"""A report of `specedit measure` as one HTML page with plots, that needs nothing else to be looked at."""

from __future__ import annotations

from html import escape
from io import StringIO
from typing import TYPE_CHECKING

from specedit.measure import Report
from specedit.terminal import LINE_CONTROLS
from specedit.types import SpecEditError

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_POSITIONS = 64  # of a draft, as far as they are drawn
_PAGE = """<!doctype html>
<html lang="en">
<meta charset="utf-8">
<meta name="viewport" content="width=device-width">
<title>specedit measure: {title}</title>
<style>
  body {{ font: 1rem/1.5 system-ui, sans-serif; max-width: 62rem; margin: 2rem auto; padding: 0 1rem; }}
  table {{ border-collapse: collapse; }}
  th, td {{ text-align: left; vertical-align: top; padding: 0.2rem 1rem 0.2rem 0; }}
  td + td + td, th + th + th {{ text-align: right; }}
  figure {{ margin: 2rem 0; }}
  svg {{ max-width: 100%; height: auto; }}
</style>
<h1>Does speculation pay in {title}?</h1>
<table>{findings}</table>
{figures}
<h2>Every edit</h2>
<table><tr><th>file<th>commit<th>lines<th>new<th>speed-up<th>tokens a call</tr>{edits}</table>
</html>
"""


def page(report: Report) -> str:
    """The page. `report` has at least one edit.

    Raises:
        SpecEditError: matplotlib is missing.
    """
    way = next(iter(report.totals()))
    findings = [*report.about.items(), *report.findings()]
    edits = sorted(report.edits, key=lambda measured: measured.ways[way].speedup)
    rows = []
    for measured in edits:
        stats, edit = measured.ways[way], measured.edit
        pace = (stats.tokens - 1) / stats.target_calls
        cells = [edit.path, edit.commit, f"{measured.lines:,}", f"{measured.changed:.0%}"]
        rows.append([*cells, f"{stats.speedup:.2f}×", f"{pace:.1f}"])
    return _PAGE.format(
        title=_shown(report.about["repository"]),
        findings="".join(f"<tr><th>{_shown(what)}<td>{_shown(said)}</tr>" for what, said in findings),
        figures=_figure(report, way),
        edits="".join(f"<tr>{''.join(f'<td>{_shown(cell)}' for cell in row)}</tr>" for row in rows),
    )


def _shown(text: str) -> str:
    return escape(text.translate(LINE_CONTROLS))


def check_plots() -> None:
    """Raises SpecEditError if matplotlib is missing."""
    try:
        import matplotlib  # noqa: F401
    except ImportError as error:
        raise SpecEditError("The page has plots: pip install 'specedit[plots]' and run again.") from error


def _figure(report: Report, way: str) -> str:
    from matplotlib import rc_context
    from matplotlib.figure import Figure

    with rc_context({"svg.fonttype": "none", "font.size": 9}):  # text stays text
        figure = Figure(figsize=(11, 3.6), layout="constrained")
        for draw, axes in zip((_edits, _ways, _positions), figure.subplots(1, 3), strict=True):
            draw(axes, report, way)
            axes.spines[["top", "right"]].set_visible(False)
        drawn = StringIO()
        figure.savefig(drawn, format="svg", metadata={"Date": None})
    svg = drawn.getvalue()
    return f"<figure>{svg[svg.index('<svg') :]}</figure>"


def _edits(axes: Axes, report: Report, way: str) -> None:
    x = [100 * measured.changed for measured in report.edits]
    axes.scatter(x, [measured.ways[way].speedup for measured in report.edits], s=12)
    axes.axhline(1, color="grey", linewidth=0.8)
    axes.set(title="Every edit", xlabel="lines that are new, %", ylabel="times as fast as plain decoding")
    axes.set_ylim(bottom=0)


def _ways(axes: Axes, report: Report, way: str) -> None:
    totals = report.totals()
    places = range(len(totals))[::-1]
    axes.barh(places, [total.speedup for total in totals.values()])
    axes.set_yticks(places, list(totals), parse_math=False)
    axes.axvline(1, color="grey", linewidth=0.8)
    axes.set(title="Who guesses", xlabel="times as fast as plain decoding")


def _positions(axes: Axes, report: Report, way: str) -> None:
    total = report.totals()[way]
    at = [position for position in range(_POSITIONS) if total.drafted_at[position]]
    axes.plot([p + 1 for p in at], [100 * total.accepted_at[p] / total.drafted_at[p] for p in at])
    axes.set(title="Acceptance", xlabel="position in the draft", ylabel="% of drafted tokens accepted")
    axes.set_ylim(0, 100)
