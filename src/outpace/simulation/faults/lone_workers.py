"""Lost workers that come back alone, in a run without servers in virtual time, as in a real run.

The others go on. The new process is ready when the configuration says so. It joins the next
all-reduce that has not begun, without a value, and begins to compute when that has ended, with the
common model. What the lost process had not given to an all-reduce that began is computed again.
With averages of two, the new process begins with what the lost one had after its last average. Its
partner keeps that; if the partner is gone, all begin again.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

from outpace.blocks.block import Value
from outpace.errors import RunError
from outpace.simulation.faults.worker_losses import WorkerLosses
from outpace.support.units import Time
from outpace.sync.checkpoint.state import PendingIteration
from outpace.sync.membership import Removed, Start
from outpace.sync.messages import SCHEDULER, Lost, worker_name

if TYPE_CHECKING:
    from outpace.simulation.faults.peers import FailingPeerSimulation


class Given:
    """The values that one worker has given to all-reduces.

    Args:
        first: iterations that it had given when the run began, or went on.
        accumulated: what it had of them that no all-reduce had; None: nothing.
    """

    def __init__(self, first: int, accumulated: PendingIteration | None) -> None:
        self.first = first
        self._before = self._last = -1, first  # number of an all-reduce, iterations until then
        self._accumulated = accumulated
        self.began: dict[int, Time] = {}  # by iteration that is not in one: when it began

    def add(self, number: int, iterations: int) -> None:
        """The worker gives its value for this all-reduce, in which it has so many iterations."""
        self._before, self._last = self._last, (number, iterations)
        self.forget(self._before[1])

    def forget(self, done: int) -> None:
        """So many iterations will not be repeated."""
        self.began = {n: began for n, began in self.began.items() if n >= done}

    def until(self, begun: int) -> tuple[int, PendingIteration | None]:
        """Return the iterations that all-reduces below this number have.

        And what the worker's successor begins with: what it had at first, if none has it yet.
        """
        number, iterations = self._last if self._last[0] < begun else self._before
        return iterations, self._accumulated if number < 0 else None


class AfterAverage(NamedTuple):
    """The model of a worker after an average with a partner, who keeps it.

    first: the first iteration that is not in it. steps: that are in it since the run began.
    """

    partner: int
    value: Value
    first: int
    steps: int


class LoneWorkers:
    """The workers that are away, or join the others. Implements `Cluster`.

    Attributes:
        away: those that do not take part yet.
    """

    def __init__(self, run: FailingPeerSimulation) -> None:
        self._run = run
        self._losses = WorkerLosses(run.experiment, run.kernel, self, [SCHEDULER])
        self.away: dict[int, str] = {}  # by worker: how it was lost
        self._first: dict[int, int] = {}

    def end(self) -> None:
        """Forget everything: all processes begin again."""
        self._losses.end()
        self.away.clear()

    def lost(self, worker: int, how: str, first: int) -> None:
        """A worker's process is lost. first: its first iteration that the model does not have."""
        self.away[worker], self._first[worker] = how, first
        self._losses.lost(worker, how)

    def finished(self, worker: int) -> None:
        """The worker is done."""
        self._losses.finished(worker)

    def has_joined(self, worker: int) -> None:
        """The worker takes part again."""
        del self.away[worker]

    def error(self, worker: int) -> RunError:
        """Return why a worker is away."""
        return RunError(f"{worker_name(worker)} {self.away[worker]}")

    # -- what the machine of real runs orders ------------------------------------------

    def order(self, server: str, lost: Lost, obeyed: Callable[[], None]) -> None:
        obeyed()  # only the coordinator hears the workers

    def reached(self, server: str, worker: int) -> tuple[int, int]:
        return self._first[worker] - 1, 0

    def can_start(self, worker: int) -> Time:
        return self._run.network.obstacles.until(worker_name(worker))

    def replaced(self, start: Start) -> None:
        self._run.replaced(start)

    def begin(self, start: Start) -> None:
        self._run.begin_alone(start)

    def removed(self, removed: Removed) -> None:
        """A worker that had finished is gone: nothing waits for it."""
