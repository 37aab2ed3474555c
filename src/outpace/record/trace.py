"""What happened in a run: typed records, streamed to Parquet, hashed on the way.

One table, one row per event, times in ns since the start of the run:

- `iteration`: a worker computed from start_ns to computed_ns and had all answers at
  end_ns; `shard` answered last and had held the pull for held_ns.
- `push`: a gradient reached `shard` at start_ns and was settled at end_ns as `outcome`
  says; it was computed from `version` and applied `staleness` updates later.
- `pull`: a pull reached `shard` at start_ns and was answered at end_ns (null: never) at
  `clock` with `version`. `reason`, `lead` and `bound` are the policy's judgement on
  arrival; `released_by` is the worker whose push or leaving ended the wait, null if
  there was none.

- `cut-off`: an iteration that began at start_ns was ended for all at end_ns, with `clock`
  gradients; `bound` of them (null: any number)
  or the time computed_ns (null: any) had been waited for.

- `all-reduce`: a worker joined the all-reduce number `version` after that iteration, at
  start_ns; all had joined at computed_ns, and it had the result at end_ns. `clock` took part.
  Of gossip: beside that iteration it wanted to average with another, both were free, both had
  the mean.

Without servers an iteration has no `shard`; held_ns is how long it waited for others to join.
With a global barrier the scheduler is the shard after the last; it has pulls only, and an
iteration's `shard` and held_ns are its.

Records are kept as rows of integers and leave in chunks, so memory does not grow with
the run. The digest is over those integers: what happened, not how it was stored.
"""

from __future__ import annotations

import hashlib
import math
from array import array
from collections.abc import Callable
from pathlib import Path
from typing import Final, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from outpace.predict.interface import Wait
from outpace.support.units import Time, nanoseconds
from outpace.sync.decision import Decision, Reason
from outpace.sync.observer import NOBODY, Outcome

NONE: Final = -(2**63)  # a null among the integers
_CHUNK: Final = 1 << 15
_EVENTS: Final = ("iteration", "push", "pull", "cut-off", "all-reduce")
_ITERATION, _PUSH, _PULL, _CUT_OFF, _ALL_REDUCE = range(5)

_INT = pa.int64()
_NAMES = pa.dictionary(pa.int8(), pa.string())
SCHEMA: Final = pa.schema(
    [
        ("event", _NAMES),
        ("worker", pa.int32()),
        ("shard", pa.int32()),
        ("iteration", _INT),
        ("start_ns", _INT),
        ("end_ns", _INT),
        ("computed_ns", _INT),
        ("held_ns", _INT),
        ("version", _INT),
        ("staleness", _INT),
        ("outcome", _NAMES),
        ("clock", _INT),
        ("reason", _NAMES),
        ("lead", _INT),
        ("bound", _INT),
        ("released_by", pa.int32()),
    ]
)
_WORDS: Final = {
    "event": list(_EVENTS),
    "outcome": [outcome.name.lower() for outcome in Outcome],
    "reason": [reason.name.lower().replace("_", "-") for reason in Reason],
}

_WIDTH: Final = len(SCHEMA)
# Of the narrow columns: what their numbers must stay below.
_LIMITS: Final = [
    (place, len(_WORDS[entry.name]) if entry.name in _WORDS else 2**31)
    for place, entry in enumerate(SCHEMA)
    if entry.type != _INT
]

Table: TypeAlias = np.ndarray[tuple[int, ...], np.dtype[np.int64]]
Sink: TypeAlias = Callable[[pa.RecordBatch], None]


