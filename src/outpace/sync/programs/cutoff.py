"""Cut-offs: a rule ends each iteration, without the workers that have not finished by then.

Every worker reports to the scheduler when it has finished computing. The scheduler measures
run times from the moment at which it closed the previous iteration, so they include the
network, the servers and all waits of a worker. When the rule ends an iteration, the scheduler
closes it: it tells all servers which gradients count, and makes the other workers stop
computing. The stopped workers push without a gradient, report the part that they computed, and
continue with the next iteration.

The report of a stopped worker may arrive after the next iteration has begun. The rule observes a
closed iteration as late as possible: when all workers have reported, or when the first gradient of
the next iteration has arrived.

The scheduler waits for a lost worker that a new process replaces as for a worker that computes.

The scheduler does not wait for a worker that waits in a collective of its script (`Pause`). An
iteration that is open during the pause ends when all other workers have reported. The rule neither
decides how long such an iteration lasts nor observes it.

Any program of a worker with servers can be cut off: `CutOffWorker` stands between the program
and its context.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from outpace.blocks.block import Block
from outpace.errors import ProtocolError
from outpace.predict.interface import Rule, Wait
from outpace.predict.recorded import Mask, Seconds
from outpace.support.units import Time, nanoseconds, seconds
from outpace.sync.messages import (
    SCHEDULER,
    Close,
    Done,
    Leave,
    Lost,
    Message,
    Pause,
    Rejoin,
    server_name,
    worker_name,
)
from outpace.sync.programs.context import SchedulerContext, Stopped, WorkerContext
from outpace.sync.programs.forwarding import ForwardingContext


class CutOffWorker(ForwardingContext):
    """The context of a worker's program in a run with cut-offs.

    A gradient whose computation was stopped is None for every server: the worker abstains.
    """

    def __init__(self, me: WorkerContext) -> None:
        super().__init__(me)
        self._closed = -1  # last iteration closed without this worker
        self._has_left = self._has_rejoined = False

    def send(self, to: str, *messages: Message) -> None:
        first = messages[0]
        if isinstance(first, Leave) and not self._has_left:
            self._has_left = True
            self._me.send(SCHEDULER, first)
        elif isinstance(first, Rejoin) and not self._has_rejoined:
            self._has_rejoined = True
            self._me.send(SCHEDULER, first)
        self._me.send(to, *messages)

    async def execute(self, parameters: Sequence[Block], iteration: int) -> Sequence[Block | None]:
        me = self._me
        nothing = [None] * len(self.servers)
        if iteration <= self._closed:  # closed while the worker waited
            me.send(SCHEDULER, Done(self.worker, iteration, 0.0, 0.0, finished=False))
            return nothing
        started = me.now

        def ends_it(message: Message) -> bool:
            self._take(message)
            return self._closed >= iteration

        made = await me.execute_until(parameters, iteration, ends_it)
        gradient, share = (nothing, made.share) if isinstance(made, Stopped) else (made, 1.0)
        finished = gradient[0] is not None
        me.send(
            SCHEDULER,
            Done(self.worker, iteration, seconds(me.now - started), share, finished=finished),
        )
        return gradient

    def _take(self, message: Message) -> None:
        """Store a message for the program, or record that an iteration is over."""
        if isinstance(message, Close):
            self._closed = max(self._closed, message.iteration)
        else:
            self._read.append(message)


class _Iteration:
    """An iteration, with the workers that have finished computing and those that have stopped."""

    def __init__(self, number: int, opened: Time, workers: int) -> None:
        self.number, self.opened = number, opened
        self.arrived = np.full(workers, math.nan)  # seconds since the iteration was opened
        self.reported: dict[int, Done] = {}  # by worker, with a gradient or not
        self.came: list[int] = []  # workers with a gradient, in the order of their reports
        # Known once the iteration is closed:
        self.ended_s = math.nan  # seconds since it was opened
        self._cut_off_s = math.nan  # the same without the delay of the scheduler
        self.missing: set[int] = set()  # workers whose reports may still arrive

    def take(self, done: Done, now: Time) -> None:
        self.reported[done.worker] = done
        if done.finished:
            self.arrived[done.worker] = seconds(now - self.opened)
            self.came.append(done.worker)

    def take_late(self, done: Done) -> None:
        self.reported[done.worker] = done
        self.missing.discard(done.worker)

    def close(self, now: Time, live: set[int], until_s: float) -> None:
        """End the iteration.

        Args:
            now: the present time.
            live: the workers that are in the run.
            until_s: when the rule wanted to end the iteration, in seconds since its beginning.
        """
        self.ended_s = seconds(now - self.opened)
        last_s = float(np.nanmax(self.arrived, initial=0.0))
        self._cut_off_s = min(self.ended_s, max(until_s, last_s))
        self._live, self.missing = live, live - self.reported.keys()

    def observed(self) -> tuple[Seconds, Mask]:
        """Return the run times (s), and True for those that are lower bounds; both of shape (N,).

        The lower bound of a worker that was cut off is the cut-off, as in the paper (equation 6). A
        real scheduler closes the iteration a little later, and the worker continues until the order
        to stop arrives. If this additional time counted, a rule that waits for the longest bound
        would wait longer each time.
        """
        arrived, reported, came = self.arrived, self.reported, self.came
        # Besides the computation, a run time includes sending the parameters and the report.
        beside = [arrived[worker] - reported[worker].seconds for worker in came]
        beside_s = float(np.median(beside)) if beside else 0.0
        found, censored = arrived.copy(), np.zeros(len(arrived), dtype=bool)
        for worker in self._live.difference(came):
            report = reported.get(worker)
            if report is not None and report.share >= 1.0:  # the worker finished late
                found[worker] = max(self.ended_s, beside_s + report.seconds)
            else:
                found[worker], censored[worker] = self._cut_off_s, True
        return found, censored


async def cut_off(
    me: SchedulerContext, rule: Rule, workers: int, servers: int, first: int = 0
) -> None:
    """Close one iteration after another, from `first` on, when the rule ends it. Never returns."""
    await _Scheduler(me, rule, workers, servers, first).work()


class _Scheduler:
    """The state of the scheduler's program."""

    def __init__(
        self, me: SchedulerContext, rule: Rule, workers: int, servers: int, first: int
    ) -> None:
        self._me, self._rule, self._workers = me, rule, workers
        self._servers = [server_name(server) for server in range(servers)]
        self._live = set(range(workers))
        # By paused worker: whether it was told that the iteration in which it paused is over.
        self._paused: dict[int, bool] = {}
        self._open = _Iteration(first, me.now, workers)
        self._closed: _Iteration | None = None  # an iteration that the rule has yet to observe

    async def work(self) -> None:
        while True:
            wait = await self._begin()
            while not self._is_over(wait):
                if self._paused:
                    wait = Wait()
                if not self._has_reached(wait.again_count, wait.again_s):
                    await self._take_next(self._open.opened + _ns(min(wait.until_s, wait.again_s)))
                elif not await self._drain():  # no message arrived during the rule's decision
                    wait = await self._review()
            await self._drain()
            self._close(wait)

    async def _begin(self) -> Wait:
        """Observe the last iteration and return how long the next one stays open."""
        while self._closed is not None and self._closed.missing and not self._open.reported:
            await self._take_next(None)
        return await self._me.decide(self._first_decision)

    def _first_decision(self) -> Wait:
        if self._closed is not None:
            self._rule.observe(*self._closed.observed(), self._closed.ended_s)
            self._closed = None
        return Wait() if self._paused else self._rule.begin()

    @property
    def _awaited(self) -> set[int]:
        """The workers that the scheduler waits for."""
        return self._live - self._paused.keys()

    def _is_over(self, wait: Wait) -> bool:
        awaited = self._awaited
        if awaited and awaited <= self._open.reported.keys():
            return True
        return self._has_reached(wait.count, wait.until_s)

    def _has_reached(self, count: float, time_s: float) -> bool:
        """True if the count or the time is reached, and at least one gradient has arrived."""
        came = len(self._open.came)
        return came > 0 and (came >= count or self._elapsed >= _ns(time_s))

    async def _review(self) -> Wait:
        elapsed = self._elapsed  # a decision takes time and may be due at once
        arrived = self._open.arrived
        wait = await self._me.decide(lambda: self._rule.review(arrived, seconds(elapsed)))
        count = len(self._open.came)
        # A review that is due at once would be repeated forever, so the next one waits for another
        # gradient.
        if _ns(wait.again_s) <= elapsed or wait.again_count <= count:
            wait = replace(wait, again_s=math.inf, again_count=count + 1)
        return wait

    @property
    def _elapsed(self) -> Time:
        return self._me.now - self._open.opened

    async def _take_next(self, due: Time | None) -> None:
        """Process the next message if it arrives before `due` (ns); None: wait without limit."""
        me = self._me
        if due is None or not self._open.came:  # an iteration needs at least one gradient
            message: Message | None = await me.recv()
        else:
            message = await me.recv_within(seconds(max(0, due - me.now)))
        if message is not None:
            self._take(message)

    async def _drain(self) -> bool:
        """Process the messages that have arrived; return True if there were any."""
        found = False
        while message := await self._me.recv_within(0.0):
            self._take(message)
            found = True
        return found

    def _take(self, message: Message) -> None:
        if isinstance(message, Leave | Lost):
            if isinstance(message, Lost) and message.stays:
                self._live.add(message.worker)
            else:
                self._live.discard(message.worker)
            self._paused.pop(message.worker, None)
            self._miss_no_more(message.worker)
        elif isinstance(message, Rejoin):
            self._take_rejoin(message)
        elif isinstance(message, Done):
            self._take_done(message)
        elif isinstance(message, Pause):
            self._take_pause(message)
        else:
            self._me.refuse(
                message, ProtocolError(f"the {SCHEDULER} takes no {type(message).__name__}")
            )

    def _take_pause(self, message: Pause) -> None:
        worker, pauses = message.worker, not message.over
        if worker not in self._live or pauses == (worker in self._paused):
            did = "paused" if pauses else "resumed"
            self._me.refuse(message, ProtocolError(f"worker {worker} {did}, which it cannot now"))
        elif pauses:
            self._paused[worker] = False
            self._miss_no_more(worker)
        else:
            del self._paused[worker]

    def _take_rejoin(self, rejoin: Rejoin) -> None:
        worker, current = rejoin.worker, self._open
        if not 0 <= worker < self._workers or rejoin.first > current.number + 1:
            wrong = f"worker {worker} rejoined with iteration {rejoin.first}, "
            self._me.refuse(rejoin, ProtocolError(f"{wrong}but {current.number} is open"))
            return
        self._live.add(worker)
        self._paused.pop(worker, None)
        if rejoin.first > current.number and worker not in current.reported:
            # The worker's gradient has reached a server, but its report was lost: the gradient does
            # not count.
            done = Done(worker, current.number, 0.0, math.nan, finished=False)
            current.take(done, self._me.now)

    def _miss_no_more(self, worker: int) -> None:
        """Note that no late report of this worker is expected any more."""
        if self._closed is not None:
            self._closed.missing.discard(worker)

    def _take_done(self, done: Done) -> None:
        current, closed = self._open, self._closed
        if done.iteration > current.number or done.worker not in self._awaited:
            wrong = f"worker {done.worker} says that it is done with iteration {done.iteration}, "
            self._me.refuse(done, ProtocolError(f"{wrong}but {current.number} is open"))
        elif done.iteration == current.number:
            if done.worker not in current.reported:
                current.take(done, self._me.now)
        elif closed is not None and done.iteration == closed.number:
            closed.take_late(done)

    def _close(self, wait: Wait) -> None:
        me, current, now = self._me, self._open, self._me.now
        came = current.came
        closed = Close(current.number, sorted(came), came[-1] if came else -1)
        for name in self._servers:
            me.send(name, closed)
        for worker in sorted(self._live - current.reported.keys()):
            is_told = self._paused.get(worker)
            if not is_told:
                me.send(worker_name(worker), closed)
            if is_told is not None:
                self._paused[worker] = True
        me.iteration_closed(current.number, current.opened, now, wait, len(came))
        current.close(now, set(self._live), wait.until_s)
        self._closed = None if self._paused else current
        self._open = _Iteration(current.number + 1, now, self._workers)


def _ns(time_s: float) -> Time:
    return nanoseconds(time_s) if time_s < 1e9 else 2**62
