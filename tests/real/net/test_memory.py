"""Processes of one machine exchange large blocks in shared memory."""

from __future__ import annotations

import errno
import gc
import os
import sys
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import pytest
import torch
from tests.contracts.test_transports import Cluster, Process
from tests.real.net.test_memory_stress import is_mapped

from outpace.blocks.block import Pieces, whole
from outpace.errors import ProtocolError
from outpace.real.memory import mapping, slots
from outpace.real.memory.lane import Lane
from outpace.real.memory.mapping import mapped, new_file, opened
from outpace.real.memory.slots import OwnSlots, new_slots
from outpace.real.net.addresses import LOOPBACK
from outpace.real.net.clock import Later, RealClock
from outpace.real.net.messages import MemoryAnswer, OfferMemory
from outpace.real.net.sparse_log import Log
from outpace.real.net.transport import Caller, Session
from outpace.real.zeromq.transport import ZeroMQTransport
from outpace.sync.messages import Push

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="has such memory")
ELEMENTS = 5000
SIZE = 4 * ELEMENTS


def over_memory(name: str, session: Session, clock: RealClock, log: Log) -> ZeroMQTransport:
    return ZeroMQTransport(name, replace(session, shares_memory=True), clock, log)


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(slots, "LEAST_BYTES", SIZE)


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    cluster = Cluster((over_memory, LOOPBACK))
    yield cluster
    cluster.close()


def push(value: float, elements: int = ELEMENTS) -> Push:
    return Push(0, 0, 0, torch.full((elements,), value))


def exchange(cluster: Cluster, send: Callable[..., None], to: Process, value: float) -> Any:
    """Send a block, and return it as it is received, which keeps it."""
    before = len(to.got)
    send(push(value))
    cluster.until(lambda: len(to.got) > before)
    _, _, block = to.got.pop()
    return block


def connected(cluster: Cluster) -> tuple[Process, Caller, Callable[..., None], Callable[..., None]]:
    """Return a worker that shares memory with the server, and how each sends to the other."""
    cluster.server.joins_blocks = False
    worker, caller = cluster.connected()
    worker.joins_blocks = False
    caller.share_memory(SIZE)
    cluster.listener.share_memory(SIZE)
    cluster.until(lambda: is_ready(cluster, caller))

    return worker, caller, caller.send, partial(cluster.listener.send, "worker-0")


def is_ready(cluster: Any, caller: Any) -> bool:
    """True if both ends can send blocks in slots."""
    peers = [each for each in cluster.listener._peers.values() if not each.refused]
    return caller._lane.is_ready and all(peer.lane.is_ready for peer in peers)


def test_the_bytes_do_not_travel_and_are_the_same(cluster):
    worker, _, send, reply = connected(cluster)
    for value in (1.0, 2.0, 3.0, 4.0, 5.0):
        for direction, to in ((send, cluster.server), (reply, worker)):
            got = exchange(cluster, direction, to, value)
            assert is_mapped(got)
            assert torch.equal(whole(got), torch.full((ELEMENTS,), value))
            del got
            gc.collect()


def test_a_slot_is_not_used_again_while_its_receiver_has_the_block(cluster):
    worker, _, send, reply = connected(cluster)
    for direction, to, count in ((send, cluster.server, 3), (reply, worker, 5)):
        values = [float(value) for value in range(7)]
        kept = [exchange(cluster, direction, to, value) for value in values]
        assert [is_mapped(block) for block in kept] == [n < count for n in range(7)]
        for value, block in zip(values, kept, strict=True):
            assert torch.equal(whole(block), torch.full((ELEMENTS,), value))
        kept.clear()
        del block
        gc.collect()
        cluster.clock(cluster.clock.now + 1_000_000)
        cluster.until(lambda: is_mapped(exchange(cluster, direction, to, 6.0)))  # noqa: B023


def test_the_receiver_owns_a_block_and_may_write_into_it(cluster):
    worker, _, send, reply = connected(cluster)
    for direction, to in ((send, cluster.server), (reply, worker)):
        got = exchange(cluster, direction, to, 1.0)
        assert got.is_shared == (direction is send)  # a gradient: its sender also has the memory
        got.add_(Pieces([torch.ones(ELEMENTS)]))
        assert torch.equal(whole(got), torch.full((ELEMENTS,), 2.0))
        del got
        gc.collect()
        after = exchange(cluster, direction, to, 7.0)
        assert torch.equal(whole(after), torch.full((ELEMENTS,), 7.0))


def test_a_push_that_was_sent_before_its_worker_died_is_read(cluster):
    _, caller, send, _ = connected(cluster)
    send(push(8.0))
    caller.close()
    cluster.until(lambda: cluster.server.lost)
    cluster.until(lambda: cluster.server.got and cluster.server.got[-1][2] is not None)
    assert torch.equal(whole(cluster.server.got[-1][2]), torch.full((ELEMENTS,), 8.0))


def open_files() -> int:
    """Return how many descriptors and pieces of shared memory this process has."""
    gc.collect()
    pieces = Path("/proc/self/maps").read_text().count("memfd:outpace")
    return len(os.listdir("/proc/self/fd")) + pieces


