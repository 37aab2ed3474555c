"""When a run was interrupted, and what that cost, from its trace."""

from __future__ import annotations

from pathlib import Path
from typing import Final, NamedTuple

from outpace.record.reading import Unreadable, batches, chosen_rows, columns_of, reading
from outpace.record.trace import NONE
from outpace.report.read.runs import Run

_COLUMNS: Final = ("worker", "shard", "start_ns", "end_ns", "held_ns", "version", "clock")
_EVENTS: Final = ("restart", "loss")


class Interruption(NamedTuple):
    """A process was lost.

    who: such as worker 2; empty: the run was ended and resumed. at_s: of the run. away_s: until
    its successor began; None if it has none. repeated_s: time of the run whose work was repeated.
    checkpoint: from which all processes began again; None if a worker was replaced alone.
    anew: scripts that began anew then, because they keep nothing.
    """

    who: str
    at_s: float
    away_s: float | None
    repeated_s: float
    checkpoint: int | None
    anew: int = 0

    @property
    def worker(self) -> int | None:
        """The number of the worker, if it was one."""
        kind, _, number = self.who.partition(" ")
        return int(number) if kind == "worker" else None

    def overlaps(self, low_s: float, high_s: float) -> bool:
        """True if the process was away in a span of the run's time."""
        return self.at_s < high_s and (self.away_s is None or self.at_s + self.away_s > low_s)


def interruptions(run: Run) -> list[Interruption]:
    """Return the interruptions of a run, in the order of time; [] if it had none."""
    known = (run.number("restarts"), run.number("updates_lost"), run.summary.get("resumed_from"))
    # Of a worker that was lost for good only the trace says so, and faults of a simulation.
    if not (any(known) or run.real or run.number("faults", "worker_losses")):
        return []
    try:
        return _read(run.trace)
    except Unreadable:
        return []  # the report says elsewhere that the trace cannot be read


def _read(path: Path) -> list[Interruption]:
    found = []
    with reading(path):
        for batch in batches(path, {"event", *_COLUMNS}):
            for event in _EVENTS:
                rows = columns_of(batch, _COLUMNS, event)
                found += [_of(row, event) for row in chosen_rows(rows, slice(None))]
    return sorted(found, key=lambda each: each.at_s)


def _of(row: dict[str, int], event: str) -> Interruption:
    who = ""
    if row["worker"] != NONE:
        who = f"worker {row['worker']}"
    elif row["shard"] != NONE:
        who = f"server {row['shard']}"
    away = None if event == "loss" else (row["end_ns"] - row["start_ns"]) / 1e9
    repeated = max(0, row["held_ns"]) / 1e9
    checkpoint = None if row["version"] == NONE else row["version"]
    anew = max(0, row["clock"])
    return Interruption(who, row["start_ns"] / 1e9, away, repeated, checkpoint, anew)
