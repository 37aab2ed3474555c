"""Promises of every transport (`real.net.transport`).

A new transport is added to TRANSPORTS.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest
import torch
from tests.support.blocks_on_the_wire import announced, any_block, apart, block_in

from outpace.blocks.block import Block
from outpace.blocks.sums import all_finite
from outpace.errors import ConfigError
from outpace.real.memory import slots
from outpace.real.net.addresses import LOOPBACK
from outpace.real.net.block_frames import head_of
from outpace.real.net.clock import RealClock
from outpace.real.net.messages import Fetch, Ready, Refused
from outpace.real.net.report_messages import Notice
from outpace.real.net.sparse_log import Log
from outpace.real.net.transport import (
    FIRST,
    Caller,
    Handlers,
    Keys,
    Listener,
    Session,
    Transport,
    new_keys,
)
from outpace.real.net.wire import WireError
from outpace.real.zeromq.transport import ZeroMQTransport
from outpace.sync.messages import Push, WireMessage


def over_memory(name: str, session: Session, clock: RealClock, log: Log) -> ZeroMQTransport:
    """Blocks go through shared memory, once both processes have it."""
    return ZeroMQTransport(name, replace(session, shares_memory=True), clock, log)


# Opens the transport of a named process, and an address at which it can listen.
TRANSPORTS: list[tuple[Callable[..., Transport], str]] = [
    (ZeroMQTransport, LOOPBACK),
    (over_memory, LOOPBACK),
]
RUN, LEASE_S = 77, 10.0
MOST_SHARED = 20_000_000  # bytes of a block in shared memory
PEERS = ("worker-0", "worker-1")
STRANGER = "worker-9"  # has keys, but is not a peer of the listener


class Process:
    """The endpoint of one process: received messages, and lost peers."""

    def __init__(
        self,
        open_transport: Callable[..., Transport],
        name: str,
        cluster: Cluster,
        generation: int = FIRST,
    ):
        self.name, self.log = name, list[str]()
        # The sender, the message with the head of its block, and the block.
        self.got: list[tuple[str, WireMessage, Block | None]] = []
        self.lost: list[str] = []
        self.joins_blocks = True  # otherwise they are kept unchanged
        session = Session(RUN, generation, LEASE_S, cluster.keys[name])
        self.transport = open_transport(name, session, cluster.clock, self.log.append)

    def take(self, peer: str, message: WireMessage) -> None:
        if self.joins_blocks:
            self.got.append((peer, *apart(message)))
        else:
            self.got.append((peer, announced(message), block_in(message)))

    @property
    def messages(self) -> list[WireMessage]:
        return [message for _, message, _ in self.got]


class Cluster:
    """A server that listens, and the workers that call it, all in this process.

    Args:
        block_bytes: smallest size of blocks in shared memory; 0: no blocks are.
    """

    def __init__(
        self,
        transport: tuple[Callable[..., Transport], str],
        block_bytes: int = 0,
    ) -> None:
        self._open, self.address = transport
        self.block_bytes = block_bytes
        names = ("server-0", *PEERS, STRANGER)
        self.keys: dict[str, Keys] = {name: new_keys() for name in names}
        self.clock = RealClock()
        self._processes: list[Process] = []
        self.server = self.process("server-0")
        self.listener = self.listen(self.server)

    def process(self, name: str, generation: int = FIRST) -> Process:
        self._processes.append(Process(self._open, name, self, generation))
        return self._processes[-1]

    def listen(self, process: Process, address: str = "", **options: Any) -> Listener:
        peers = {name: self.keys[name].public for name in PEERS}
        listener = process.transport.listen(
            address or self.address,
            peers,
            Handlers(
                options.get("expect", any_block), process.take, process.lost.append, all_finite
            ),
        )
        if self.block_bytes:
            listener.share_memory(self.block_bytes)
        return listener

    def call(self, process: Process, endpoint: str = "") -> Caller:
        caller = process.transport.call(
            "server-0",
            endpoint or self.listener.endpoint,
            self.keys["server-0"].public,
            Handlers(any_block, process.take, process.lost.append),
        )
        if self.block_bytes:
            caller.share_memory(self.block_bytes)
        return caller

    def connected(self, name: str = "worker-0") -> tuple[Process, Caller]:
        """Return a process whose first message the server has received."""
        process = self.process(name)
        caller = self.call(process)
        caller.send(Ready())
        self.until(lambda: (name, Ready(), None) in self.server.got)
        if self.block_bytes:  # until both can send blocks in shared memory
            lanes: list[Any] = [caller, self.listener._named[name]]  # type: ignore[attr-defined]
            self.until(lambda: lanes[0]._lane.is_ready and lanes[1].lane.is_ready)
        return process, caller

    def until(self, condition: Callable[[], Any], limit_s: float = 20.0) -> None:
        """Let all ends work until the condition holds."""
        deadline = time.monotonic() + limit_s
        while not condition():
            assert time.monotonic() < deadline, [(p.name, p.got, p.log) for p in self._processes]
            self.clock(self.clock.now + 5_000_000)

    def close(self) -> None:
        for process in self._processes:
            process.transport.close()


@pytest.fixture(params=TRANSPORTS, ids=lambda transport: transport[0].__name__)
def transport(request: pytest.FixtureRequest) -> tuple[Callable[..., Transport], str]:
    return request.param


@pytest.fixture
def cluster(transport, monkeypatch) -> Iterator[Cluster]:
    monkeypatch.setattr(slots, "LEAST_BYTES", 1)
    block_bytes = MOST_SHARED if transport[0] is over_memory else 0
    with contextlib.closing(Cluster(transport, block_bytes)) as cluster:
        yield cluster


def test_messages_arrive_in_order_and_once_in_both_directions(cluster):
    worker, caller = cluster.connected()
    assert caller.up
    assert cluster.listener.peers == ["worker-0"]
    said = [Notice(str(number)) for number in range(200)]
    for message in said:
        caller.send(message)
        cluster.listener.send("worker-0", message)
    cluster.until(lambda: worker.messages[-1:] == said[-1:] == cluster.server.messages[-1:])
    assert worker.messages == said
    assert cluster.server.messages == [Ready(), *said]


@pytest.mark.parametrize("elements", [0, 1, 1000, 3_000_001])
def test_a_block_of_any_size_arrives_bit_by_bit(cluster, elements):
    _, caller = cluster.connected()
    block = torch.randn(elements, generator=torch.Generator().manual_seed(elements))
    caller.send(Push(0, 0, 0, block))
    caller.send(Notice("after it"))
    cluster.until(lambda: Notice("after it") in cluster.server.messages)
    peer, push, received = cluster.server.got[-2]
    assert (peer, push) == ("worker-0", Push(0, 0, 0, head_of(block)))
    assert torch.equal(received, block)


def test_what_is_sent_before_there_is_a_connection_is_not_lost(cluster):
    caller = cluster.call(cluster.process("worker-1"))
    assert not caller.up
    for number in range(50):
        caller.send(Notice(str(number)))
    cluster.until(lambda: len(cluster.server.got) == 50)


def test_what_was_sent_before_a_close_is_still_delivered(cluster):
    process, caller = cluster.connected()
    for number in range(50):
        caller.send(Notice(str(number)))
    caller.close()
    cluster.until(lambda: len(cluster.server.got) == 51)
    cluster.until(lambda: cluster.server.lost == ["worker-0"])
    assert cluster.listener.peers == []
    assert process.lost == []


def test_a_caller_hears_that_the_listener_is_gone(cluster):
    worker, caller = cluster.connected()
    cluster.listener.close()
    cluster.until(lambda: worker.lost == ["server-0"])
    assert not caller.up


def test_a_refused_peer_is_told_why_and_never_heard_again(cluster):
    worker, caller = cluster.connected("worker-0")
    _, honest = cluster.connected("worker-1")
    cluster.listener.when_refused.append((refused := []).append)
    for _ in range(2):
        cluster.listener.refuse("worker-0", "it repeats itself")
    assert refused == ["worker-0"]
    assert cluster.server.lost == ["worker-0"]
    cluster.until(lambda: worker.messages == [Refused("it repeats itself")])
    caller.send(Notice("again"))
    for number in range(5):
        honest.send(Notice(str(number)))
        cluster.until(lambda n=number: Notice(str(n)) in cluster.server.messages)
    assert Notice("again") not in cluster.server.messages
    assert ["worker-0" in line and "it repeats itself" in line for line in cluster.server.log] == [
        True
    ]


def test_a_block_that_is_not_expected_is_refused_and_others_go_on(transport):
    with contextlib.closing(Cluster(transport)) as cluster:
        strict = cluster.process("server-0")
        endpoint = cluster.listen(strict, expect=lambda _, __: ("float32", 3)).endpoint
        caller = cluster.call(cluster.process("worker-0"), endpoint)
        honest = cluster.call(cluster.process("worker-1"), endpoint)
        good, bad = torch.ones(3), torch.ones(4)
        honest.send(Push(1, 0, 0, good))
        caller.send(Push(0, 0, 0, bad))
        cluster.until(lambda: strict.log and strict.got)
        honest.send(Push(1, 1, 0, good))
        cluster.until(lambda: len(strict.got) == 2)
        assert [peer for peer, *_ in strict.got] == ["worker-1", "worker-1"]
        assert "4 elements of float32" in strict.log[0]


def test_a_second_process_of_the_same_name_is_refused(cluster):
    cluster.connected("worker-0")
    twin = cluster.process("worker-0")
    cluster.call(twin).send(Notice("me too"))
    cluster.until(lambda: any(isinstance(message, Refused) for message in twin.messages))
    assert cluster.server.messages == [Ready()]


def test_a_replaced_peer_is_told_and_only_the_new_process_is_heard(cluster):
    old, old_caller = cluster.connected("worker-0")
    _, other = cluster.connected("worker-1")
    cluster.listener.replace("worker-0", 1)
    cluster.until(lambda: old.messages == [Refused.replaced(1)])
    old_caller.send(Notice("of the old process"))
    new = cluster.process("worker-0", generation=1)
    cluster.call(new).send(Notice("of the new process"))
    other.send(Notice("of another one"))
    cluster.until(lambda: len(cluster.server.got) == 4)
    assert {message.text for message in cluster.server.messages[2:]} == {
        "of the new process",
        "of another one",
    }
    cluster.listener.send("worker-0", Notice("welcome"))
    cluster.until(lambda: new.messages == [Notice("welcome")])
    assert old.messages == [Refused.replaced(1)]
    assert cluster.server.lost == []
    assert sorted(cluster.listener.peers) == ["worker-0", "worker-1"]


@pytest.mark.parametrize("is_there", [False, True])
def test_an_old_process_that_connects_again_is_told_that_it_was_replaced(cluster, is_there):
    cluster.listener.replace("worker-0", 1)
    cluster.listener.replace("worker-0", 2)
    if is_there:
        cluster.call(cluster.process("worker-0", generation=2)).send(Ready())
        cluster.until(lambda: cluster.server.got)
    before = list(cluster.server.got)
    old = cluster.process("worker-0", generation=1)
    cluster.call(old).send(Notice("I was away"))
    cluster.until(lambda: old.messages == [Refused.replaced(2)])
    assert cluster.server.got == before


def test_a_process_without_the_key_of_the_run_is_not_let_in(transport):
    with contextlib.closing(Cluster(transport)) as cluster:
        cluster.keys["worker-0"] = new_keys()
        stranger = cluster.call(cluster.process("worker-0"))

        def refused() -> bool:
            stranger.send(Fetch("initial"))
            return False

        with pytest.raises(WireError):
            cluster.until(refused)
        assert cluster.server.got == []
        assert cluster.server.log


def test_an_address_of_another_machine_is_a_configuration_error(cluster):
    with pytest.raises(ConfigError, match=r"cannot listen at 192\.0\.2\.1"):
        cluster.listen(cluster.process("server-0"), "192.0.2.1")


def test_a_message_that_arrived_shows_as_unread_until_it_is_handed_over(cluster):
    _, caller = cluster.connected()
    assert not cluster.listener.unread
    caller.send(Ready())
    deadline = time.monotonic() + 20
    while not cluster.listener.unread:
        assert time.monotonic() < deadline
    assert cluster.server.messages == [Ready()]
    cluster.until(lambda: cluster.server.messages == [Ready(), Ready()])
    assert not cluster.listener.unread
