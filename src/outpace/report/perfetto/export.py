"""Writes a run's trace as a file that https://ui.perfetto.dev opens.

Under "workers" each worker has a track: it computes, communicates, and waits for the server
that answered last. Under "servers" each server has tracks: the pulls that it held, the pushes
that it received, the staleness of the gradients that it applied, and its clock. An arrow leads
from a mark on the worker whose push released another worker to the end of that worker's wait.
If a scheduler closed the iterations, it has a track with the number of gradients that counted in
each iteration. Names of tracks have the node of the process, if the run was on several.

Packets are written as rows are read, so memory does not grow with the run.
"""

from __future__ import annotations

import gzip
from collections import defaultdict, deque
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final, TypeAlias

import numpy as np

from outpace.errors import ConfigError
from outpace.record.folder import TRACE
from outpace.record.reading import Columns, batches, chosen_rows, columns_of, reading
from outpace.record.trace import EVENTS, NONE, SCHEMA
from outpace.report.perfetto.packets import Packets
from outpace.report.read.runs import node_in, read_summary_of, scheduler_of
from outpace.support.replacing import replace_file

Row: TypeAlias = dict[str, Any]

PERFETTO: Final = "perfetto.pftrace.gz"

_WORKERS, _SERVERS = 1, 2  # process numbers
_FORMER: Final = ("resync", "switch", "gap")  # events of earlier versions, which are not drawn


def write_perfetto(run: Path, out: Path) -> None:
    """Convert the trace in the folder of a run into a gzipped file.

    Raises:
        ConfigError: if `run` is not the folder of a run, its trace cannot be read, or `out`
            cannot be written.
    """
    summary = read_summary_of(run)
    try:
        replace_file(out, lambda partial: _write(run / TRACE, partial, summary))
    except OSError as error:
        raise ConfigError(f"cannot write {out}: {error.strerror or error}") from error


def _write(trace: Path, path: Path, summary: Mapping[str, Any]) -> None:
    # Gzip records no name and no time, so that equal traces give equal files.
    with path.open("wb") as file, gzip.GzipFile("", "wb", 6, file, mtime=0) as packed:
        drawing = _Drawing(Packets(packed), summary)
        draw = {
            "iteration": drawing.iteration,
            "push": drawing.push,
            "pull": drawing.pull,
            "cut-off": drawing.cut_off,
            "all-reduce": drawing.all_reduce,
            "collective": drawing.collective,
            "checkpoint": drawing.checkpoint,
            "restart": drawing.restart,
            "loss": drawing.restart,
        }
        for row in _rows_of(trace):
            draw[row["event"]](row)
        drawing.finish()


def _rows_of(trace: Path) -> Iterator[Row]:
    """Yield the rows in the file's order; a null number is NONE.

    Raises:
        Unreadable: if the file cannot be read or a row contradicts itself.
    """
    with reading(trace):
        for rows in batches(trace, SCHEMA.names):
            columns = columns_of(rows, SCHEMA.names)
            known = ~np.isin(columns["event"], _FORMER)
            columns = {name: column[known] for name, column in columns.items()}
            _require_sense(columns)
            yield from chosen_rows(columns, slice(None))


def _require_sense(of: Columns) -> None:
    event = of["event"]
    if not np.isin(event, EVENTS).all():
        raise ValueError("an event in it is of an unknown kind")
    of_run = np.isin(event, ("checkpoint", "restart", "loss"))
    of_all = (
        event == "cut-off"
    ) | of_run  # concerns all workers and servers: its row names none of them
    # Without servers, an iteration names no server, and an all-reduce has its own row.
    averages = (event == "all-reduce") | (event == "collective")
    no_server = averages | (event == "iteration") & (of["shard"] == NONE)
    whose = of["worker"][~of_all], of["shard"][~(of_all | no_server)]
    what = (of["iteration"][~of_run], of["start_ns"], of["clock"][event == "cut-off"])
    if min(values.min(initial=0) for values in (*whose, *what)) < 0:
        raise ValueError("an event in it lacks a worker, server, iteration or time")
    start, end, computed, held = (of[n] for n in ("start_ns", "end_ns", "computed_ns", "held_ns"))
    parts = (computed >= start) & (held >= 0) & (end - computed >= held) | (event != "iteration")
    parts &= (computed >= start) & (end >= computed) | ~averages
    unanswered = (event == "pull") & (end == NONE)
    if not ((end >= start) & parts | unanswered).all():
        raise ValueError("an event in it ends before it begins")


