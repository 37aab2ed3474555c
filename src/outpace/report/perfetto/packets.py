"""Tracks, slices, marks, counters and arrows as packets of Perfetto's format."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from gzip import GzipFile
from typing import Any

from perfetto.protos.perfetto.trace.perfetto_trace_pb2 import TrackDescriptor, TrackEvent
from perfetto.trace_builder.proto_builder import StreamingTraceProtoBuilder

Args = Mapping[str, int | str]


class Packets:
    """Writes each packet as soon as it is known, so memory does not grow with the trace.

    The format: https://perfetto.dev/docs/reference/synthetic-track-event.
    """

    def __init__(self, file: GzipFile) -> None:
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
        thread: int = 0,
        counter: bool = False,
    ) -> int:
        """Return the number of a track, and write the track's description if it is new.

        Args:
            parent: the number of the track that this track is shown under; 0 for none.
            rank: the place among the tracks with this parent.
            lane: distinguishes tracks of the same name, which are shown as one: slices that
                overlap need separate tracks.
            process: the process number, if the track stands for a process.
            thread: the number of its process, if the track stands for a thread.
            counter: the track holds numbers, not slices.
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
        if thread:  # threads need a number, and low numbers have meanings
            described.thread.pid, described.thread.tid = thread, 1000 + rank
            described.thread.thread_name = name
        if counter:
            described.counter.SetInParent()
        self._builder.write_packet(packet)
        return track

    def slice(
        self, track: int, start: int, end: int | None, name: str, args: Args, *, arrow: int = 0
    ) -> None:
        """Add a slice from `start` to `end` (ns); without an end it lasts until the trace ends.

        Args:
            arrow: the arrow that ends where the slice starts.
        """
        packet = self._event(TrackEvent.TYPE_SLICE_BEGIN, track, start, name, args)
        if arrow:
            packet.track_event.terminating_flow_ids.append(arrow)
        self._builder.write_packet(packet)
        if end is not None:
            self._builder.write_packet(self._event(TrackEvent.TYPE_SLICE_END, track, end))

    def mark(
        self, track: int, at: int, name: str, args: Args, *, arrows: Sequence[int] = ()
    ) -> None:
        """Add a mark at which the arrows `arrows` start."""
        packet = self._event(TrackEvent.TYPE_INSTANT, track, at, name, args)
        packet.track_event.flow_ids.extend(arrows)
        self._builder.write_packet(packet)

    def count(self, track: int, at: int, value: int) -> None:
        """Set the value of a counter track."""
        packet = self._event(TrackEvent.TYPE_COUNTER, track, at)
        packet.track_event.counter_value = value
        self._builder.write_packet(packet)

    def _event(
        self, kind: int, track: int, at: int, name: str = "", args: Args | None = None
    ) -> Any:
        packet = self._packet()
        packet.timestamp = at
        event = packet.track_event
        event.type, event.track_uuid = kind, track
        if name:
            event.name = name
        for key, value in (args or {}).items():
            note = event.debug_annotations.add()
            note.name = key
            if isinstance(value, int):
                note.int_value = value
            else:
                note.string_value = value
        return packet

    def _packet(self) -> Any:
        packet = self._builder.create_packet()
        packet.trusted_packet_sequence_id = 1
        return packet
