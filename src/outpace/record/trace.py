"""The events of a run: typed records, streamed to Parquet and hashed on the way.

The trace is one table with a row per event. Times are in ns since the start of the run.

- `iteration`: a worker computed from start_ns to computed_ns and had all answers at end_ns;
  `shard` answered last, and had held the pull for held_ns. Without servers there is no
  `shard`, and held_ns is the time that the worker waited for others to join.
- `push`: a gradient reached `shard` at start_ns and got its `outcome` at end_ns. It was computed
  from `version` and applied `staleness` updates later.
- `pull`: a pull reached `shard` at start_ns and was answered at end_ns (null: never) at `clock`
  with `version`. `reason`, `lead` and `bound` are the policy's decision when the pull arrived;
  `released_by` is the worker whose push or leaving ended the wait (null: no wait).
- `cut-off`: an iteration that started at start_ns was closed for all workers at end_ns, with
  `clock` gradients. The scheduler had waited for `bound` gradients (null: any number) or until
  computed_ns (null: any time).
- `all-reduce`: after this iteration a worker joined the all-reduce number `version` at start_ns;
  all had joined at computed_ns, and the worker had the result at end_ns. `clock` workers took
  part. For gossip: the worker asked for a partner, both were free, both had the mean.
- `collective`: in or before this iteration a worker's script joined its own collective number
  `version` at start_ns, such as a barrier of torch.distributed; all had joined at computed_ns, and
  the worker had the result at end_ns.
- `checkpoint`: a checkpoint with the number `version` has the state of the run at start_ns, which
  is also end_ns, after `clock` updates. One from which the run was resumed has no row.
- `restart`: `worker` or `shard` was lost at start_ns, and its successor began at end_ns with this
  iteration. If all processes began again, they did so from the checkpoint with the number
  `version`, and what had taken held_ns was repeated, but for the work of `clock` scripts that began
  anew (null: none). A server that came back alone has that `version` without held_ns: its workers
  had continued. Without worker and shard: the run was ended, and resumed from that checkpoint.
- `loss`: `worker` was lost at start_ns, which is also end_ns, and the run continued without it.
- `gap`: it was known at start_ns, which is also end_ns, that `shard`, which had come back alone,
  lacks what `worker` had pushed from this iteration on: the gradients of `clock` iterations,
  without those of earlier gaps.

A scheduler that lets workers through (`Policy.scheduler`) is the shard after the last
server; summary.json gives its number as `scheduler_shard`. It receives only pulls, and an
iteration's `shard` and held_ns refer to it.

Records are kept as rows of integers and handed on in chunks, so memory does not grow with the
run. The digest is over these integers: it depends on the events and not on how they are stored.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from struct import Struct
from typing import Final, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from outpace.sync.decision import Reason
from outpace.sync.observer import Outcome

NONE: Final = -(2**63)  # a null among the integers
CHUNK: Final = 1 << 15
# Their numbers are in files and in messages: new ones come at the end.
EVENTS: Final = (
    "iteration",
    "push",
    "pull",
    "cut-off",
    "all-reduce",
    "collective",
    "checkpoint",
    "restart",
    "loss",
    "gap",
)
ITERATION, PUSH, PULL, CUT_OFF, ALL_REDUCE, COLLECTIVE, CHECKPOINT, RESTART, LOSS, GAP = range(10)

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
    "event": list(EVENTS),
    "outcome": [outcome.name.lower() for outcome in Outcome],
    "reason": [reason.name.lower().replace("_", "-") for reason in Reason],
}

_WIDTH: Final = len(SCHEMA)
# Returns a row of all its columns as bytes: half the time of extending an array.
pack_row: Final = Struct(f"{_WIDTH}q").pack
# Indices of narrow columns, and the limit that their numbers must stay below.
_LIMITS: Final = [
    (place, len(_WORDS[entry.name]) if entry.name in _WORDS else 2**31)
    for place, entry in enumerate(SCHEMA)
    if entry.type != _INT
]

Table: TypeAlias = np.ndarray[tuple[int, ...], np.dtype[np.int64]]
Sink: TypeAlias = Callable[[pa.RecordBatch], None]


class TraceRows:
    """Takes records and hands them on in chunks, each a table of integers.

    Attributes:
        append: appends a row that was made by `pack_row`, to be handed on with later ones of `row`.
    """

    def __init__(self, take: Callable[[Table], None]) -> None:
        self._take = take
        self._rows: list[bytes] = []
        self.append: Callable[[bytes], None] = self._rows.append

    def row(self, *values: int) -> None:
        """Append a row, the event first; columns left out at the end are null."""
        self.append(pack_row(*values, *[NONE] * (_WIDTH - len(values))))
        self._hand_on_chunks()

    def flush(self) -> None:
        """Hand on the rows that are still buffered."""
        if self._rows:
            table = self._table()
            self._rows.clear()
            self._take(table)

    def _hand_on_chunks(self) -> None:
        if len(self._rows) >= CHUNK:
            self.flush()

    def _table(self) -> Table:
        return np.frombuffer(bytearray().join(self._rows), dtype=np.int64).reshape(-1, _WIDTH)


class Trace(TraceRows):
    """The rows of a run, hashed and stored."""

    def __init__(self, sink: Sink) -> None:
        super().__init__(self.add)
        self._sink = sink
        self._hash = hashlib.sha256()

    def add(self, table: Table) -> None:
        """Take rows that another process recorded. Raises ValueError if they cannot be rows."""
        if table.ndim != 2 or table.shape[1] != _WIDTH:
            raise ValueError(f"rows must have {_WIDTH} numbers, not the shape {table.shape}")
        for place, most in _LIMITS:
            numbers = table[:, place]
            if not ((numbers == NONE) | ((numbers >= 0) & (numbers < most))).all():
                raise ValueError(f"{SCHEMA.names[place]} is out of range")
        self._hash.update(np.ascontiguousarray(table).data)
        self._sink(batch_of(table, SCHEMA, _WORDS))
        self._hand_on_chunks()

    def take_up(self, batches: Iterable[pa.RecordBatch]) -> None:
        """Begin the digest anew, with the rows that an earlier session of the run has stored."""
        self._hash = hashlib.sha256()
        for batch in batches:
            self._hash.update(_table(batch).tobytes())

    def digest(self) -> str:
        """Return the SHA-256 of all records; call `flush` before."""
        return self._hash.hexdigest()


def batch_of(table: Table, schema: pa.Schema, words: Mapping[str, Sequence[str]]) -> pa.RecordBatch:
    """Return a batch of rows of integers, in which NONE stands for null.

    Args:
        words: of the columns whose numbers stand for words.
    """
    columns = table.T.copy()  # each column in one piece of memory
    nulls = columns == NONE
    columns[nulls] = 0
    found = []
    for entry, numbers, null in zip(schema, columns, nulls, strict=True):
        known = words.get(entry.name)
        column = pa.array(numbers, mask=null).cast(entry.type if known is None else pa.int8())
        if known is not None:
            column = pa.DictionaryArray.from_arrays(column, pa.array(known))
        found.append(column)
    return pa.RecordBatch.from_arrays(found, schema=schema)


def _table(batch: pa.RecordBatch) -> Table:
    """Return the table of integers from which `batch_of` made this batch."""
    columns = []
    for entry, column in zip(SCHEMA, batch.columns, strict=True):
        if entry.name in _WORDS:
            column = pc.index_in(column.cast(pa.string()), value_set=pa.array(_WORDS[entry.name]))
        columns.append(pc.fill_null(column.cast(_INT), NONE).to_numpy(zero_copy_only=False))
    return np.stack(columns, axis=1)
