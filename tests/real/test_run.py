"""Calls of a real run to its launcher."""

from __future__ import annotations

import sys
from collections import defaultdict

import pytest

from outpace.config.reading import experiment_from
from outpace.real.process.local import LocalLauncher
from outpace.real.run import RealRun
from outpace.real.training import TaskTraining
from outpace.record.sinks import MemorySink
from outpace.record.trace import Trace


class TwoMachines:
    """A launcher with two addresses, both of this machine."""

    def __init__(self, clock, on_exit, on_output) -> None:
        self.addresses = ("127.0.0.1", "127.0.0.2")
        self.started = defaultdict(list)
        self._at = {
            address: LocalLauncher(clock, on_exit, on_output, address) for address in self.addresses
        }

    def start(self, role, address) -> None:
        self.started[address].append(role.name)
        self._at[address].start(role, address)

    def is_ending(self, name) -> bool:
        return any(launcher.is_ending(name) for launcher in self._at.values())

    def suspend(self) -> None:
        raise AssertionError("nothing suspends this run")

    resume = suspend

    def kill(self, name) -> None:
        for launcher in self._at.values():
            launcher.kill(name)

    def stop(self, *, at_once=True) -> None:
        for launcher in self._at.values():
            launcher.stop(at_once=at_once)


@pytest.mark.slow
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="needs a second address")
def test_roles_are_spread_over_the_addresses_of_the_launcher():
    config = {
        "task": {"kind": "timing", "parameters": 100},
        "workers": 2,
        "servers": 2,
        "sync": {"kind": "bsp"},
        "stop": {"iterations": 3},
    }
    experiment = experiment_from(config, "the test")
    run = RealRun(
        experiment, TaskTraining(experiment), Trace(MemorySink()), print, launcher=TwoMachines
    )
    try:
        run.run()
    finally:
        run.close()
    assert run.totals.iterations == {0: 3, 1: 3}
    first, second = run.launcher.started.values()
    assert first == ["server-0", "worker-0"]
    assert second == ["server-1", "worker-1"]
