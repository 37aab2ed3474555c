"""How long a run waits for its processes before the training, and what it says then."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Future
from types import SimpleNamespace
from typing import Any, cast

import pytest

from outpace.config.reading import experiment_from
from outpace.errors import RunError
from outpace.kernel import Kernel, WalkerError
from outpace.real.coordinator.preparing import Preparation
from outpace.real.coordinator.run_state import Announcements
from outpace.real.net.messages import JoinRun
from outpace.real.process.launcher import Launcher, answered
from outpace.sync.messages import server_name


def prepared(kernel: Kernel, servers: int, launcher: Any) -> tuple[Preparation, Announcements]:
    """Return the preparation of a run without workers, and what its processes announce."""
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


def test_a_worker_that_cannot_reach_the_servers_ends_the_run_after_a_minute():
    """A script may take half an hour until it attaches, but not to connect."""
    kernel, asked = Kernel(), []
    data = {
        "task": {"kind": "timing", "parameters": 10},
        "workers": 2,
        "sync": {"kind": "bsp"},
        "stop": {"iterations": 1},
    }
    some = cast("Any", None)
    run: Any = SimpleNamespace(
        experiment=experiment_from(data, "the test"),
        servers=["server-0"],
        workers=["worker-0", "worker-1"],
        clock=SimpleNamespace(now=0),
        listener=SimpleNamespace(
            endpoint="tcp://10.1.2.3:4567", send=lambda name, _: asked.append(name)
        ),
        announced=Announcements(kernel),
        resume=None,
        setting=SimpleNamespace(join_s=1800.0),
    )
    kernel.spawn(Preparation(run, some, some, {})._probe())
    with pytest.raises(WalkerError) as raised:
        kernel.run()
    assert isinstance(raised.value.error, RunError)
    assert str(raised.value.error) == (
        "worker-0 did not probe the servers within 60 s: its machine must be able to connect to "
        "10.1.2.3, at any port; see whether a firewall is in the way"
    )
    assert kernel.now == 60 * 10**9
    assert asked == ["worker-0"]
