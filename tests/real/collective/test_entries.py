"""Entries beside an all-reduce arrive exactly, whatever the type of the sum."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from outpace.real.collective.entries import DIGITS, Digests, Entry, digits_of, entries_in

COUNTS = st.integers(0, 2**32 - 1)
ENTRIES = st.builds(
    Entry,
    weight=COUNTS,
    joined=st.integers(0, 2**56 - 1),
    digests=st.builds(Digests, COUNTS, COUNTS),
)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32, torch.float64])
@given(table=st.dictionaries(st.integers(0, 6), ENTRIES))
def test_the_sum_of_all_rows_is_a_table_of_those_who_took_part(dtype, table):
    total = torch.zeros(7, DIGITS, dtype=dtype)
    for worker, entry in table.items():
        mine = torch.zeros(7, DIGITS, dtype=dtype)
        mine[worker] = torch.tensor(digits_of(entry), dtype=dtype)
        total = total + mine
    assert entries_in(total.tolist()) == table
