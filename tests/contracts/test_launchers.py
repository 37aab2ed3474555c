"""Promises of every launcher (`real.process.launcher`).

A new launcher is added to LAUNCHERS.
"""

from __future__ import annotations

import os
import signal
import socket
import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import pytest
from tests.support.cluster import nodes

from outpace.config.launchers import Ray
from outpace.real.net.clock import RealClock
from outpace.real.net.transport import new_keys
from outpace.real.process.launcher import ADDRESS, Launcher, Role
from outpace.real.process.local import LocalLauncher
from outpace.real.process.ray.placing import groups_of

# Made of a clock, on_exit and on_output.
LAUNCHERS: list[Any] = [
    pytest.param(LocalLauncher, id="local"),
    pytest.param("ray", id="ray", marks=pytest.mark.slow),
]


class Launched:
    """A launcher, and what it has told."""

    def __init__(self, make: Callable[..., Launcher]) -> None:
        self.clock = RealClock()
        self.told: list[tuple[Any, ...]] = []
        self.launcher = make(
            self.clock,
            lambda name, how: self.told.append(("exit", name, how)),
            lambda name, line, error: self.told.append(
                ("error" if error else "output", name, line)
            ),
        )

    def start(self, name: str, code: str, **variables: Any) -> None:
        """Start a process that executes this code."""
        role = Role(name, exec, (code, variables))
        self.launcher.start(role)

    def until(self, condition: Callable[[], Any], limit_s: float = 60.0) -> None:
        deadline = time.monotonic() + limit_s
        while not condition():
            assert time.monotonic() < deadline, self.told
            self.clock(self.clock.now + 5_000_000)

    def for_s(self, time_s: float) -> None:
        until = time.monotonic() + time_s
        while time.monotonic() < until:
            self.clock(self.clock.now + 5_000_000)

    def of(self, name: str) -> list[tuple[str, str]]:
        """Reports about this process, in order."""
        return [(kind, text) for kind, who, text in self.told if who == name]

    def until_ended(self, *names: str) -> None:
        self.until(lambda: all("exit" in dict(self.of(name)) for name in names))


@pytest.fixture(params=LAUNCHERS)
def launched(request: pytest.FixtureRequest) -> Iterator[Launched]:
    make = request.param
    if make == "ray":
        from outpace.real.process.ray.launcher import RayLauncher

        make = partial(RayLauncher, request.getfixturevalue("places"))
    launched = Launched(make)
    yield launched
    launched.launcher.stop()


@pytest.fixture(scope="module")
def places() -> Iterator[Any]:
    """The places of the roles of these tests, on a cluster of two nodes."""
    from outpace.real.process.ray.cluster import RayCluster

    with nodes("one", "two", cpus=2) as cluster:
        settings = Ray(address=cluster.address)
        roles = groups_of(settings, ["server-0"], ["worker-0", "worker-1"])
        with RayCluster(settings, roles, print) as places:
            yield places


def test_a_role_is_called_with_its_arguments(launched):
    role = Role("worker-0", print, ("one", 2, [3.5]))
    launched.launcher.start(role)
    launched.until_ended("worker-0")
    assert launched.of("worker-0") == [
        ("output", "one 2 [3.5]"),
        ("exit", "ended with exit code 0"),
    ]


def test_the_exit_reason_names_the_exit_code(launched):
    launched.start("worker-0", "raise SystemExit(3)")
    launched.until_ended("worker-0")
    assert launched.of("worker-0") == [("exit", "ended with exit code 3")]


def test_an_exception_of_a_role_is_printed_and_ends_it(launched):
    launched.start("worker-0", "raise ValueError('no luck')")
    launched.until_ended("worker-0")
    *_, (kind, text), ended = launched.of("worker-0")
    assert (kind, text) == ("error", "ValueError: no luck")
    assert ended == ("exit", "ended with exit code 1")


def test_a_killed_process_says_so_and_the_others_go_on(launched):
    for name in ("worker-0", "worker-1"):
        launched.start(name, "import time; print('up'); time.sleep(60)")
    launched.until(lambda: len(launched.told) == 2)
    launched.launcher.kill("worker-0")
    launched.until_ended("worker-0")
    assert launched.of("worker-0")[-1] == ("exit", "was killed by SIGKILL")
    assert launched.of("worker-1") == [("output", "up")]


