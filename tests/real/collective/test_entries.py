"""Entries behind the values of an all-reduce arrive exactly, whatever the type of the sum."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from outpace.real.collective.buffers import Contribution, Digests, Entry, WireBuffer

WORKERS = 7
COUNTS = st.integers(0, 2**32 - 1)
ENTRIES = st.builds(
    Entry,
    part=st.sampled_from(Contribution),
    weight=COUNTS,
    joined=st.integers(0, 2**62),
    digests=st.builds(Digests, COUNTS, COUNTS),
)
TYPES = [torch.bfloat16, torch.float16, torch.float32, torch.float64, torch.uint8]


@pytest.mark.parametrize("dtype", TYPES)
@given(table=st.dictionaries(st.integers(0, WORKERS - 1), ENTRIES, min_size=1))
def test_the_sum_of_all_rows_is_a_table_of_those_who_took_part(dtype, table):
    wires = []
    for worker, entry in table.items():
        wire = WireBuffer([torch.empty(3 + WireBuffer.room(WORKERS), dtype=dtype)], WORKERS)
        assert list(wire.write(torch.ones(3, dtype=dtype), 1.0)) == []  # it has one piece
        assert wire.write_entry(worker, entry) is not None
        wires.append(wire)
    total = wires[0]
    for other in wires[1:]:
        total.buffers[0].add_(other.buffers[0])
    assert total.entries() == table
    assert total.values[0].tolist() == [len(table)] * 3
