"""The page about recorded run times: their lengths, and the gain of waiting for fewer workers.

x_(c) is the c-th smallest run time of an iteration, and Ω(c) = c / x_(c) the gradients per
second if the iteration ends with the c-th gradient (BDSGD, equation 2).
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np

from outpace.predict.recorded import RunTimes, Seconds, require_whole
from outpace.report.figures.figure import (
    Figure,
    axis_from_0,
    colour,
    dots,
    line,
    rounded,
    thinned,
    view,
)
from outpace.report.frame import write_page
from outpace.report.parts import Section, Tiles
from outpace.report.words import number, percent
from outpace.report.words import seconds as seconds_text

SLOW: Final = 1.25  # factor over the time of the fast workers from which a worker is slow
_FAST: Final = 0.2  # share of the workers that is assumed not to be slow in any iteration
_ENOUGH: Final = 0.5  # share of the iterations in which a count must be possible to be judged
_POINTS: Final = 500  # points per line


@dataclass(frozen=True, slots=True, eq=False)
class Facts:
    """A table of run times and its statistics; C is the number of counts that are judged.

    Attributes:
        ordered: the run times of each iteration, ascending, shape (T, C); NaN if fewer workers were
            present.
        rate: mean Ω(c) at entry c - 1, over the iterations in which c workers were present.
        slow: share of each worker's iterations that took more than SLOW times as long as the
            fastest fifth, shape (N,).
    """

    times: RunTimes
    ordered: Seconds
    rate: Seconds
    slow: Seconds

    @property
    def best(self) -> int:
        """The count of workers with the highest rate."""
        return int(self.rate.argmax()) + 1

    @property
    def gain(self) -> float:
        """Relative gain of the best count, compared with waiting for all workers."""
        return float(self.rate.max() / self.rate[-1]) - 1

    def numbers(self) -> dict[str, str]:
        """Return the main numbers by name."""
        times, nodes = self.times, len(np.unique(self.times.node))
        known = times.seconds[~np.isnan(times.seconds)]
        absent = 1 - len(known) / times.seconds.size
        found = {
            "Workers": f"{times.workers:,}",
            "Nodes": f"{nodes:,}" if nodes > 1 else "",
            "Iterations": f"{times.iterations:,}",
            "Median": seconds_text(float(np.median(known))),
            "99 % are below": seconds_text(float(np.quantile(known, 0.99))),
            "Longest": seconds_text(float(known.max())),
            "Missing": percent(absent) if absent else "",
            "Gradients/s, waiting for all": number(float(self.rate[-1])),
            "Best count": f"{self.best:,}",
            "Gain": percent(self.gain),
        }
        return {name: value for name, value in found.items() if value}

    def sentences(self) -> list[str]:
        """Return the findings, the most important first."""
        workers, worker = len(self.rate), int(self.slow.argmax())
        counts = np.arange(1, workers + 1)
        oracle = float(np.nanmax(counts / self.ordered, axis=1).mean() / self.rate[-1]) - 1
        return [
            f"Waiting for {self.best:,} of {workers:,} workers would give {percent(self.gain)} "
            "more gradients per second than waiting for all.",
            f"No prediction can gain more than an oracle, {percent(oracle)}.",
            f"Worker {worker} was slow most often, in {percent(float(self.slow[worker]))} of the "
            f"iterations: more than {SLOW:g} times as long as the fastest fifth.",
        ]


def facts_of(times: RunTimes) -> Facts:
    """Return the statistics, without counts that were possible in less than half the iterations.

    Raises:
        ConfigError: a worker was cut off.
    """
    require_whole(times)
    ordered = np.sort(times.seconds, axis=1)  # NaN last
    there = ~np.isnan(ordered)
    judged = int((there.mean(axis=0) >= _ENOUGH).sum())
    ordered = ordered[:, :judged]
    slow = times.seconds > SLOW * _fast(times)
    return Facts(
        times,
        ordered,
        rate=np.nanmean(np.arange(1, judged + 1) / ordered, axis=0),
        slow=slow.sum(axis=0) / np.maximum((~np.isnan(times.seconds)).sum(axis=0), 1),
    )


def _fast(times: RunTimes) -> Seconds:
    """Return the time by which the fastest fifth of the workers is done, shape (T, 1).

    The median is not used, because half of the workers may be slow at the same time.
    """
    found: Seconds = np.nanquantile(times.seconds, _FAST, axis=1, keepdims=True)
    return found


def write_run_times(facts: Facts, name: str, definition: str, path: Path) -> None:
    """Write the page to `path`.

    Args:
        facts: the table and its statistics.
        name: name of the source.
        definition: text of the definition of this source's run times.
        path: the file; it is replaced.

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
            Section(
                "throughput",
                "Gain from waiting for fewer workers",
                [_throughput(facts)],
                "Gradients per second if every iteration ended as soon as c gradients had arrived: "
                "the mean of c / x over the iterations, where x is the c-th smallest run time.",
            ),
        ],
    )


def _throughput(facts: Facts) -> Figure:
    """Return the figure `figure-throughput`: gradients per second by number of workers."""
    workers = len(facts.rate)
    shown = thinned(workers, _POINTS)
    traces = [line("Ω(c)", [place + 1 for place in shown], rounded(facts.rate[shown]), width=2.4)]
    for count, name, place in ((workers, "waiting for all", 4), (facts.best, "best count", 2)):
        rate = rounded([float(facts.rate[count - 1])])
        traces.append(dots(name, [count], rate, None, color=colour(place), size=11))
    layout = {
        "xaxis": axis_from_0("workers that an iteration waits for (c)"),
        "yaxis": axis_from_0("gradients per second"),
        "hovermode": "closest",
    }
    alt = "Gradients per second against the workers waited for"
    return Figure("figure-throughput", alt, {(): view(traces, layout)}, height=400)
