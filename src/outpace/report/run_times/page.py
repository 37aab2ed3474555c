"""Writes the page about recorded run times."""

from __future__ import annotations

from pathlib import Path

from outpace.predict.recorded.statistics import SLOW
from outpace.report.frame import write_page
from outpace.report.parts import Section, Tiles
from outpace.report.run_times.facts import Facts
from outpace.report.run_times.figures import heat, order_statistics, stragglers, throughput


def write_run_times(facts: Facts, name: str, definition: str, path: Path) -> None:
    """Write the page to `path`.

    Args:
        name: name of the source.
        definition: definition of this source's run times, in words.

    Raises:
        ConfigError: if the file cannot be written.
    """
    write_page(
        path,
        title=f"Outpace: run times of {name}",
        heading=f"Run times: {name}",
        what=f"Run time: {definition}",
        findings=facts.sentences(),
        sections=[
            Section("summary", "Summary", [Tiles(facts.numbers())]),
            Section("heat", "Run times of the workers", [heat(facts)]),
            Section(
                "throughput",
                "Gain from waiting for fewer workers",
                [throughput(facts)],
                "Gradients per second if every iteration ended as soon as c gradients had arrived: "
                "the mean of c / x over the iterations, where x is the c-th smallest run time.",
            ),
            Section("order", "From the fastest to the slowest", [order_statistics(facts)]),
            Section(
                "stragglers",
                "Stragglers",
                [stragglers(facts)],
                f"A worker is slow in an iteration if it took more than {SLOW:g} times as long as "
                "the fastest fifth of the workers, or was cut off.",
            ),
        ],
    )
