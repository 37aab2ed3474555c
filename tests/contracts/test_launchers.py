"""Promises of every launcher (`real.process.launcher`).

A new launcher is added to LAUNCHERS.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import pytest
from tests.support.cluster import nodes

from outpace.config.launchers import Ray
from outpace.real.process.launcher import Launcher
from outpace.real.process.local import LocalLauncher
from outpace.real.ray.placing import groups_of
from outpace.testing import check_launcher
from outpace.testing.launcher_check import Launched, launched

# Made of a clock, on_exit and on_output.
LAUNCHERS: list[Any] = [
    pytest.param(LocalLauncher, id="local"),
    pytest.param("ray", id="ray", marks=pytest.mark.slow),
]


@pytest.fixture(params=LAUNCHERS)
def make(request: pytest.FixtureRequest) -> Callable[..., Launcher]:
    if request.param != "ray":
        return request.param
    from outpace.real.ray.launcher import RayLauncher

    return partial(RayLauncher, request.getfixturevalue("places"))


@pytest.fixture
def run(make: Callable[..., Launcher]) -> Iterator[Launched]:
    with launched(make) as found:
        yield found


@pytest.fixture(scope="module")
def places() -> Iterator[Any]:
    """The places of the roles of these tests, on a cluster of two nodes."""
    from outpace.real.ray.cluster import RayCluster

    with nodes("one", "two", cpus=2) as cluster:
        settings = Ray(address=cluster.address)
        roles = groups_of(settings, ["server-0"], ["worker-0", "worker-1"])
        with RayCluster(settings, roles, print) as places:
            yield places


def test_every_launcher_keeps_its_promises(make):
    check_launcher(make)


def test_a_stop_that_is_not_at_once_lets_processes_end_by_themselves(run):
    run.start("worker-0", "import time; print('up'); time.sleep(0.3); print('done')")
    run.until(lambda: run.told)
    run.launcher.stop(at_once=False)
    assert ("output", "done") in run.of("worker-0")


def test_the_end_of_a_process_is_foreseen_until_it_is_reported(run):
    run.start("worker-0", "pass")
    run.start("worker-1", "import time; time.sleep(60)")
    # Nothing is reported before the clock is called.
    deadline = time.monotonic() + 60
    while not run.launcher.is_ending("worker-0"):
        assert time.monotonic() < deadline
    assert run.told == []
    assert not run.launcher.is_ending("worker-1")
    assert not run.launcher.is_ending("nobody")
    run.until_ended("worker-0")
    assert not run.launcher.is_ending("worker-0")


def test_a_parent_that_was_killed_is_named_and_not_its_processes_blamed(run):
    run.start("worker-0", "import os, time; print(os.getppid(), flush=True); time.sleep(60)")
    run.until(lambda: run.of("worker-0"))
    ((_, parent),) = run.of("worker-0")
    os.kill(int(parent), signal.SIGKILL)
    run.until_ended("worker-0")
    how = dict(run.of("worker-0"))["exit"]
    local = f"ended with the fork server (process {parent}), from which it was forked,"
    assert how == local or how.startswith("was lost with its actor")
