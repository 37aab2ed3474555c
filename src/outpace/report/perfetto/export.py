"""A run's trace as a file that https://ui.perfetto.dev opens.

Under "workers", a track per worker: compute, communicate, wait for the server that
answered last. Under "servers", for each: the pulls it held, the pushes it got, the
staleness of the gradients it applied, its clock. An arrow leads from a mark on the worker
whose push released another one to the end of that one's wait. Where a scheduler closed the
iterations, it has a track of these, with how many gradients counted in each.

The format is Perfetto's own (`packets`): in the older JSON, overlapping slices have no
row per server and arrows are bound by rounded times. Packets leave as rows come in, so
memory does not grow with the run.
"""

from __future__ import annotations

import gzip
from collections import defaultdict, deque
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from outpace.errors import ConfigError
from outpace.record.folder import TRACE, read_config
from outpace.report.perfetto.packets import Packets
from outpace.report.read.errors import Unreadable, reading
from outpace.report.read.runs import read_summary_of, scheduler_of
from outpace.support.replacing import replace_file

PERFETTO: Final = "perfetto.pftrace.gz"
NULL: Final = -(2**63)

_BATCH: Final = 1 << 14  # rows
_WORDS: Final = ("event", "outcome", "reason")
_NUMBERS: Final = (
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
_WORKERS, _SERVERS = 1, 2  # processes
_Row: TypeAlias = dict[str, Any]


def write_perfetto(run: Path, out: Path) -> None:
    """Convert the trace in the folder of a run into a gzipped file.

    Raises ConfigError if it is no such folder, if its trace cannot be read or `out` not be
    written.
    """
    read_summary_of(run)
    try:
        replace_file(out, lambda partial: _write(run / TRACE, partial, _scheduler(run)))
    except Unreadable as error:
        raise ConfigError(str(error)) from error
    except OSError as error:
        raise ConfigError(f"cannot write {out}: {error.strerror or error}") from error


def _scheduler(run: Path) -> int | None:
    try:
        return scheduler_of(read_config(run))
    except ConfigError:  # lost: then it goes by its number, as a server
        return None


def _write(trace: Path, path: Path, scheduler: int | None) -> None:
    # Without a name and time of its own: of equal traces, equal files.
    with path.open("wb") as file, gzip.GzipFile("", "wb", 6, file, mtime=0) as packed:
        events = _Events(Packets(packed.write), scheduler)
        draw = {
            "iteration": events.iteration,
            "push": events.push,
            "pull": events.pull,
            "cut-off": events.cut_off,
            "all-reduce": events.all_reduce,
        }
        for row in _rows(trace):
            draw[row["event"]](row)
        events.finish()


def _rows(path: Path) -> Iterator[_Row]:
    """The rows, in the file's order; a number that is null is NULL. Raises Unreadable."""
    with reading(path):
        for batch in _batches(path, (*_WORDS, *_NUMBERS)):
            words = {name: batch[name].cast(pa.string()).to_pylist() for name in _WORDS}
            numbers = {n: batch[n].cast(pa.int64()).fill_null(NULL).to_numpy() for n in _NUMBERS}
            _require_sense(np.array(words["event"]), numbers)
            columns = [*words.values(), *(column.tolist() for column in numbers.values())]
            for values in zip(*columns, strict=True):
                yield dict(zip((*_WORDS, *_NUMBERS), values, strict=True))


def _batches(path: Path, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
    # One row group after the other: a reader over many keeps something of each.
    with pq.ParquetFile(path) as file:
        for group in range(file.num_row_groups):
            yield from file.iter_batches(_BATCH, [group], columns, use_threads=False)


def _require_sense(event: Any, of: Mapping[str, Any]) -> None:
    if not np.isin(event, ("iteration", "push", "pull", "cut-off", "all-reduce")).all():
        raise ValueError("an event in it is of an unknown kind")
    of_all = event == "cut-off"  # which have no worker and no server
    # Without servers an iteration has none, and a row of its own says what it waited for.
    none = (event == "all-reduce") | (event == "iteration") & (of["shard"] == NULL)
    whose = of["worker"][~of_all], of["shard"][~(of_all | none)]
    what = (of["iteration"], of["start_ns"], of["clock"][of_all])
    if min(numbers.min(initial=0) for numbers in (*whose, *what)) < 0:
        raise ValueError("an event in it lacks a worker, server, iteration or time")
    start, end, computed, held = (of[n] for n in ("start_ns", "end_ns", "computed_ns", "held_ns"))
    parts = (computed >= start) & (held >= 0) & (end - computed >= held) | (event != "iteration")
    parts &= (computed >= start) & (end >= computed) | (event != "all-reduce")
    unanswered = (event == "pull") & (end == NULL)
    if not ((end >= start) & parts | unanswered).all():
        raise ValueError("an event in it ends before it begins")


class _Events:
    """Draws row after row; those of one worker and of one server must be in order.

    Of a real run, those of different ones are not: an iteration is drawn when the pull is
    known that it waited for.
    """

    def __init__(self, packets: Packets, scheduler: int | None) -> None:
        self._packets, self._scheduler = packets, scheduler
        self._workers = packets.track(0, "workers", 0, process=_WORKERS)
        self._servers = packets.track(0, "servers", 0, process=_SERVERS)
        self._flows = 0
        self._released: dict[int, list[_Row]] = {}  # server -> pulls that one push released
        self._undrawn: dict[int, deque[_Row]] = defaultdict(deque)  # by worker
        self._held: dict[int, dict[tuple[int, int], _Row]] = defaultdict(dict)
        self._clocks: dict[int, int] = {}

    def iteration(self, row: _Row) -> None:
        self._undrawn[row["worker"]].append(row)
        self._draw(row["worker"])

    def finish(self) -> None:
        """Draw what still waits for more."""
        for shard in list(self._released):
            self._release(shard)
        for rows in self._undrawn.values():
            for row in rows:
                self._iteration(row, {})

    def _draw(self, worker: int) -> None:
        rows, held = self._undrawn[worker], self._held[worker]
        while rows:
            iteration, shard = rows[0]["iteration"], rows[0]["shard"]
            pull = held.get((iteration, shard), {})
            if rows[0]["held_ns"] and not pull and shard != NULL:
                return
            self._iteration(rows.popleft(), pull)
            for key in [key for key in held if key[0] <= iteration]:
                del held[key]

    def _iteration(self, row: _Row, pull: _Row) -> None:
        computed, end, held = row["computed_ns"], row["end_ns"], row["held_ns"]
        server, put = self._name(row["shard"]), self._packets.slice
        args = {"iteration": row["iteration"], "last shard": server}
        # If the server's clock is another one, the wait keeps its length and stays inside.
        until = max(computed + held, min(pull.get("end_ns", end), end))
        if row["shard"] == NULL:  # what it waited for comes before what it sent
            server, args, until = "all to join", {"iteration": row["iteration"]}, computed + held
        since = until - held
        track = self._worker(row["worker"])
        put(track, row["start_ns"], computed, "compute", args)
        if since > computed:
            put(track, computed, since, "communicate", args)
        if held:
            by = {"released by": f"worker-{pull['released_by']}"} if pull else {}
            put(track, since, until, f"wait for {server}", args | by)
        flow = pull["flow"] if held and pull and pull["end_ns"] <= until else 0
        if end > until or flow:
            put(track, until, end, "communicate", args, ends=flow)

    def push(self, row: _Row) -> None:
        server, start, end = self._server(row["shard"]), row["start_ns"], row["end_ns"]
        names = ("iteration", "version", "staleness", "outcome")
        args = {name: row[name] for name in names if row[name] != NULL}
        # On arrival: marks of the same moment are drawn one under the other, and under
        # BSP all of an iteration are settled at once.
        pushes = self._packets.track(server, "pushes", 1)
        args["settled after ns"] = end - start
        self._packets.mark(pushes, start, f"push worker-{row['worker']}", args)
        if "staleness" in args:
            staleness = self._packets.track(server, "staleness", 2, counter=True)
            self._packets.count(staleness, end, row["staleness"])

    def pull(self, row: _Row) -> None:
        worker, shard, end, by = (row[n] for n in ("worker", "shard", "end_ns", "released_by"))
        server = self._server(shard)
        if end != NULL and self._clocks.get(shard) != row["clock"]:
            self._clocks[shard] = row["clock"]
            clock = self._packets.track(server, "clock", 3, counter=True)
            self._packets.count(clock, end, row["clock"])
        args = {name: row[name] for name in ("iteration", "reason", "lead", "bound")}
        if by != NULL:
            args["released by"] = f"worker-{by}"
            others = self._released.get(shard)
            if others and (others[0]["end_ns"], others[0]["released_by"]) != (end, by):
                self._release(shard)
            self._released.setdefault(shard, []).append(row)
        elif end != NULL:
            return  # answered at once
        pulls = self._packets.track(server, "held pulls", 0, lane=worker)
        until = None if end == NULL else end
        self._packets.slice(pulls, row["start_ns"], until, f"hold worker-{worker}", args)

    def cut_off(self, row: _Row) -> None:
        track = self._packets.track(self._servers, "scheduler", 1 << 16)  # after all servers
        names = {"clock": "gradients", "bound": "waited for"}
        args = {name: row[key] for key, name in names.items() if row[key] != NULL}
        self._packets.slice(track, row["start_ns"], row["end_ns"], str(row["iteration"]), args)

    def all_reduce(self, row: _Row) -> None:
        # Beside what the worker does: they may overlap.
        track = self._packets.track(self._worker(row["worker"]), "all-reduce", 0)
        args = {"iteration": row["iteration"], "members": row["clock"]}
        began, end, number = row["computed_ns"], row["end_ns"], row["version"]
        if began > row["start_ns"]:
            self._packets.slice(track, row["start_ns"], began, "wait for all to join", args)
        if end > began:
            self._packets.slice(track, began, end, f"all-reduce {number}", args)

    def _release(self, shard: int) -> None:
        """Mark it at the worker that did it; the arrows start there."""
        pulls = self._released.pop(shard)
        for row in pulls:
            row["flow"] = self._flows = self._flows + 1
        track = self._worker(pulls[0]["released_by"])
        args: dict[str, int | str] = {"server": self._name(shard), "workers": len(pulls)}
        flows = [row["flow"] for row in pulls]
        self._packets.mark(track, pulls[0]["end_ns"], "release", args, starts=flows)
        for row in pulls:
            self._held[row["worker"]][row["iteration"], shard] = row
            self._draw(row["worker"])

    def _worker(self, worker: int) -> int:
        return self._packets.track(self._workers, f"worker-{worker}", worker, thread=_WORKERS)

    def _server(self, shard: int) -> int:
        return self._packets.track(self._servers, self._name(shard), shard)

    def _name(self, shard: int) -> str:
        return "scheduler" if shard == self._scheduler else f"server-{shard}"