class _Drawing:
    """Draws the trace row by row. The rows of each worker and of each server are in time order.

    In a real run, rows of different workers and servers are not in time order, so an iteration
    is drawn only when the pull that it waited for is known.

    summary: of the run; its nodes are in the names of the tracks.
    """

    def __init__(self, packets: Packets, summary: Mapping[str, Any]) -> None:
        self._packets, self._summary = packets, summary
        self._scheduler = scheduler_of(summary)
        self._workers = packets.track(0, "workers", 0, process=_WORKERS)
        self._servers = packets.track(0, "servers", 0, process=_SERVERS)
        self._flows = 0
        self._released: dict[int, list[Row]] = {}  # server -> pulls that one push released
        self._undrawn: dict[int, deque[Row]] = defaultdict(deque)  # by worker
        self._held: dict[int, dict[tuple[int, int], Row]] = defaultdict(dict)
        self._clocks: dict[int, int] = {}

    def iteration(self, row: Row) -> None:
        """Draw an iteration, in the order of the rows."""
        self._undrawn[row["worker"]].append(row)
        self._draw(row["worker"])

    def finish(self) -> None:
        """Draw the iterations whose pulls never came."""
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
            if rows[0]["held_ns"] and not pull and shard != NONE:
                return
            self._iteration(rows.popleft(), pull)
            for key in [key for key in held if key[0] <= iteration]:
                del held[key]

    def _iteration(self, row: Row, pull: Row) -> None:
        computed, end, held = row["computed_ns"], row["end_ns"], row["held_ns"]
        server, put = self._name(row["shard"]), self._packets.slice
        args = {"iteration": row["iteration"], "last shard": server}
        # If the server's clock differs, the wait keeps its length and stays inside the iteration.
        until = max(computed + held, min(pull.get("end_ns", end), end))
        if row["shard"] == NONE:  # without servers the wait comes before the communication
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
            put(track, until, end, "communicate", args, arrow=flow)

    def push(self, row: Row) -> None:
        server, start, end = self._server(row["shard"]), row["start_ns"], row["end_ns"]
        names = ("iteration", "version", "staleness", "outcome")
        args = {name: row[name] for name in names if row[name] != NONE}
        # Marked at its arrival, because marks at the same time are drawn one under the other, and
        # under BSP all pushes of an iteration are settled at the same time.
        pushes = self._packets.track(server, "pushes", 1)
        args["settled after ns"] = end - start
        self._packets.mark(pushes, start, f"push worker-{row['worker']}", args)
        if "staleness" in args:
            staleness = self._packets.track(server, "staleness", 2, counter=True)
            self._packets.count(staleness, end, row["staleness"])

    def pull(self, row: Row) -> None:
        worker, shard, end, by = (row[n] for n in ("worker", "shard", "end_ns", "released_by"))
        server = self._server(shard)
        if end != NONE and self._clocks.get(shard) != row["clock"]:
            self._clocks[shard] = row["clock"]
            clock = self._packets.track(server, "clock", 3, counter=True)
            self._packets.count(clock, end, row["clock"])
        args = {name: row[name] for name in ("iteration", "reason", "lead", "bound")}
        if by != NONE:
            args["released by"] = f"worker-{by}"
            others = self._released.get(shard)
            if others and (others[0]["end_ns"], others[0]["released_by"]) != (end, by):
                self._release(shard)
            self._released.setdefault(shard, []).append(row)
        elif end != NONE:
            return  # answered at once
        pulls = self._packets.track(server, "held pulls", 0, lane=worker)
        until = None if end == NONE else end
        self._packets.slice(pulls, row["start_ns"], until, f"hold worker-{worker}", args)

    def cut_off(self, row: Row) -> None:
        track = self._packets.track(self._servers, "scheduler", 1 << 16)  # after all servers
        names = {"clock": "gradients", "bound": "waited for"}
        args = {name: row[key] for key, name in names.items() if row[key] != NONE}
        self._packets.slice(track, row["start_ns"], row["end_ns"], str(row["iteration"]), args)

    def all_reduce(self, row: Row) -> None:
        # On its own track, because it may overlap with the worker's computation.
        args = {"iteration": row["iteration"], "members": row["clock"]}
        self._joined("all-reduce", row, args)

    def checkpoint(self, row: Row) -> None:
        args: dict[str, int | str] = {"updates": row["clock"]}
        name = f"checkpoint {row['version']}"
        self._packets.mark(self._run(), row["start_ns"], name, args)

    def restart(self, row: Row) -> None:
        """Draw from the loss of a process until the run continued as before."""
        who = "run"
        if row["worker"] != NONE:
            who = f"worker-{row['worker']}"
        elif row["shard"] != NONE:
            who = self._name(row["shard"])
        names = {"iteration": "from iteration", "version": "from checkpoint"}
        args: dict[str, int | str] = {
            name: row[key] for key, name in names.items() if row[key] != NONE
        }
        if row["end_ns"] > row["start_ns"]:
            self._packets.slice(
                self._run(), row["start_ns"], row["end_ns"], f"{who} is restarted", args
            )
        else:
            did = "resumed" if who == "run" else "lost"
            self._packets.mark(self._run(), row["start_ns"], f"{who} {did}", args)

    def _run(self) -> int:
        return self._packets.track(self._servers, "run", (1 << 16) + 1)  # after the scheduler

    def collective(self, row: Row) -> None:
        self._joined("collective", row, {"iteration": row["iteration"]})

    def _joined(self, what: str, row: Row, args: dict[str, int | str]) -> None:
        track = self._packets.track(self._worker(row["worker"]), what, int(what == "collective"))
        began, end, number = row["computed_ns"], row["end_ns"], row["version"]
        if began > row["start_ns"]:
            self._packets.slice(track, row["start_ns"], began, "wait for all to join", args)
        if end > began:
            self._packets.slice(track, began, end, f"{what} {number}", args)

    def _release(self, shard: int) -> None:
        """Mark the release at the worker whose push caused it; the arrows start there."""
        pulls = self._released.pop(shard)
        for row in pulls:
            row["flow"] = self._flows = self._flows + 1
        track = self._worker(pulls[0]["released_by"])
        args: dict[str, int | str] = {"server": self._name(shard), "workers": len(pulls)}
        flows = [row["flow"] for row in pulls]
        self._packets.mark(track, pulls[0]["end_ns"], "release", args, arrows=flows)
        for row in pulls:
            self._held[row["worker"]][row["iteration"], shard] = row
            self._draw(row["worker"])

    def _worker(self, worker: int) -> int:
        name = self._with_node(f"worker-{worker}")
        return self._packets.track(self._workers, name, worker, thread=_WORKERS)

    def _server(self, shard: int) -> int:
        return self._packets.track(self._servers, self._with_node(self._name(shard)), shard)

    def _with_node(self, name: str) -> str:
        node = node_in(self._summary, name)
        return f"{name} ({node})" if node else name

    def _name(self, shard: int) -> str:
        return "scheduler" if shard == self._scheduler else f"server-{shard}"
