"""A launcher with places on a simulated cluster, which only notes the calls."""

from __future__ import annotations

from concurrent.futures import Future
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("ray")

from outpace.real.net.clock import RealClock
from outpace.real.process.launcher import Role
from outpace.real.ray.host import STOPPED
from outpace.real.ray.launcher import RayLauncher


class Process:
    """A process that does nothing until it is stopped."""

    def __init__(self, name: str, did: list[str]) -> None:
        self.name, self.node, self._did = name, "", did
        self._events, self.started = Future[Any](), Future[str]()

    def order(self, method: str, *_: Any) -> Future[Any]:
        if method == "stop":
            self._events.set_result([(STOPPED, "")])
        return {"events": self._events, "start": self.started}.get(method, Future())

    def why_lost(self, error: BaseException) -> str:
        return f"was lost: {error}"

    def end(self) -> None:
        self._did.append(f"{self.name} is ended")


@pytest.mark.parametrize("leaves", [True, False])
def test_a_role_that_is_started_again_while_it_leaves_asks_for_room_anew(leaves):
    """Otherwise it would wait without limit for the place that the first process did not get."""
    did: list[str] = []

    def host(name: str) -> Any:
        did.append(f"a place for {name}")
        return Process(name, did)

    places: Any = SimpleNamespace(
        nodes={},
        room_s=0.0,
        host=host,
        release=lambda name: did.append(f"{name} gives its place back"),
    )
    launcher = RayLauncher(places, RealClock(), lambda *_: None, print)
    role = Role("worker-3", print, ())
    launcher.start(role)
    if leaves:
        launcher.release("worker-3")
    launcher.start(role)
    launcher.stop()
    given_back = ["worker-3 gives its place back"] if leaves else []
    first = ["a place for worker-3", "worker-3 is ended"]
    assert did == [*first, *given_back, *first]


def test_a_process_that_its_actor_cannot_start_has_ended():
    """Otherwise the run would wait for it as long as for a process that is slow to join."""
    did: list[str] = []
    process = Process("worker-0", did)
    places: Any = SimpleNamespace(nodes={}, room_s=0.0, host=lambda _: process)
    clock = RealClock()
    launcher = RayLauncher(places, clock, lambda *ended: did.append(" ".join(ended)), print)
    launcher.start(Role("worker-0", print, ()))
    process.started.set_exception(OSError("too many processes"))
    clock(clock.now)
    assert did == ["worker-0 is ended", "worker-0 was lost: too many processes"]
    launcher.stop()


def test_a_role_that_has_a_place_and_whose_actor_does_not_start_is_named():
    """Otherwise the error would only say that its process does not join, as if it were slow."""
    answer, process = Future[str](), Process("worker-0", [])
    places: Any = SimpleNamespace(
        nodes={}, room_s=0.0, no_room=lambda _: answer, host=lambda _: process
    )
    clock = RealClock()
    launcher = RayLauncher(places, clock, lambda *_: None, print)
    launcher.start(Role("worker-0", print, ()))
    asked = launcher.no_room(["worker-0", "worker-1"])
    answer.set_result("")
    assert asked.result().startswith("Ray has a place for worker-0, and has not started an actor")
    process.started.set_result("one")
    clock(clock.now)
    assert launcher.no_room(["worker-0", "worker-1"]).result() == ""
    launcher.stop()
