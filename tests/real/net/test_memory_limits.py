"""What two processes that share memory do at its limits: both are in this process."""

from __future__ import annotations

import errno
import gc
import os
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from tests.real.net.memory_ends import ELEMENTS, Ends

from outpace.blocks.block import whole
from outpace.blocks.sums import all_finite
from outpace.real.net.memory.lane import Lane
from outpace.real.net.memory.pool import Pool
from outpace.real.net.memory.segments import GotSlot, OwnSlot
from outpace.real.net.memory_messages import FreeSlot


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


# -- few file descriptors ---------------------------------------------------------------------


def descriptors() -> int:
    gc.collect()
    return len(os.listdir("/proc/self/fd"))


@pytest.mark.parametrize(
    ("is_read", "own", "got"),
    [(True, 1, 1), (False, 1, 0)],
    ids=["read", "given"],
)
def test_a_slot_has_one_descriptor_and_blocks_have_none(is_read, own, got):
    before = descriptors()
    slot = OwnSlot(0, 4 * ELEMENTS, is_read=is_read)
    assert descriptors() == before + own
    other = GotSlot(os.dup(slot.descriptor), 4 * ELEMENTS)
    assert descriptors() == before + own + got
    blocks = [other.lend(ELEMENTS, torch.float32, lambda: None) for _ in range(5)]
    assert descriptors() == before + own + got
    slot.close()
    del other
    assert descriptors() == before
    assert [block.sum().item() for block in blocks] == [0.0] * 5


def test_memory_that_is_not_used_any_more_is_unmapped():
    def mapped() -> int:
        gc.collect()
        return Path("/proc/self/maps").read_text().count("memfd:outpace")

    before = mapped()
    slot = OwnSlot(0, 4 * ELEMENTS, is_read=True)
    other = GotSlot(os.dup(slot.descriptor), 4 * ELEMENTS)
    blocks = [other.lend(ELEMENTS, torch.float32, lambda: None) for _ in range(5)]
    assert mapped() == before + 6
    part = blocks[0][5:6]
    blocks.clear()
    assert mapped() == before + 2
    assert part.item() == 0.0
    slot.close()
    del part, other, slot
    assert mapped() == before


def test_a_block_that_cannot_be_mapped_is_copied_and_its_slot_is_free(read, monkeypatch):
    def refuse(*_: object, **__: object) -> None:
        raise OSError(errno.ENOMEM, "Cannot allocate memory")

    number = read.share()
    block = torch.arange(ELEMENTS, dtype=torch.float32)
    assert read.sender.place(block) == number
    monkeypatch.setattr("outpace.real.net.memory.segments.mapped", refuse)
    got = read.receiver.block(number, ELEMENTS, torch.float32, all_finite)
    assert torch.equal(whole(got), block)
    assert got.finite
    read.answers.clear()
    read.turns(2)  # `got` is still there
    assert FreeSlot(number) in read.answers
