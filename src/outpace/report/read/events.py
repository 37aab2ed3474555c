"""The events of a trace inside given spans of time."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from outpace.record.reading import Columns, batches, columns_of, joined, reading
from outpace.record.trace import NONE

_SPAN: Final = ("iteration", "start_ns", "end_ns")
_PLACE: Final = ("worker", "shard", *_SPAN)
_COLUMNS: Final = {
    "iteration": (*_PLACE, "computed_ns", "held_ns"),
    "pull": (*_PLACE, "released_by", "reason", "lead", "bound"),
    "push": (*_PLACE, "outcome"),
    "cut-off": (*_SPAN, "clock"),
    "all-reduce": ("worker", *_SPAN, "computed_ns", "version", "clock"),
    "collective": ("worker", *_SPAN, "computed_ns", "version"),
}
# The wait and the push of an iteration that reaches into a span may lie outside the span. These
# events are collected from as many spans before it, and to as many after it.
_MARGINS: Final = {"pull": (1, 0), "push": (1, 1)}


@dataclass(frozen=True)
class Events:
    """The events that overlap a span of time, in columns."""

    iterations: Columns
    waits: Columns  # pulls that were held until a worker's push
    closed: Columns  # iterations that a scheduler closed; clock: the gradients that counted
    unused: dict[tuple[int, int], str]  # (worker, iteration) -> why the gradient did not count
    reductions: Columns  # all-reduces of each worker; computed_ns: when all had joined
    collectives: Columns  # of the scripts themselves, such as barriers; likewise


def read_events(path: Path, spans: Sequence[tuple[int, int]]) -> list[Events]:
    """Return the events in each of these spans of time (ns). Raises Unreadable."""
    found: list[dict[str, list[Columns]]] = [defaultdict(list) for _ in spans]
    wide = [(2 * low - high, 2 * high - low) for low, high in spans]
    with reading(path):
        for batch in batches(path, {"event"}.union(*_COLUMNS.values()), wide):
            for event, names in _COLUMNS.items():
                rows = columns_of(batch, names, event)
                before, after = _MARGINS.get(event, (0, 0))
                for (low, high), kept in zip(spans, found, strict=True):
                    early, late = low - before * (high - low), high + after * (high - low)
                    inside = (rows["end_ns"] > early) & (rows["start_ns"] < late)
                    if event == "pull":
                        inside &= rows["released_by"] != NONE
                    elif event == "push":
                        inside &= (rows["outcome"] == "abstained") | (rows["outcome"] == "dropped")
                    kept[event].append({name: column[inside] for name, column in rows.items()})
    return [_events(kept) for kept in found]


def _events(kept: dict[str, list[Columns]]) -> Events:
    tables = {event: joined(names, kept[event]) for event, names in _COLUMNS.items()}
    pushes = tables["push"]
    keys = zip(pushes["worker"].tolist(), pushes["iteration"].tolist(), strict=True)
    return Events(
        tables["iteration"],
        tables["pull"],
        tables["cut-off"],
        dict(zip(keys, pushes["outcome"].tolist(), strict=True)),
        tables["all-reduce"],
        tables["collective"],
    )
