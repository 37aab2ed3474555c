"""Blocks of processes of one machine go through memory that both have."""

from __future__ import annotations

import fcntl
import gc
import mmap
import os
import socket
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.contracts.test_transports import Cluster, Process
from tests.real.net.memory_ends import Ends

from outpace.blocks.block import Pieces, whole
from outpace.errors import ProtocolError
from outpace.real.net.addresses import LOOPBACK
from outpace.real.net.block_frames import head_of
from outpace.real.net.clock import RealClock
from outpace.real.net.memory.passing import Asking, Giver
from outpace.real.net.memory.pool import Pool
from outpace.real.net.memory.segments import GotSlot, OwnSlot
from outpace.real.net.messages import WirePush
from outpace.real.net.probe_messages import Probe, ProbeAnswer
from outpace.real.net.sparse_log import Log
from outpace.real.net.transport import Caller, Listener, Session
from outpace.real.net.zeromq.transport import ZeroMQTransport

ELEMENTS = 5000
# Workers that come and go; `make soak` has 10,000. Each has slots of 40 kB.
JOINS = int(os.environ.get("OUTPACE_MEMORY_JOINS", "5"))
MOST_GROWTH = 20_000_000  # bytes: a twentieth of the slots of 10,000 workers
pools: dict[str, Pool] = {}


def over_memory(name: str, session: Session, clock: RealClock, log: Log) -> ZeroMQTransport:
    pools[name] = Pool(clock, log, least_bytes=4 * ELEMENTS)
    return ZeroMQTransport(name, session, clock, log, pools[name])


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    cluster = Cluster((over_memory, LOOPBACK), insecure=False)
    yield cluster
    cluster.close()


def push(value: float, elements: int = ELEMENTS) -> tuple[WirePush, torch.Tensor]:
    block = torch.full((elements,), value)
    return WirePush(0, 0, 0, head_of(block)), block


def exchange(cluster: Cluster, send: Callable[..., None], to: Process, value: float) -> Any:
    """Send a block, and return it as it is received, which keeps it."""
    before = len(to.got)
    send(*push(value))
    cluster.until(lambda: len(to.got) > before)
    _, _, block = to.got.pop()
    return block


def lanes(cluster: Cluster) -> tuple[Process, Caller, Callable[..., None], Callable[..., None]]:
    """Return a worker that shares memory with the server, and how each sends to the other."""
    cluster.server.joins_blocks = False
    worker, caller = cluster.connected()
    worker.joins_blocks = False

    def reply(message: Any, block: Any) -> None:
        cluster.listener.send("worker-0", message, block)

    for _ in range(3):  # the second time the slots are offered
        exchange(cluster, caller.send, cluster.server, 0.0)
        exchange(cluster, reply, worker, 0.0)
    for pool in (pools["worker-0"], pools["server-0"]):
        cluster.until(lambda: slots(pool) == [1] and is_unused(pool))  # noqa: B023  # called here
    return worker, caller, caller.send, reply


def slots(pool: Pool) -> list[int]:
    """Return how many processes have each slot."""
    return [sum(number in lane.has for lane in pool.lanes) for number in pool._held]


def is_unused(pool: Pool) -> bool:
    gc.collect()
    return all(held.is_free for held in pool._held.values())


def is_mapped(block: Any) -> bool:
    """True if a block lies in memory that was shared."""
    address = (block.parts[0] if isinstance(block, Pieces) else block).data_ptr()
    for line in Path("/proc/self/maps").read_text().splitlines():
        low, _, rest = line.partition("-")
        if int(low, 16) <= address < int(rest.partition(" ")[0], 16):
            return "memfd:outpace" in line
    return False


def test_after_the_first_blocks_the_bytes_do_not_travel_and_are_the_same(cluster):
    worker, _, send, reply = lanes(cluster)
    for value in (1.0, 2.0, 3.0):
        for direction, to in ((send, cluster.server), (reply, worker)):
            got = exchange(cluster, direction, to, value)
            assert is_mapped(got)
            assert torch.equal(whole(got), torch.full((ELEMENTS,), value))
            del got
            cluster.until(lambda: all(map(is_unused, pools.values())))
    assert len(pools["worker-0"]._held) == len(pools["server-0"]._held) == 1


