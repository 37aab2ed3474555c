"""How long a run waits for its processes before the training, and its error after that."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Future
from types import SimpleNamespace
from typing import Any, cast

import pytest

from outpace.kernel import Kernel, WalkerError
from outpace.real.coordinator.preparing import Preparation
from outpace.real.coordinator.run_state import Announcements
from outpace.real.net.messages import JoinRun
from outpace.real.process.launcher import Launcher, answered
from outpace.sync.messages import server_name


def prepared(kernel: Kernel, servers: int, launcher: Any) -> tuple[Preparation, Announcements]:
    """Return the preparation of a run without workers, and the announcements of its processes."""
    announced, some = Announcements(kernel), cast("Any", None)
    run: Any = SimpleNamespace(
        experiment=None,
        servers=[server_name(server) for server in range(servers)],
        workers=[],
        joined={},
        clock=None,
        listener=None,
        announced=announced,
        launcher=launcher,
        resume=None,
        setting=SimpleNamespace(join_s=120.0),
    )
    return Preparation(run, some, some, {}), announced


def test_a_process_without_a_place_is_named_with_the_room_that_was_missing():
    kernel, asked = Kernel(), list[list[str]]()

    class Full(Launcher):
        def no_room(self, names: Sequence[str]) -> Future[str]:
            asked.append(list(names))
            return answered("the cluster has no room for server-1")

    preparation, announced = prepared(kernel, 2, Full())
    announced.add("server-0", JoinRun("", 7))
    kernel.spawn(preparation.run(), "the test")
    with pytest.raises(WalkerError) as caught:
        kernel.run()
    words = "server-1 did not join within 120 s: the cluster has no room for server-1"
    assert str(caught.value.error) == words
    assert asked == [["server-1"]]
