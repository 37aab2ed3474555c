"""Shows which worker waited for which other worker: a lane of activities for each worker.

The number in a bar is the iteration. A line runs from the worker whose push ended a wait (dot)
to the worker that had waited (arrow head). If a scheduler closed the iterations, lines across
all lanes show when it did, and computations that were cut off are striped.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from outpace.report.figures.figure import Choice, Figure, FigureView, Plot, axis, lanes
from outpace.report.figures.lanes import choose_lanes, first_span, span_around, span_until
from outpace.report.figures.picture import Picture
from outpace.report.read.errors import Unreadable
from outpace.report.read.events import Events, read_events
from outpace.report.read.runs import Run, clock
from outpace.report.read.totals import LongestWait, TraceTotals
from outpace.report.words import listed, percent, seconds

FIRST, LONGEST = "First iterations", "Around the longest wait"
FEWEST = "The fewest gradients"  # only if iterations were closed in one of the runs
_CULPRITS: Final = 2  # workers named in words
_NOTABLE: Final = 0.1  # share of the waiting that makes a worker worth naming


def timeline(runs: Sequence[Run], totals: Sequence[TraceTotals | None]) -> Figure:
    """Return the figure `figure-timeline`.

    It shows the first iterations of each run and the iterations around its longest wait. If a
    scheduler closed iterations, it also shows the one with the fewest gradients.
    """
    known = [(run, sums) for run, sums in zip(runs, totals, strict=True) if sums is not None]
    first = first_span([sums for _, sums in known]) if known else (0, 1)
    cut = [(run, sums.cut_offs) for run, sums in known if sums.cut_offs]
    names = [FIRST, LONGEST]
    if cut:
        # The view that is shown first must exist in the first run.
        names.insert(0 if cut[0][0] is known[0][0] else 2, FEWEST)
    views: list[FigureView] = []
    drawn: list[str] = []
    lanes = 1
    for run, sums in known:
        around = span_around(sums.longest, first[1]) if sums.longest else first
        spans = {FIRST: first, LONGEST: around}
        if cut:  # show runs without cut-offs at the same time as a run that has them
            other, closed = (run, sums.cut_offs) if sums.cut_offs else cut[0]
            spans[FEWEST] = span_until(closed.deepest, first[1])
        try:
            found = read_events(run.trace, [spans[name] for name in names])
        except Unreadable as error:
            run.problems.append(str(error))
            continue
        drawn.append(run.name)
        for name, events in zip(names, found, strict=True):
            longest = sums.longest if name == LONGEST else None
            shown = choose_lanes(events, len(sums.iterations), _concerned(events, longest))
            lanes = max(lanes, len(shown))
            traces = Picture(shown, run.scheduler).of(events)
            words = _cut_off_words(sums, name) if sums.cut_offs else _words(sums, longest)
            if name == FEWEST and other is not run:
                words.insert(0, f"This is the span of time shown for {other.name}.")
            if len(events.reductions["worker"]):
                words.append("Thin bars are all-reduces, pale until all workers have joined.")
            words += _selection(shown, sums)
            layout = _layout(spans[name], shown, clock([run]))
            views.append(FigureView(traces, layout, " ".join(words)))
    return Figure(
        "figure-timeline",
        "Timeline of the workers: when each computed, communicated and waited",
        views,
        [Choice("Run", drawn), Choice("When", names)],
        height=150 + 27 * lanes,
        tall=True,
        instead="There is no readable trace with a finished iteration.",
    )


def _concerned(events: Events, longest: LongestWait | None) -> list[int]:
    """Return the worker that waited longest and the worker that ended that wait."""
    if longest is None:
        return []
    waits = events.waits
    chosen = (waits["worker"] == longest.worker) & (waits["iteration"] == longest.iteration)
    return [longest.worker, *(int(worker) for worker in waits["released_by"][chosen])]


def _layout(span: tuple[int, int], shown: Sequence[int], clock: str) -> Plot:
    low, high = (time * 1e-9 for time in span)
    pad = 0.01 * (high - low)
    return {
        "xaxis": axis(f"{clock} (s)", range=[low - pad, high]),
        "yaxis": lanes([str(worker) for worker in shown], "worker", margin=0.6),
        "barmode": "overlay",
        "hovermode": "closest",
        "uniformtext": {"mode": "hide", "minsize": 9},
    }


def _longest_wait(longest: LongestWait) -> str:
    return (
        f"The longest wait: worker {longest.worker} in iteration {longest.iteration}, "
        f"{seconds(longest.held_ns * 1e-9)}."
    )


def _words(sums: TraceTotals, longest: LongestWait | None) -> list[str]:
    words = []
    whole = float(sums.ended_s.sum())
    if sums.longest is None:
        words.append("No worker waited in this run.")
    if longest is not None:
        words.append(_longest_wait(longest))
    if whole > 0:
        worst = (-sums.ended_s).argsort(kind="stable")[:_CULPRITS]
        parts = [
            f"{percent(float(sums.ended_s[worker]) / whole, 0)} was for worker {worker}"
            for worker in worst
            if sums.ended_s[worker] >= _NOTABLE * whole
        ]
        if parts:
            words.append(
                f"Of all waiting time in this run, {listed(parts)}: "
                f"{'its push' if len(parts) == 1 else 'their pushes'} ended the waits."
            )
    return words


def _cut_off_words(sums: TraceTotals, name: str) -> list[str]:
    words = []
    closed = sums.cut_offs
    if name == FEWEST and closed is not None:
        deepest = closed.deepest
        words.append(
            f"The fewest gradients: {deepest.gradients:,} of {len(sums.iterations):,} in iteration "
            f"{deepest.iteration}, closed after "
            f"{seconds((deepest.end_ns - deepest.start_ns) * 1e-9)}."
        )
    if name == LONGEST and sums.longest is not None:
        words.append(_longest_wait(sums.longest))
    words.append("A line across all lanes: an iteration was closed. Striped: cut off.")
    return words


def _selection(shown: Sequence[int], sums: TraceTotals) -> list[str]:
    workers = len(sums.iterations)
    if len(shown) >= workers:
        return []
    which = f"Shown are {len(shown)} of {workers:,} workers:"
    if sums.cut_offs:
        return [f"{which} those that were cut off most, the slowest, and the first."]
    return [
        f"{which} those that others waited for most, the slowest, and the first. Lines from "
        "other workers are left out."
    ]
