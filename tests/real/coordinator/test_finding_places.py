"""Places on a cluster for the new processes of a run that is scaled."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import Future
from types import SimpleNamespace
from typing import Any

import pytest

from outpace.kernel import Kernel
from outpace.real.coordinator.survival import Survival
from outpace.real.process.launcher import Launcher, answered
from outpace.sync.membership.events import Event, NoPlaces, PlacesFound, Reserve

FULL = "the cluster has no room for worker-2"
UNKNOWN = NoPlaces(
    "the cluster does not say whether it has room: see with `ray status` whether it answers"
)


def failed() -> Future[str]:
    found = Future[str]()
    found.set_exception(ConnectionError("no answer"))
    return found


@pytest.mark.parametrize(
    ("answers", "event"),
    [
        ([answered("")], PlacesFound()),
        ([answered(FULL), answered("")], PlacesFound()),
        ([failed(), Future[str](), answered("")], PlacesFound()),
        ([answered(FULL)] * 100, NoPlaces(FULL)),
        ([failed()] * 100, UNKNOWN),
        ([Future[str]()] * 100, UNKNOWN),
    ],
    ids=["room", "room later", "an answer later", "no room", "errors", "no answer"],
)
def test_only_a_cluster_that_says_so_has_room(answers, event):
    """Otherwise processes that train would end for places that a busy cluster does not give."""
    kernel, told, given_back = Kernel(), list[Event](), list[str]()
    coming: Iterator[Future[str]] = iter(answers)

    class Busy(Launcher):
        room_s = 20.0

        def no_room(self, names: Sequence[str]) -> Future[str]:
            return next(coming)

        def release(self, name: str) -> None:
            given_back.append(name)

    def take(event: Event, now: int) -> list[Any]:
        told.append(event)
        return []

    run: Any = SimpleNamespace(
        kernel=kernel,
        listener=None,
        launcher=Busy(),
        setting=SimpleNamespace(events=None),
        members=SimpleNamespace(take=take),
        table=SimpleNamespace(next_deadline=None),
    )
    nothing: Any = None
    survival = Survival(run, nothing, None, nothing, nothing, nothing)

    async def scale() -> None:
        survival.carry_out([Reserve(["worker-2"])])
        await kernel.sleep(40.0)

    kernel.spawn(scale(), "the test")
    kernel.run()
    assert told == [event]
    assert given_back == ([] if event == PlacesFound() else ["worker-2"])
