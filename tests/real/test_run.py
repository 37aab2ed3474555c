"""Calls of a real run to its launcher."""

from __future__ import annotations

import sys

import pytest

from outpace.config.reading import experiment_from
from outpace.real.process.launcher import answered
from outpace.real.process.local import LocalLauncher
from outpace.real.run import RealRun
from outpace.real.training import TaskTraining
from outpace.record.trace import Trace, trace_table


class TwoMachines:
    """A launcher with two addresses, both of this machine, for servers and for workers."""

    def __init__(self, clock, on_exit, on_output) -> None:
        self.nodes = {}
        self._servers, self._workers = (
            LocalLauncher(clock, on_exit, on_output, address)
            for address in ("127.0.0.2", "127.0.0.1")
        )

    def no_room(self, names):
        return answered("")

    room_s = 0.0

    def reserve(self, names) -> None:
        raise AssertionError("this run is not scaled")

    def start(self, role) -> None:
        is_server = role.name.startswith("server")
        self.nodes[role.name] = "first" if is_server else "second"
        (self._servers if is_server else self._workers).start(role)

    def is_ending(self, name) -> bool:
        return self._servers.is_ending(name) or self._workers.is_ending(name)

    def suspend(self) -> None:
        raise AssertionError("nothing suspends this run")

    resume = suspend

    def release(self, name) -> None:
        raise AssertionError("nothing leaves this run")

    def keep_only(self, names) -> None:
        raise AssertionError("this run does not begin again")

    def kill(self, name) -> None:
        self._servers.kill(name)
        self._workers.kill(name)

    def stop(self, *, at_once=True) -> None:
        self._servers.stop(at_once=at_once)
        self._workers.stop(at_once=at_once)


@pytest.mark.slow
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="needs a second address")
def test_servers_listen_at_the_address_of_their_machine():
    config = {
        "task": {"kind": "timing", "parameters": 100},
        "workers": 2,
        "servers": 2,
        "sync": {"kind": "bsp"},
        "stop": {"iterations": 3},
    }
    experiment = experiment_from(config, "the test")
    run = RealRun(
        experiment, TaskTraining(experiment), Trace(trace_table()), print, launcher=TwoMachines
    )
    endpoints = {}
    try:
        run.run()
        endpoints = {name: joined.endpoint for name, joined in run.coordinator.state.joined.items()}
    finally:
        run.close()
    assert run.totals.iterations == {0: 3, 1: 3}
    assert endpoints["server-0"].startswith("tcp://127.0.0.2:")
    assert endpoints["server-1"].startswith("tcp://127.0.0.2:")
