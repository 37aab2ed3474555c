"""Perfetto's format, protobuf packets with tracks and events, written by hand."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache


class Packets:
    """The format: https://perfetto.dev/docs/reference/synthetic-track-event."""

    def __init__(self, write: Callable[[bytes], object]) -> None:
        self._write = write
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
        """Its number; described when first asked for.

        rank: its place among its siblings. lane: what overlaps needs tracks of its own;
        those of one name are shown as one. process: its number, if the track is one; thread:
        the number of the process it is a thread of.
        """
        known = self._tracks.get((parent, name, lane))
        if known:
            return known
        track = self._tracks[parent, name, lane] = len(self._tracks) + 1
        fields = [_number(1, track), _bytes(2, name.encode()), _number(11, 3), _number(12, rank)]
        if parent:
            fields.append(_number(5, parent))
        if process:
            fields.append(_bytes(3, _number(1, process) + _bytes(6, name.encode())))
        if thread:  # a number is needed; low ones have meanings
            number = _number(1, thread) + _number(2, 1000 + rank)
            fields.append(_bytes(4, number + _bytes(5, name.encode())))
        if counter:
            fields.append(_bytes(8, b""))
        self._packet(_bytes(60, b"".join(fields)))
        return track

    def slice(
        self,
        track: int,
        start: int,
        end: int | None,
        name: str,
        args: Mapping[str, int | str],
        *,
        ends: int = 0,
    ) -> None:
        """end: None if it never did; ends: the arrow that does at its start."""
        self._event(1, track, start, _named(name, args) + (_fixed(48, ends) if ends else b""))
        if end is not None:
            self._event(2, track, end)

    def mark(
        self,
        track: int,
        at: int,
        name: str,
        args: Mapping[str, int | str],
        *,
        starts: Sequence[int] = (),
    ) -> None:
        """starts: the arrows that do here."""
        flows = b"".join(_fixed(47, flow) for flow in starts)
        self._event(3, track, at, _named(name, args) + flows)

    def count(self, track: int, at: int, value: int) -> None:
        self._event(4, track, at, _number(30, value))

    def _event(self, kind: int, track: int, at: int, fields: bytes = b"") -> None:
        event = _number(9, kind) + _number(11, track) + fields
        self._packet(_number(8, at) + _bytes(11, event))

    def _packet(self, fields: bytes) -> None:
        self._write(_bytes(1, fields + b"\x50\x01"))  # all in sequence 1


def _named(name: str, args: Mapping[str, int | str]) -> bytes:
    return b"".join([_bytes(23, name.encode()), *(_annotation(*item) for item in args.items())])


@lru_cache(1 << 14)
def _annotation(key: str, value: int | str) -> bytes:
    held = _number(4, value) if isinstance(value, int) else _bytes(6, value.encode())
    return _bytes(4, _bytes(10, key.encode()) + held)


@lru_cache(1 << 10)
def _tag(field: int, kind: int) -> bytes:
    return _varint(field << 3 | kind)


def _number(field: int, value: int) -> bytes:
    return _tag(field, 0) + _varint(value)


def _fixed(field: int, value: int) -> bytes:
    return _tag(field, 1) + value.to_bytes(8, "little")


def _bytes(field: int, value: bytes) -> bytes:
    return _tag(field, 2) + _varint(len(value)) + value


def _varint(value: int) -> bytes:
    """Seven bits a byte, the lowest first; a negative number as 64 bits."""
    value &= 2**64 - 1
    parts = bytearray()
    while value > 127:
        parts.append(value & 127 | 128)
        value >>= 7
    parts.append(value)
    return bytes(parts)
