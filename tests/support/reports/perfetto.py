"""Reads a file for Perfetto back."""

from __future__ import annotations

import gzip
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any


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
    counts: dict[str, list[tuple[int, int]]] = field(default_factory=lambda: defaultdict(list))
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


def fields(data: bytes) -> Iterator[tuple[int, Any]]:
    """Yield the number and the value of each field of a protobuf message."""
    at = 0

    def varint() -> int:
        nonlocal at
        value = shift = 0
        while True:
            byte = data[at]
            at += 1
            value |= (byte & 127) << shift
            shift += 7
            if byte < 128:
                return value - (value >> 63 << 64)

    while at < len(data):
        tag = varint()
        kind = tag & 7
        if kind == 0:
            yield tag >> 3, varint()
        else:
            length = {1: lambda: 8, 2: varint}[kind]()
            assert at + length <= len(data)
            value = data[at : at + length]
            yield tag >> 3, value if kind == 2 else int.from_bytes(value, "little")
            at += length


def read(path: Path) -> Drawn:
    """Numbers as in perfetto_trace.proto. Slices of a track must follow one another."""
    drawn = Drawn()
    paths: dict[int, str] = {}
    open_: dict[int, Slice | None] = {}
    latest: dict[int, int] = defaultdict(int)
    for place, (number, packet) in enumerate(fields(gzip.decompress(path.read_bytes()))):
        assert number == 1
        content = dict(fields(packet))
        assert content[10] == 1
        if 60 in content:
            track = dict(fields(content[60]))
            name = track[2].decode()
            paths[track[1]] = f"{paths[track[5]]}/{name}" if 5 in track else name
            drawn.tracks.append(paths[track[1]])
            continue
        at, event = content[8], list(fields(content[11]))
        of = dict(event)
        track, kind = of[11], of[9]
        if kind == 4:
            drawn.counts[paths[track]].append((at, of[30]))
            continue
        if kind != 3:
            assert at >= latest[track]
            latest[track] = at
        if kind == 2:
            slice_ = open_.pop(track)
            assert slice_ is not None
            slice_.end = at
            continue
        args = {}
        for note in (dict(fields(value)) for number, value in event if number == 4):
            args[note[10].decode()] = note[4] if 4 in note else note[6].decode()
        starts, ends = ([v for number, v in event if number == flow] for flow in (47, 48))
        one = Slice(place, of[23].decode(), at, args, starts, ends)
        if kind == 3:
            drawn.instants[paths[track]].append(one)
        else:
            assert track not in open_
            open_[track] = one
            drawn.slices[paths[track]].append(one)
    return drawn