def test_probes_go_over_the_network_which_they_measure(cluster):
    worker, _, send, reply = lanes(cluster)
    zeros = torch.zeros(4 * ELEMENTS, dtype=torch.uint8)  # as large as the blocks in the slots
    head = head_of(zeros)
    for _ in range(2):
        cluster.server.got.clear()
        send(Probe(0, head), zeros)
        cluster.until(lambda: cluster.server.got)
        assert not is_mapped(cluster.server.got.pop()[2])
        reply(ProbeAnswer(0, 0, head), zeros)
        cluster.until(lambda: worker.got)
        assert not is_mapped(worker.got.pop()[2])
    assert is_mapped(exchange(cluster, send, cluster.server, 1.0))
    assert is_mapped(exchange(cluster, reply, worker, 1.0))


def test_memory_that_is_offered_before_there_is_a_connection_is_shared(cluster):
    worker = cluster.process("worker-0")
    caller = cluster.call(worker)
    for _ in range(2):
        caller.send(*push(1.0))  # the first messages of all
    cluster.until(lambda: slots(pools["worker-0"]) == [1])


def test_a_slot_is_not_used_again_while_its_receiver_has_the_block(cluster):
    worker, _, send, reply = lanes(cluster)
    for direction, to, pool in ((send, cluster.server, "worker-0"), (reply, worker, "server-0")):
        first = exchange(cluster, direction, to, 1.0)
        others = [exchange(cluster, direction, to, value) for value in (2.0, 3.0, 4.0, 5.0)]
        assert torch.equal(whole(first), torch.full((ELEMENTS,), 1.0))
        for value, other in zip((2.0, 3.0, 4.0, 5.0), others, strict=True):
            assert torch.equal(whole(other), torch.full((ELEMENTS,), value))
        known = len(pools[pool]._held)
        assert 2 <= known <= 4
        del first, others, other
        cluster.until(lambda: is_unused(pools[pool]))  # noqa: B023  # called here
        assert is_mapped(exchange(cluster, direction, to, 6.0))


def test_the_receiver_owns_a_block_and_may_write_into_it(cluster):
    worker, _, send, reply = lanes(cluster)
    for direction, to in ((send, cluster.server), (reply, worker)):
        got = exchange(cluster, direction, to, 1.0)
        assert got.is_shared == (direction is send)  # a gradient: its sender has the memory, too
        got.add_(Pieces([torch.ones(ELEMENTS)]))
        assert torch.equal(whole(got), torch.full((ELEMENTS,), 2.0))
        del got
        gc.collect()
        assert torch.equal(
            whole(exchange(cluster, direction, to, 7.0)), torch.full((ELEMENTS,), 7.0)
        )


def test_one_copy_serves_all_that_are_sent_the_same_block(cluster):
    cluster.server.joins_blocks = False
    workers = [cluster.connected(f"worker-{n}")[0] for n in range(2)]
    pool = pools["server-0"]

    def sent(block: torch.Tensor) -> list[Any]:
        for n in range(2):
            cluster.listener.send(f"worker-{n}", WirePush(0, 0, 0, head_of(block)), block)
        cluster.until(lambda: all(worker.got for worker in workers))
        return [worker.got.pop()[2] for worker in workers]

    for worker in workers:
        worker.joins_blocks = False
    for _ in range(2):
        sent(torch.zeros(ELEMENTS))
    cluster.until(lambda: slots(pool) == [2])
    got = sent(torch.ones(ELEMENTS))
    assert all(map(is_mapped, got))
    assert len(pool._held) == 1
    got[0].add_(Pieces([torch.ones(ELEMENTS)]))  # is nobody else's
    assert torch.equal(whole(got[1]), torch.ones(ELEMENTS))
    del got[0]
    gc.collect()
    cluster.until(lambda: sum(pool._held[0].readers.values()) == 1)
    assert not pool._held[0].is_free


def test_a_tensor_that_was_made_in_shared_memory_is_sent_without_a_copy(cluster):
    worker, _, _, reply = lanes(cluster)
    pool = pools["server-0"]
    block = pool.empty(ELEMENTS, torch.float32)
    assert block is not None
    block.fill_(3.0)
    cluster.listener.send("worker-0", WirePush(0, 0, 0, head_of(block)), block)
    cluster.until(lambda: worker.got)
    got = worker.got.pop()[2]
    assert is_mapped(got)
    assert torch.equal(whole(got), torch.full((ELEMENTS,), 3.0))
    del got
    gc.collect()
    cluster.until(lambda: not pool._held[0].readers)
    other = exchange(cluster, reply, worker, 4.0)  # the tensor is still there
    assert torch.equal(block, torch.full((ELEMENTS,), 3.0))
    assert torch.equal(whole(other), torch.full((ELEMENTS,), 4.0))
    del block
    assert torch.equal(whole(exchange(cluster, reply, worker, 5.0)), torch.full((ELEMENTS,), 5.0))


