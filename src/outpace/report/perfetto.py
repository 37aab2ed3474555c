"""Writes a run's trace as a file that https://ui.perfetto.dev opens.

Under "workers" each worker has a track: it computes, communicates, and waits for the server that
answered last. Under "servers" each server has tracks: the pulls that it held, and the pushes that
it received, with their staleness. An arrow leads from a mark on the worker whose push released
another worker to the end of the other worker's wait. If a scheduler closed the iterations, a track
shows the number of gradients that counted in each iteration. Names of tracks contain the node of
the process if the run was on several nodes.

The format is described at https://perfetto.dev/docs/reference/synthetic-track-event.
"""

from __future__ import annotations

import gzip
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
from perfetto.protos.perfetto.trace.perfetto_trace_pb2 import TrackDescriptor, TrackEvent
from perfetto.trace_builder.proto_builder import StreamingTraceProtoBuilder

from outpace.errors import ConfigError
from outpace.record.folder import TRACE, read_summary
from outpace.record.reading import Unreadable, read_rows
from outpace.record.trace import SCHEMA
from outpace.report.read.runs import node_in
from outpace.report.read.traces import read_iterations
from outpace.support.replacing import replace_file

PERFETTO: Final = "perfetto.pftrace.gz"

_WORKERS, _SERVERS = 1, 2  # process numbers
_BATCH: Final = 1 << 12  # number of rows
_LAST: Final = 1 << 16  # the rank of a track after all servers

Row = Mapping[str, Any]
Args = Mapping[str, Any]  # a value that is None is left out


def write_perfetto(run: Path, out: Path) -> None:
    """Convert the trace in the folder of a run into a gzipped file.

    Raises:
        ConfigError: if `run` is not the folder of a run, its trace cannot be read, or `out`
            cannot be written.
    """
    summary = read_summary(run, lenient=True)
    trace = run / TRACE
    try:
        replace_file(out, lambda partial: _write(trace, partial, summary))
    except OSError as error:
        raise ConfigError(f"cannot write {out}: {error.strerror or error}") from error
    except (TypeError, ValueError) as error:
        raise Unreadable(f"{trace}: an event in it lacks a number ({error})") from error


def _write(trace: Path, path: Path, summary: Mapping[str, Any]) -> None:
    iterations = _with_arrows(read_iterations(trace))
    # Gzip records no name and no time, so that equal traces give equal files.
    with path.open("wb") as file, gzip.GzipFile("", "wb", 6, file, mtime=0) as packed:
        drawing = _Drawing(_Packets(packed), summary)
        drawing.releases(iterations)  # marks come before the slices at which their arrows end
        for event, draw in (
            ("push", drawing.push),
            ("pull", drawing.pull),
            ("cut-off", drawing.cut_off),
            ("all-reduce", drawing.joining),
            ("collective", drawing.joining),
            ("checkpoint", drawing.checkpoint),
            ("restart", drawing.restart),
            ("loss", drawing.restart),
        ):
            # The rows of one event at a time, because all rows would need several times the memory.
            for row in _rows(read_rows(trace, SCHEMA.names, pc.field("event") == event)):
                draw(row)
        for row in _rows(iterations):
            drawing.iteration(row)


def _rows(table: pa.Table) -> Iterator[Row]:
    """Yield the rows in the order of their starts."""
    order = pc.sort_indices(table["start_ns"])
    for first in range(0, len(order), _BATCH):  # in batches, because rows as dictionaries are large
        yield from table.take(order[first : first + _BATCH]).to_pylist()


def _with_arrows(iterations: pa.Table) -> pa.Table:
    """Number the arrows from pushes to the waits that they ended; null for other iterations."""
    numbers = pa.array(range(1, len(iterations) + 1), pa.int64())
    ended = pc.less_equal(iterations["pull_ns"], iterations["until_ns"])
    waited = pc.and_(ended, pc.greater(iterations["held_ns"], 0))
    return iterations.append_column("arrow", pc.if_else(waited, numbers, None))


