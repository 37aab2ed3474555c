"""Times of the messages and computations of a real run: `timing.parquet`.

One row per request of a worker to a server (`probe`, `push`, `pull`), per synchronization of
workers without servers (`all-reduce`, `exchange`) and per span of computation (`compute`,
`stopped`, `untimed`). The rows are in no particular order, and are not part of the trace's digest.

All times are in ns since the start of the run, each by the clock of one process (CLOCK_MONOTONIC
minus the start of the run as that process knows it). The clocks of two processes may differ. For
one request, with offset = server's clock - worker's clock:

    received_ns - sent_ns     = transit of the request + offset
    arrived_ns - answered_ns  = transit of the answer - offset
    round trip                = (arrived_ns - sent_ns) - (answered_ns - received_ns)

So ((received_ns - sent_ns) - (arrived_ns - answered_ns)) / 2 is the offset with an error of at most
half the round trip. Use the request with the shortest round trip, as NTP does (RFC 5905, section
8). Times before the start of the run, such as times of the probe, are negative.

| column | clock | meaning for probe, push and pull |
|---|---|---|
| what | | `push`: with or without the pull in the same message. `pull`: a pull alone |
| worker | | the worker of the request |
| server | | the server of the request; -1 if there is none |
| partner | | null; the other worker of an `exchange` |
| iteration | | the worker's iteration; for a probe its number for this server, from 0 |
| sent_bytes | | tensor bytes of the request |
| answer_bytes | | tensor bytes of the answer; 0 if there is none |
| sent_ns | worker | the request begins to be given to the socket |
| sent_end_ns | worker | the whole request is in the socket; ZeroMQ's thread may still send |
| received_after_ns | server | the last piece of the request arrived after this time |
| received_first_ns | server | the first piece (of up to 1 MiB) has been read |
| received_ns | server | the last piece has been read, before it is decoded |
| begun_ns | server | the shard begins to handle the request |
| done_ns | server | the shard has handled the request, including an update that it has caused |
| released_ns | server | the shard has returned the answer: the policy does not hold it any more |
| answer_begun_ns | server | the parameters of the answer begin to be read |
| answered_ns | server | the answer begins to be given to the socket |
| answered_end_ns | server | the whole answer has been given to the socket |
| arrived_after_ns | worker | the last piece of the answer arrived after this time |
| arrived_first_ns | worker | the first piece of the answer has been read |
| arrived_ns | worker | the last piece of the answer has been read, before it is decoded |

ZeroMQ's thread receives while Python is busy, so a message may have arrived some time before it is
read. `received_after_ns` and `arrived_after_ns` bound that time: at them the process found its
sockets empty, or began to wait for them. If the process was waiting when the message arrived, the
bound and the time of reading are equal up to some microseconds; if it was busy, the message arrived
between them.

A span has sent_ns (its beginning) and arrived_ns (its end) by the worker's clock. `stopped` is a
computation that was cut off. `untimed` is a span that belongs to no iteration (`outpace.untimed`);
if it is within a `compute`, the recorded beginning of the `compute` is later by its length. An
`all-reduce` has, all by the worker's clock, sent_ns (the worker joins), begun_ns and done_ns (the
communication thread begins, and has the sum) and arrived_ns (the training has the result), and
sent_bytes, the size of the value. A `probe` without a server is such an all-reduce. An `exchange`
has sent_ns (the worker asks for a partner), begun_ns (the communication thread sends), done_ns (the
partner's parameters have arrived), arrived_ns (they have been averaged) and the bytes in both
directions.

A null means unknown: there was no answer, or the run ended before it. In long runs, and if
iterations are short, some iterations are left out (but no `probe` and no `untimed`), see
`Sampling`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa

from outpace.record.folder import TIMING, read_table
from outpace.record.reading import Unreadable, reading
from outpace.record.tables import NONE, RunTable, Table

WHATS: Final = ("probe", "push", "pull", "compute", "stopped", "untimed", "all-reduce", "exchange")
PROBE, PUSH, PULL, COMPUTE, STOPPED, UNTIMED, ALL_REDUCE, EXCHANGE = range(8)

_INT = pa.int64()
SCHEMA: Final = pa.schema(
    [
        ("what", pa.dictionary(pa.int8(), pa.string())),
        ("worker", pa.int32()),
        ("server", pa.int32()),
        ("partner", pa.int32()),
        ("iteration", _INT),
        ("sent_bytes", _INT),
        ("answer_bytes", _INT),
        ("sent_ns", _INT),
        ("sent_end_ns", _INT),
        ("received_after_ns", _INT),
        ("received_first_ns", _INT),
        ("received_ns", _INT),
        ("begun_ns", _INT),
        ("done_ns", _INT),
        ("released_ns", _INT),
        ("answer_begun_ns", _INT),
        ("answered_ns", _INT),
        ("answered_end_ns", _INT),
        ("arrived_after_ns", _INT),
        ("arrived_first_ns", _INT),
        ("arrived_ns", _INT),
    ]
)
WIDTH: Final = len(SCHEMA)
_KEY: Final = [SCHEMA.names.index(name) for name in ("what", "worker", "server", "iteration")]
_SENT, _RECEIVED = SCHEMA.names.index("sent_ns"), SCHEMA.names.index("received_ns")
_OF_SERVERS: Final = list(range(_SENT + 2, SCHEMA.names.index("arrived_after_ns")))
_OF_WORKERS: Final = [_SENT, _SENT + 1, *range(_OF_SERVERS[-1] + 1, WIDTH)]
_BLOCK: Final = 64  # number of consecutive iterations that are recorded together
_ROWS_IN_FULL: Final = 1 << 15  # largest number of requests of all processes together
# Iterations per second that one worker and all workers together record at most. Recording an
# iteration takes a worker and a server some 10 microseconds each, so this is about 1 % of a
# server's time.
_MOST_PER_S, _LEAST_PER_S, _PER_S = 256, 16, 1024
_JOINED_AT_ONCE: Final = 1 << 13  # number of rows that wait before they are joined
_MOST_WAITING: Final = 1 << 16  # number of rows that wait for the other process's rows


@dataclass(frozen=True, slots=True)
class Sampling:
    """The iterations of a run that are recorded.

    All iterations below `all_until` = L are recorded. From L to 2 L, blocks of 64 iterations are
    recorded if their number is a multiple of 2; from 2 L to 4 L, if it is a multiple of 4, and so
    on. So each doubling of the length of the run adds L/2 recorded iterations.

    If its iterations are short, a worker leaves out more of them: after the first 256 iterations it
    records, in blocks of 16, at most `most_per_s` iterations per second.
    """

    all_until: int
    most_per_s: int

    @staticmethod
    def of_run(workers: int, servers: int) -> Sampling:
        """Return the sampling for this number of workers and servers."""
        pairs = workers * max(1, servers)
        all_until = max(_BLOCK, _ROWS_IN_FULL // pairs // _BLOCK * _BLOCK)
        return Sampling(all_until, max(_LEAST_PER_S, min(_MOST_PER_S, _PER_S // workers)))

    def recorded(self, iteration: int) -> bool:
        """True if this iteration is recorded, unless iterations are short."""
        one_of = 1 << (iteration // self.all_until).bit_length()
        return iteration < self.all_until or iteration // _BLOCK % one_of == 0


def timing_table(path: Path | None = None, *, in_segments: bool = False) -> RunTable:
    """Return the table for the times of a run; see `RunTable`."""
    return RunTable(SCHEMA, {"what": WHATS}, path, in_segments=in_segments)


class Timing:
    """The rows of a run, to which its processes add. Two halves of a request become one row.

    Memory is bounded: rows are passed on in batches, and a half that waits too long is passed on
    alone.

    Args:
        take: takes rows of SCHEMA as integers, NONE for null.
    """

    def __init__(self, take: Callable[[Table], None]) -> None:
        self._take = take
        self._waiting: list[Table] = []
        self._count = self._joined = 0  # rows that wait; rows among them that were joined before

    def add(self, table: Table) -> None:
        """Take rows of SCHEMA as integers, NONE for null.

        A worker gives the columns of a request that are by its clock, a server the columns by its
        own clock.

        Raises:
            ValueError: if they cannot be rows.
        """
        if table.ndim != 2 or table.shape[1] != WIDTH:
            raise ValueError(f"rows must have {WIDTH} numbers, not the shape {table.shape}")
        what = table[:, 0]
        if not ((what >= 0) & (what < len(WHATS))).all():
            raise ValueError("what is out of range")
        if not ((table[:, 1:4] == NONE) | (abs(table[:, 1:4]) < 2**31)).all():
            raise ValueError("worker, server or partner is out of range")
        self._waiting.append(table.copy())
        self._count += len(table)
        if self._count - self._joined >= _JOINED_AT_ONCE:
            self._join(_MOST_WAITING)

    def hand_on(self) -> None:
        """Pass on the waiting rows, except halves whose other half may still arrive."""
        self._join(_MOST_WAITING)

    def forget(self) -> None:
        """Drop the waiting rows, because the processes with the other halves have ended."""
        self._waiting, self._count, self._joined = [], 0, 0

    def flush(self) -> None:
        """Pass on all waiting rows, including halves without the other half."""
        self._join(0)

    def _join(self, most: int) -> None:
        """Pass on whole rows, and the oldest halves until `most` are left."""
        if not self._count:
            return
        table = np.concatenate(self._waiting)
        is_half = _of_servers(table)
        whole, halves = [table[~is_half]], table[is_half]
        # Sorted by key, the worker's half before the server's; otherwise in the order of arrival.
        is_servers = (halves[:, _SENT] == NONE).astype(np.int64)
        order = np.lexsort((is_servers, *(halves[:, place] for place in reversed(_KEY))))
        keys, sides = halves[order][:, _KEY], is_servers[order]
        fit = (keys[1:] == keys[:-1]).all(axis=1) & (sides[:-1] == 0) & (sides[1:] == 1)
        first, second = order[:-1][fit], order[1:][fit]
        whole.append(np.maximum(halves[first], halves[second]))  # NONE is the smallest number
        alone = np.ones(len(halves), dtype=bool)
        alone[first] = alone[second] = False
        halves = halves[alone]
        kept = halves[max(0, len(halves) - most) :]
        whole.append(halves[: len(halves) - len(kept)])
        self._waiting, self._count = [kept], len(kept)
        self._joined = self._count
        rows = np.concatenate(whole)
        if len(rows):
            self._take(rows)


def require_own(table: Table, name: str) -> None:
    """Check that the rows contain only data that the process `name` can have.

    Raises:
        ValueError: if they are about another process, or have its columns.
    """
    kind, _, number = name.rpartition("-")
    if not (table[:, SCHEMA.names.index(kind)] == int(number)).all():
        raise ValueError("the rows are about another process")
    requests = table[_of_servers(table)]
    if kind == "server" and len(requests) < len(table):
        raise ValueError("a server has requests only")
    others = _OF_SERVERS if kind == "worker" else _OF_WORKERS
    if not (requests[:, others] == NONE).all():
        raise ValueError("the rows have the times of another process")


def _of_servers(table: Table) -> Any:
    """Return which rows are about requests to servers."""
    return (table[:, 0] <= PULL) & (table[:, SCHEMA.names.index("server")] >= 0)


def read_timing(folder: Path) -> pa.Table:
    """Return the times of a real run from its folder; columns: SCHEMA.

    Raises:
        Unreadable: if there is no such file, or it cannot be read.
    """
    path = folder / TIMING
    if not path.exists():
        raise Unreadable(
            f"{path}: there is no such file: only real runs have one (outpace run, outpace serve), "
            "and real runs of early versions have none"
        )
    with reading(path):
        return read_table(path).select(SCHEMA.names).cast(SCHEMA)
