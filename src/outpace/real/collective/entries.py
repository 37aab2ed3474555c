"""The entries that workers send along with the values of an all-reduce.

Each worker has a row behind the values that no other worker writes, so that the sum is a table of
all entries. Numbers are split into digits, which every floating-point type represents exactly.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import IntEnum
from typing import Final, NamedTuple

from outpace.support.units import Time

_BASE: Final = 256  # bfloat16 represents all whole numbers up to this one
_COUNT, _TIME = 4, 7  # digits: up to 4e9 iterations, two years in ns
_DIGEST: Final = 4
DIGITS: Final = 1 + _COUNT + _TIME + 2 * _DIGEST


class Digests(NamedTuple):
    """Digests that should be equal in all workers, each below 2^32; 0: it is not compared."""

    model: int = 0
    settings: int = 0


class Contribution(IntEnum):
    """The kind of a worker's contribution to an all-reduce."""

    NOTHING = 1
    VALUE = 2
    SPOILED = 3  # a value found not to be finite after part of it was sent


class Entry(NamedTuple):
    """The entry of one worker."""

    part: Contribution
    weight: int  # iterations in the value
    joined: Time  # when the worker joined, in ns since the start of the run
    digests: Digests = Digests()


def digits_of(entry: Entry) -> list[float]:
    """Return an entry as a row of the table."""
    return [
        entry.part,
        *_digits(entry.weight, _COUNT),
        *_digits(entry.joined, _TIME),
        *_digits(entry.digests.model, _DIGEST),
        *_digits(entry.digests.settings, _DIGEST),
    ]


def entries_in(rows: Sequence[Sequence[float]]) -> dict[int, Entry]:
    """Return the entries of the workers that took part, by worker."""
    return {worker: _entry_of(row) for worker, row in enumerate(rows) if row[0]}


def _entry_of(row: Sequence[float]) -> Entry:
    numbers, start = [], 1
    for count in (_COUNT, _TIME, _DIGEST, _DIGEST):
        numbers.append(_number(row[start : start + count]))
        start += count
    weight, joined, *digests = numbers
    part = Contribution(int(row[0]))
    return Entry(part, weight, joined, Digests(*digests))


def _digits(number: int, count: int) -> list[float]:
    return [float(number // _BASE**place % _BASE) for place in range(count)]


def _number(digits: Sequence[float]) -> int:
    return sum(int(digit) * _BASE**place for place, digit in enumerate(digits))
