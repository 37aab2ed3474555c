"""Rows that come in small batches take the memory of their rows, and stay in order."""

from __future__ import annotations

from outpace.record.sinks import MemorySink
from outpace.record.trace import CHUNK, ITERATION, PUSH, Trace


def test_small_batches_are_joined_in_their_order():
    batches = MemorySink()
    trace = Trace(batches)
    sizes = [1] * 150 + [CHUNK] + [2] * 150
    number = 0
    for size in sizes:
        for _ in range(size):
            trace.row((ITERATION, PUSH)[number % 2], number)
            number += 1
        trace.flush()
    assert batches.rows == number
    # Fewer than 64 are still to be joined; the others are before and after the large one.
    table = batches.table()
    assert table["worker"].num_chunks <= 64 + 2
    assert table["worker"].to_pylist() == list(range(number))
    assert table["event"].to_pylist() == [("iteration", "push")[n % 2] for n in range(number)]
