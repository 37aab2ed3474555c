"""The rows of a trace, one by one, checked before anything is drawn from them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final, TypeAlias

import numpy as np

from outpace.record.reading import Columns, batches, chosen_rows, columns_of
from outpace.record.trace import NONE
from outpace.report.read.errors import reading

Row: TypeAlias = dict[str, Any]

_COLUMNS: Final = (
    "event",
    "outcome",
    "reason",
    "worker",
    "shard",
    "iteration",
    "start_ns",
    "end_ns",
    "computed_ns",
    "held_ns",
    "version",
    "staleness",
    "clock",
    "lead",
    "bound",
    "released_by",
)
_EVENTS: Final = ("iteration", "push", "pull", "cut-off", "all-reduce")


def rows_of(trace: Path) -> Iterator[Row]:
    """Yield the rows in the file's order; a null number is NONE.

    Raises:
        Unreadable: if the file cannot be read or a row contradicts itself.
    """
    with reading(trace):
        for rows in batches(trace, _COLUMNS):
            columns = columns_of(rows, _COLUMNS)
            _require_sense(columns)
            yield from chosen_rows(columns, slice(None))


def _require_sense(of: Columns) -> None:
    event = of["event"]
    if not np.isin(event, _EVENTS).all():
        raise ValueError("an event in it is of an unknown kind")
    of_all = event == "cut-off"  # concerns all workers and servers: its row names none of them
    # Without servers, an iteration names no server, and an all-reduce has its own row.
    no_server = (event == "all-reduce") | (event == "iteration") & (of["shard"] == NONE)
    whose = of["worker"][~of_all], of["shard"][~(of_all | no_server)]
    what = (of["iteration"], of["start_ns"], of["clock"][of_all])
    if min(values.min(initial=0) for values in (*whose, *what)) < 0:
        raise ValueError("an event in it lacks a worker, server, iteration or time")
    start, end, computed, held = (of[n] for n in ("start_ns", "end_ns", "computed_ns", "held_ns"))
    parts = (computed >= start) & (held >= 0) & (end - computed >= held) | (event != "iteration")
    parts &= (computed >= start) & (end >= computed) | (event != "all-reduce")
    unanswered = (event == "pull") & (end == NONE)
    if not ((end >= start) & parts | unanswered).all():
        raise ValueError("an event in it ends before it begins")
