"""What two processes that share memory do at its limits: both are in this process."""

from __future__ import annotations

import contextlib
import errno
import gc
import os
import resource
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from tests.real.net.memory_ends import ELEMENTS, descriptors

from outpace.blocks.block import whole
from outpace.blocks.sums import all_finite
from outpace.real.net.clock import RealClock
from outpace.real.net.memory.lane import Lane
from outpace.real.net.memory.passing import Asking, Giver
from outpace.real.net.memory.pool import Pool
from outpace.real.net.memory.segments import GotSlot, OwnSlot
from outpace.real.net.memory_messages import DropSlot, FreeSlot, LacksSlot, OfferSlot
from outpace.support.machine import boot_id


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
            read.send(block)
    read.until(lambda: len(read.sender.has) == 64)
    assert sum(block is not None for block in kept) == 64
    assert not read.notes


# -- few file descriptors ---------------------------------------------------------------------


@pytest.fixture
def no_more_files() -> Iterator[Callable[[], list[int]]]:
    """Give a function after which this process cannot open a file.

    It returns descriptors that can be closed.
    """
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    kept: list[int] = []

    def use_up() -> list[int]:
        resource.setrlimit(resource.RLIMIT_NOFILE, (max(used_numbers()) + 1, limits[1]))
        with contextlib.suppress(OSError):
            while True:
                kept.append(os.dup(0))
        return kept

    yield use_up
    for each in kept:
        os.close(each)
    resource.setrlimit(resource.RLIMIT_NOFILE, limits)


def used_numbers() -> list[int]:
    return [int(name) for name in os.listdir("/proc/self/fd")]


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
    assert read.send(block) == number
    monkeypatch.setattr("outpace.real.net.memory.segments.mapped", refuse)
    got = read.receiver.block(number, ELEMENTS, torch.float32, all_finite)
    assert torch.equal(whole(got), block)
    assert got.finite
    read.answers.clear()
    read.turns(2)  # `got` is still there
    assert FreeSlot(number) in read.answers


def test_a_process_without_descriptors_gets_no_slot_and_goes_on(given, no_more_files, monkeypatch):
    monkeypatch.setattr("outpace.real.net.memory.lane.why_no_files", lambda: "")
    given.delivers = False
    given.offer()
    (offer,) = given.sent
    no_more_files()
    given.receiver.take(offer)
    assert given.answers == [LacksSlot(offer.slot, "Too many open files")]
    assert given.send(torch.zeros(ELEMENTS)) is None  # the bytes go over the network


def test_a_slot_that_its_receiver_has_no_descriptor_for_is_refused_alone(given, no_more_files):
    given.offer()
    given.turns(2)  # accepted, and answered
    no_more_files()
    given.until(lambda: given.answers)
    assert given.answers == [LacksSlot(0, "Too many open files")]


def test_a_process_that_cannot_accept_a_connection_accepts_it_later(no_more_files, monkeypatch):
    now_ns = [0]
    monkeypatch.setattr("outpace.real.net.memory.passing.monotonic_ns", lambda: now_ns[0])
    clock, calls = RealClock(), list[int]()
    giver, slot = Giver(clock), OwnSlot(0, 4096, is_read=False)
    found: list[int | OSError] = []
    asking = Asking(clock, giver.address, giver.token_for(slot.descriptor), found.append)
    accept = giver._socket.accept
    sockets = SimpleNamespace(accept=lambda: calls.append(1) or accept())
    sockets.fileno, sockets.close = giver._socket.fileno, giver._socket.close
    giver._socket = sockets  # type: ignore[assignment]
    kept = no_more_files()
    for _ in range(5):
        clock(clock.now + 1000)
    assert calls == [1]  # else the clock would never wait
    assert not found
    while kept:
        os.close(kept.pop())
    for _ in range(5):
        clock(clock.now + 1000)
    assert calls == [1]
    now_ns[0] += 10**9
    for _ in range(5):
        clock(clock.now + 1000)
    assert isinstance(found[0], int)
    os.close(found[0])
    assert not asking.is_open
    giver.close()
    slot.close()


