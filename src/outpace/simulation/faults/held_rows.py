"""Rows of the trace that a run may have to take back, because it goes on from a checkpoint."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from typing import Final, NamedTuple

import numpy as np

from outpace.record.trace import ITERATION, NULLS, SCHEMA, Trace, TraceRows
from outpace.support.units import Time

_WIDTH: Final = len(SCHEMA)


class EndedIteration(NamedTuple):
    """The times of an iteration (ns). held: how long its worker waited for others."""

    started: Time
    finished: Time
    computed: Time
    held: Time


class HeldRows(TraceRows):
    """Keeps the rows since the last checkpoint. Its memory grows with the interval in between."""

    def __init__(self, trace: Trace) -> None:
        super().__init__(trace.add)
        self._trace = trace

    def row(self, event: int, *values: int) -> None:
        self._rows.append(event)
        self._rows.extend(values)
        self._rows.extend(NULLS[1 + len(values)])

    @property
    def held(self) -> int:
        """The number of rows that are kept."""
        return len(self._rows) // _WIDTH

    def release(self, count: int) -> None:
        """Hand on the first `count` of the rows that are kept."""
        self._trace.flush()  # earlier rows
        first, self._rows = self._rows[: count * _WIDTH], self._rows[count * _WIDTH :]
        if first:
            self._take(np.frombuffer(first, dtype=np.int64).reshape(-1, _WIDTH))

    def go_back(self, first: Sequence[int]) -> list[EndedIteration]:
        """Forget the rows that are kept, but for iterations that will not be repeated.

        A worker is saved in the iteration that it ends, whose row comes after that.

        Args:
            first: the iteration with which each worker begins again.

        Returns:
            The iterations whose rows are not forgotten.
        """
        rows = np.frombuffer(self._rows, dtype=np.int64).reshape(-1, _WIDTH)
        ended = rows[rows[:, 0] == ITERATION]
        stay = ended[ended[:, 3] < np.asarray(first)[ended[:, 1]]]
        self._rows = array("q", stay.tobytes())
        return [EndedIteration(*map(int, row[4:8])) for row in stay]

    def flush(self) -> None:
        self.release(self.held)