def test_a_gradient_that_was_made_in_memory_of_its_connection_is_sent_without_a_copy(cluster):
    _, caller, send, _ = lanes(cluster)
    pool = pools["worker-0"]
    block = caller.memory(ELEMENTS, torch.float32)
    assert block is not None
    assert caller.memory(ELEMENTS, torch.float32) is None  # the only slot is in use
    assert caller.memory(10, torch.float32) is None  # too small to share
    block.fill_(3.0)
    cluster.server.got.clear()
    send(WirePush(0, 0, 0, head_of(block)), block)
    cluster.until(lambda: cluster.server.got)
    got = cluster.server.got.pop()[2]
    got.add_(Pieces([torch.ones(ELEMENTS)]))
    assert torch.equal(block, torch.full((ELEMENTS,), 4.0))  # the same memory
    other = exchange(cluster, send, cluster.server, 5.0)  # one more slot, which is offered now
    assert torch.equal(whole(other), torch.full((ELEMENTS,), 5.0))
    assert torch.equal(block, torch.full((ELEMENTS,), 4.0))
    del got, other
    cluster.until(lambda: not any(held.readers for held in pool._held.values()))
    assert pool._held[0].lent == 1  # the worker still has the block
    del block
    cluster.until(lambda: is_unused(pool))
    assert caller.memory(ELEMENTS, torch.float32) is not None


def test_a_block_that_was_made_for_one_server_is_copied_for_another():
    ends = Ends(is_read=False)
    other = Ends(is_read=False, pool=ends.pool)
    ends.share(ELEMENTS)
    number = other.share(ELEMENTS)
    block = ends.sender.memory(ELEMENTS, torch.float32)
    assert block is not None
    block.fill_(2.0)
    assert other.send(block) == number
    got = other.receiver.block(number, ELEMENTS, torch.float32, None)
    block.fill_(9.0)
    assert torch.equal(whole(got), torch.full((ELEMENTS,), 2.0))
    del got, block
    other.close()
    ends.close()


def test_a_push_that_was_sent_before_its_worker_died_is_read(cluster):
    _, caller, send, _ = lanes(cluster)
    send(*push(8.0))
    caller.close()
    cluster.until(lambda: cluster.server.lost)
    cluster.until(lambda: cluster.server.got and cluster.server.got[-1][2] is not None)
    assert torch.equal(whole(cluster.server.got[-1][2]), torch.full((ELEMENTS,), 8.0))


def test_memory_of_a_worker_that_has_finished_is_given_back(cluster):
    before = mapped()
    worker, _, send, _ = lanes(cluster)
    kept = [exchange(cluster, send, cluster.server, value) for value in (1.0, 2.0)]
    send(*push(3.0))
    worker.transport.close()
    cluster._processes.remove(worker)
    cluster.until(lambda: cluster.server.lost)
    cluster.until(lambda: cluster.server.got and cluster.server.got[-1][2] is not None)
    assert torch.equal(whole(cluster.server.got.pop()[2]), torch.full((ELEMENTS,), 3.0))
    kept.clear()
    cluster.until(lambda: mapped() <= before + 1)  # the server's own slot


