"""Runs in virtual time side by side, on the cores of this machine or on a cluster."""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from multiprocessing.connection import Connection, wait
from types import TracebackType
from typing import Any, Final, Protocol, Self, TypeAlias

from outpace.cluster.observed import Measured
from outpace.config.executors import Processes
from outpace.config.experiment import Experiment
from outpace.experiment.trials.here import KILLED, ProcessesHere
from outpace.experiment.trials.one import Ended, Order, Point, Told, carry_out
from outpace.simulation.executors.processes import cores
from outpace.tasks import GivenTask

_RUNS_EACH: Final = 200  # after 1,600 runs of a small network a heap had gaps of 2 GB
_MOST_LOSSES: Final = 3  # of a run that begins again when its node is lost

Event: TypeAlias = Point | Ended


def needs_all_cores(experiment: Experiment) -> bool:
    """True if a run is carried out while no other is, or on a cluster, on a node of its own.

    Its gradients are computed, or its run times measured, on all cores.
    """
    return experiment.has_script or (
        stays_here(experiment) or isinstance(experiment.executor, Processes)
    )


def stays_here(experiment: Experiment) -> bool:
    """True if a run is carried out on this machine, also if there is a cluster.

    Its task was given from Python, or its run times are measured: all runs of a comparison use
    those of one machine.
    """
    return isinstance(experiment.task, GivenTask) or isinstance(experiment.compute, Measured | None)


@dataclass(frozen=True, slots=True)
class Lost:
    """A run is lost with its node, and can begin again elsewhere. how: completes `KILLED`."""

    how: str


class Carrier(Protocol):
    """Carries runs out, each in a process that does one at a time.

    The last message about a run is an `Ended`, without points, or `Lost`. Its files are in its
    folder by then.
    """

    @property
    def look_s(self) -> float:
        """Seconds after which `take` has something to do; infinite: see `waited_for`."""

    @property
    def waited_for(self) -> Sequence[Connection]:
        """When one of these can be read, `take` has something to do."""

    def has_room(self) -> bool:
        """True if `begin` may be called."""

    def begin(self, run: int, order: Order, all_cores: bool) -> None:
        """Begin a run.

        Args:
            run: its number, by which `take` and `stop` name it.
            all_cores: it needs those of a machine.
        """

    def stop(self, run: int, reason: str) -> None:
        """Tell the process of this run to end it, if it is under way."""

    def take(self, ready: Iterable[object]) -> Iterable[tuple[int, Told | Lost]]:
        """Return what has been told about runs, by their numbers.

        Args:
            ready: those of `waited_for` that can be read.

        Raises:
            RunError: there is no room for any run, and none is expected.
        """

    def close(self) -> None:
        """Interrupt all runs, wait until their folders are complete, and end all processes.

        Nothing happens if it has been called before.
        """


@dataclass(eq=False, slots=True)
class _Run:
    """A run that is queued or under way.

    Attributes:
        number: names it in the reports of its carrier; other than that of any other run.
        carrier: None: the process of the pool.
        is_alone: no other run runs beside it.
        warnings: number of those that are known.
        share: of it that is done.
        stopped: why it was told to stop; None: it was not.
        losses: how often it was lost with its node.
        repeated: points and warnings that came since it began for the last time, of those that
            are known from before.
    """

    number: int
    order: Order
    carrier: Carrier | None
    all_cores: bool
    is_alone: bool
    points: list[Point] = field(default_factory=list)
    warnings: int = 0
    share: float = 0.0
    stopped: str | None = None
    losses: int = 0
    repeated: list[int] = field(default_factory=lambda: [0, 0])


