"""Carries out runs in virtual time in parallel, on this machine or on a cluster."""

from __future__ import annotations

import contextlib
import math
import multiprocessing
import signal
import time
from collections.abc import Callable, Collection, Hashable, Iterator
from dataclasses import dataclass
from multiprocessing import Pipe
from multiprocessing.connection import Connection, wait
from types import FrameType, TracebackType
from typing import Any, Final, Protocol, Self, TypeAlias

from outpace.cluster.observed import Measured
from outpace.config.executors import Processes
from outpace.config.experiment import Experiment
from outpace.experiment.trials.one import Ended, Order, Point, Stopped, Told, carry_out
from outpace.simulation.executors.processes import cores
from outpace.support.processes import forking
from outpace.tasks import GivenTask

KILLED: Final = "the process of the run "  # beginning of the error if a process is killed
_GRACE_S: Final = 20.0  # seconds for the runs to complete their folders before they are killed
# Largest number of runs of a process, so that its memory does not grow: after 1,600 runs a heap had
# gaps of 2 GB.
RUNS_EACH: Final = 200

# Otherwise each process would import them, which takes as long as a short run.
forking.preload(__name__)
forking.preload("outpace.report.page")

Event: TypeAlias = Point | Ended


def needs_all_cores(experiment: Experiment) -> bool:
    """True if a run must be alone on this machine or, on a cluster, on its node.

    Its gradients are computed, or its run times measured, on all cores.
    """
    return experiment.has_script or (
        stays_here(experiment) or isinstance(experiment.executor, Processes)
    )


def stays_here(experiment: Experiment) -> bool:
    """True if a run must be carried out on this machine, even if there is a cluster.

    Its task was given from Python, or its run times are measured: all runs of a comparison use the
    run times of one machine.
    """
    return isinstance(experiment.task, GivenTask) or isinstance(experiment.compute, Measured | None)


class Carrier(Protocol):
    """Carries out runs in other processes of this machine, or on a cluster."""

    def has_room(self, order: Order, others: Collection[Order]) -> bool:
        """True if a run can begin while these others are running."""

    def begin(self, order: Order) -> None:
        """Begin a run."""

    def stop(self, key: Hashable, reason: str) -> None:
        """Make a running run end at its next evaluation or sooner."""

    def events(self, timeout_s: float) -> Iterator[tuple[Hashable, Told]]:
        """Wait until there are messages about runs, and yield them with the runs' keys.

        The last message of a run is an `Ended`; then its files are in its folder. The call may end
        early without a message.

        Raises:
            RunError: if no run has begun, and none is expected to.
        """

    def close(self) -> None:
        """Interrupt all runs, and end all processes."""


class Pool:
    """Carries out runs, which begin in the order in which they were given.

        with Pool() as pool:
            pool.start(Order("first", experiment))
            while events := pool.wait():
                ...

    A run has bitwise the results of `outpace.simulate`. If a process is killed, only its own run
    ends. Leaving the block interrupts the running runs; on this machine their folders are completed
    and marked partial.

    A script, measured run times, and the executor `processes` need all cores: such a run is carried
    out alone. A run that cannot be sent to another process (`Order.is_here`) is carried out in this
    process during `wait`, after all others: its points are returned together with its end, and it
    cannot be stopped.

    Args:
        processes: largest number of runs at a time on this machine; None: one for each core.
        progress: called during `wait` with a key and the completed share of its run.
        warning: called during `wait` with a key and a warning about its run.
        carrier: carries out the runs, and is closed with the pool; None: this machine.
    """

    def __init__(
        self,
        processes: int | None = None,
        *,
        progress: Callable[[Any, float], None] = lambda _, __: None,
        warning: Callable[[Any, str], None] = lambda _, __: None,
        carrier: Carrier | None = None,
    ) -> None:
        most = cores() if processes is None else processes
        self._carrier = ProcessesHere(most) if carrier is None else carrier
        self._progress, self._warning = progress, warning
        self._waiting: dict[Hashable, Order] = {}
        self._running: dict[Hashable, Order] = {}
        self._events: list[Event] = []  # events that the next `wait` returns

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._carrier.close()

    def start(self, order: Order) -> None:
        """Queue a run. Raises ValueError if a run with this key is running or queued."""
        if order.key in self._waiting or order.key in self._running:
            raise ValueError(f"a run with the key {order.key!r} has not ended yet")
        self._waiting[order.key] = order

    def stop(self, key: Hashable, reason: str) -> None:
        """End a run at its next evaluation or sooner; `wait` then returns an `Ended` for it.

        Nothing happens if the run has ended already.
        """
        if self._waiting.pop(key, None) is not None:
            self._events.append(Ended.unbegun(key, reason))
        elif key in self._running:
            self._carrier.stop(key, reason)

    def wait(self, timeout_s: float | None = None) -> list[Event]:
        """Return events, at least one unless the time is over.

        Returns:
            Points and ends, in order for each run; an empty list if the time is over, or if no run
            is running or queued.

        Raises:
            RunError: if the cluster has no room for any run.
        """
        deadline_s = math.inf if timeout_s is None else time.monotonic() + timeout_s
        while True:
            self._begin()
            left_s = deadline_s - time.monotonic()
            if self._events or not self._running:
                break
            for key, told in self._carrier.events(max(0.0, left_s)):
                self._take(key, told)
            if left_s <= 0:
                break
        events, self._events = self._events, []
        return events

    def _begin(self) -> None:
        """Begin the queued runs for which there is room."""
        for key, order in list(self._waiting.items()):
            if order.is_here:
                continue
            if not self._carrier.has_room(order, self._running.values()):
                return
            self._running[key] = self._waiting.pop(key)
            self._carrier.begin(order)
        if self._waiting and not self._running and not self._events:
            self._carry_out(next(iter(self._waiting.values())))

    def _carry_out(self, order: Order) -> None:
        """Carry out a run in this process."""
        self._running[order.key] = self._waiting.pop(order.key)
        warnings: list[str] = []  # the warnings are for the caller

        def tell(told: Told) -> None:
            if isinstance(told, str):
                warnings.append(told)
            else:
                self._take(order.key, told)

        ended = carry_out(order, order.folder, tell)
        for text in warnings:
            self._warning(order.key, text)
        self._take(order.key, ended)

    def _take(self, key: Hashable, told: Told) -> None:
        match told:
            case float():
                self._progress(key, told)
            case str():
                self._warning(key, told)
            case Point():
                self._events.append(told)
            case Ended():
                del self._running[key]
                self._events.append(told)


