"""Carries runs out in processes of this machine, each of which is used for the next run again."""

from __future__ import annotations

import contextlib
import math
import multiprocessing
import signal
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from types import FrameType
from typing import Final

from outpace.experiment.trials.one import Ended, Order, Stopped, Told, carry_out
from outpace.support.processes import forking

KILLED: Final = "the process of the run "  # begin of the error if a process is killed
_GRACE_S: Final = 20.0  # for the runs to complete their folders before they are killed

# Each process would import them, which takes as long as a short run.
forking.preload(__name__)
forking.preload("outpace.report.page")


@dataclass(frozen=True, slots=True)
class _Begin:
    """Tells a process to carry out a run. may_fork: the run may start processes."""

    order: Order
    may_fork: bool


@dataclass(frozen=True, slots=True)
class _Stop:
    """Tells a process to end its run."""

    reason: str


@dataclass(eq=False, slots=True)
class _Process:
    """A process, and the run that it carries out at the moment.

    Attributes:
        run: the number of the run.
        order: of the last run.
        runs: how many it has begun.
        keeps_times: True if it has measured run times, for later runs.
    """

    process: forking.Process
    run: int | None = None
    order: Order | None = None
    runs: int = 0
    keeps_times: bool = False


class ProcessesHere:
    """A `pool.Carrier` on this machine.

    Args:
        most: runs at a time.
        runs_each: see `Pool`.
    """

    look_s = math.inf

    def __init__(self, most: int, runs_each: int) -> None:
        self._most, self._runs_each = most, runs_each
        self._processes: dict[Connection, _Process] = {}

    @property
    def waited_for(self) -> Sequence[Connection]:
        return [pipe for pipe, each in self._processes.items() if each.run is not None]

    def has_room(self) -> bool:
        return len(self.waited_for) < self._most

    def begin(self, run: int, order: Order, all_cores: bool) -> None:
        pipe, process = self._idle()
        process.run, process.order, process.runs = run, order, process.runs + 1
        process.keeps_times |= all_cores
        with contextlib.suppress(OSError):  # it was killed, which `take` notices
            pipe.send(_Begin(order, all_cores))

    def stop(self, run: int, reason: str) -> None:
        for pipe, process in self._processes.items():
            if process.run == run:
                with contextlib.suppress(OSError):  # it was killed, which `take` notices
                    pipe.send(_Stop(reason))

    def take(self, ready: Iterable[object]) -> Iterator[tuple[int, Told]]:
        for pipe in ready:
            if isinstance(pipe, Connection) and pipe in self._processes:
                yield self._told(pipe)

    def close(self) -> None:
        deadline_s = time.monotonic() + _GRACE_S
        try:
            for pipe, each in self._processes.items():
                each.process.terminate()
                pipe.close()
            for each in self._processes.values():
                each.process.join(max(0.0, deadline_s - time.monotonic()))
        finally:  # a second Ctrl-C does not wait
            for pipe, each in self._processes.items():
                each.process.kill()
                pipe.close()
                each.process.join()
                each.process.close()
            self._processes.clear()

    def _idle(self) -> tuple[Connection, _Process]:
        """Return the first process without a run; measured run times are kept in it."""
        for pipe, process in list(self._processes.items()):
            if process.run is None:
                is_used_up = process.runs >= self._runs_each and not process.keeps_times
                if process.process.is_alive() and not is_used_up:
                    return pipe, process
                self._remove(pipe)
        ours, theirs = Pipe()
        with theirs:
            started = forking.start(f"run-{len(self._processes)}", _serve, theirs)
        process = self._processes[ours] = _Process(started)
        return ours, process

    def _told(self, pipe: Connection) -> tuple[int, Told]:
        """Return a message of a process that carries out a run."""
        process = self._processes[pipe]
        run, order = process.run, process.order
        assert run is not None
        assert order is not None
        try:
            told: Told = pipe.recv()
        except (EOFError, OSError):
            process.process.join()
            told = Ended.failed(order.key, f"{KILLED}{forking.how_it_ended(process.process)}")
            self._remove(pipe)
        if isinstance(told, Ended):
            process.run = None
        return run, told

    def _remove(self, pipe: Connection) -> None:
        """Forget a process that has ended, or ends when its pipe is closed."""
        process = self._processes.pop(pipe).process
        pipe.close()
        process.join()
        process.close()


def _serve(pipe: Connection) -> None:
    """Carry out the runs that come through the pipe, until it is closed.

    SIGTERM interrupts the run that is under way, which then completes its folder. If the pipe is
    closed, or no run is under way, it ends the process.
    """
    serving = _Serving(pipe)
    signal.signal(signal.SIGTERM, serving.terminate)
    with contextlib.suppress(EOFError, OSError, Stopped):
        while True:
            told = pipe.recv()
            if isinstance(told, _Begin):  # a _Stop was for a run that had ended
                serving.carry_out(told)


class _Serving:
    """What a process of `ProcessesHere` does."""

    def __init__(self, pipe: Connection) -> None:
        self._pipe = pipe
        self._under_way = False

    def carry_out(self, begin: _Begin) -> None:
        """Run, and send what happens, and at last an `Ended`."""
        multiprocessing.current_process().daemon = not begin.may_fork
        self._under_way = True
        ended = carry_out(begin.order, begin.order.folder, self._send, self._stopped)
        self._under_way = False
        self._send(ended)

    def terminate(self, _: int, __: FrameType | None) -> None:
        if not self._under_way:
            raise SystemExit
        raise Stopped("interrupted")  # the pipe is closed, which ends the process afterwards

    def _stopped(self) -> str | None:
        with contextlib.suppress(OSError):  # the pipe is closed, and SIGTERM comes
            if self._pipe.poll() and isinstance(told := self._pipe.recv(), _Stop):
                return told.reason
        return None

    def _send(self, told: Told) -> None:
        with contextlib.suppress(OSError):  # the pool is being closed and no longer reads
            self._pipe.send(told)
