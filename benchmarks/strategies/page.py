"""The results as one HTML file, to be filtered in a browser by cluster, task and family."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from string import Template
from typing import Any, Final

from benchmarks.strategies.outcome import Measured, Outcome
from benchmarks.strategies.suite import HERE
from benchmarks.strategies.table import ratio, seconds
from jinja2.utils import htmlsafe_json_dumps

PAGE: Final = HERE / "results.html"
_TEMPLATE: Final = HERE / "page.html"


def page(outcomes: Sequence[Outcome]) -> str:
    """Return the page. Equal results make an equal page."""
    data = [_cell(each) for each in outcomes if each.complete]
    return Template(_TEMPLATE.read_text("utf-8")).substitute(
        data=htmlsafe_json_dumps(data, separators=(",", ":"))
    )


def write_page(outcomes: Sequence[Outcome], path: Path = PAGE) -> None:
    path.write_text(page(outcomes), "utf-8")


def _cell(outcome: Outcome) -> dict[str, Any]:
    bsp = outcome.bsp
    return {
        "task": outcome.cell.task,
        "cluster": outcome.cell.cluster,
        "target": outcome.cell.target,
        "about": outcome.cell.about,
        "date": outcome.origin["date"],
        "commit": outcome.origin["commit"],
        "bsp": "" if bsp is None else seconds(bsp),
        "strategies": [_strategy(outcome, each) for each in outcome.strategies],
    }


def _strategy(outcome: Outcome, measured: Measured) -> dict[str, Any]:
    found = outcome.relative(measured)
    return {
        "name": measured.name,
        "family": measured.candidate.family,
        "mean": _rounded(found.mean),
        "low": _rounded(found.low),
        "high": _rounded(found.high),
        "ratio": "1" if measured is outcome.bsp else ratio(found),
        "seconds": seconds(measured),
        "rate": measured.tuned.rate,
        "edge": measured.tuned.at_edge,
        "reached": measured.reached,
        "seeds": len(measured.times),
        "best": outcome.best is measured,
    }


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 4)
