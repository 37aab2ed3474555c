"""Rows of the trace that a run may have to take back, because it goes on from a checkpoint."""

from __future__ import annotations

from array import array
from typing import Final

import numpy as np

from outpace.record.trace import NULLS, SCHEMA, Trace, TraceRows

_WIDTH: Final = len(SCHEMA)


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

    def drop(self) -> None:
        """Forget the rows that are kept."""
        self._rows = array("q")

    def flush(self) -> None:
        self.release(self.held)
