"""Gradients ahead of time, in other processes: bitwise those of `serial`. Evaluations too.

A gradient is a function of the parameters that were read when it was begun, in virtual
time, and is not needed before it ends: until then it can be computed, beside those of all
other workers. Each process has one order that it carries out and one in reserve; what is
due first is ordered first. Parameters and gradients go through shared memory, and equal
parameters are there once. What nobody can read any more, because it was cut off, is not
ordered. What is wanted and was not ordered yet is computed here.

The processes make the task for themselves. Whether it is the same task is tried before
anything else: the first order of each is a gradient that is known here, and must agree
bitwise.
"""

from __future__ import annotations

import heapq
import os
import pickle
import selectors
import time
import weakref
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import count
from multiprocessing import Pipe, current_process
from multiprocessing.connection import Connection
from multiprocessing.context import ForkServerProcess
from typing import Any, Final, cast

import torch

from outpace.blocks.block import Block, whole
from outpace.config.experiment import Experiment
from outpace.errors import RunError
from outpace.simulation.executors.arena import Arena, Layout
from outpace.simulation.executors.child import NO_TASK, compute
from outpace.simulation.executors.job import EVALUATION, Job, Outcome
from outpace.support import forking
from outpace.support.units import Time
from outpace.tasks import Evaluation, Workload, gradient_of

_ORDERS: Final = 2  # of a process at a time
_SPARE: Final = 4  # slots for parameters that nobody computes with at the moment
_GRACE_S: Final = 2.0
_TRIAL_S: Final = 600.0  # to make the task and compute one gradient


class Unusable(RunError):
    """The processes cannot compute what is wanted of them."""


@dataclass(eq=False, slots=True)
class _Parameters:
    """A slot for parameters and what is in it."""

    slot: int
    contents: int = 0  # how often it was written
    users: int = 0
    blocks: Sequence[torch.Tensor] = ()


@dataclass(frozen=True, slots=True)
class _Order:
    job: weakref.ref[Job] | None  # None: the first order, which is a trial
    source: _Parameters
    target: int


@dataclass(eq=False, slots=True)
class _Process:
    """One of them. `targets`: the free slots that it may write results to."""

    process: ForkServerProcess
    pipe: Connection
    targets: list[int]
    tried: bool = False
    orders: dict[int, _Order] = field(default_factory=dict)  # by number


