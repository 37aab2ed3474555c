"""The promises of a launcher, checked with real processes; see `outpace.real.process.launcher`.

The processes execute code that is passed as text, so they do not import the caller's modules.
"""

from __future__ import annotations

import socket
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from outpace.real.net.clock import RealClock
from outpace.real.net.transport import new_keys
from outpace.real.process.launcher import ADDRESS, Launcher, MakeLauncher, Role
from outpace.testing.promises import require

_TICK_NS: Final = 5_000_000
_REMEDY: Final = "compare with outpace.real.process.local.LocalLauncher, which keeps this promise"
_ENDLESS: Final = (
    "import os, signal, socket, time\n"
    "print(socket.gethostname(), os.getpid())\n"
    "signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
    "while True: time.sleep(0.05); print('alive')"
)


class Launched:
    """A launcher, and the reports that it has made.

    Attributes:
        told: the reports: ("exit", name, how it ended), ("output", name, line) or ("error", name,
            line).
    """

    def __init__(self, make: MakeLauncher) -> None:
        self.clock = RealClock()
        self.told: list[tuple[str, str, str]] = []
        self.launcher: Launcher = make(
            self.clock,
            lambda name, how: self.told.append(("exit", name, how)),
            lambda name, line, error: self.told.append(
                ("error" if error else "output", name, line)
            ),
        )

    def start(self, name: str, code: str, **variables: Any) -> None:
        """Start a process that executes this code."""
        self.launcher.start(Role(name, exec, (code, variables)))

    def until(self, condition: Callable[[], object], promise: str = "events are told") -> None:
        """Run the clock until the condition is true, at most for a minute."""
        deadline = time.monotonic() + 60.0
        while not condition():
            self.require(time.monotonic() < deadline, promise)
            self.clock(self.clock.now + _TICK_NS)

    def until_ended(self, *names: str) -> None:
        self.until(lambda: all("exit" in dict(self.of(name)) for name in names))

    def for_s(self, time_s: float) -> None:
        """Run the clock for a number of seconds."""
        until = time.monotonic() + time_s
        while time.monotonic() < until:
            self.clock(self.clock.now + _TICK_NS)

    def of(self, name: str) -> list[tuple[str, str]]:
        """Return the reports about a process, in order."""
        return [(kind, text) for kind, who, text in self.told if who == name]

    def require(self, holds: bool, promise: str) -> None:
        case = f"{type(self.launcher).__name__} has told {self.told[-20:]}"
        require(holds, promise, case, _REMEDY)


@contextmanager
def launched(make: MakeLauncher) -> Iterator[Launched]:
    """Make a launcher for the block, and stop it afterwards."""
    found = Launched(make)
    try:
        yield found
    finally:
        found.launcher.stop()


def check_launcher(make: MakeLauncher) -> None:
    """Check that a launcher starts, watches and ends processes as a run needs it.

    The launcher reports everything that a process prints, in whole lines, and then once how the
    process ended. It passes keys to a process only through its role, and gives the role an address
    at which the process can listen. It can kill one process without the others. No process outlives
    `stop`. The check takes some seconds. Placement on a cluster, which a launcher may offer in
    addition, is not checked.

        check_launcher(MyLauncher)

    Args:
        make: the argument `launcher` of `outpace.run`: called with a clock, on_exit and on_output.

    Raises:
        AssertionError: for the first promise that is broken.
    """
    for check in (_check_reports, _check_roles, _check_ends):
        with launched(make) as run:
            check(run)


def _check_reports(run: Launched) -> None:
    ends = {"worker-0": "pass", "worker-1": "raise SystemExit(3)", "server-0": "raise ValueError"}
    for name, code in ends.items():
        run.start(name, f"for n in range(500): print(me, n)\n{code}", me=name)
    time.sleep(0.1)
    run.require(not run.told, "callbacks are called while the clock waits, not before")
    run.until_ended(*ends)
    run.for_s(0.1)
    for name, exit_code in {"worker-0": 0, "worker-1": 3, "server-0": 1}.items():
        *lines, _ = run.of(name)
        run.require(
            [text for kind, text in lines if kind == "output"]
            == [f"{name} {n}" for n in range(500)],
            "what a process prints is told in whole lines, in order, before its exit",
        )
        exits = [text for kind, text in run.of(name) if kind == "exit"]
        expected = [f"ended with exit code {exit_code}"]
        run.require(exits == expected, f"the exit of {name} is told once, as {expected[0]!r}")
    run.require(
        ("error", "ValueError") in run.of("server-0"), "the error of a role is told as such"
    )


def _check_roles(run: Launched) -> None:
    keys = new_keys()
    code = (
        "import os, sys\n"
        "print(keys.secret)\n"
        "print(keys.secret in ' '.join([*os.environ.values(), *sys.argv]))"
    )
    run.start("worker-0", code, keys=keys)
    run.launcher.start(Role("server-0", print, (ADDRESS, "is here")))
    run.until_ended("worker-0", "server-0")
    expected = [("output", keys.secret), ("output", "False")]
    run.require(run.of("worker-0")[:2] == expected, "keys reach a process by its role alone")
    address = run.of("server-0")[0][1].removesuffix(" is here")
    try:
        socket.create_server((address, 0)).close()
    except OSError:
        run.require(False, f"a role can listen at the address that it is told, {address}")


def _check_ends(run: Launched) -> None:
    for name in ("worker-0", "worker-1"):
        run.start(name, _ENDLESS)
    run.until(lambda: run.of("worker-0") and run.of("worker-1"))
    run.launcher.kill("worker-0")
    run.until_ended("worker-0")
    # killing a process that has ended, or that does not exist, has no effect
    for name in ("worker-0", "worker-7"):
        run.launcher.kill(name)
    end = run.of("worker-0")[-1]
    run.require(end == ("exit", "was killed by SIGKILL"), "a killed process is told as killed")
    told = len(run.of("worker-1"))
    run.until(lambda: len(run.of("worker-1")) > told, "the others continue when one is killed")
    run.launcher.stop()
    told = len(run.of("worker-1"))
    run.for_s(0.3)
    run.require(
        len(run.of("worker-1")) == told and not _is_alive(run.of("worker-1")[0][1]),
        "no process outlives `stop`, also none that ignores SIGTERM, and `stop` tells no exit",
    )


def _is_alive(line: str) -> bool:
    """True if the process that printed this line, its host and number, runs on this machine."""
    host, _, number = line.partition(" ")
    return host == socket.gethostname() and Path("/proc", number).exists()
