"""Runs in virtual time side by side, on the cores of this machine or on a cluster."""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Callable, Hashable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from multiprocessing.connection import wait
from types import TracebackType
from typing import Any, Final, Self, TypeAlias

from outpace.cluster.observed import Measured
from outpace.config.executors import Processes
from outpace.config.experiment import Experiment
from outpace.experiment.tracking import Tracking
from outpace.experiment.trials.carrier import KILLED, Carrier, Lost
from outpace.experiment.trials.here import ProcessesHere
from outpace.experiment.trials.one import End, carry_out
from outpace.experiment.trials.orders import Ended, Order, Point
from outpace.experiment.trials.process import Evaluated, Said
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


@dataclass(eq=False, slots=True)
class _Run:
    """A run that is queued or under way.

    Attributes:
        number: names it in the reports of its carrier; other than that of any other run.
        said: texts of its warnings.
        share: of it that is done.
        stopped: why it was told to stop; None: it was not.
        losses: how often it was lost with its node.
        repeated: points and warnings that came since it began for the last time, of those that
            are known from before.
    """

    number: int
    order: Order
    all_cores: bool
    stays_here: bool
    points: list[Point] = field(default_factory=list)
    said: list[str] = field(default_factory=list)
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
    is alone. A task that was given from Python cannot go to another process. It runs in
    this one during `wait`: its points come together with its end, and it cannot be stopped.

    On a cluster, a run that is lost with its node begins again, at most three times. It repeats
    bitwise, and each of its points and warnings is reported once.

    Args:
        processes: most runs at a time; None: one for each core, here or on the cluster.
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
        here = ProcessesHere(cores() if processes is None else processes, runs_each)
        self._here: Carrier = here
        self._elsewhere: Carrier = here if elsewhere is None else elsewhere
        self._carriers = [self._here] if elsewhere is None else [self._here, elsewhere]
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

    @property
    def room(self) -> int:
        """How many more runs would begin at once if they were started now.

        On a cluster it is so if nothing else uses it.
        """
        return max(0, self._elsewhere.most - len(self._running) - len(self._waiting))

    def start(self, order: Order) -> None:
        """Queue a run. Raises ValueError if a run with this key is under way or queued."""
        if any(order.key == run.order.key for run in self._runs()):
            raise ValueError(f"a run with the key {order.key!r} has not ended yet")
        experiment = order.experiment
        self._count += 1
        self._waiting.append(
            _Run(self._count, order, needs_all_cores(experiment), stays_here(experiment))
        )

    def stop(self, key: Hashable, reason: str) -> None:
        """End a run at its next evaluation or sooner; it comes back as `Ended` and `stopped`.

        Nothing happens if the run has ended already.
        """
        run = next((each for each in self._runs() if each.order.key == key), None)
        if run is None:
            return
        run.stopped = reason
        if run.number in self._running:
            self._carrier_of(run).stop(run.number, reason)
        else:
            self._waiting.remove(run)
            summary = {"status": "partial", "error": reason}
            self._events.append(Ended(key, "stopped", reason, summary, tuple(run.points), 0.0))

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
            again_s = self._begin()
            if self._events or not (self._running or self._waiting):
                break
            left_s = min(again_s, max(0.0, deadline_s - time.monotonic()))
            ready = wait(
                [each for carrier in self._carriers for each in carrier.waited_for],
                None if left_s == math.inf else left_s,
            )
            for carrier in self._carriers:
                for number, said in carrier.take(ready):
                    self._take(self._running[number], said)
            if not ready and time.monotonic() >= deadline_s:
                break
        events, self._events = self._events, []
        return events

    def close(self) -> None:
        """Interrupt all runs, wait until their folders are complete, and end all processes."""
        self._waiting.clear()
        with ExitStack() as closing:  # closes the second one, too, if the first is interrupted
            closing.callback(self._running.clear)
            for carrier in self._carriers:
                closing.callback(carrier.close)

    def _runs(self) -> Iterator[_Run]:
        yield from self._waiting
        yield from self._running.values()

    def _carrier_of(self, run: _Run) -> Carrier:
        return self._here if run.stays_here else self._elsewhere

    def _is_alone(self, run: _Run) -> bool:
        """True if no other run runs beside this one."""
        return run.all_cores and self._carrier_of(run) is self._here

    def _begin(self) -> float:
        """Begin the queued runs for which there is room.

        Returns:
            Seconds after which to try again, if nothing happens until then.
        """
        again_s = self._expect()
        while self._waiting:
            run = self._waiting[0]
            carrier = self._carrier_of(run)
            others = self._running.values()
            if others and (self._is_alone(run) or any(map(self._is_alone, others))):
                break
            if isinstance(run.order.experiment.task, GivenTask):
                self._waiting.popleft()
                self._carry_out_here(run)
                break
            if not carrier.has_room(run.all_cores):
                break
            self._waiting.popleft()
            self._running[run.number] = run
            run.repeated = [0, 0]
            carrier.begin(run.number, run.order, run.all_cores)
            if run.stopped is not None:
                carrier.stop(run.number, run.stopped)
            again_s = self._expect()
        return again_s

    def _expect(self) -> float:
        waiting = [run.all_cores for run in self._waiting if not run.stays_here]
        return self._elsewhere.expect(waiting)

    def _carry_out_here(self, run: _Run) -> None:
        order, points = run.order, run.points
        texts: list[str] = []
        end = carry_out(
            order.experiment,
            order.folder,
            Tracking(order.name),
            progress=lambda share: self._progress(order.key, share),
            evaluated=lambda values: points.append(Point(order.key, **values)),
            warning=texts.append,
        )
        for text in texts:
            self._warning(order.key, text)
        self._events += points
        self._end(order, end, points)

    def _take(self, run: _Run, said: Said | Lost) -> None:
        """Take a message about a run that is under way."""
        key = run.order.key
        match said:
            case float():
                if said > run.share:
                    run.share = said
                    self._progress(key, said)
            case str():
                run.repeated[1] += 1
                if run.repeated[1] > len(run.said):
                    run.said.append(said)
                    self._warning(key, said)
            case Evaluated():
                run.repeated[0] += 1
                if run.repeated[0] > len(run.points):
                    point = Point(key, **said.values)
                    run.points.append(point)
                    self._events.append(point)
            case Lost():
                self._lose(run, said.how)
            case End():
                del self._running[run.number]
                self._end(run.order, said, run.points)

    def _lose(self, run: _Run, how: str) -> None:
        """Let a run begin again before all others, unless it was lost too often."""
        del self._running[run.number]
        run.losses += 1
        if run.losses <= _MOST_LOSSES:
            self._waiting.appendleft(run)
            return
        error = f"{KILLED}{how}, and {_MOST_LOSSES} times before"
        end = End("failed", error, {"status": "failed", "error": error})
        self._end(run.order, end, run.points)

    def _end(self, order: Order, end: End, points: Sequence[Point]) -> None:
        self._events.append(
            Ended(order.key, end.status, end.error, end.summary, tuple(points), end.cpu_s)
        )