def test_slots_leave_half_of_the_descriptors_to_others(given, read, monkeypatch):
    given.share()
    monkeypatch.setattr("resource.getrlimit", lambda _: (2 * descriptors() - 1, 10**6))
    given.offer(2 * ELEMENTS)
    assert len(given.pool._held) == 1
    assert "ulimit -n" in given.notes[-1]
    read.receiver.take(OfferSlot(0, 4096, f"outpace-{0:032x}", f"{0:064x}", boot_id()))
    assert read.answers[-1].slot == 0
    assert "ulimit -n" in read.answers[-1].reason
    assert not read.answers[-1].is_final
    monkeypatch.undo()
    given.share(2 * ELEMENTS)


def test_a_slot_that_cannot_be_had_does_not_end_the_others(given, monkeypatch):
    number = given.share()
    monkeypatch.setattr("outpace.real.net.memory.lane.why_no_files", lambda: "no more")
    kept = [given.send(torch.zeros(ELEMENTS)) for _ in range(3)]
    given.turns()
    assert kept == [number, None, None]
    assert given.answers[-1] == LacksSlot(1, "no more")
    given.receiver.tell_free(number)
    assert given.send(torch.zeros(ELEMENTS)) == number


def test_a_slot_that_was_refused_is_offered_anew_after_a_minute(given, monkeypatch):
    now_ns = [0]
    monkeypatch.setattr("outpace.real.net.memory.pool.monotonic_ns", lambda: now_ns[0])
    monkeypatch.setattr("outpace.real.net.memory.lane.why_no_files", lambda: "no more")
    given.offer()
    monkeypatch.setattr("outpace.real.net.memory.lane.why_no_files", lambda: "")
    for _ in range(70):
        assert given.send(torch.zeros(ELEMENTS)) is None
        now_ns[0] += 10**9
    given.until(lambda: given.sender.has == {1})


# -- little memory ----------------------------------------------------------------------------


def test_a_slot_is_not_made_if_it_would_fill_the_memory_of_the_container(
    given, monkeypatch, tmp_path
):
    (tmp_path / "memory.max").write_text("1000000\n")
    (tmp_path / "memory.current").write_text("990000\n")
    (tmp_path / "memory.stat").write_text("anon 1\ninactive_file 6000\n")
    monkeypatch.setattr("outpace.support.memory._CGROUP", tmp_path)
    for _ in range(3):  # 4096 bytes of 16000 are more than a quarter
        assert given.send(torch.zeros(ELEMENTS)) is None
    assert not given.sent
    assert given.notes[-1] == "blocks of 4096 bytes go over the network: little memory is free"
    (tmp_path / "memory.current").write_text("980000\n")
    given.share()


# -- slots that are not needed ----------------------------------------------------------------


@pytest.mark.parametrize("kind", ["given", "read"])
def test_a_block_that_is_sent_once_gets_no_slot(kind, request, monkeypatch):
    now_ns = [0]
    monkeypatch.setattr("outpace.real.net.memory.pool.monotonic_ns", lambda: now_ns[0])
    ends = request.getfixturevalue(kind)
    ends.send(torch.zeros(ELEMENTS))
    ends.send(torch.zeros(2 * ELEMENTS))
    now_ns[0] += 61 * 10**9
    ends.send(torch.zeros(ELEMENTS))
    assert not ends.sent
    now_ns[0] += 59 * 10**9
    ends.send(torch.zeros(ELEMENTS))
    assert len(ends.sent) == 1


@pytest.mark.parametrize("kind", ["given", "read"])
def test_a_slot_that_is_not_used_for_a_minute_is_given_back(kind, request, monkeypatch):
    now_ns = [0]
    monkeypatch.setattr("outpace.real.net.memory.pool.monotonic_ns", lambda: now_ns[0])
    ends = request.getfixturevalue(kind)
    before = descriptors()
    number = ends.share()
    assert ends.send(torch.zeros(ELEMENTS)) == number
    now_ns[0] += 300 * 10**9
    ends.turns()  # the receiver has the block
    assert len(ends.sent) == 1
    ends.receiver.tell_free(number)
    now_ns[0] += 59 * 10**9
    ends.turns()
    assert len(ends.sent) == 1
    now_ns[0] += 2 * 10**9
    ends.turns()
    assert ends.sent[1:] == [DropSlot(number)]
    assert descriptors() == before + 1  # the socket for those that fetch slots
    now_ns[0] += 61 * 10**9
    assert ends.share() == number + 1
