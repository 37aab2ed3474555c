"""Computes gradients ahead of time in other processes, bitwise equal to `serial`.

A gradient is a function of the parameters that a worker read when its computation began in virtual
time, and its value is not needed before this computation ends. Until then it can be computed in
parallel with the gradients of all other workers. Each process has one order that it carries out and
one order in reserve. The job that ends first is ordered first. Parameters and gradients are in
shared memory, with a place for each order. A job that was cut off is not ordered, because its value
cannot be read any more. A job whose value is needed before it was ordered is computed in this
process.

Each process makes its own copy of the task. Its first order is a test whether it has the same task:
it computes a gradient that this process also computes, and both must be bitwise equal.
"""

from __future__ import annotations

import os
import pickle
import selectors
import time
import weakref
from collections.abc import Sequence
from dataclasses import dataclass, field
from multiprocessing import current_process
from typing import Any, Final

import torch

from outpace.config.experiment import Experiment
from outpace.errors import RunError
from outpace.simulation.executors.arena import Arena
from outpace.simulation.executors.child import NO_TASK, gradient_at, parameters_at, serve
from outpace.simulation.executors.job import Job, JobQueue, Outcome
from outpace.support.processes.forking import Child
from outpace.tasks import Workload, gradient_of

_ORDERS: Final = 2  # orders per process at a time
_TRIAL_S: Final = 600.0  # seconds to make the task and compute one gradient


class Unusable(RunError):
    """Raised if the processes cannot compute the gradients of this run."""


@dataclass(eq=False, slots=True)
class _Process:
    """A process and its orders, by their place in the shared memory."""

    child: Child
    free: list[int]  # places for further orders
    tried: bool = False  # the trial has succeeded
    orders: dict[int, weakref.ref[Job]] = field(default_factory=dict)


class ProcessExecutor:
    """Computes jobs in other processes; see the head of this file.

    Any method raises Unusable if a process died or has made another task. By default there is one
    process per core, but at most one per worker, since a worker computes one gradient at a time.
    """

    def __init__(
        self,
        experiment: Experiment,
        workload: Workload,
        initial: Sequence[torch.Tensor],
        processes: int | None = None,
    ) -> None:
        if current_process().daemon:
            raise Unusable("this is a daemonic process, which may start no others")
        self._workload = workload
        self._count = processes or min(cores(), experiment.workers)
        model = workload.model
        if model is not None and any(p.device.type != "cpu" for p in model.parameters()):
            raise Unusable("the model is on another device, which all processes would share")
        self._trial = Job(self, initial, 0, 0, 0, lambda *_: None)
        self._expected = gradient_of(workload, initial, 0, 0)[1]
        lengths = tuple(block.numel() for block in initial)
        self._arena = Arena(lengths, initial[0].dtype, 2 * self._count * _ORDERS)
        self._queue = JobQueue()
        self._ahead = self._here = 0
        self._selector = selectors.DefaultSelector()
        self._processes: list[_Process] = []
        self._closed = False
        try:
            for place in range(self._count):
                self._start(experiment, place)
            self._await_trials()
        except BaseException:
            self.close()
            raise

    def expect(self, job: Job) -> None:
        self._queue.push(job)
        self._collect(0)
        self._give_orders()

    def result(self, job: Job) -> Outcome:
        while job.begun and job.outcome is None:
            self._collect(None)
            self._give_orders()
        if isinstance(job.outcome, str):
            raise RunError(job.outcome)
        ahead = job.outcome is not None
        self._ahead += ahead
        self._here += not ahead
        if job.outcome is not None:
            return job.outcome
        job.begun = True
        return job.compute(self._workload)

    def close(self) -> None:
        for process in self._processes:
            process.child.end()
        for process in self._processes:
            process.child.close()
        self._processes.clear()
        self._queue.clear()
        if not self._closed:
            self._closed = True
            self._selector.close()
            self._arena.close()

    def describe(self) -> dict[str, Any]:
        return {
            "kind": "processes",
            "processes": self._count,
            "gradients_ahead": self._ahead,
            "gradients_here": self._here,
        }

    # -- the processes ---------------------------------------------------------

    def _start(self, experiment: Experiment, place: int) -> None:
        try:
            child = Child(f"gradients-{place}", serve, self._arena, experiment)
        except (pickle.PicklingError, TypeError, AttributeError) as error:
            raise Unusable(f"the configuration cannot go to another process: {error}") from error
        except (OSError, RuntimeError) as error:
            raise Unusable(f"no process can be started: {error}") from error
        one = _Process(child, list(range(place * _ORDERS, (place + 1) * _ORDERS)))
        self._processes.append(one)
        self._selector.register(child.pipe, selectors.EVENT_READ, one)
        self._order(one, self._trial)

    def _await_trials(self) -> None:
        deadline_s = time.monotonic() + _TRIAL_S
        while late := [p.child.name for p in self._processes if not p.tried]:
            left_s = deadline_s - time.monotonic()
            if left_s <= 0:
                raise Unusable(f"{late[0]} has not made the task within {_TRIAL_S:g} s")
            self._collect(left_s)

    def _order(self, process: _Process, job: Job) -> None:
        place = process.free.pop()
        process.orders[place] = weakref.ref(job)
        self._arena.write(parameters_at(place), job.parameters)
        try:
            process.child.pipe.send((place, job.worker, job.iteration))
        except ConnectionError:
            raise self._lost(process) from None

    def _give_orders(self) -> None:
        """Order the jobs due first from the process with the fewest orders, while slots last."""
        while idle := [process for process in self._processes if process.free]:
            job = self._queue.pop()
            if job is None:
                return
            self._order(min(idle, key=lambda process: len(process.orders)), job)

    def _collect(self, timeout_s: float | None) -> None:
        """Read reports of the processes. timeout_s: time to wait for the first; None: no limit."""
        for key, _ in self._selector.select(timeout_s):
            process: _Process = key.data
            try:
                place, loss, error = process.child.pipe.recv()
            except (EOFError, ConnectionError):
                raise self._lost(process) from None
            if place == NO_TASK:
                raise Unusable(f"the task cannot be made in another process: {error}")
            job = process.orders.pop(place)()
            process.free.append(place)
            if job is self._trial:
                self._judge(process, error, place)
            elif job is not None and error:
                job.outcome = error
            elif job is not None:
                job.outcome = (
                    loss,
                    [block.clone() for block in self._arena.blocks(gradient_at(place))],
                )

    def _judge(self, process: _Process, error: str | None, place: int) -> None:
        """Raise Unusable unless a process's trial shows that it has made the same task."""
        blocks = self._arena.blocks(gradient_at(place))
        if error is not None:
            raise Unusable(f"in another process {error}")
        if not all(map(torch.equal, blocks, self._expected)):  # type: ignore[arg-type]
            raise Unusable(
                "the task gives other gradients in another process: its random draws must come "
                "from torch's generator, which is seeded, or from another seeded generator "
                "(executor: {kind: serial} computes in one process)"
            )
        process.tried = True

    def _lost(self, process: _Process) -> Unusable:
        child = process.child
        return Unusable(f"{child.name}, which computed gradients, {child.how_it_ended()}")


def cores() -> int:
    """Return how many cores this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
