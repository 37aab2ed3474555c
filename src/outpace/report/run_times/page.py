"""Writes the page about recorded run times."""

from __future__ import annotations

from pathlib import Path
from string import Template

from outpace.predict.recorded.statistics import SLOW
from outpace.report.frame import Page, asset, write_page
from outpace.report.run_times.facts import Facts
from outpace.report.run_times.heat import heat
from outpace.report.run_times.order import order_statistics
from outpace.report.run_times.rates import rates_figure
from outpace.report.run_times.stragglers import stragglers
from outpace.report.words import escaped


def write_run_times(facts: Facts, name: str, definition: str, path: Path) -> None:
    """Write the page to `path`.

    Args:
        name: name of the source.
        definition: definition of this source's run times, in words.

    Raises:
        ConfigError: if the file cannot be written.
    """
    figures = {
        "heat": heat(facts.times),
        "order": order_statistics(facts),
        "throughput": rates_figure(facts),
        "stragglers": stragglers(facts),
    }
    body = Template(asset("run_times.html")).substitute(
        {key: figure.html() for key, figure in figures.items()},
        summary=_tiles(facts),
        slow=f"{SLOW:g}",
    )
    page = Page(
        title=f"Outpace: run times of {name}",
        heading=f"Run times: {name}",
        what=f"Run time: {definition}",
        findings=facts.sentences(),
        body=body,
        figures=list(figures.values()),
    )
    write_page(page, path)


def _tiles(facts: Facts) -> str:
    tiles = "".join(
        f"<div><dt>{escaped(title)}</dt><dd>{escaped(value)}</dd></div>"
        for title, value in facts.numbers().items()
    )
    return f'<dl class="tiles">{tiles}</dl>'
