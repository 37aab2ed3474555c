"""The requests of a run's workers to its servers, as arrays of equal length."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace

import numpy as np
import pyarrow as pa

from outpace.cluster.calibration import Floats, Ints, Rows


@dataclass(frozen=True, slots=True, eq=False)
class Requests(Rows):
    """Requests, their answers, and the times of both; see `record.timing` for the times.

    Times are in s; NaN if unknown. `sent`, `arrived_after` and `arrived` are read from the worker's
    clock, all others from the server's, until `in_clocks_of_workers` converts them.
    """

    worker: Ints
    server: Ints
    iteration: Ints
    sent_bytes: Ints
    answer_bytes: Ints
    sent: Floats
    received_after: Floats
    received: Floats
    begun: Floats
    done: Floats
    released: Floats
    answer_begun: Floats
    answered: Floats
    answered_end: Floats
    arrived_after: Floats
    arrived: Floats

    @staticmethod
    def of(timing: pa.Table) -> Requests:
        """Return all rows of a run's timing; rows of other kinds have NaN times."""
        columns = []
        for entry in fields(Requests):
            if entry.name in timing.column_names:
                column = timing[entry.name].fill_null(-1).to_numpy().astype(np.int64)
            else:
                name = f"{entry.name}_ns"
                column = timing[name].cast(pa.float64()).to_numpy(zero_copy_only=False) * 1e-9
            columns.append(column)
        return Requests(*columns)

    def __len__(self) -> int:
        return len(self.worker)

    def in_order(self) -> Requests:
        """Return the rows in the order in which they were sent."""
        return self.where(np.argsort(self.sent, kind="stable"))

    def offsets(self) -> dict[tuple[int, int], float]:
        """Return how far each server's clock is ahead of each worker's, in s, by their numbers.

        The offset of two clocks is half the difference between the transits of the smallest
        messages in the two directions. This assumes equal latencies in both directions, because a
        round trip does not show how it is divided (RFC 5905, section 8). The median is taken over
        the third of the requests with the shortest round trips, because the shortest one may
        contain a time that was taken late. Pairs without a known round trip are left out.
        """
        found = {}
        for worker, server in np.unique(np.stack([self.worker, self.server], axis=1), axis=0):
            offset = _offset(self.where((self.worker == worker) & (self.server == server)))
            if not np.isnan(offset):
                found[int(worker), int(server)] = offset
        return found

    def with_answers_out(self) -> Requests:
        """Correct the times of answers that had left the server earlier than it noted.

        A server may be interrupted after it gives an answer to the socket and before it takes the
        time.
        """
        out = np.fmax(self.answered, np.fmin(self.answered_end, self.arrived))
        return replace(self, answered_end=np.where(np.isnan(self.answered_end), np.nan, out))

    def in_clocks_of_workers(self, offsets: Mapping[tuple[int, int], float]) -> Requests:
        """Convert the times of each request's server to the clock of its worker."""
        pairs = zip(self.worker.tolist(), self.server.tolist(), strict=True)
        offset = np.array([offsets.get(pair, 0.0) for pair in pairs])
        return replace(self, **{name: getattr(self, name) - offset for name in _OF_SERVER})


_OF_SERVER = (
    "received_after",
    "received",
    "begun",
    "done",
    "released",
    "answer_begun",
    "answered",
    "answered_end",
)


def _offset(requests: Requests) -> float:
    """Return how far the server's clock is ahead of the worker's, in s; NaN if unknown."""
    there = requests.received - requests.sent
    back = requests.arrived - requests.answered
    size = requests.sent_bytes + requests.answer_bytes
    known = ~np.isnan(there + back)
    if not known.any():
        return float("nan")
    known &= size == size[known].min()
    round_trip = there + back
    known &= round_trip <= np.quantile(round_trip[known], 1 / 3)
    return float(np.median((there - back)[known])) / 2
