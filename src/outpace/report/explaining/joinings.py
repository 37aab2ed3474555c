"""Where workers without servers wait for each other: all-reduces and a script's own collectives.

Between two of them a worker needs time of its own: it computes, takes the step of its optimizer,
reads data. Whatever it is, the others wait for it at the next one.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from outpace.record.reading import Unreadable, read_event
from outpace.record.trace import NONE

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
_COLUMNS = ("worker", "iteration", "version", "start_ns", "end_ns")


@dataclass(frozen=True, slots=True, eq=False)
class Joinings:
    """All-reduces and collectives in the order of their last arrivals, shapes (J, N).

    Args:
        iteration: In which each worker joined; -1: it did not.
        arrived: When it was waited for no more, in s since the start of the run; NaN: it did not
            join.
        ended: When it had the result, in s; NaN likewise.
    """

    iteration: Ints
    arrived: Floats
    ended: Floats

    @property
    def joined(self) -> NDArray[np.bool_]:
        return self.iteration >= 0

    def after(self, computed: Floats, ended: Floats) -> Floats:
        """Return how long each iteration lasted after its last result, in s, shape (T, N).

        Args:
            computed, ended: When each iteration was computed and when it ended, shape (T, N).
        """
        last = computed.copy()
        rows, workers = np.nonzero(self.joined)
        np.fmax.at(last, (self.iteration[rows, workers], workers), self.ended[rows, workers])
        return np.maximum(np.nan_to_num(ended - last), 0.0)

    def late(self, excess: Floats, started: Floats) -> Floats:
        """Return what each worker needed longer than the others before each joining, (J, N).

        What it needed longer in an iteration is divided among the joinings of the iteration in
        proportion to its own time before each.

        Args:
            excess: By iteration, in s, shape (T, N).
            started: When each iteration began, in s, shape (T, N).
        """
        found = np.zeros(self.arrived.shape)
        sums = np.concatenate([np.zeros((1, excess.shape[1])), np.cumsum(excess, axis=0)])
        for worker in np.flatnonzero(excess.any(axis=0)).tolist():
            (at,) = np.nonzero(self.joined[:, worker])
            if not len(at):
                continue
            iteration = self.iteration[at, worker]
            before = np.concatenate([[started[iteration[0], worker]], self.ended[at[:-1], worker]])
            own = np.maximum(np.nan_to_num(self.arrived[at, worker] - before), 0.0)
            whole = np.bincount(iteration, own)[iteration]
            share = np.divide(own, whole, out=np.zeros(len(own)), where=whole > 0)
            is_first = np.concatenate([[True], np.diff(iteration) != 0])
            done = np.concatenate([[0], iteration[:-1] + 1])  # iterations until the one before
            skipped = np.where(is_first, sums[iteration, worker] - sums[done, worker], 0.0)
            found[at, worker] = np.maximum(skipped + share * excess[iteration, worker], 0.0)
        return found


def joinings_of(path: Path, computed: Floats) -> Joinings | None:
    """Return the joinings of a trace; None if it has no all-reduces.

    Args:
        path: The trace.
        computed: When each iteration was computed, in s, shape (T, N): then a worker has joined
            its all-reduce with the last gradient, though it may have begun before.
    """
    tables = []
    for event in ("all-reduce", "collective"):
        try:
            rows = read_event(path, event, _COLUMNS)
        except Unreadable:  # a trace of before has no such rows
            continue
        inside = (rows["version"] >= 0) & (rows["end_ns"] != NONE)
        for name, most in zip(("iteration", "worker"), computed.shape, strict=True):
            inside &= (rows[name] >= 0) & (rows[name] < most)
        if not inside.any():
            if event == "all-reduce":
                return None
            continue
        rows = {name: column[inside] for name, column in rows.items()}
        versions, place = np.unique(rows["version"], return_inverse=True)
        at = place.ravel(), rows["worker"]
        shape = len(versions), computed.shape[1]
        iteration = np.full(shape, -1, np.int64)
        arrived, ended = np.full(shape, np.nan), np.full(shape, np.nan)
        iteration[at] = rows["iteration"]
        begun = rows["start_ns"] * 1e-9
        in_training = computed[rows["iteration"], rows["worker"]]
        arrived[at] = np.fmax(begun, in_training) if event == "all-reduce" else begun
        ended[at] = rows["end_ns"] * 1e-9
        tables.append((iteration, arrived, ended))
    if not tables:
        return None
    iteration, arrived, ended = (np.concatenate(parts) for parts in zip(*tables, strict=True))
    order = np.argsort(np.nanmax(arrived, axis=1), kind="stable")
    return Joinings(iteration[order], arrived[order], ended[order])
