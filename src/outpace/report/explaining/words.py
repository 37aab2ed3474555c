"""An explanation in sentences, and the part of a report that says what slows the runs."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from typing import Final

from outpace.errors import ConfigError
from outpace.report.explaining.causes import explained
from outpace.report.explaining.explanation import Cause, Explanation, Faster, Gain
from outpace.report.parts import Bullets, Section, Table, Words
from outpace.report.read.runs import Run
from outpace.report.words import SPACE, listed, percent, plural, seconds

ALL_WORKERS: Final = "all workers as fast as the others"  # the change of a gain
MOST_WORKERS: Final = "all workers as fast as the fast ones"
_MOST: Final = 5  # causes that get a sentence
_MOST_OF_RUN: Final = 3  # causes of each run that get a row, where there are several runs
_PERIODS: Final = 3  # periods that are named
_ITERATIONS: Final = 5_000  # that are compared for a report
_LEAD: Final = (
    "Run times within an iteration are compared with each other; what slows all workers at once is "
    "no cause. Seconds are those by which the run was longer because of it. `outpace explain RUN` "
    "says what a repair would gain."
)


def section(runs: Sequence[Run]) -> Section | None:
    """Return the section of a report about these runs; None if no run can be explained."""
    found: list[tuple[Run, Explanation]] = []
    for run in runs:
        try:
            found.append((run, explained(run.trace.parent, _ITERATIONS)))
        except ConfigError:
            continue  # what is wrong with the file is said elsewhere
    if not found:
        return None
    heading = "Who slows the run" if len(runs) == 1 else "Who slows the runs"
    if not any(each.causes or each.faster for _, each in found):
        longest = max((each for _, each in found), key=lambda each: each.iterations)
        return Section("explanation", heading, [Words(_nothing(longest))])
    if len(runs) == 1:
        return Section("explanation", heading, [Bullets(sentences(found[0][1]))], _LEAD)
    rows = []
    for run, explanation in found:
        causes = explanation.causes[:_MOST_OF_RUN]
        shown = [[each.name, _cost(explanation, [each]), pattern_words(each)] for each in causes]
        if rest := explanation.causes[_MOST_OF_RUN:]:
            shown.append([f"{len(rest):,} more", _cost(explanation, rest), ""])
        shown = shown or [["none" if not explanation.faster else sentences(explanation)[0], "", ""]]
        names = [run.name] + [""] * (len(shown) - 1)
        rows += [[name, *cells] for name, cells in zip(names, shown, strict=True)]
    head = ["Run", "Slow", "Costs", "How"]
    return Section("explanation", heading, [Table("causes", head, rows)], _LEAD)


def sentences(found: Explanation) -> list[str]:
    """Return a sentence for each cause, the most expensive first; at least one sentence."""
    if not found.causes and found.faster is None:
        return [_nothing(found)]
    steady = [each for each in found.causes if (each.kind, each.pattern) == ("worker", "steady")]
    group = steady if 2 * len(steady) >= found.workers > 2 else []
    causes = [cause for cause in found.causes if cause not in group]
    said = [_group(found, group)] if group else []
    said += [_sentence(found, cause) for cause in causes[:_MOST]]
    if found.faster is not None:
        said.append(_two_groups(found, found.faster))
    if more := causes[_MOST:]:
        said.append(f"{plural(len(more), 'more cause')} cost {_cost(found, more)} together.")
    return said


def pattern_words(cause: Cause) -> str:
    """Return such as `steady, 1.31 times as slow as the others`."""
    factor = f"{times(cause.factor)} times as slow as the others"
    first = cause.periods[0]
    if cause.pattern == "steady":
        since = f" since iteration {first.first} ({seconds(first.start_s)})" if first.first else ""
        return f"steady, {factor}{since}"
    spans = [f"{each.start_s:.3g} to {each.end_s:.3g}{SPACE}s" for each in cause.periods[:_PERIODS]]
    if cause.pattern == "once":
        rows = f"iterations {first.first} to {first.last}"
        if first.first == first.last:
            rows = f"iteration {first.first}"
        return f"once, in {rows}, {factor} ({spans[0]})"
    more = " and later" if len(cause.periods) > _PERIODS else ""
    return f"in {len(cause.periods)} bursts, {factor} ({', '.join(spans)}{more})"


def gain_words(gain: Gain) -> str:
    """Return such as `worker 3 as fast as the others: about 68.1 s, 12.4 s less`."""
    than = "less" if gain.saved_s >= 0 else "more"
    return f"{gain.change}: about {seconds(gain.run_s)}, {seconds(abs(gain.saved_s))} {than}"


def times(factor: float) -> str:
    """Return a factor with three digits, or without decimal places: `1.31` or `1,280`."""
    return f"{factor:.3g}" if factor < 100 else f"{factor:,.0f}"


def _nothing(found: Explanation) -> str:
    if not found.compared:
        return "Nothing was compared."
    *first, last = found.compared
    kinds = f"{', '.join(first)} or {last}" if first else last
    return f"In {plural(found.iterations, 'iteration')} no {kinds} was slower than the others."


def _sentence(found: Explanation, cause: Cause) -> str:
    """Return what a cause costs, how it is slow, and what its repair would gain if known."""
    name = cause.name[0].upper() + cause.name[1:]
    gain = next((gain for gain in found.gains if gain.cause == cause.name), None)
    how = f"{name} costs {_cost(found, [cause])}: {pattern_words(cause)}"
    return f"{how}{_repaired('it were', gain)}"


def _group(found: Explanation, group: Sequence[Cause]) -> str:
    """Return such as `8 of 16 workers (0 to 7) are 1.3 times as slow as the other 8, ...`."""
    numbers = sorted(cause.worker for cause in group if cause.worker is not None)
    low, *_, high = sorted(times(cause.factor) for cause in group)
    factor = low if low == high else f"{low} to {high}"
    text = (
        f"{len(group)} of {found.workers} workers ({_ranges(numbers)}) are {factor} times as slow "
        f"as the other {found.workers - len(group)}, steadily. Together they cost "
        f"{_cost(found, group)}"
    )
    gain = next((gain for gain in found.gains if gain.change == ALL_WORKERS), None)
    return f"{text}{_repaired('they were', gain)}"


def _two_groups(found: Explanation, faster: Faster) -> str:
    """Return such as `10 of 16 workers are 1.3 times as slow as the other 6 (1, 4 and 8 to 11)`."""
    count = len(faster.workers)
    others = f"the other {count} ({_ranges(faster.workers)})"
    text = (
        f"{found.workers - count} of {found.workers} workers are {times(faster.factor)} times as "
        f"slow as {others if count > 1 else f'worker {faster.workers[0]}'}"
    )
    gain = next((gain for gain in found.gains if gain.change == MOST_WORKERS), None)
    return f"{text}{_repaired('they were', gain)}"


def _repaired(subject: str, gain: Gain | None) -> str:
    """Return the end of a sentence about what the run would take after a repair."""
    if gain is None:
        return "."
    return f"; if {subject} as fast, the run would take about {seconds(gain.run_s)}."


def _cost(found: Explanation, causes: Sequence[Cause]) -> str:
    """Return such as `2.21 s of 9.31 s (24 %)`."""
    lost_s = sum(cause.lost_s for cause in causes)
    share = lost_s / found.time_s
    shown = percent(share, 0 if share >= 0.01 else 1)
    return f"{seconds(lost_s)} of {seconds(found.time_s)} ({shown})"


def _ranges(numbers: Sequence[int]) -> str:
    """Join ascending numbers: `1, 4 and 8 to 11`."""
    words: list[str] = []
    for _, part in groupby(enumerate(numbers), key=lambda each: each[1] - each[0]):
        run = [number for _, number in part]
        words += [f"{run[0]} to {run[-1]}"] if len(run) > 2 else map(str, run)
    return listed(words)