class _Drawing:
    """Draws the rows of a trace, in time order for each worker and each server."""

    def __init__(self, packets: _Packets, summary: Mapping[str, Any]) -> None:
        self._packets, self._summary = packets, summary
        self._workers = packets.track(0, "workers", 0, process=_WORKERS)
        self._servers = packets.track(0, "servers", 0, process=_SERVERS)

    def releases(self, iterations: pa.Table) -> None:
        """Mark each release at the worker whose push caused it; the arrows start there."""
        known = iterations.filter(pc.field("arrow").is_valid())
        groups = known.group_by(["released_by", "shard", "pull_ns"], use_threads=False)
        for row in groups.aggregate([("arrow", "list")]).to_pylist():
            args = {"server": self._name(row["shard"]), "workers": len(row["arrow_list"])}
            track = self._worker(row["released_by"])
            self._packets.mark(track, row["pull_ns"], "release", args, row["arrow_list"])

    def iteration(self, row: Row) -> None:
        since, until, server = row["since_ns"], row["until_ns"], "all to join"
        args = {"iteration": row["iteration"]}
        if row["shard"] is not None:
            server = args["last shard"] = self._name(row["shard"])
        by = {} if row["released_by"] is None else {"released by": f"worker-{row['released_by']}"}
        for start, end, name, more, arrow in (
            (row["start_ns"], row["computed_ns"], "compute", {}, None),
            (row["computed_ns"], since, "communicate", {}, None),
            (since, until, f"wait for {server}", by, None),
            (until, row["end_ns"], "communicate", {}, row["arrow"]),
        ):
            if end > start or name == "compute" or arrow is not None:
                self._packets.slice(
                    self._worker(row["worker"]), start, end, name, args | more, arrow
                )

    def push(self, row: Row) -> None:
        server, start = self._server(row["shard"]), row["start_ns"]
        args = {name: row[name] for name in ("iteration", "version", "staleness", "outcome")}
        args["settled after ns"] = row["end_ns"] - start
        # The mark is at the push's arrival, because marks at the same time are drawn one under the
        # other, and with BSP all pushes of an iteration are settled at the same time.
        pushes = self._packets.track(server, "pushes", 1)
        self._packets.mark(pushes, start, f"push worker-{row['worker']}", args)

    def pull(self, row: Row) -> None:
        worker, shard, end, by = (row[n] for n in ("worker", "shard", "end_ns", "released_by"))
        server = self._server(shard)
        if end is None or by is not None:  # the pull was not answered at once
            args = {name: row[name] for name in ("iteration", "reason", "lead", "bound")}
            args["released by"] = None if by is None else f"worker-{by}"
            pulls = self._packets.track(server, "held pulls", 0, lane=worker)
            self._packets.slice(pulls, row["start_ns"], end, f"hold worker-{worker}", args)

    def cut_off(self, row: Row) -> None:
        args = {"gradients": row["clock"], "waited for": row["bound"]}
        track = self._packets.track(self._servers, "scheduler", _LAST)
        self._packets.slice(track, row["start_ns"], row["end_ns"], str(row["iteration"]), args)

    def joining(self, row: Row) -> None:
        # On a separate track, because it may overlap with the worker's computation.
        what, began, end = row["event"], row["computed_ns"], row["end_ns"]
        args = {"iteration": row["iteration"], "members": row["clock"]}
        track = self._packets.track(self._worker(row["worker"]), what, int(what == "collective"))
        if began > row["start_ns"]:
            self._packets.slice(track, row["start_ns"], began, "wait for all to join", args)
        if end > began:
            self._packets.slice(track, began, end, f"{what} {row['version']}", args)

    def checkpoint(self, row: Row) -> None:
        name, args = f"checkpoint {row['version']}", {"updates": row["clock"]}
        self._packets.mark(self._run(), row["start_ns"], name, args)

    def restart(self, row: Row) -> None:
        """Draw the time from the loss of a process until the run continued as before."""
        who = "run" if row["shard"] is None else self._name(row["shard"])
        who = who if row["worker"] is None else f"worker-{row['worker']}"
        args = {"from iteration": row["iteration"], "from checkpoint": row["version"]}
        start, end = row["start_ns"], row["end_ns"]
        if end > start:
            self._packets.slice(self._run(), start, end, f"{who} is restarted", args)
        else:
            did = "resumed" if who == "run" else "lost"
            self._packets.mark(self._run(), start, f"{who} {did}", args)

    def _run(self) -> int:
        return self._packets.track(self._servers, "run", _LAST + 1)

    def _worker(self, worker: int) -> int:
        name = self._with_node(f"worker-{worker}")
        return self._packets.track(self._workers, name, worker)

    def _server(self, shard: int) -> int:
        return self._packets.track(self._servers, self._with_node(self._name(shard)), shard)

    def _with_node(self, name: str) -> str:
        node = node_in(self._summary, name)
        return f"{name} ({node})" if node else name

    def _name(self, shard: int) -> str:
        scheduler = shard == self._summary.get("scheduler_shard")
        return "scheduler" if scheduler else f"server-{shard}"