def test_one_copy_serves_all_that_are_sent_the_same_block(cluster):
    workers = [cluster.connected(f"worker-{n}")[0] for n in range(2)]
    cluster.listener.share_memory(SIZE)
    cluster.until(lambda: all(peer.lane.is_ready for peer in cluster.listener._peers.values()))
    for worker in workers:
        worker.joins_blocks = False
    for made in (torch.ones(ELEMENTS), torch.ones(ELEMENTS)):
        for n in range(2):
            cluster.listener.send(f"worker-{n}", Push(0, 0, 0, made))
        cluster.until(lambda: all(worker.got for worker in workers))
        got = [worker.got.pop()[2] for worker in workers]
        assert all(map(is_mapped, got))
        assert sum(map(bool, cluster.listener._slots._readers)) == 1
        got[0].add_(Pieces([torch.ones(ELEMENTS)]))  # is nobody else's
        assert torch.equal(whole(got[1]), torch.ones(ELEMENTS))
        assert torch.equal(made, torch.ones(ELEMENTS))
        del got
        gc.collect()
        cluster.clock(cluster.clock.now + 1_000_000)
        cluster.until(lambda: not any(cluster.listener._slots._readers))


@pytest.mark.parametrize("slot", [0, 3, 5])
def test_a_listener_is_not_disturbed_by_a_block_in_a_slot_that_its_peer_may_not_use(cluster, slot):
    worker, caller, send, _ = connected(cluster)
    cluster.listener.when_refused.append((refused := []).append)
    kept = exchange(cluster, send, cluster.server, 1.0)  # in slot 0
    assert is_mapped(kept)
    (frames,) = caller._outgoing.frames(push(1.0), slot=slot)
    caller._socket.send_multipart(frames)
    cluster.until(lambda: refused == ["worker-0"])
    cluster.until(lambda: worker.messages)
    assert f"slot {slot}" in worker.messages[-1].reason
    assert torch.equal(whole(kept), torch.ones(ELEMENTS))


# -- one end alone --------------------------------------------------------------------------


class End:
    """One end of a connection: what it sends, and what it notes."""

    def __init__(self) -> None:
        self.sent: list[Any] = []
        self.notes: list[str] = []
        self.later: Later = deque()
        self.lane = Lane(self.sent.append, self.later, self.notes.append)

    def slots(self) -> OwnSlots | None:
        return new_slots(2, SIZE, self.notes.append, is_read=False)


def offered() -> tuple[End, OfferMemory]:
    end = End()
    end.lane.offer(end.slots())
    (offer,) = end.sent
    return end, offer


def test_messages_that_must_not_come_change_nothing():
    end, offer = offered()
    with pytest.raises(ProtocolError, match="frees slot 0"):
        end.lane.take(MemoryAnswer(has=True, slot=0))
    end.lane.take(MemoryAnswer(has=True))
    for answer in (MemoryAnswer(has=True), MemoryAnswer(has=False)):
        with pytest.raises(ProtocolError, match="again"):
            end.lane.take(answer)
    assert end.lane.is_ready
    other = End()
    for answer in (MemoryAnswer(has=True), MemoryAnswer(has=True, slot=0)):
        with pytest.raises(ProtocolError, match="that was not made"):
            other.lane.take(answer)
    other.lane.take(offer)
    assert other.sent == [MemoryAnswer(has=True)]
    with pytest.raises(ProtocolError, match="offers memory again"):
        other.lane.take(offer)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"boot": "of another machine"}, ""),
        ({"pid": 2**22 + 1}, "another container or process namespace"),
        ({"token": "0" * 64}, "another container or process namespace"),
        ({"nbytes": 2 * SIZE}, "the memory has another size than was offered"),
    ],
    ids=["machine", "process", "token", "size"],
)
def test_memory_that_is_not_what_was_offered_is_not_used(change, reason):
    end, offer = offered()
    before = open_files()
    other = End()
    other.lane.take(msgspec.structs.replace(offer, **change))
    assert other.sent == [MemoryAnswer(has=False, reason=reason)]
    assert open_files() == before
    end.lane.take(other.sent[0])
    assert not end.lane.is_ready
    assert len(end.notes) == bool(reason)


def test_others_cannot_write_to_memory_that_they_read_nor_cut_it_off(monkeypatch):
    descriptor, memory, token = new_file(8192, is_read=True)
    with pytest.raises(PermissionError):
        os.ftruncate(descriptor, 4096)
    with pytest.raises(PermissionError):
        os.pwrite(descriptor, b"x", 0)
    memory[4096] = 7
    copy = mapped(descriptor, 4096, start=4096, is_private=True)
    assert copy[0] == 7
    copy[0] = 9
    assert memory[4096] == 7
    os.close(descriptor)
    monkeypatch.setattr(mapping, "_SIZE_SEALS", 0)
    descriptor, _, token = new_file(8192, is_read=False)
    monkeypatch.undo()
    with pytest.raises(OSError, match="not sealed"):
        opened(os.getpid(), descriptor, 8192, token)
    os.close(descriptor)


def test_an_offer_of_anything_else_than_memory_opens_nothing(tmp_path):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    descriptor = os.open(pipe, os.O_RDWR)
    other = End()
    _, offer = offered()
    other.lane.take(msgspec.structs.replace(offer, descriptor=descriptor))
    assert other.sent == [MemoryAnswer(has=False, reason="another container or process namespace")]
    os.close(descriptor)


def test_where_memory_or_descriptors_are_short_blocks_go_over_the_network(monkeypatch):
    def no_file(*_: object) -> int:
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    end, _ = offered()
    end.lane.take(MemoryAnswer(has=True))
    with monkeypatch.context() as short:
        short.setattr(slots, "free_bytes", lambda: 3 * SIZE)
        assert end.lane.place(push(1.0)) is None
    assert end.lane.place(push(1.0)) == 0
    other = End()
    with monkeypatch.context() as short:
        short.setattr(os, "memfd_create", no_file)
        assert other.slots() is None
        assert other.notes == ["blocks go over the network: Too many open files"]
        short.delattr("os.memfd_create")  # another system, which is no news
        assert other.slots() is None
    assert len(other.notes) == 1
