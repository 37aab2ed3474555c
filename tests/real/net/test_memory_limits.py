"""What two processes that share memory do at its limits: both are in this process."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch
from tests.real.net.memory_ends import ELEMENTS, Ends

from outpace.real.net.memory.lane import Lane
from outpace.real.net.memory.pool import Pool


@pytest.fixture
def given() -> Iterator[Ends]:
    ends = Ends(is_read=False)
    yield ends
    ends.close()


@pytest.fixture
def read() -> Iterator[Ends]:
    ends = Ends(is_read=True)
    yield ends
    ends.close()


def others(pool: Pool, number: int) -> list[Lane]:
    lanes = [Lane(pool, lambda _: None, is_read=True) for _ in range(number)]
    for lane in lanes:
        pool.join(lane)
    return lanes


def test_a_server_with_many_workers_offers_each_no_more_slots_than_it_takes(read):
    others(read.pool, 70)
    read.share()
    kept = [read.pool.empty(ELEMENTS, torch.float32) for _ in range(80)]
    for block in kept:
        if block is not None:
            read.sender.place(block)
    read.until(lambda: len(read.sender.has) == 64)
    assert sum(block is not None for block in kept) == 64
    assert not read.notes