class _Packets:
    """Tracks, slices, marks, counters and arrows as packets of Perfetto's format."""

    def __init__(self, file: gzip.GzipFile) -> None:
        self._builder = StreamingTraceProtoBuilder(file)
        self._tracks: dict[tuple[int, str, int], int] = {}

    def track(
        self,
        parent: int,
        name: str,
        rank: int,
        *,
        lane: int = 0,
        process: int = 0,
    ) -> int:
        """Return the number of a track, and write the track's description if it is new.

        Args:
            parent: the number of the track that this track is shown under; 0 for none.
            rank: the place among the tracks with this parent.
            lane: distinguishes tracks of the same name, which are shown as one: slices that
                overlap need separate tracks.
            process: the process number, if the track stands for a process.
        """
        known = self._tracks.get((parent, name, lane))
        if known:
            return known
        track = self._tracks[parent, name, lane] = len(self._tracks) + 1
        packet = self._packet()
        described = packet.track_descriptor
        described.uuid, described.name = track, name
        described.child_ordering = TrackDescriptor.EXPLICIT
        described.sibling_order_rank = rank
        if parent:
            described.parent_uuid = parent
        if process:
            described.process.pid, described.process.process_name = process, name
        self._builder.write_packet(packet)
        return track

    def slice(
        self,
        track: int,
        start: int,
        end: int | None,
        name: str,
        args: Args,
        arrow: int | None = None,
    ) -> None:
        """Add a slice from `start` to `end` (ns); without an end it lasts to the end of the trace.

        Args:
            arrow: the arrow that ends where the slice starts.
        """
        packet = self._event(TrackEvent.TYPE_SLICE_BEGIN, track, start, name, args)
        if arrow is not None:
            packet.track_event.terminating_flow_ids.append(arrow)
        self._builder.write_packet(packet)
        if end is not None:
            self._builder.write_packet(self._event(TrackEvent.TYPE_SLICE_END, track, end))

    def mark(self, track: int, at: int, name: str, args: Args, arrows: Sequence[int] = ()) -> None:
        """Add a mark at which the arrows `arrows` start."""
        packet = self._event(TrackEvent.TYPE_INSTANT, track, at, name, args)
        packet.track_event.flow_ids.extend(arrows)
        self._builder.write_packet(packet)

    def _event(
        self, kind: int, track: int, at: int, name: str = "", args: Args | None = None
    ) -> Any:
        packet = self._packet()
        packet.timestamp = at
        event = packet.track_event
        event.type, event.track_uuid, event.name = kind, track, name
        for key, value in (args or {}).items():
            if value is not None:
                note = event.debug_annotations.add()
                note.name = key
                setattr(note, "int_value" if isinstance(value, int) else "string_value", value)
        return packet

    def _packet(self) -> Any:
        packet = self._builder.create_packet()
        packet.trusted_packet_sequence_id = 1
        return packet