def test_killing_what_has_ended_or_never_was_has_no_effect(launched):
    launched.start("worker-0", "pass")
    launched.until_ended("worker-0")
    launched.launcher.kill("worker-0")
    launched.launcher.kill("worker-7")
    assert len(launched.told) == 1


def test_output_comes_in_whole_lines_with_name_and_stream_before_the_exit(launched):
    code = "import sys\nfor n in range(500): print(me, n)\nprint(me, 'ends', file=sys.stderr)"
    names = ("worker-0", "server-0")
    for name in names:
        launched.start(name, code, me=name)
    launched.until_ended(*names)
    for name in names:
        *lines, ended = launched.of(name)
        assert ended == ("exit", "ended with exit code 0")
        assert [text for kind, text in lines if kind == "output"] == [
            f"{name} {n}" for n in range(500)
        ]
        assert [text for kind, text in lines if kind == "error"] == [f"{name} ends"]


def test_keys_reach_a_process_by_its_role_alone(launched):
    keys = new_keys()
    code = (
        "import os, sys\n"
        "print(keys.secret)\n"
        "print(keys.secret in ' '.join([*os.environ.values(), *sys.argv]))"
    )
    launched.start("worker-0", code, keys=keys)
    launched.until_ended("worker-0")
    assert launched.of("worker-0")[:2] == [("output", keys.secret), ("output", "False")]


def test_a_role_is_told_an_address_of_its_machine_at_which_it_can_listen(launched):
    launched.launcher.start(Role("server-0", print, (ADDRESS, "is here")))
    launched.until_ended("server-0")
    address = launched.of("server-0")[0][1].removesuffix(" is here")
    socket.create_server((address, 0)).close()


def test_stop_ends_all_processes_and_tells_no_exit(launched):
    for name in ("worker-0", "worker-1"):
        launched.start(
            name,
            "import signal, time\n"
            "if me == 'worker-0': signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
            "print('up')\n"
            "while True: time.sleep(0.05); print('alive')",
            me=name,
        )
    launched.until(lambda: {name for _, name, _ in launched.told} == {"worker-0", "worker-1"})
    launched.launcher.stop()
    told = len(launched.told)
    assert not any(kind == "exit" for kind, _, _ in launched.told)
    launched.clock(launched.clock.now + 300_000_000)
    assert len(launched.told) == told


def test_a_stop_that_is_not_at_once_lets_processes_end_by_themselves(launched):
    launched.start("worker-0", "import time; print('up'); time.sleep(0.3); print('done')")
    launched.until(lambda: launched.told)
    launched.launcher.stop(at_once=False)
    assert ("output", "done") in launched.of("worker-0")


def test_a_suspended_process_stands_still_until_it_is_resumed(launched):
    launched.start("worker-0", "import time\nwhile True: time.sleep(0.01); print('alive')")
    launched.until(lambda: launched.told)
    launched.launcher.suspend()
    launched.for_s(0.3)  # takes what was printed before
    told = len(launched.told)
    launched.for_s(0.3)
    assert len(launched.told) == told
    launched.launcher.resume()
    launched.until(lambda: len(launched.told) > told)


def test_the_end_of_a_process_is_foreseen_until_it_is_reported(launched):
    launched.start("worker-0", "pass")
    launched.start("worker-1", "import time; time.sleep(60)")
    # Nothing is reported before the clock is called.
    deadline = time.monotonic() + 60
    while not launched.launcher.is_ending("worker-0"):
        assert time.monotonic() < deadline
    assert launched.told == []
    assert not launched.launcher.is_ending("worker-1")
    assert not launched.launcher.is_ending("nobody")
    launched.until_ended("worker-0")
    assert not launched.launcher.is_ending("worker-0")


def test_a_parent_that_was_killed_is_named_and_not_its_processes_blamed(launched):
    launched.start("worker-0", "import os, time; print(os.getppid(), flush=True); time.sleep(60)")
    launched.until(lambda: launched.of("worker-0"))
    ((_, parent),) = launched.of("worker-0")
    os.kill(int(parent), signal.SIGKILL)
    launched.until_ended("worker-0")
    how = dict(launched.of("worker-0"))["exit"]
    local = f"ended with the fork server (process {parent}), from which it was forked,"
    assert how == local or how.startswith("was lost with its actor")
