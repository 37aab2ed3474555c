"""Kills or stops processes of real runs, one after the other, and checks the promises."""

from __future__ import annotations

import os
import random
import shutil
import signal
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from tests.kills.checking import Broken, check
from tests.kills.command import Command, descendants, is_alive
from tests.kills.family import FAMILIES, Family

ROLES: Final = ("worker", "server", "coordinator")
SIGNALS: Final = {"KILL": signal.SIGKILL, "STOP": signal.SIGSTOP}
_BETWEEN_S: Final = 2.0  # from a recovery to the next failure


@dataclass
class Tally:
    """The failures so far, by family, role and signal, and the seconds until the run continued."""

    failures: Counter[tuple[str, str, str]] = field(default_factory=Counter)
    recovery_s: dict[tuple[str, str], list[float]] = field(default_factory=dict)
    runs: int = 0

    def add(self, family: str, role: str, number: str, recovery_s: float) -> None:
        self.failures[family, role, number] += 1
        self.recovery_s.setdefault((role, number), []).append(recovery_s)


def attack(
    name: str,
    folder: Path,
    failures: Sequence[tuple[str, str]],
    *,
    seed: int,
    tally: Tally,
    iterations: int,
    copies: int = 1,
) -> None:
    """Make one run, with these failures (role and signal) one after the other.

    If the run ends earlier, the remaining failures are not made.

    Args:
        name: name of a family.
        folder: gets the run; must be empty.
        iterations: number of iterations of each worker.
        copies: how often a task has each parameter.

    Raises:
        Broken: naming the promise that did not hold.
    """
    family, draw = FAMILIES[name], random.Random(seed)
    folder.mkdir(exist_ok=True)
    command = Command(folder, family.config(iterations, copies))
    made: Counter[str] = Counter()
    try:
        command.start()
        for role, number in failures:
            if not is_ready(command, family) or (role == "server" and not family.servers):
                continue
            made[role] += 1
            recovery_s = _fail(command, family, role, number, draw)
            if recovery_s is None:  # the run ended in the meantime
                break
            tally.add(name, role, number, recovery_s)
            _pause(command)
        command.wait_until("its end", lambda: command.exit_code is not None, ends=True)
        if command.exit_code != 0:
            raise Broken(f"the command ended with {command.exit_code}: {command.said}")
        check(command.out, family, iterations, made)
        check_nothing_left(command)
    finally:
        command.end()
    tally.runs += 1
    shutil.rmtree(folder)


def is_ready(command: Command, family: Family) -> bool:
    """Wait until all processes train and a checkpoint exists; False if the run ended before."""

    def ready() -> bool:
        if command.exit_code is not None:
            return True
        status = command.status()
        return (
            status is not None
            and status.phase == "training"
            and status.checkpoints is not None
            and status.checkpoints.number > 0
            and set(command.processes()) == set(family.processes)
            and all(each.state in ("training", "joined") for each in status.processes)
        )

    command.wait_until("a run with all its processes", ready, ends=True)
    return command.exit_code is None


def _fail(
    command: Command, family: Family, role: str, number: str, draw: random.Random
) -> float | None:
    """Make one process fail, and return the seconds until all processes are running again.

    Return None if the run ended before that.
    """
    before, begun = command.processes(), time.monotonic()
    status = command.status()
    restarts = 0 if status is None else status.restarts
    if role == "coordinator":
        os.kill(command.pid, SIGNALS[number])
        if number == "STOP":
            time.sleep(1.0)
            os.kill(command.pid, signal.SIGCONT)
            return time.monotonic() - begun
        everything = set(command.known)
        command.wait_until(
            "the end of all processes of a killed run",
            lambda: not any(is_alive(pid) for pid in everything),
            ends=True,
        )
        if command.summary()["status"] != "partial":
            raise Broken(f"the summary of a killed run says {command.summary()['status']}")
        command.start()
        return time.monotonic() - begun if is_ready(command, family) else None
    there = [each for each in before if each.startswith(role)]
    if not there:
        return None  # they have ended since; then the run ends, and the caller waits for that
    target = draw.choice(there)
    try:
        os.kill(before[target], SIGNALS[number])
    except ProcessLookupError:
        return None  # the same

    def again() -> bool:
        if command.exit_code is not None:
            return True
        now = command.status()
        return (
            now is not None
            and now.restarts > restarts
            and command.processes().get(target, before[target]) != before[target]
        )

    command.wait_until(f"a successor of {target}", again, ends=True)
    if command.exit_code is None and not is_ready(command, family):
        return None
    found = time.monotonic() - begun
    if number == "STOP" and is_alive(before[target]):
        os.kill(before[target], signal.SIGCONT)
        command.wait_until(
            f"the end of the {target} that was stopped", lambda: not is_alive(before[target])
        )
    return found if command.exit_code is None else None


def _pause(command: Command) -> None:
    until = time.monotonic() + _BETWEEN_S
    while time.monotonic() < until and command.exit_code is None:
        time.sleep(0.05)


def check_nothing_left(command: Command) -> None:
    command.wait_until(
        "the end of all processes",
        lambda: not any(is_alive(pid) for pid in command.known),
        ends=True,
    )
    if left := descendants(command.pid):
        raise Broken(f"processes are left: {left}")
    # A killed command leaves the socket of multiprocessing's fork server.
    found = [path for path in command.temporary.rglob("*") if path.is_socket()]
    sockets = [path.name for path in found if not path.parent.name.startswith("pymp-")]
    if sockets:
        raise Broken(f"socket files are left: {sockets}")
    partial = [path.name for path in command.out.rglob("*") if path.name.endswith(".part")]
    if partial:
        raise Broken(f"half-written files are left: {partial}")