class ProcessExecutor:
    """See the head of this file. `processes` None: one for each core, but not more than workers,
    who cannot have more gradients under way.

    Raises Unusable, in any method, if a process died or has made another task.
    """

    beside = True

    def __init__(
        self,
        experiment: Experiment,
        workload: Workload,
        initial: Sequence[Block],
        processes: int | None = None,
    ) -> None:
        if current_process().daemon:
            raise Unusable("this is a daemonic process, which may start no others")
        self._workload = workload
        self._count = processes or min(cores(), experiment.workers)
        blocks = [tensor for block in initial if isinstance(tensor := whole(block), torch.Tensor)]
        if any(block.device.type != "cpu" for block in blocks):
            raise Unusable("the model is on another device, whose memory is not shared")
        self._expected = gradient_of(workload, blocks, 0, 0)[1]
        layout = Layout(tuple(block.numel() for block in blocks), blocks[0].dtype)
        targets = self._count * _ORDERS
        slots = 2 * targets + _SPARE
        self._arena = Arena(layout, slots)
        self._free = [_Parameters(slot) for slot in range(targets, slots)]
        self._held: OrderedDict[tuple[int, ...], _Parameters] = OrderedDict()  # by the blocks' ids
        self._queue: list[tuple[Time, int, weakref.ref[Job]]] = []
        self._numbers = count()
        self._ahead = self._here = 0
        self._selector = selectors.DefaultSelector()
        self._processes: list[_Process] = []
        self._closed = False
        try:
            for place in range(self._count):
                self._start(experiment, place, blocks)
            self._await_trials()
        except BaseException:
            self.close()
            raise

    def expect(self, job: Job) -> None:
        heapq.heappush(self._queue, (job.due, next(self._numbers), weakref.ref(job)))
        self._collect(0)
        self._give_orders()

    def result(self, job: Job) -> Outcome:
        while job.begun and job.outcome is None:
            self._collect(None)
            self._give_orders()
        if isinstance(job.outcome, str):
            raise RunError(job.outcome)
        ahead = job.outcome is not None
        if job.worker != EVALUATION:
            self._ahead += ahead
            self._here += not ahead
        if job.outcome is not None:
            return job.outcome
        job.begun = True
        return job.compute(self._workload)

    def close(self) -> None:
        for process in self._processes:
            process.pipe.close()
            process.process.terminate()
        for process in self._processes:
            process.process.join(_GRACE_S)
            if process.process.is_alive():
                process.process.kill()
                process.process.join()
            process.process.close()
        self._processes.clear()
        self._held.clear()
        self._free.clear()
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

    # -- the other side --------------------------------------------------------

    def _start(self, experiment: Experiment, place: int, initial: Sequence[torch.Tensor]) -> None:
        ours, theirs = Pipe()
        name = f"gradients-{place}"
        try:
            process = forking.start(name, compute, theirs, self._arena, experiment)
        except (pickle.PicklingError, TypeError, AttributeError) as error:
            ours.close()
            raise Unusable(f"the configuration cannot go to another process: {error}") from error
        except (OSError, RuntimeError) as error:
            ours.close()
            raise Unusable(f"no process can be started: {error}") from error
        finally:
            theirs.close()
        targets = list(range(place * _ORDERS, (place + 1) * _ORDERS))
        one = _Process(process, ours, targets)
        self._processes.append(one)
        self._selector.register(ours, selectors.EVENT_READ, one)
        self._order(one, None, initial, 0, 0)

    def _await_trials(self) -> None:
        deadline_s = time.monotonic() + _TRIAL_S
        while late := [p.process.name for p in self._processes if not p.tried]:
            left_s = deadline_s - time.monotonic()
            if left_s <= 0:
                raise Unusable(f"{late[0]} has not made the task within {_TRIAL_S:g} s")
            self._collect(left_s)

    def _order(
        self,
        process: _Process,
        job: Job | None,
        parameters: Sequence[torch.Tensor],
        worker: int,
        iteration: int,
    ) -> None:
        source, target = self._shared(parameters), process.targets.pop()
        source.users += 1
        number = next(self._numbers)
        process.orders[number] = _Order(weakref.ref(job) if job else None, source, target)
        order = number, source.slot, source.contents, worker, iteration, target
        try:
            process.pipe.send(order)
        except ConnectionError:
            raise self._lost(process) from None

    def _give_orders(self) -> None:
        """To those that have least, what is due first."""
        while self._queue:
            idle = [process for process in self._processes if process.targets]
            if not idle:
                return
            job = heapq.heappop(self._queue)[2]()
            if job is not None and not job.begun:
                job.begun = True
                process = min(idle, key=lambda one: len(one.orders))
                self._order(process, job, job.parameters, job.worker, job.iteration)

    def _shared(self, blocks: Sequence[torch.Tensor]) -> _Parameters:
        """A slot with these parameters. There are more slots than orders."""
        key = tuple(map(id, blocks))
        held = self._held.pop(key, None)
        if held is None:
            if self._free:
                held = self._free.pop()
            else:
                oldest = next(key for key, slot in self._held.items() if not slot.users)
                held = self._held.pop(oldest)
            held.blocks = blocks  # so that their ids stay theirs
            held.contents += 1
            self._arena.write(held.slot, blocks)
        self._held[key] = held
        return held

    def _collect(self, timeout_s: float | None) -> None:
        """Take what the processes have reported; wait for it so long. None: without end."""
        for key, _ in self._selector.select(timeout_s):
            process: _Process = key.data
            try:
                number, value, error = process.pipe.recv()
            except (EOFError, ConnectionError):
                raise self._lost(process) from None
            if number == NO_TASK:
                raise Unusable(f"the task cannot be made in another process: {error}")
            order = process.orders.pop(number)
            order.source.users -= 1
            process.targets.append(order.target)
            if order.job is None:
                self._judge(process, error, order.target)
            elif (job := order.job()) is not None:
                job.outcome = error or self._outcome(job, value, order.target)

    def _outcome(self, job: Job, value: Any, target: int) -> Outcome:
        if job.worker == EVALUATION:
            return cast(Evaluation, value)
        return value, [block.clone() for block in self._arena.blocks(target)]

    def _judge(self, process: _Process, error: str | None, target: int) -> None:
        """Has it made the task that we have?"""
        blocks = self._arena.blocks(target)
        if error is not None:
            raise Unusable(f"in another process {error}")
        if not all(map(torch.equal, blocks, self._expected)):  # type: ignore[arg-type]
            raise Unusable(
                "the task gives other gradients in another process: what it draws at random "
                "must come from torch's generator, which is seeded, or have a seed of its own "
                "(executor: {kind: serial} computes in one process)"
            )
        process.tried = True

    def _lost(self, process: _Process) -> Unusable:
        process.process.join(_GRACE_S)
        return Unusable(
            f"{process.process.name}, which computed gradients, "
            f"{forking.how_it_ended(process.process)}"
        )


def cores() -> int:
    """How many this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
