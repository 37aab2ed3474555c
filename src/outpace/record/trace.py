"""The events of a run: typed records, streamed to Parquet and hashed on the way.

The trace is one table with a row per event. Times are in ns since the start of the run.

- `iteration`: a worker computed from start_ns to computed_ns and had all answers at end_ns;
  `shard` answered last, and had held the pull for held_ns. Without servers there is no
  `shard`, and held_ns is the time that the worker waited for others to join.
- `push`: a gradient reached `shard` at start_ns and got its `outcome` at end_ns. It was computed
  from `version` and applied `staleness` updates later.
- `pull`: a pull reached `shard` at start_ns and was answered at end_ns (null: it was not) at
  `clock` with `version`. `reason`, `lead` and `bound` are the policy's decision when the pull
  arrived; `released_by` is the worker whose push or leaving ended the wait (null: no wait).
- `cut-off`: an iteration that started at start_ns was closed for all workers at end_ns, with
  `clock` gradients. The scheduler had waited for `bound` gradients (null: any number) or until
  computed_ns (null: any time).
- `all-reduce`: after this iteration a worker joined the all-reduce number `version` at start_ns;
  all had joined at computed_ns, and the worker had the result at end_ns. `clock` workers took part.
  With gossip, the three times are: the worker asked for a partner, both were free, both had the
  mean.
- `collective`: in or before this iteration a worker's script joined its own collective number
  `version` at start_ns, such as a barrier of torch.distributed; all had joined at computed_ns, and
  the worker had the result at end_ns.
- `checkpoint`: a checkpoint with the number `version` has the state of the run at start_ns, which
  is also end_ns, after `clock` updates. A checkpoint from which the run was resumed has no row.
- `restart`: `worker` or `shard` was lost at start_ns, and its successor began at end_ns with this
  iteration. If all processes began again, they began from the checkpoint with the number `version`,
  and work that had taken held_ns was repeated, except for `clock` scripts that began from their
  start (null: none). A row without worker and shard means that the run was ended, and resumed from
  that checkpoint.
- `loss`: `worker` was lost at start_ns, which is also end_ns, and the run continued without it.

The scheduler of `Policy.scheduler` is the shard after the last server; summary.json gives its
number as `scheduler_shard`. It receives only pulls, and an iteration's `shard` and held_ns refer to
it.

Rows are packed integers that are passed on in chunks, so memory does not grow with the run. The
digest is computed from the integers of all columns: it depends on the events and not on how they
are stored.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from struct import Struct
from typing import Final

import numpy as np
import pyarrow as pa

from outpace.record.tables import CHUNK, NONE, RunTable, Table, integers_of
from outpace.support.units import Time
from outpace.sync.decision import Reason
from outpace.sync.observer import Outcome

_SPAN: Final = ("iteration", "start_ns", "end_ns")
# The columns of the row of each event. Files and messages contain the index of an event: add new
# events at the end.
_COLUMNS: Final = {
    "iteration": ("worker", "shard", *_SPAN, "computed_ns", "held_ns"),
    "push": ("worker", "shard", *_SPAN, "version", "staleness", "outcome"),
    "pull": (
        *("worker", "shard", *_SPAN, "version", "clock"),
        *("reason", "lead", "bound", "released_by"),
    ),
    "cut-off": (*_SPAN, "computed_ns", "clock", "bound"),
    "all-reduce": ("worker", *_SPAN, "computed_ns", "version", "clock"),
    "collective": ("worker", *_SPAN, "computed_ns", "version"),
    "checkpoint": ("start_ns", "end_ns", "version", "clock"),
    "restart": ("worker", "shard", *_SPAN, "held_ns", "version", "clock"),
    "loss": ("worker", "start_ns", "end_ns"),
}
EVENTS: Final = tuple(_COLUMNS)
ITERATION, PUSH, PULL, CUT_OFF, ALL_REDUCE, COLLECTIVE, CHECKPOINT, RESTART, LOSS = range(9)

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
    "event": EVENTS,
    "outcome": [outcome.name.lower() for outcome in Outcome],
    "reason": [reason.name.lower().replace("_", "-") for reason in Reason],
}
# Indices of narrow columns, and the limit that their numbers must stay below.
_LIMITS: Final = [
    (place, len(_WORDS[entry.name]) if entry.name in _WORDS else 2**31)
    for place, entry in enumerate(SCHEMA)
    if entry.type != _INT
]
_PLACES: Final = [  # by event: the indices of its columns in the table
    np.array([0, *map(SCHEMA.names.index, columns)]) for columns in _COLUMNS.values()
]
_PACKED: Final = [Struct(f"{len(places)}q") for places in _PLACES]
# Each function takes the event and its columns in order, and returns the packed row, in half the
# time of `row`.
pack_iteration: Final = _PACKED[ITERATION].pack
pack_push: Final = _PACKED[PUSH].pack
pack_pull: Final = _PACKED[PULL].pack


def trace_table(path: Path | None = None, *, in_segments: bool = False) -> RunTable:
    """Return the table for the trace of a run; see `RunTable`."""
    return RunTable(SCHEMA, _WORDS, path, in_segments=in_segments)


def unpacked(row: bytes) -> dict[str, int]:
    """Return the columns of a packed row by their names, without the event."""
    event, *values = np.frombuffer(row, dtype=np.int64).tolist()
    return dict(zip(_COLUMNS[EVENTS[event]], values, strict=True))


class TraceRows:
    """Takes records as packed rows and passes them on in chunks, each as a table of integers.

    Attributes:
        append: appends a packed row, which is passed on with later rows of `row` and `extend`.
    """

    def __init__(self, take: Callable[[Table], None]) -> None:
        self._take = take
        self._rows: list[bytes] = []
        self.append: Callable[[bytes], None] = self._rows.append

    def row(self, event: int, **columns: int) -> None:
        """Append the row of an event; columns that are left out are null."""
        names = _COLUMNS[EVENTS[event]]
        self.append(_PACKED[event].pack(event, *[columns.pop(name, NONE) for name in names]))
        assert not columns, f"a row of {EVENTS[event]} has no {', '.join(columns)}"
        self._hand_on_chunks()

    def extend(self, rows: Sequence[bytes]) -> None:
        """Append packed rows."""
        self._rows.extend(rows)
        self._hand_on_chunks()

    def flush(self) -> None:
        """Pass on the rows that are still buffered."""
        if self._rows:
            table = _table(self._rows)
            self._rows.clear()
            self._take(table)

    def _hand_on_chunks(self) -> None:
        if len(self._rows) >= CHUNK:
            self.flush()


def _table(rows: Sequence[bytes]) -> Table:
    """Return packed rows as a table with all columns."""
    sizes = np.fromiter(map(len, rows), np.int64, len(rows)) // 8
    begins = np.cumsum(sizes) - sizes
    numbers = np.frombuffer(b"".join(rows), dtype=np.int64)
    table = np.full((len(rows), len(SCHEMA)), NONE)
    events = numbers[begins]
    for event in np.unique(events):
        (chosen,) = np.nonzero(events == event)
        places = _PLACES[event]
        table[chosen[:, None], places] = numbers[begins[chosen, None] + np.arange(len(places))]
    return table


class Trace(TraceRows):
    """The rows of a run, hashed and stored.

    Args:
        table: takes the rows; None: they are dropped.
    """

    def __init__(self, table: RunTable | None = None) -> None:
        super().__init__(self._store)
        self.table = table
        self._hash = hashlib.sha256()

    def add(self, rows: Table) -> None:
        """Take rows that another process recorded. Raises ValueError if they cannot be rows."""
        if rows.ndim != 2 or rows.shape[1] != len(SCHEMA):
            raise ValueError(f"rows must have {len(SCHEMA)} numbers, not the shape {rows.shape}")
        for place, most in _LIMITS:
            numbers = rows[:, place]
            if not ((numbers == NONE) | ((numbers >= 0) & (numbers < most))).all():
                raise ValueError(f"{SCHEMA.names[place]} is out of range")
        self._store(rows.copy())

    def _store(self, rows: Table) -> None:
        self._hash.update(np.ascontiguousarray(rows).data)
        if self.table is not None:
            self.table.add(rows)

    def cut(self) -> tuple[str, ...]:
        """Complete the present segment; see `RunTable.cut`."""
        self.flush()
        return () if self.table is None else self.table.cut()

    def go_back(self, segments: Sequence[str], last: Time) -> None:
        """Reset the trace to a checkpoint; see `RunTable.go_back`. Raises OSError."""
        self._rows.clear()
        assert self.table is not None
        self.table.go_back(segments, last)
        self.take_up(self.table.batches())

    def take_up(self, batches: Iterable[pa.RecordBatch]) -> None:
        """Begin the digest again, with the rows that an earlier session of the run has stored."""
        self._hash = hashlib.sha256()
        for batch in batches:
            self._hash.update(integers_of(batch, _WORDS).tobytes())

    def digest(self) -> str:
        """Return the SHA-256 of all records; call `flush` before."""
        return self._hash.hexdigest()
