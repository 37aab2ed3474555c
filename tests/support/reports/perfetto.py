"""Reads a file for Perfetto back."""

from __future__ import annotations

import gzip
from collections import defaultdict
from dataclasses import dataclass, field
from pathlib import Path

from perfetto.protos.perfetto.trace.perfetto_trace_pb2 import Trace, TrackEvent


@dataclass
class Slice:
    place: int  # in the file
    name: str
    start: int
    args: dict[str, int | str]
    starts: list[int]
    ends: list[int]
    end: int | None = None


@dataclass
class Drawn:
    """A file read back; tracks by path, as in `servers/server-0/pushes`."""

    slices: dict[str, list[Slice]] = field(default_factory=lambda: defaultdict(list))
    instants: dict[str, list[Slice]] = field(default_factory=lambda: defaultdict(list))
    tracks: list[str] = field(default_factory=list)

    def spans(self, track: str) -> list[tuple[str, int, int | None]]:
        return [(s.name, s.start, s.end) for s in self.slices[track]]

    def arrows(self) -> set[tuple[str, int, str, int]]:
        """(track, time) of the mark where it starts -> (track, start) of the slice it ends at."""
        marks = {
            flow: (track, s)
            for track, marks in self.instants.items()
            for s in marks
            for flow in s.starts
        }
        ends = [
            (s.ends[0], track, s) for track in self.slices for s in self.slices[track] if s.ends
        ]
        assert len({flow for flow, *_ in ends}) == len(ends)
        for flow, _, s in ends:  # Perfetto sorts by time, keeping the order of equal ones
            assert (marks[flow][1].start, marks[flow][1].place) < (s.start, s.place)
        return {(marks[f][0], marks[f][1].start, track, s.start) for f, track, s in ends}


def read(path: Path) -> Drawn:
    """Read a file back. Slices of a track must follow one another."""
    drawn = Drawn()
    paths: dict[int, str] = {}
    open_: dict[int, Slice] = {}
    latest: dict[int, int] = defaultdict(int)
    trace = Trace.FromString(gzip.decompress(path.read_bytes()))
    for place, packet in enumerate(trace.packet):
        if packet.HasField("track_descriptor"):
            track = packet.track_descriptor
            above = f"{paths[track.parent_uuid]}/" if track.parent_uuid else ""
            paths[track.uuid] = f"{above}{track.name}"
            drawn.tracks.append(paths[track.uuid])
            continue
        at, event = packet.timestamp, packet.track_event
        name = paths[event.track_uuid]
        if event.type != TrackEvent.TYPE_INSTANT:
            assert at >= latest[event.track_uuid]
            latest[event.track_uuid] = at
        if event.type == TrackEvent.TYPE_SLICE_END:
            open_.pop(event.track_uuid).end = at
            continue
        args = {
            note.name: getattr(note, note.WhichOneof("value")) for note in event.debug_annotations
        }
        ends = list(event.terminating_flow_ids)
        one = Slice(place, event.name, at, args, list(event.flow_ids), ends)
        if event.type == TrackEvent.TYPE_INSTANT:
            drawn.instants[name].append(one)
        else:
            assert event.track_uuid not in open_
            open_[event.track_uuid] = one
            drawn.slices[name].append(one)
    return drawn