def test_memory_and_descriptors_are_those_of_before_after_workers_came_and_went(cluster):
    def come_and_go(generation: int) -> None:
        worker = cluster.process("worker-0", generation)
        worker.joins_blocks = False
        caller = cluster.call(worker)
        cluster.listener.replace("worker-0", generation)
        for _ in range(2):
            exchange(cluster, caller.send, cluster.server, 1.0)
        cluster.until(lambda: slots(pools["worker-0"]) == [1])
        exchange(cluster, caller.send, cluster.server, 1.0)
        worker.transport.close()
        cluster.until(lambda: cluster.server.lost)
        cluster.server.lost.clear()
        cluster._processes.remove(worker)

    cluster.server.joins_blocks = False
    for generation in range(1, 3 + JOINS // 10):
        come_and_go(generation)
    known, resident, names = open_files(), resident_bytes(), sorted(os.listdir("/dev/shm"))
    for generation in range(3 + JOINS // 10, 3 + JOINS // 10 + JOINS):
        come_and_go(generation)
    cluster.until(lambda: open_files() <= known)  # ZeroMQ closes its connections in a thread
    assert sorted(os.listdir("/dev/shm")) == names
    assert len(cluster.listener._peers) <= 1  # the last worker, whose name is not given away yet
    if JOINS >= 1000:  # the growth of fewer could not be told from that of the allocator
        assert resident_bytes() - resident < MOST_GROWTH


def resident_bytes() -> int:
    gc.collect()
    return int(Path("/proc/self/statm").read_text().split()[1]) * mmap.PAGESIZE


def open_files() -> int:
    return len(os.listdir("/proc/self/fd")) + mapped()


def mapped() -> int:
    """Return how many pieces of shared memory this process has mapped."""
    gc.collect()
    return Path("/proc/self/maps").read_text().count("memfd:outpace")


# -- slots and their passing ----------------------------------------------------------------


def test_others_cannot_write_into_a_slot_that_is_read_nor_cut_it_off():
    slot = OwnSlot(0, 8192, is_read=True)
    with pytest.raises(PermissionError):
        os.ftruncate(slot.descriptor, 4096)
    with pytest.raises(PermissionError):
        os.pwrite(slot.descriptor, b"x", 0)
    slot.view(4, torch.float32).fill_(2.0)
    got = GotSlot(os.dup(slot.descriptor), 8192).lend(4, torch.float32, lambda: None)
    assert got.tolist() == [2.0] * 4
    got[0] = 9.0
    assert slot.view(1, torch.float32).item() == 2.0
    slot.close()


@pytest.mark.parametrize(
    ("seals", "nbytes", "words"),
    [(0, 4096, "not sealed"), (2, 4096, "not sealed"), (6, 8192, "where 8192 were offered")],
)
def test_memory_that_could_be_cut_off_or_is_not_what_was_offered_is_refused(seals, nbytes, words):
    descriptor = os.memfd_create("other", os.MFD_ALLOW_SEALING)
    os.ftruncate(descriptor, 4096)
    fcntl.fcntl(descriptor, 1033, seals)
    with pytest.raises(ProtocolError, match=words):
        GotSlot(descriptor, nbytes)


def test_a_file_is_no_slot(tmp_path):
    descriptor = os.open(tmp_path / "file", os.O_RDWR | os.O_CREAT)
    with pytest.raises(ProtocolError, match="no memory to share"):
        GotSlot(descriptor, 4096)


def ask(clock: RealClock, address: str, token: str) -> int | OSError:
    found: list[int | OSError] = []
    Asking(clock, address, token, found.append)
    while not found:
        clock(clock.now + 1_000_000)
    return found[0]


def test_a_token_gives_a_slot_once_and_any_other_text_nothing():
    clock = RealClock()
    giver, slot = Giver(clock), OwnSlot(0, 4096, is_read=False)
    token = giver.token_for(slot.descriptor)
    found = ask(clock, giver.address, "0" * 64)
    assert isinstance(found, OSError)
    first = ask(clock, giver.address, token)
    assert isinstance(first, int)
    os.close(first)
    assert isinstance(ask(clock, giver.address, token), OSError)
    other = giver.token_for(slot.descriptor)
    giver.forget(slot.descriptor)
    assert isinstance(ask(clock, giver.address, other), OSError)
    giver.close()
    slot.close()
    assert isinstance(ask(clock, giver.address, token), ConnectionRefusedError)


def test_processes_that_say_nothing_do_not_keep_others_from_their_slots():
    clock = RealClock()
    giver, slot = Giver(clock), OwnSlot(0, 4096, is_read=False)
    silent = [socket.socket(socket.AF_UNIX) for _ in range(100)]
    for each in silent:
        each.connect(f"\0{giver.address}")
    found = ask(clock, giver.address, giver.token_for(slot.descriptor))
    assert isinstance(found, int)
    os.close(found)
    assert len(giver._waiting) <= 64
    for each in silent:
        each.close()
    giver.close()
    slot.close()


def test_a_block_that_is_let_go_in_another_thread_frees_its_slot(cluster):
    _, _, send, _ = lanes(cluster)
    held = [exchange(cluster, send, cluster.server, 1.0)]
    thread = threading.Thread(target=held.clear)
    thread.start()
    thread.join()
    gc.collect()
    cluster.until(lambda: all(each.is_free for each in pools["worker-0"]._held.values()))


def test_a_listener_is_not_disturbed_by_a_block_in_a_slot_that_it_does_not_have(cluster):
    worker, caller = cluster.connected()
    message, _ = push(1.0)
    listener: Listener = cluster.listener
    assert listener.peers == ["worker-0"]
    (frames,) = caller._outgoing.frames(message, torch.zeros(1), slot=5)  # type: ignore[attr-defined]
    caller._socket.send_multipart(frames)  # type: ignore[attr-defined]
    cluster.until(lambda: cluster.listener.refused("worker-0"))
    cluster.until(lambda: worker.messages)
    assert "slot 5, which is not here" in worker.messages[-1].reason
