"""Replaces the lost workers of a simulated run: the machine of real runs decides.

The coordinator's own messages take no time: an order to a server waits behind the messages that
have arrived there.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Protocol

from outpace.config.experiment import Experiment
from outpace.engine.servers import has_scheduler
from outpace.errors import RunError
from outpace.kernel import Alarm, Kernel
from outpace.support.units import nanoseconds
from outpace.sync.membership import (
    EndRun,
    Kill,
    Membership,
    Order,
    Removed,
    Replace,
    Rules,
    Start,
)
from outpace.sync.messages import SCHEDULER, Lost, server_name


class Cluster(Protocol):
    """The actions on the processes of a run."""

    @property
    def kernel(self) -> Kernel: ...

    def order(self, server: str, lost: Lost, obeyed: Callable[[], None]) -> None:
        """Tell a server that a worker is lost; `obeyed` is called when it has processed this."""

    def reached(self, server: str, worker: int) -> tuple[int, int]:
        """Return the last iteration that a server has of a worker, and its clock."""

    def can_start(self, worker: int) -> int:
        """Return from when on another process of this worker can reach the servers (ns)."""

    def replaced(self, start: Start) -> None:
        """Note that another process is started for a worker."""

    def begin(self, start: Start) -> None:
        """Let the other process of a worker begin: it is ready."""

    def removed(self, removed: Removed) -> None:
        """Continue without a worker."""


class WorkerLosses:
    """The workers of one attempt of a run."""

    def __init__(self, experiment: Experiment, run: Cluster) -> None:
        assert experiment.faults is not None
        self._kernel, self._run = run.kernel, run
        self._restart = nanoseconds(experiment.faults.recovery.worker_s)
        # A process is ready when the configuration says so, however late that is.
        rules = Rules(experiment.on_worker_loss, start_s=2e9)
        servers = [server_name(server) for server in range(experiment.servers)]
        schedulers = [SCHEDULER] if has_scheduler(experiment) else []
        self._members = Membership(experiment.workers, servers, rules, schedulers)
        self._over = False
        self._alarm: Alarm | None = None  # for the next deadline

    def end(self) -> None:
        """Forget everything: all processes begin again."""
        self._over = True
        if self._alarm is not None:
            self._kernel.call_off(self._alarm)

    def lost(self, worker: int, how: str) -> None:
        """A worker's process is lost, and has ended. Raises RunError if the run ends with it."""
        self._do(self._members.lost(worker, how, self._kernel.now, has_ended=True))

    def finished(self, worker: int) -> None:
        """The worker is done."""
        self._members.finished(worker)

    def _do(self, orders: Sequence[Order]) -> None:
        for order in orders:
            match order:
                case Replace():
                    self._replace(order)
                case Start():
                    self._run.replaced(order)
                    ready = self._kernel.now + self._restart
                    ready = max(ready, self._run.can_start(order.worker))
                    self._kernel.call_at(ready, self._begin, order)
                case Removed():
                    self._run.removed(order)
                case EndRun(reason):
                    raise RunError(reason)
                case Kill():
                    pass  # it has ended
        self._set_alarm()

    def _set_alarm(self) -> None:
        if self._alarm is not None:
            self._kernel.call_off(self._alarm)
        due, self._alarm = self._members.next_deadline, None
        if due is not None:
            self._alarm = self._kernel.set_alarm(max(due, self._kernel.now), self._look)

    def _look(self) -> None:
        self._do(self._members.on_time(self._kernel.now))

    def _replace(self, order: Replace) -> None:
        lost = Lost(order.worker, order.stays)
        self._run.order(order.server, lost, partial(self._confirmed, order))

    def _confirmed(self, order: Replace) -> None:
        if self._over:
            return
        watermark, clock = self._run.reached(order.server, order.worker)
        self._do(
            self._members.confirmed(
                order.server, order.worker, order.generation, watermark, clock, self._kernel.now
            )
        )

    def _begin(self, start: Start) -> None:
        if not self._over:
            self._members.began(start.worker)
            self._set_alarm()
            self._run.begin(start)
