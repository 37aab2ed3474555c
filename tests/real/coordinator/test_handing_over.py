"""How long a run that goes on waits for processes that fetch their files."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from outpace.errors import RunError
from outpace.kernel import Kernel, WalkerError
from outpace.real.coordinator.preparing import Preparation
from outpace.real.coordinator.waiting import Announcements
from outpace.real.net.checkpoint_messages import CheckpointArrived
from outpace.support.units import nanoseconds, seconds


def handed_over(sent_at_s: list[float], arrives_at_s: float | None) -> float:
    """Return when a run goes on whose only process is sent pieces of its files at these times."""
    kernel, some, ended = Kernel(), cast("Any", None), []
    given: Any = SimpleNamespace(
        offer=lambda *_: None,
        sent=lambda name: sum(seconds(kernel.now) >= at_s for at_s in sent_at_s),
    )
    announced = Announcements(kernel)
    preparation = Preparation(
        some,
        ["server-0"],
        [],
        {},
        some,
        some,
        some,
        announced,
        some,
        given,
        SimpleNamespace(path=Path("000001")),  # type: ignore[arg-type]
        120.0,
    )
    if arrives_at_s is not None:
        arrived = "server-0", CheckpointArrived()
        kernel.call_at(nanoseconds(arrives_at_s), lambda _: announced.add(*arrived))

    async def hand_over() -> None:
        await preparation._hand_over(["server-0"])
        ended.append(seconds(kernel.now))

    kernel.spawn(hand_over(), "the test")
    kernel.run()
    return ended[0]


def test_a_process_that_is_sent_pieces_of_its_files_is_waited_for():
    assert handed_over([100, 200, 300], arrives_at_s=400) == 400


def test_a_process_that_is_sent_nothing_for_the_time_limit_ends_the_run():
    with pytest.raises((RunError, WalkerError), match="server-0 did not receive its checkpoint"):
        handed_over([100], arrives_at_s=None)
