"""Runs in virtual time side by side, each in a process that is used for the next run again."""

from __future__ import annotations

import contextlib
import time
from collections import deque
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field, replace
from multiprocessing import Pipe
from multiprocessing.connection import Connection, wait
from multiprocessing.context import ForkServerProcess
from types import TracebackType
from typing import Any, Final, Self, TypeAlias

from outpace.cluster.observed import Measured
from outpace.config.executors import Processes
from outpace.config.experiment import Experiment
from outpace.experiment.tracking import Tracking
from outpace.experiment.trials.one import End, carry_out
from outpace.experiment.trials.orders import Ended, Order, Point
from outpace.experiment.trials.process import Begin, Evaluated, Said, Stop, serve
from outpace.simulation.executors.processes import cores
from outpace.support.processes import forking
from outpace.tasks import GivenTask, Script

KILLED: Final = "the process of the run "  # begin of the error if a process is killed
_GRACE_S: Final = 20.0  # for the runs to complete their folders before they are killed
_RUNS_EACH: Final = 200  # after 1,600 runs of a small network a heap had gaps of 2 GB

Event: TypeAlias = Point | Ended


def needs_all_cores(experiment: Experiment) -> bool:
    """True if a run is carried out while no other is.

    Its gradients are computed, or its run times measured, on all cores.
    """
    return isinstance(experiment.task, Script | GivenTask) or (
        isinstance(experiment.compute, Measured | None)
        or isinstance(experiment.executor, Processes)
    )


@dataclass(eq=False, slots=True)
class _Process:
    """A process, and the run that it carries out at the moment.

    runs: how many it has begun. keeps_times: True if it has measured run times, for later runs.
    """

    process: ForkServerProcess
    order: Order | None = None
    points: list[Point] = field(default_factory=list)
    runs: int = 0
    keeps_times: bool = False


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
    is alone. A task that was given from Python cannot go to another process. Its run goes on in
    this one during `wait`: its points come together with its end, and it cannot be stopped.

    Args:
        processes: most runs at a time; None: one for each core.
        runs_each: after so many runs another process takes the place of one, so that its memory
            does not grow. One that has measured run times stays, because later runs use them.
        progress: called during `wait` with a key and the share of its run that is done.
        warning: called during `wait` with a key and a warning about its run.
    """

    def __init__(
        self,
        processes: int | None = None,
        *,
        runs_each: int = _RUNS_EACH,
        progress: Callable[[Any, float], None] = lambda _, __: None,
        warning: Callable[[Any, str], None] = lambda _, __: None,
    ) -> None:
        self._most = cores() if processes is None else processes
        self._runs_each = runs_each
        self._progress, self._warning = progress, warning
        self._waiting: deque[Order] = deque()
        self._processes: dict[Connection, _Process] = {}
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
        """How many more runs would begin at once if they were started now."""
        return max(0, self._most - len(self._busy()) - len(self._waiting))

    def start(self, order: Order) -> None:
        """Queue a run. Raises ValueError if a run with this key is under way or queued."""
        if any(order.key == other.key for other in (*self._waiting, *self._orders())):
            raise ValueError(f"a run with the key {order.key!r} has not ended yet")
        self._waiting.append(order)

    def stop(self, key: Hashable, reason: str) -> None:
        """End a run at its next evaluation or sooner; it comes back as `Ended` and `stopped`.

        Nothing happens if the run has ended already.
        """
        for order in self._waiting:
            if order.key == key:
                self._waiting.remove(order)
                summary = {"status": "partial", "error": reason}
                self._events.append(Ended(key, "stopped", reason, summary, (), 0.0))
                return
        for pipe, process in self._processes.items():
            if process.order is not None and process.order.key == key:
                with contextlib.suppress(OSError):  # it was killed, which `wait` notices
                    pipe.send(Stop(reason))

    def wait(self, timeout_s: float | None = None) -> list[Event]:
        """Return what has happened, at least one event unless the time is over.

        Returns:
            Points and ends in their order for each run; an empty list if the time is over, or
            no run is under way or queued.
        """
        deadline_s = None if timeout_s is None else time.monotonic() + timeout_s
        while True:
            self._begin()
            if self._events or not self._busy():
                break
            left_s = None if deadline_s is None else max(0.0, deadline_s - time.monotonic())
            ready = wait(self._busy(), left_s)
            for pipe in ready:
                assert isinstance(pipe, Connection)
                self._take(pipe)
            if not ready:
                break
        events, self._events = self._events, []
        return events

    def close(self) -> None:
        """Interrupt all runs, wait until their folders are complete, and end all processes."""
        self._waiting.clear()
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

    def _busy(self) -> list[Connection]:
        return [pipe for pipe, each in self._processes.items() if each.order is not None]

    def _orders(self) -> list[Order]:
        return [each.order for each in self._processes.values() if each.order is not None]

    def _begin(self) -> None:
        """Begin the queued runs for which there is room."""
        while self._waiting and len(self._busy()) < self._most:
            alone = needs_all_cores(self._waiting[0].experiment)
            if self._orders() and (
                alone or any(needs_all_cores(order.experiment) for order in self._orders())
            ):
                return
            order = self._waiting.popleft()
            if isinstance(order.experiment.task, GivenTask):
                self._carry_out_here(order)
                return
            pipe, process = self._idle()
            process.order, process.points, process.runs = order, [], process.runs + 1
            process.keeps_times |= alone
            with contextlib.suppress(OSError):  # it was killed, which `wait` notices
                pipe.send(Begin(replace(order, key=None), alone))

    def _carry_out_here(self, order: Order) -> None:
        points: list[Point] = []
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

    def _idle(self) -> tuple[Connection, _Process]:
        """Return the first process without a run; measured run times are kept in it."""
        for pipe, process in list(self._processes.items()):
            if process.order is None:
                is_used_up = process.runs >= self._runs_each and not process.keeps_times
                if process.process.is_alive() and not is_used_up:
                    return pipe, process
                self._remove(pipe)
        ours, theirs = Pipe()
        with theirs:
            started = forking.start(f"run-{len(self._processes)}", serve, theirs)
        process = self._processes[ours] = _Process(started)
        return ours, process

    def _take(self, pipe: Connection) -> None:
        """Take a message of a process that carries out a run."""
        process = self._processes[pipe]
        order = process.order
        assert order is not None
        try:
            said: Said = pipe.recv()
        except (EOFError, OSError):
            process.process.join()
            error = f"{KILLED}{forking.how_it_ended(process.process)}"
            said = End("failed", error, {"status": "failed", "error": error})
            self._remove(pipe)
        match said:
            case float():
                self._progress(order.key, said)
            case str():
                self._warning(order.key, said)
            case Evaluated():
                point = Point(order.key, **said.values)
                process.points.append(point)
                self._events.append(point)
            case End():
                process.order = None
                self._end(order, said, process.points)

    def _remove(self, pipe: Connection) -> None:
        """Forget a process that has ended, or ends when its pipe is closed."""
        process = self._processes.pop(pipe).process
        pipe.close()
        process.join()
        process.close()

    def _end(self, order: Order, end: End, points: Sequence[Point]) -> None:
        self._events.append(
            Ended(order.key, end.status, end.error, end.summary, tuple(points), end.cpu_s)
        )
