"""A launcher with hosts on a cluster, which here only note what they are asked for."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from concurrent.futures import Future
from types import SimpleNamespace
from typing import Any

import pytest

from outpace.real.net.clock import RealClock
from outpace.real.process.launcher import Role
from outpace.real.process.ray.host import STOPPED
from outpace.real.process.ray.launcher import HostsLauncher


class Host:
    """A host of a role at which nothing happens, except that it stops when it is told to."""

    def __init__(self, name: str) -> None:
        self.name, self.ended = name, threading.Event()

    def listen(self, hear: Any) -> None:
        self.hear = hear

    def order(self, method: str, *_: Any) -> Future[Any]:
        if method == "stop":
            self.hear(self, [(STOPPED, "")])
        return Future()

    def end(self) -> None:
        self.ended.set()


def noted(did: list[str]) -> Any:
    """Return hosts that add to `did` what is done with the places of roles."""

    def host(name: str) -> Host:
        did.append(f"a place for {name}")
        return Host(name)

    return SimpleNamespace(
        nodes={},
        room_s=0.0,
        host=host,
        lost=lambda host: did.append(f"{host.name} is lost"),
        release=lambda name: did.append(f"{name} gives its place back"),
    )


@pytest.mark.parametrize("leaves", [True, False])
def test_a_role_that_is_started_again_while_it_leaves_asks_for_room_anew(leaves):
    """Else it would wait without limit for the place that the first one did not get."""
    did: list[str] = []
    launcher = HostsLauncher(noted(did), RealClock(), lambda *_: None, print)
    role = Role("worker-3", print, ())
    launcher.start(role)
    if leaves:
        launcher.release("worker-3")
    launcher.start(role)
    launcher.stop()
    given_back = ["worker-3 gives its place back"] if leaves else []
    place = "a place for worker-3"
    assert did == [place, "worker-3 is lost", *given_back, place]


def test_a_host_that_does_not_answer_is_ended_when_its_process_is_to_be_killed(monkeypatch):
    """Its thread may wait for the process, which does not read what it is started with."""
    monkeypatch.setattr("outpace.real.process.ray.launcher._ANSWER_S", 0.05)
    host = Host("worker-0")
    hosts = SimpleNamespace(nodes={}, room_s=0.0, host=lambda _: host)
    launcher = HostsLauncher(hosts, RealClock(), lambda *_: None, print)
    launcher.start(Role("worker-0", print))
    launcher.kill("worker-0")
    assert host.ended.wait(10.0)


def test_what_room_is_missing_is_left_out_if_the_cluster_cannot_be_asked():
    def fails(names: Sequence[str]) -> str:
        raise ConnectionError("no answer")

    for no_room, words in ((fails, ""), (lambda names: f"none for {names[0]}", "none for a")):
        hosts = SimpleNamespace(nodes={}, room_s=0.0, no_room=no_room)
        launcher = HostsLauncher(hosts, RealClock(), lambda *_: None, print)
        assert launcher.no_room(["a"]) == words
