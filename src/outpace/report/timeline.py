"""Who waited for whom: a lane per worker, what it did when, and who let it go on.

The number in a bar is the iteration. A line runs from the worker whose push ended a
wait, a dot, to the worker that had waited, an arrow head, at that moment.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from outpace.report.events import Events, Totals, Wait, read_events
from outpace.report.figure import Choice, Figure, Plot, View, axis
from outpace.report.lanes import choose_lanes, first_span, span_around
from outpace.report.picture import Picture
from outpace.report.reading import Unreadable
from outpace.report.runs import Run, clock
from outpace.report.words import listed, percent, seconds

FIRST, LONGEST = "First iterations", "Around the longest wait"
_CULPRITS: Final = 2  # named in words, if
_NOTABLE: Final = 0.1  # of the waiting was for them


def timeline(runs: Sequence[Run], totals: Sequence[Totals | None]) -> Figure:
    """The figure `figure-timeline`: per run, its first iterations and its longest wait."""
    known = [(run, sums) for run, sums in zip(runs, totals, strict=True) if sums is not None]
    first = first_span([sums for _, sums in known]) if known else (0, 1)
    views: list[View] = []
    drawn: list[str] = []
    lanes = 1
    for run, sums in known:
        around = span_around(sums.longest, first[1]) if sums.longest else first
        try:
            begin, middle = read_events(run.trace, [first, around])
        except Unreadable as error:
            run.problems.append(str(error))
            continue
        drawn.append(run.name)
        for span, events, longest in ((first, begin, None), (around, middle, sums.longest)):
            shown = choose_lanes(events, len(sums.iterations), _concerned(events, longest))
            lanes = max(lanes, len(shown))
            traces = Picture(shown, run.scheduler).of(events)
            views.append(
                View(traces, _layout(span, shown, clock([run])), _note(shown, sums, longest))
            )
    return Figure(
        "figure-timeline",
        "Timeline of the workers: when each computed, communicated and waited",
        views,
        [Choice("Run", drawn), Choice("When", [FIRST, LONGEST])],
        height=150 + 27 * lanes,
        tall=True,
        instead="There is no readable trace with a finished iteration.",
    )


def _concerned(events: Events, longest: Wait | None) -> list[int]:
    """The worker that waited longest and whoever ended it."""
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
        "yaxis": axis(
            "worker",
            tickvals=list(range(len(shown))),
            ticktext=[str(worker) for worker in shown],
            range=[len(shown) - 0.4, -0.6],
            showgrid=False,
        ),
        "barmode": "overlay",
        "hovermode": "closest",
        "uniformtext": {"mode": "hide", "minsize": 9},
    }


def _note(shown: Sequence[int], sums: Totals, longest: Wait | None) -> str:
    words = []
    workers = len(sums.iterations)
    whole = float(sums.ended_s.sum())
    if sums.longest is None:
        words.append("Nobody waited in this run.")
    if longest is not None:
        words.append(
            f"The longest wait: worker {longest.worker} in iteration {longest.iteration}, "
            f"{seconds(longest.held_ns * 1e-9)}."
        )
    if whole > 0:
        worst = (-sums.ended_s).argsort(kind="stable")[:_CULPRITS]
        parts = [
            f"{percent(float(sums.ended_s[worker]) / whole, 0)} was for worker {worker}"
            for worker in worst
            if sums.ended_s[worker] >= _NOTABLE * whole
        ]
        if parts:
            words.append(
                f"Of all waiting in this run {listed(parts)}: "
                f"{'its push' if len(parts) == 1 else 'their pushes'} ended it."
            )
    if len(shown) < workers:
        words.append(
            f"Shown are {len(shown)} of {workers:,} workers: those waited for most, the slowest, "
            "and the first; lines from workers not shown are left out."
        )
    return " ".join(words)
