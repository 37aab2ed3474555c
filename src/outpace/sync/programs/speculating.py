"""Speculative synchronization (SpecSync): workers begin a step again with newer parameters.

A worker tells the scheduler when it begins to compute with parameters that it has pulled (`Began`),
and after each push (`Done`). The scheduler opens a window when a worker begins. At its end it
counts the gradients that other workers have pushed meanwhile. If they are enough, it tells the
worker (`Resync`), which stops computing, pulls from all servers again, and computes the gradient
of the same iteration. Only its computation is lost: there is one push for each iteration, of the
gradient that was computed last. A worker that pushes before its window ends goes on as usual.

Taken from the paper (Zhang et al., ICDCS 2018), by its abstract and a summary, because its text
was not at hand: the central scheduler, which is notified of each push and sends a re-sync; the
window and the number of pushes in it (ABORT_TIME, ABORT_RATE); that a step is abandoned once at
most; and that both numbers are chosen anew for each epoch, by the gain and the loss of freshness
(`freshness`). These follow an implementation for MXNet, published as
mxnet-speculative-synchronization: pushes are judged once, at the end of the window; its length is
the distance between two events of the last epoch; the threshold is the expected loss. Chosen here:

- The window begins when a worker begins to compute, and not when it has pushed. So its length is
  the computation that a restart costs, and neither a pull that SSP holds nor a slow network uses it
  up.
- An epoch is a number of pushes per worker, because a run does not count passes over the data.
  Until the first one has ended, and again in a run that goes on from a checkpoint, no step is
  abandoned.
- The first step of a worker has pulled nothing, and is not abandoned.
- Pushes without a gradient change no parameters, and are not counted.
- A window that is chosen is at most half of the mean step.

A worker that begins again uses the same batch. In virtual time it needs the run time that was drawn
for this iteration once more.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from typing import NamedTuple

from outpace.blocks.block import Block
from outpace.errors import ProtocolError
from outpace.support.units import Time, nanoseconds, seconds
from outpace.sync.messages import (
    SCHEDULER,
    Began,
    Done,
    Leave,
    Lost,
    Message,
    Pull,
    Push,
    Rejoin,
    Resync,
    worker_name,
)
from outpace.sync.programs.context import AbortableContext, SchedulerContext, Stopped
from outpace.sync.programs.forwarding import ForwardingContext
from outpace.sync.programs.freshness import Epoch, Speculation, Window
from outpace.sync.programs.partial_pull import PartialPull, Puller


async def speculating_worker(me: AbortableContext) -> None:
    """Compute, perhaps again, then push and pull, until `me.must_stop`."""
    context = _Worker(me)
    worker, servers = me.worker, me.servers
    puller = Puller(context, PartialPull(quorum_percent=100))
    if me.first_iteration is not None:
        me.send(SCHEDULER, Rejoin(worker, me.first_iteration))
    iteration = await puller.begin()
    pulled = (me.first_iteration or 0) - 1  # the iteration of the last pull; -1: none

    def pull() -> None:
        puller.asked(pulled)
        for name in servers:
            me.send(name, Pull(worker, pulled, me.coin(pulled)))

    while not me.must_stop(iteration):
        started = me.now
        gradient: Sequence[Block | None] | Resync
        if pulled < 0:
            gradient = await me.execute(puller.parameters, iteration)
        else:
            me.send(SCHEDULER, Began(worker, iteration))
            gradient = await context.compute(puller.parameters, iteration)
        if isinstance(gradient, Resync):
            began, stopped = started, me.now
            pull()
            await puller.enough()
            started = me.now
            me.iteration_resynced(iteration, began, stopped, started, gradient.pushes)
            gradient = await me.execute(puller.parameters, iteration)
        computed, coin, versions = me.now, me.coin(iteration), tuple(puller.versions)
        pulled = iteration
        puller.asked(iteration)
        for name, version, block in zip(servers, versions, gradient, strict=True):
            me.send(name, Push(worker, iteration, version, block), Pull(worker, iteration, coin))
        took_s, finished = seconds(computed - started), gradient[0] is not None
        me.send(SCHEDULER, Done(worker, iteration, took_s, 1.0, finished=finished))
        await puller.enough()
        me.iteration_finished(iteration, started, computed, me.now, puller.held, puller.last)
        iteration = max(iteration + 1, puller.clock)
    for name in (*servers, SCHEDULER):
        me.send(name, Leave(worker))


class _Worker(ForwardingContext):
    """Keeps the orders of the scheduler apart from the servers' replies.

    An order that comes when the computation has ended is too late, and is dropped.
    """

    def __init__(self, me: AbortableContext) -> None:
        super().__init__(me)
        self.execute, self.send = me.execute, me.send

    async def compute(
        self, parameters: Sequence[Block], iteration: int
    ) -> Sequence[Block | None] | Resync:
        """Return the gradient, or the order that has ended its computation."""
        order: Resync | None = None

        def ends_it(message: Message) -> bool:
            nonlocal order
            if isinstance(message, Resync) and message.iteration == iteration:
                order = message
            else:
                self._take(message)
            return order is not None

        made = await self._me.execute_until(parameters, iteration, ends_it)
        if not isinstance(made, Stopped):
            return made
        assert order is not None, "only an order ends this computation"
        return order

    def _take(self, message: Message) -> None:
        if not isinstance(message, Resync):
            self._read.append(message)


async def speculate(me: SchedulerContext, settings: Speculation, workers: int) -> None:
    """Tell workers to begin a step again when enough others have pushed. Never returns."""
    await _Scheduler(me, settings, workers).work()


class _Step(NamedTuple):
    """A computation whose window is open. Sorts by its end."""

    ends: Time
    worker: int
    iteration: int
    pushed: int  # gradients of all workers that had been pushed when it began
    window: Window


class _Scheduler:
    """The state of the program."""

    def __init__(self, me: SchedulerContext, settings: Speculation, workers: int) -> None:
        self._me, self._settings, self._workers = me, settings, workers
        self._live = set(range(workers))
        self._window: Window | None = settings.fixed
        self._epoch = None if settings.fixed else Epoch(settings.epoch_pushes, me.now)
        self._pushed = 0  # gradients of all workers
        self._computing: dict[int, _Step | None] = {}  # by worker; None: no window is open
        self._ends: list[_Step] = []  # a heap; some of them may be over

    async def work(self) -> None:
        me = self._me
        while True:
            self._forget()
            if not self._ends:
                self._take(await me.recv())
                continue
            message = await me.recv_within(seconds(max(0, self._ends[0].ends - me.now)))
            if message is None:
                self._end(heapq.heappop(self._ends))
            else:
                self._take(message)

    def _forget(self) -> None:
        """Drop the windows of steps that are over, before the next one that ends."""
        if len(self._ends) > 4 * self._workers:
            self._ends = [step for step in self._ends if self._is_open(step)]
            heapq.heapify(self._ends)
        while self._ends and not self._is_open(self._ends[0]):
            heapq.heappop(self._ends)

    def _is_open(self, step: _Step) -> bool:
        return self._computing.get(step.worker) is step

    def _end(self, step: _Step) -> None:
        """A window ends: count the pushes in it."""
        self._computing[step.worker] = None
        pushes = self._pushed - step.pushed
        if step.window.is_enough(pushes, len(self._live)):
            self._me.send(worker_name(step.worker), Resync(step.iteration, pushes))

    def _take(self, message: Message) -> None:
        if isinstance(message, Began):
            self._take_began(message)
        elif isinstance(message, Done):
            self._take_done(message)
        elif isinstance(message, Leave) or (isinstance(message, Lost) and not message.stays):
            self._live.discard(message.worker)
            self._computing.pop(message.worker, None)
        elif isinstance(message, Rejoin | Lost) and 0 <= message.worker < self._workers:
            self._live.add(message.worker)
            self._computing.pop(message.worker, None)
        else:
            what = type(message).__name__
            self._me.refuse(message, ProtocolError(f"the {SCHEDULER} takes no such {what}"))

    def _take_began(self, began: Began) -> None:
        worker, now, window = began.worker, self._me.now, self._window
        if worker not in self._live or worker in self._computing:
            wrong = f"worker {worker} began iteration {began.iteration}, which it cannot now"
            self._me.refuse(began, ProtocolError(wrong))
            return
        if self._epoch is not None:
            self._epoch.began(worker, now)
        step = None
        if window is not None:
            ends = now + nanoseconds(window.time_s)
            step = _Step(ends, worker, began.iteration, self._pushed, window)
            heapq.heappush(self._ends, step)
        self._computing[worker] = step

    def _take_done(self, done: Done) -> None:
        worker, now = done.worker, self._me.now
        if worker not in self._live:
            wrong = f"worker {worker} pushed iteration {done.iteration}, which it cannot now"
            self._me.refuse(done, ProtocolError(wrong))
            return
        self._computing.pop(worker, None)
        self._pushed += done.finished
        epoch = self._epoch
        if epoch is None:
            return
        epoch.pushed(worker, now, gradient=done.finished)
        if epoch.is_over(len(self._live)):
            self._window = epoch.window(len(self._live), now)
            self._epoch = Epoch(self._settings.epoch_pushes, now)