class Pool:
    """Carries out runs, begun in the order in which they were given.

        with Pool() as pool:
            pool.start(Order("first", experiment))
            while events := pool.wait():
                ...

    A run has bitwise the results of `outpace.simulate`. A process that is killed ends its own run
    only. Leaving the block interrupts the runs that are under way; their folders are completed
    and marked partial.

    A script, run times that are measured, and the executor `processes` need all cores: such a run
    is alone. A run that cannot go to another process (`Order.is_here`) runs in this one during
    `wait`: its points come together with its end, and it cannot be stopped.

    On a cluster, a run that is lost with its node begins again, at most three times. It repeats
    bitwise, and each of its points and warnings is reported once.

    Args:
        processes: most runs at a time on this machine; None: one for each core.
        runs_each: after so many runs another process takes the place of one, so that its memory
            does not grow. One that has measured run times stays, because later runs use them.
        progress: called during `wait` with a key and the share of its run that is done.
        warning: called during `wait` with a key and a warning about its run.
        elsewhere: carries out the runs that need not stay on this machine; it is closed with the
            pool. None: all stay here.
    """

    def __init__(
        self,
        processes: int | None = None,
        *,
        runs_each: int = _RUNS_EACH,
        progress: Callable[[Any, float], None] = lambda _, __: None,
        warning: Callable[[Any, str], None] = lambda _, __: None,
        elsewhere: Carrier | None = None,
    ) -> None:
        self._here = ProcessesHere(cores() if processes is None else processes, runs_each)
        self._elsewhere: Carrier = self._here if elsewhere is None else elsewhere
        self._progress, self._warning = progress, warning
        self._waiting: deque[_Run] = deque()
        self._running: dict[int, _Run] = {}  # by number
        self._count = 0  # of runs so far
        self._events: list[Event] = []  # to be returned by the next `wait`

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def start(self, order: Order) -> None:
        """Queue a run. Raises ValueError if a run with this key is under way or queued."""
        if any(order.key == run.order.key for run in self._runs()):
            raise ValueError(f"a run with the key {order.key!r} has not ended yet")
        self._count += 1
        all_cores, is_here = needs_all_cores(order.experiment), stays_here(order.experiment)
        carrier: Carrier = self._here if is_here or order.is_here else self._elsewhere
        is_alone = carrier is self._here and (all_cores or order.is_here)
        self._waiting.append(
            _Run(self._count, order, None if order.is_here else carrier, all_cores, is_alone)
        )

    def stop(self, key: Hashable, reason: str) -> None:
        """End a run at its next evaluation or sooner; it comes back as `Ended` and `stopped`.

        Nothing happens if the run has ended already.
        """
        run = next((each for each in self._runs() if each.order.key == key), None)
        if run is None:
            return
        run.stopped = reason
        if run.number not in self._running:
            self._waiting.remove(run)
            summary = {"status": "partial", "error": reason}
            self._events.append(Ended(key, "stopped", reason, summary, tuple(run.points)))
        elif run.carrier is not None:
            run.carrier.stop(run.number, reason)

    def wait(self, timeout_s: float | None = None) -> list[Event]:
        """Return what has happened, at least one event unless the time is over.

        Returns:
            Points and ends in their order for each run; an empty list if the time is over, or
            no run is under way or queued.

        Raises:
            RunError: the cluster has no room for any run.
        """
        deadline_s = math.inf if timeout_s is None else time.monotonic() + timeout_s
        while True:
            self._begin()
            if self._events or not (self._running or self._waiting):
                break
            carriers = self._carriers()
            left_s = min(
                max(0.0, deadline_s - time.monotonic()), *(each.look_s for each in carriers)
            )
            ready = wait(
                [pipe for carrier in carriers for pipe in carrier.waited_for],
                None if left_s == math.inf else left_s,
            )
            for carrier in carriers:
                for number, told in carrier.take(ready):
                    self._take(self._running[number], told)
            if not ready and time.monotonic() >= deadline_s:
                break
        events, self._events = self._events, []
        return events

    def close(self) -> None:
        """Interrupt all runs, wait until their folders are complete, and end all processes."""
        self._waiting.clear()
        with ExitStack() as closing:  # closes the second one, too, if the first is interrupted
            closing.callback(self._running.clear)
            for carrier in self._carriers():
                closing.callback(carrier.close)

    def _carriers(self) -> Sequence[Carrier]:
        alone = self._elsewhere is self._here
        return [self._here] if alone else [self._here, self._elsewhere]

    def _runs(self) -> Iterator[_Run]:
        yield from self._waiting
        yield from self._running.values()

    def _begin(self) -> None:
        """Begin the queued runs for which there is room."""
        while self._waiting:
            run = self._waiting[0]
            others = self._running.values()
            if others and (run.is_alone or any(each.is_alone for each in others)):
                return
            if run.carrier is not None and not run.carrier.has_room():
                return
            self._running[run.number] = self._waiting.popleft()
            if run.carrier is None:
                self._carry_out(run)
                return
            run.repeated = [0, 0]
            run.carrier.begin(run.number, run.order, run.all_cores)
            if run.stopped is not None:
                run.carrier.stop(run.number, run.stopped)

    def _carry_out(self, run: _Run) -> None:
        """Carry a run out in this process."""
        warnings: list[str] = []  # they are for the caller, whose warnings the run does not hear

        def tell(told: Told) -> None:
            if isinstance(told, str):
                warnings.append(told)
            else:
                self._take(run, told)

        ended = carry_out(run.order, run.order.folder, tell)
        for text in warnings:
            self._take(run, text)
        self._take(run, ended)

    def _take(self, run: _Run, told: Told | Lost) -> None:
        """Take a message about a run that is under way."""
        key = run.order.key
        match told:
            case float():
                if told > run.share:
                    run.share = told
                    self._progress(key, told)
            case str():
                run.repeated[1] += 1
                if run.repeated[1] > run.warnings:
                    run.warnings += 1
                    self._warning(key, told)
            case Point():
                run.repeated[0] += 1
                if run.repeated[0] > len(run.points):
                    run.points.append(told)
                    self._events.append(told)
            case Lost():
                self._lose(run, told.how)
            case Ended():
                del self._running[run.number]
                self._events.append(replace(told, points=tuple(run.points)))

    def _lose(self, run: _Run, how: str) -> None:
        """Let a run begin again before all others, unless it was lost too often."""
        run.losses += 1
        if run.losses <= _MOST_LOSSES:
            self._waiting.appendleft(self._running.pop(run.number))
            return
        error = f"{KILLED}{how}, and {_MOST_LOSSES} times before"
        self._take(run, Ended.failed(run.order.key, error))
