"""What workers tell each other along with an all-reduce.

Behind the values every worker has a row in which only it writes, so that the sum is a table of
them all. The numbers are cut into digits that any floating-point type adds to zero without error.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import IntEnum
from typing import Final, NamedTuple

from outpace.support.units import Time

_BASE: Final = 256  # bfloat16 has the whole numbers up to here
_WEIGHT, _TIME = 4, 7  # digits: 4e9 iterations, two years of ns
DIGITS: Final = 1 + _WEIGHT + _TIME


class Contribution(IntEnum):
    """What a worker has in an all-reduce."""

    NOTHING = 1
    VALUE = 2
    SPOILED = 3  # a value that turned out not to be finite when part of it was on its way


class Entry(NamedTuple):
    """What one worker says."""

    part: Contribution
    weight: int  # iterations in it
    joined: Time  # ns since the start of the run


def digits_of(entry: Entry) -> list[float]:
    """Its row."""
    return [entry.part, *_digits(entry.weight, _WEIGHT), *_digits(entry.joined, _TIME)]


def entries_in(rows: Sequence[Sequence[float]]) -> dict[int, Entry]:
    """By worker, of those who took part."""
    return {
        worker: Entry(
            Contribution(int(row[0])), _number(row[1 : 1 + _WEIGHT]), _number(row[1 + _WEIGHT :])
        )
        for worker, row in enumerate(rows)
        if row[0]
    }


def _digits(number: int, count: int) -> list[float]:
    return [float(number // _BASE**place % _BASE) for place in range(count)]


def _number(digits: Sequence[float]) -> int:
    return sum(int(digit) * _BASE**place for place, digit in enumerate(digits))
