"""Shows which worker waited for which other worker: a lane of activities for each worker.

The number in a bar is the iteration. A line runs from the worker whose push ended a wait (dot)
to the worker that had waited (arrow head). If a scheduler closed the iterations, lines across
all lanes show when it did, and computations that were cut off are striped.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Final

from outpace.record.reading import Unreadable
from outpace.report.figures.figure import NO_TRACE, Figure, Plot, Views, axis, lanes, view
from outpace.report.figures.picture import Picture
from outpace.report.figures.split import lane_labels, shown_workers
from outpace.report.read.events import Events, read_events
from outpace.report.read.interruptions import interruptions
from outpace.report.read.runs import Run, clock, scheduler_of
from outpace.report.read.totals import LongestWait, TraceTotals
from outpace.report.words import listed, percent, seconds

_ITERATIONS: Final = 8  # iterations of mean length that fit into a span
FIRST, LONGEST = "First iterations", "Around the longest wait"
FEWEST = "The fewest gradients"  # only if iterations were closed in one of the runs
_CULPRITS: Final = 2  # workers named in words
_MOST_CUT_OFF: Final = 4  # lanes for the workers that were cut off most often
_NOTABLE: Final = 0.1  # share of the waiting that makes a worker worth naming


def timeline(runs: Sequence[Run], totals: Sequence[TraceTotals | None]) -> Figure:
    """Return the figure `figure-timeline`.

    It opens at the longest wait of the first run. It also shows the first iterations of each run
    and, if a scheduler closed iterations, the one with the fewest gradients; it opens there if the
    scheduler closed those of the first run. Without any wait it shows the first iterations only.
    """
    known = [(run, sums) for run, sums in zip(runs, totals, strict=True) if sums is not None]
    first = first_span([sums for _, sums in known]) if known else (0, 1)
    cut = [(run, sums.cut_offs.deepest) for run, sums in known if sums.cut_offs]
    names = [LONGEST, FIRST] if any(sums.longest for _, sums in known) else [FIRST]
    if cut:
        # The view that is shown first must exist in the first run.
        names.insert(0 if cut[0][0] is known[0][0] else len(names), FEWEST)
    views: Views = {}
    rows = 1
    for run, sums in known:
        spans = {FIRST: first, LONGEST: first}
        if (wait := sums.longest) is not None:
            spans[LONGEST] = span_around(wait.end_ns - wait.held_ns, wait.end_ns, first[1])
        if cut:  # show runs without cut-offs at the same time as a run that has them
            other, deepest = (run, sums.cut_offs.deepest) if sums.cut_offs else cut[0]
            spans[FEWEST] = span_around(deepest.start_ns, deepest.end_ns, first[1])
        try:
            found = read_events(run.trace, [spans[name] for name in names])
        except Unreadable as error:
            run.problems.append(str(error))
            continue
        losses = interruptions(run)
        for name, events in zip(names, found, strict=True):
            wanted = _concerned(events, wait) if wait and name == LONGEST else []
            if sums.cut_offs is not None:
                cut_off = Counter(worker for worker, _ in events.unused).most_common(_MOST_CUT_OFF)
                wanted += [worker for worker, _ in cut_off if 0 <= worker < len(sums.iterations)]
            shown, selected = shown_workers(sums, wanted)
            rows = max(rows, len(shown))
            notes = [*_words(sums, name), *_notes(events), selected]
            if name == FEWEST and other is not run:
                notes.insert(0, f"This is the span of time shown for {other.name}.")
            scheduler = scheduler_of(run.summary)
            low, high = spans[name]
            lost = [each for each in losses if each.overlaps(low * 1e-9, high * 1e-9)]
            traces = Picture(events, shown, scheduler, lost, high).traces()
            layout = _layout(spans[name], lane_labels(run, shown), clock([run]))
            views[run.name, name] = view(traces, layout, " ".join(notes).strip())
    return Figure(
        "figure-timeline",
        "Timeline of the workers: when each computed, communicated and waited",
        views,
        ["Run", "When"],
        height=150 + 27 * rows,
        tall=True,
        instead=NO_TRACE,
    )


def _concerned(events: Events, longest: LongestWait) -> list[int]:
    """Return the worker that waited longest and the worker that ended that wait."""
    waits = events.waits
    chosen = (waits["worker"] == longest.worker) & (waits["iteration"] == longest.iteration)
    return [longest.worker, *waits["released_by"][chosen].tolist()]


def _layout(span: tuple[int, int], labels: Sequence[str], clock: str) -> Plot:
    low, high = (time * 1e-9 for time in span)
    pad = 0.01 * (high - low)
    return {
        "xaxis": axis(f"{clock} (s)", range=[low - pad, high]),
        "yaxis": lanes(labels, "worker", margin=0.6),
        "barmode": "overlay",
        "hovermode": "closest",
        "uniformtext": {"mode": "hide", "minsize": 9},
    }


def _words(sums: TraceTotals, name: str) -> Iterator[str]:
    longest, closed = sums.longest, sums.cut_offs
    if name == LONGEST and longest is not None:
        yield (
            f"The longest wait: worker {longest.worker} in iteration {longest.iteration}, "
            f"{seconds(longest.held_ns * 1e-9)}."
        )
    if closed is not None:
        deepest = closed.deepest
        if name == FEWEST:
            yield (
                f"The fewest gradients: {deepest.gradients:,} of {len(sums.iterations):,} in "
                f"iteration {deepest.iteration}, closed after "
                f"{seconds((deepest.end_ns - deepest.start_ns) * 1e-9)}."
            )
        yield "A line across all lanes: an iteration was closed. Striped: cut off."
    elif longest is None:
        yield "No worker waited in this run."
    elif (whole := float(sums.ended_s.sum())) > 0:
        worst = (-sums.ended_s).argsort(kind="stable")[:_CULPRITS]
        parts = [
            f"{percent(float(sums.ended_s[worker]) / whole, 0)} was for worker {worker}"
            for worker in worst
            if sums.ended_s[worker] >= _NOTABLE * whole
        ]
        if parts:
            pushes = "its push" if len(parts) == 1 else "their pushes"
            yield f"Of all waiting time in this run, {listed(parts)}: {pushes} ended the waits."


def _notes(events: Events) -> Iterator[str]:
    if len(events.reductions["worker"]):
        yield "Thin bars are all-reduces, pale until all workers have joined."
    if len(events.collectives["worker"]):
        yield "Thin violet bars are collectives that the script called itself, such as barriers."


def first_span(totals: Sequence[TraceTotals]) -> tuple[int, int]:
    """Return a span (ns) at the start of a run, the same for all runs so that they compare.

    The span holds eight iterations of the slowest run, but at most forty of the fastest run.
    """
    lengths = [sums.mean_iteration_s for sums in totals]
    span_s = min(_ITERATIONS * max(lengths), 5 * _ITERATIONS * min(lengths))
    return 0, max(round(span_s * 1e9), 1)


def span_around(start: int, end: int, length: int) -> tuple[int, int]:
    """Return a span of at least `length` ns that contains the time from start to end, near its end.

    What happens in a short time afterwards is in the span, too.
    """
    length = max(length, round(1.5 * (end - start)))
    first = max(end - round(0.7 * length), 0)
    return first, first + length
