"""The store through which workers form groups, over real connections, and its bounds."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest
from torch.distributed import PrefixStore

from outpace.real.collective.store import GroupStore, StoreConnection
from outpace.real.coordinator import hosted_store
from outpace.real.coordinator.hosted_store import HostedStore, KeyValues
from outpace.real.net.addresses import LOOPBACK
from outpace.real.net.clock import RealClock
from outpace.real.net.peer_messages import AskStore, StoreAnswer
from outpace.real.net.transport import Session, new_keys
from outpace.real.node.member import CoordinatorLink
from outpace.real.zeromq.transport import ZeroMQTransport

WORKERS = ["worker-0", "worker-1", "worker-2"]


class Coordinator(threading.Thread):
    """Answers the requests of three workers in a separate thread."""

    def __init__(self) -> None:
        super().__init__()
        self.keys = {name: new_keys() for name in ("coordinator", *WORKERS)}
        self.log: list[str] = []
        clock = self._clock = RealClock()
        self._transport = ZeroMQTransport(
            "coordinator", self._session("coordinator"), clock, self.log.append
        )
        keys = {name: self.keys[name].public for name in WORKERS}
        self._store = HostedStore(self._transport, LOOPBACK, WORKERS, keys)
        self._over = False
        self.start()

    def connect(self, name: str, key: str = "") -> StoreConnection:
        endpoint, public = self._store.endpoint, key or self.keys["coordinator"].public
        return StoreConnection(CoordinatorLink(name, "", public, self._session(name), endpoint))

    def run(self) -> None:
        while not self._over:
            self._clock(self._clock.now + 2_000_000)
        self._transport.close()

    def stop(self) -> None:
        self._over = True
        self.join()

    def _session(self, name: str) -> Session:
        return Session(1, 0, 10.0, self.keys[name])


@pytest.fixture
def coordinator() -> Iterator[Coordinator]:
    coordinator = Coordinator()
    yield coordinator
    coordinator.stop()


@pytest.fixture
def connections(coordinator) -> Iterator[list[StoreConnection]]:
    made = [coordinator.connect(name) for name in WORKERS]
    yield made
    for connection in made:
        connection.close()


def test_it_does_what_torch_expects_of_a_store(connections):
    ours, theirs = (GroupStore(connection, 10.0) for connection in connections[:2])
    one, other = PrefixStore("a", ours), PrefixStore("a", theirs)
    one.set("key", "value")
    assert other.get("key") == b"value"
    assert ours.get("a/key") == b"value"
    assert [one.add("count", 2), other.add("count", 3)] == [2, 5]
    assert [one.check(["key", "count"]), one.check(["key", "none"])] == [True, False]
    assert [other.delete_key("key"), other.delete_key("key")] == [True, False]
    with ThreadPoolExecutor(1) as threads:
        late = threads.submit(one.wait, ["key", "late"])
        other.set("late", b"\xff\x00")
        other.set("key", "again")
        late.result()
    assert one.get("late") == b"\xff\x00"


def test_who_waits_hears_of_the_end_of_the_connection(coordinator, connections):
    with ThreadPoolExecutor(3) as threads:
        waiting = [threads.submit(GroupStore(c, 60.0).get, "never") for c in connections]
        for connection in connections:  # only an existing connection can end
            assert not GroupStore(connection, 10.0).check(["none"])
        connections[0].close()
        with pytest.raises(RuntimeError, match="the connection to the store is closed"):
            waiting[0].result(10)
        coordinator.stop()
        for each in waiting[1:]:
            with pytest.raises(RuntimeError, match="lost the store of the groups"):
                each.result(10)
    with pytest.raises(RuntimeError, match="lost the store"):
        GroupStore(connections[1], 10.0).set("key", "value")


def test_a_worker_with_another_key_does_not_reach_it(coordinator):
    coordinator.keys["worker-1"] = new_keys()
    connection = coordinator.connect("worker-1")
    with pytest.raises(RuntimeError, match="did not accept this process's key"):
        GroupStore(connection, 10.0).set("key", "value")
    connection.close()
    assert any("unknown key" in line for line in coordinator.log)


# -- bounds, without connections ------------------------------------------------------------


def ask(values: KeyValues, operation: str, *keys: str, value=b"", amount=0) -> StoreAnswer | str:
    return values.answer(AskStore(7, operation, list(keys), value, amount))


def test_what_workers_store_is_bounded(monkeypatch):
    monkeypatch.setattr(hosted_store, "MOST_BYTES", 400)
    values = KeyValues()
    ask(values, "set", "0", value=b"x" * 9)
    ask(values, "set", "1", value=b"x" * 9)
    refusal = "the store has no room for more than 400 bytes"
    assert ask(values, "set", "0", value=b"x" * 134) == refusal
    assert ask(values, "add", "2", amount=10**14) == refusal
    assert ask(values, "set", "0", value=b"x" * 133) == StoreAnswer(7, amount=1)  # 400 bytes
    ask(values, "delete", "1")
    assert ask(values, "add", "2", amount=10**8) == StoreAnswer(7, amount=10**8)
    assert ask(values, "get", "0").value == b"x" * 133


@pytest.mark.parametrize(
    ("operation", "keys", "amount"),
    [
        ("set", [], 0),
        ("set", ["text", "other"], 0),
        ("add", ["text"], 1),
        ("add", ["most"], 1),
        ("delete", [], 0),
    ],
)
def test_a_request_that_is_not_acceptable_changes_nothing(operation, keys, amount):
    values = KeyValues()
    ask(values, "set", "text", value=b"text")
    ask(values, "add", "most", amount=1 << 62)
    assert isinstance(ask(values, operation, *keys, amount=amount), str)
    assert ask(values, "get", "text", "most") == StoreAnswer(7, b"text", 2)
    assert ask(values, "add", "most").amount == 1 << 62