class TraceRows:
    """Takes records and hands them on in chunks, as one table of integers each.

    Implements `ShardObserver` in part.
    """

    def __init__(self, take: Callable[[Table], None]) -> None:
        self._take = take
        self._rows = array("q")  # one after another, _WIDTH numbers each

    def iteration(
        self,
        worker: int,
        iteration: int,
        started: Time,
        computed: Time,
        finished: Time,
        held: Time,
        last_shard: int,
    ) -> None:
        self._rows.extend(
            (
                _ITERATION,
                worker,
                last_shard,
                iteration,
                started,
                finished,
                computed,
                held,
                NONE,
                NONE,
                NONE,
                NONE,
                NONE,
                NONE,
                NONE,
                NONE,
            )
        )
        if len(self._rows) >= _CHUNK * _WIDTH:
            self.flush()

    def push(
        self,
        shard: int,
        worker: int,
        iteration: int,
        arrived: Time,
        settled: Time,
        version: int,
        outcome: Outcome,
        staleness: int,
    ) -> None:
        self._rows.extend(
            (
                _PUSH,
                worker,
                shard,
                iteration,
                arrived,
                settled,
                NONE,
                NONE,
                version,
                staleness if staleness >= 0 else NONE,
                outcome,
                NONE,
                NONE,
                NONE,
                NONE,
                NONE,
            )
        )

    def pull(
        self,
        shard: int,
        worker: int,
        iteration: int,
        arrived: Time,
        answered: Time,
        version: int,
        clock: int,
        decision: Decision,
        released_by: int,
    ) -> None:
        self._rows.extend(
            (
                _PULL,
                worker,
                shard,
                iteration,
                arrived,
                answered,
                NONE,
                NONE,
                version,
                NONE,
                NONE,
                clock,
                decision.reason,
                decision.lead,
                decision.bound,
                NONE if released_by == NOBODY else released_by,
            )
        )

    def cut_off(self, iteration: int, opened: Time, closed: Time, wait: Wait, count: int) -> None:
        due = opened + nanoseconds(wait.until_s) if wait.until_s < 1e9 else NONE
        bound = int(wait.count) if math.isfinite(wait.count) else NONE
        self._rows.extend(
            (
                _CUT_OFF,
                NONE,
                NONE,
                iteration,
                opened,
                closed,
                due,
                NONE,
                NONE,
                NONE,
                NONE,
                count,
                NONE,
                NONE,
                bound,
                NONE,
            )
        )

    def all_reduce(
        self,
        worker: int,
        iteration: int,
        joined: Time,
        began: Time,
        ended: Time,
        number: int,
        members: int,
    ) -> None:
        self._rows.extend(
            (
                _ALL_REDUCE,
                worker,
                NONE,
                iteration,
                joined,
                ended,
                began,
                NONE,
                number,
                NONE,
                NONE,
                members,
                NONE,
                NONE,
                NONE,
                NONE,
            )
        )

    def flush(self) -> None:
        """Hand over what has gathered."""
        if self._rows:
            rows, self._rows = self._rows, array("q")
            self._take(np.frombuffer(rows, dtype=np.int64).reshape(-1, _WIDTH))


class Trace(TraceRows):
    """The rows of a run, hashed and stored."""

    def __init__(self, sink: Sink) -> None:
        super().__init__(self.add)
        self._sink = sink
        self._hash = hashlib.sha256()

    def add(self, table: Table) -> None:
        """Take rows that somebody else recorded. Raises ValueError if they cannot be rows."""
        if table.ndim != 2 or table.shape[1] != _WIDTH:
            raise ValueError(f"rows of {_WIDTH} numbers are due, not a table {table.shape}")
        for place, most in _LIMITS:
            numbers = table[:, place]
            if not ((numbers == NONE) | ((numbers >= 0) & (numbers < most))).all():
                raise ValueError(f"{SCHEMA.names[place]} is out of range")
        self._hash.update(table.tobytes())
        self._sink(_batch(table))

    def digest(self) -> str:
        """SHA-256 of all records, after a `flush`."""
        return self._hash.hexdigest()


def _batch(table: Table) -> pa.RecordBatch:
    columns = []
    for place, entry in enumerate(SCHEMA):
        numbers = table[:, place]
        null = numbers == NONE
        kind = pa.int8() if entry.type == _NAMES else entry.type
        column = pa.array(np.where(null, 0, numbers), mask=null).cast(kind)
        if entry.name in _WORDS:
            column = pa.DictionaryArray.from_arrays(column, pa.array(_WORDS[entry.name]))
        columns.append(column)
    return pa.RecordBatch.from_arrays(columns, schema=SCHEMA)


class MemorySink:
    """Keeps the trace in memory."""

    def __init__(self) -> None:
        self._batches: list[pa.RecordBatch] = []

    def __call__(self, batch: pa.RecordBatch) -> None:
        self._batches.append(batch)

    def close(self) -> None:
        pass

    def table(self) -> pa.Table:
        return pa.Table.from_batches(self._batches, schema=SCHEMA)


class ParquetSink:
    """Writes the trace to a file that appears under its name when it is complete."""

    def __init__(self, path: Path) -> None:
        self._path, self._partial = path, path.with_name(path.name + ".part")
        self._writer: pq.ParquetWriter | None = None
        self._gathered: list[pa.RecordBatch] = []

    def __call__(self, batch: pa.RecordBatch) -> None:
        self._open()
        self._gathered.append(batch)  # small groups of rows cost more than the rows
        if sum(part.num_rows for part in self._gathered) >= _CHUNK:
            self._write()

    def _write(self) -> None:
        if self._gathered:
            table = pa.Table.from_batches(self._gathered, schema=SCHEMA)
            self._gathered.clear()
            self._open().write_table(table, row_group_size=table.num_rows)

    def close(self) -> None:
        try:
            self._write()
            self._open().close()
            self._partial.replace(self._path)
        finally:
            self._partial.unlink(missing_ok=True)

    def table(self) -> pa.Table:
        return pq.read_table(self._path)

    def _open(self) -> pq.ParquetWriter:
        # Late: the folder is made when the run is known to be possible.
        if self._writer is None:
            self._writer = pq.ParquetWriter(self._partial, SCHEMA, compression="zstd")
        return self._writer
