"""A worker's connections to servers that come back with a new process."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from outpace.blocks.division import Division
from outpace.kernel import Kernel
from outpace.real.net.clock import RealClock
from outpace.real.net.transport import Handlers
from outpace.real.node.served_worker.connections import Connections
from outpace.real.node.served_worker.divisions import Divisions
from outpace.real.node.served_worker.inbox import Inbox
from outpace.real.node.timing import RequestTimes, TimingRows
from outpace.sync.messages import Ack, Restarted

ACK = Ack(0, 0, 0)


class Transport:
    """Notes the calls that are made and closed; a test calls their handlers."""

    def __init__(self) -> None:
        self.called: list[tuple[str, str, str, int]] = []
        self.closed: list[str] = []
        self.handlers: list[Handlers] = []

    def call(self, peer: str, endpoint: str, key: str, handlers: Handlers, generation: int) -> Any:
        self.called.append((peer, endpoint, key, generation))
        self.handlers.append(handlers)
        return SimpleNamespace(
            close=lambda linger_s: self.closed.append(endpoint), share_memory=lambda size: None
        )


@pytest.fixture
def transport() -> Transport:
    return Transport()


@pytest.fixture
def heard() -> list[object]:
    return []


@pytest.fixture
def connections(transport: Transport, heard: list[object]) -> Connections:
    division = Division.of_slices([slice(0, 2), slice(2, 4)])
    divisions = Divisions(may_change=False)
    divisions.begin(division, division, "float32")
    return Connections(
        transport,  # type: ignore[arg-type]
        divisions,
        RequestTimes(TimingRows(RealClock()), 0),
        expect=lambda server: lambda peer, message: None,
        block_bytes=lambda server: 0,
        on_message=lambda peer, message, block: heard.append((peer, message)),
        on_lost=lambda connection: heard.append(("lost", connection.number)),
    )


def connect(connections: Connections, endpoint: str = "first", generation: int = 0) -> None:
    connections.connect([0, 1], [endpoint, "other"], ["key", "key of another"], [generation, 0])


def test_the_new_process_of_a_server_is_called_with_the_key_of_the_server(connections, transport):
    connect(connections)
    assert connections.reconnect(0, "second", 1)
    assert transport.called[2:] == [("server-0", "second", "key", 1)]
    assert transport.closed == ["first"]


def test_messages_and_the_end_of_a_process_that_was_replaced_are_dropped(
    connections, transport, heard
):
    connect(connections)
    connections.reconnect(0, "second", 1)
    before, other, after = transport.handlers
    before.on_message("server-0", ACK, None)
    before.on_lost("server-0")
    assert heard == []
    after.on_message("server-0", ACK, None)
    after.on_lost("server-0")
    other.on_lost("server-1")
    assert heard == [("server-0", ACK), ("lost", 0), ("lost", 1)]


def test_a_worker_that_is_told_of_a_new_process_before_its_plan_connects_once(
    connections, transport
):
    assert not connections.reconnect(0, "second", 1)
    connect(connections, "second", 1)
    assert not connections.reconnect(0, "second", 1)
    assert [endpoint for _, endpoint, _, _ in transport.called] == ["second", "other"]
    assert transport.closed == []


def test_a_computation_that_reads_of_a_new_process_lets_the_worker_send_to_it():
    inbox = Inbox(Kernel(), "worker-0", servers_return=True)
    inbox.put_restarted(Restarted(1, 7))
    assert inbox.unread["server-1"] == 1  # nothing is sent there
    assert inbox.take_nowait() == Restarted(1, 7)
    assert inbox.unread["server-1"] == 0
    assert inbox.take_nowait() is None
