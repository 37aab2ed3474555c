"""Tests of the turns in which workers probe the network."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from outpace.config.reading import experiment_from
from outpace.errors import RunError
from outpace.kernel import Kernel, WalkerError
from outpace.real.coordinator.probing import probe
from outpace.real.coordinator.waiting import Announcements


def test_a_worker_that_cannot_reach_the_servers_ends_the_run_after_a_minute():
    """A script may take half an hour until it attaches, but not to connect."""
    kernel, asked = Kernel(), []
    clock = SimpleNamespace(now=0)
    listener = SimpleNamespace(
        endpoint="tcp://10.1.2.3:4567", send=lambda name, _: asked.append(name)
    )
    data = {
        "task": {"kind": "timing", "parameters": 10},
        "workers": 2,
        "sync": {"kind": "bsp"},
        "stop": {"iterations": 1},
    }
    parts = experiment_from(data, "the test"), ["worker-0", "worker-1"], clock, listener
    kernel.spawn(probe(*parts, Announcements(kernel), 1800.0))
    with pytest.raises(WalkerError) as raised:
        kernel.run()
    assert isinstance(raised.value.error, RunError)
    assert str(raised.value.error) == (
        "worker-0 did not probe the servers within 60 s: its machine must be able to connect to "
        "10.1.2.3, at any port; see whether a firewall is in the way"
    )
    assert kernel.now == 60 * 10**9
    assert asked == ["worker-0"]
