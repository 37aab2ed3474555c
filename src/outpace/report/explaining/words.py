"""An explanation as sentences, and the section of a report that says what slows the runs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np

from outpace.errors import ConfigError
from outpace.report.explaining.causes import explained
from outpace.report.explaining.explanation import Cause, Explanation, Gain
from outpace.report.parts import Bullets, Section
from outpace.report.read.runs import Run
from outpace.report.words import SPACE, listed, number, percent, plural, seconds

ALL_WORKERS: Final = "all workers as fast as the others"  # text of the change of a gain
_MOST: Final = 5  # number of causes that get a sentence
_MOST_OF_RUN: Final = 3  # number of sentences about each run, if there are several runs
_PERIODS: Final = 3  # number of periods that are named
_WORKERS: Final = 8  # number of workers of a group that are named
_ITERATIONS: Final = 5_000  # number of iterations that are compared for a report
_LEAD: Final = (
    "The run times of an iteration are compared with each other; what slows all workers at once is "
    "no cause. Seconds say how much longer the run was because of it. outpace explain, with this "
    "folder, says what a repair would gain."
)


def section(runs: Sequence[Run]) -> Section | None:
    """Return the section of a report about these runs; None if no run can be explained."""
    lines = []
    for run in runs:
        try:
            found = explained(run.trace.parent, _ITERATIONS)
        except ConfigError:
            continue  # another part of the report says what is wrong with the file
        said = [*sentences(found), *(f"{each[0].upper()}{each[1:]}." for each in found.notes)]
        of_run = "" if len(runs) == 1 else f"{run.name}: "
        lines += [of_run + each for each in (said[:_MOST_OF_RUN] if of_run else said)]
    heading = "Who slows the run" if len(runs) == 1 else "Who slows the runs"
    return Section("explanation", heading, [Bullets(lines)], _LEAD) if lines else None


def sentences(found: Explanation) -> list[str]:
    """Return a sentence for each cause, the most expensive first; at least one sentence."""
    steady = [each for each in found.causes if (each.kind, each.pattern) == ("worker", "steady")]
    group = steady if 2 * len(steady) >= found.workers > 2 else []
    said = []
    if group:
        numbers = sorted(cause.worker for cause in group)
        factor = float(np.median([cause.factor for cause in group]))
        said.append(f"{_group(found, numbers, factor)}, and cost {_cost(found, group)}")
        said[0] += _repaired(found, ALL_WORKERS)
    causes = [cause for cause in found.causes if cause not in group]
    for cause in causes[:_MOST]:
        name = cause.name[0].upper() + cause.name[1:]
        how = f"{name} costs {_cost(found, [cause])}: {_pattern(cause)}"
        said.append(how + _repaired(found, repair_of(cause)))
    if found.faster is not None:
        numbers = [each for each in range(found.workers) if each not in found.faster.workers]
        text = _group(found, numbers, found.faster.factor)
        said.append(text + _repaired(found, ALL_WORKERS))
    if more := causes[_MOST:]:
        said.append(f"{plural(len(more), 'more cause')} cost {_cost(found, more)} together.")
    if not said:
        kinds = " or ".join(found.compared) or "worker or link"
        iterations = plural(found.iterations, "iteration")
        said.append(f"In {iterations} no {kinds} was slower than the others.")
    return said


def repair_of(cause: Cause) -> str:
    """Return the change that repairs a cause."""
    return f"{cause.name} as fast as the others"


def gain_words(gain: Gain) -> str:
    """Return a text like `worker 3 as fast as the others: about 68.1 s, 12.4 s less`."""
    than = "less" if gain.saved_s >= 0 else "more"
    return f"{gain.change}: about {seconds(gain.run_s)}, {seconds(abs(gain.saved_s))} {than}"


def _pattern(cause: Cause) -> str:
    """Return a text like `1.31 times as slow as the others in iterations 3 to 4 (1.8 to 4.2 s)`."""
    spans = []
    for each in cause.periods[:_PERIODS]:
        last = "the end" if each.last is None else each.last
        spans.append(f"{each.first} to {last} ({each.start_s:.3g} to {each.end_s:.3g}{SPACE}s)")
    if more := cause.periods[_PERIODS:]:
        spans.append(plural(len(more), "more period"))
    return f"{number(cause.factor)} times as slow as the others in iterations {listed(spans)}"


def _group(found: Explanation, numbers: Sequence[int], factor: float) -> str:
    """Return a text like `2 of 4 workers (0 and 1) are 1.30 times as slow as the others`."""
    named = [str(each) for each in numbers[:_WORKERS]]
    if more := numbers[_WORKERS:]:
        named.append(f"{len(more)} more")
    of_all = f"{len(numbers)} of {found.workers} workers ({listed(named)})"
    return f"{of_all} are {number(factor)} times as slow as the others"


def _repaired(found: Explanation, change: str) -> str:
    """Return the end of a sentence about the time of the run after a repair."""
    gain = next((gain for gain in found.gains if gain.change == change), None)
    if gain is None:
        return "."
    return f"; with {change}, the run would take about {seconds(gain.run_s)}."


def _cost(found: Explanation, causes: Sequence[Cause]) -> str:
    """Return a text like `2.21 s of 9.31 s (24 %)`."""
    lost_s = sum(cause.lost_s for cause in causes)
    share = lost_s / found.time_s
    shown = percent(share, 0 if share >= 0.01 else 1)
    return f"{seconds(lost_s)} of {seconds(found.time_s)} ({shown})"