@dataclass(eq=False, slots=True)
class _Process:
    """A process, and the run that it carries out at the moment.

    Attributes:
        runs: number of runs that it has begun.
        keeps_times: True if it has measured run times, which later runs use.
    """

    process: forking.Process
    order: Order | None = None
    runs: int = 0
    keeps_times: bool = False


class ProcessesHere:
    """Carries out runs in processes of this machine, which are reused for later runs.

    most: largest number of runs at a time.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._processes: dict[Connection, _Process] = {}

    def has_room(self, order: Order, others: Collection[Order]) -> bool:
        alone = any(needs_all_cores(each.experiment) for each in (order, *others))
        return len(others) < (1 if alone else self._most)

    def begin(self, order: Order) -> None:
        pipe, process = self._idle()
        process.order, process.runs = order, process.runs + 1
        process.keeps_times |= stays_here(order.experiment)
        self._send(pipe, order)

    def stop(self, key: Hashable, reason: str) -> None:
        for pipe, process in self._processes.items():
            if process.order is not None and process.order.key == key:
                self._send(pipe, reason)

    def events(self, timeout_s: float) -> Iterator[tuple[Hashable, Told]]:
        busy = {pipe: each.order for pipe, each in self._processes.items() if each.order}
        for pipe in wait(list(busy), None if timeout_s == math.inf else timeout_s):
            assert isinstance(pipe, Connection)
            key = busy[pipe].key
            yield key, self._told(pipe, key)

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
        """Return the first process without a run, or a new one."""
        for pipe, process in list(self._processes.items()):
            if process.order is None:
                is_used_up = process.runs >= RUNS_EACH and not process.keeps_times
                if process.process.is_alive() and not is_used_up:
                    return pipe, process
                self._remove(pipe)
        ours, theirs = Pipe()
        with theirs:
            started = forking.start(f"run-{len(self._processes)}", _serve, theirs)
        process = self._processes[ours] = _Process(started)
        return ours, process

    def _told(self, pipe: Connection, key: Hashable) -> Told:
        """Return a message of a process that carries out a run."""
        process = self._processes[pipe]
        try:
            told: Told = pipe.recv()
        except (EOFError, OSError):
            process.process.join()
            told = Ended.failed(key, f"{KILLED}{forking.how_it_ended(process.process)}")
            self._remove(pipe)
        if isinstance(told, Ended):
            process.order = None
        return told

    def _remove(self, pipe: Connection) -> None:
        """Forget a process that has ended, or ends when its pipe is closed."""
        process = self._processes.pop(pipe).process
        pipe.close()
        process.join()
        process.close()

    @staticmethod
    def _send(pipe: Connection, told: Order | str) -> None:
        """Tell a process to begin a run, or why its run is to end."""
        with contextlib.suppress(OSError):  # the process was killed, which `events` notices
            pipe.send(told)


def _serve(pipe: Connection) -> None:
    """Carry out the runs received through the pipe, until the pipe is closed.

    SIGTERM interrupts the present run, which then completes its folder, and ends the process.
    """

    def interrupt(_: int, __: FrameType | None) -> None:
        raise Stopped("interrupted")

    def stopped() -> str | None:
        with contextlib.suppress(EOFError, OSError):  # the pipe is closed, and SIGTERM follows
            if pipe.poll() and isinstance(reason := pipe.recv(), str):
                return reason
        return None

    def send(told: Told) -> None:
        with contextlib.suppress(OSError):  # the pool is being closed and no longer reads
            pipe.send(told)

    signal.signal(signal.SIGTERM, interrupt)
    with contextlib.suppress(EOFError, OSError, Stopped):
        while True:
            # otherwise it is a reason for a run that has ended
            if isinstance(order := pipe.recv(), Order):
                # A daemon may not start processes.
                multiprocessing.current_process().daemon = not needs_all_cores(order.experiment)
                send(carry_out(order, order.folder, send, stopped))
