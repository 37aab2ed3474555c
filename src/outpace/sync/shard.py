"""A shard: the part of the parameters that one server owns, as a state machine without IO.

`receive(message, now)` changes the shard and returns the replies that are due. An illegal
message raises ProtocolError before anything has changed.

The shard keeps a *watermark* per worker: the highest iteration pushed. Iterations of a worker must
increase; they may skip. A push equal to the watermark is a repetition, such as a retry of the
network, and is not applied again. The *clock* V is the number of iterations that the shard has
finished; the policy says when it may advance. A pull that is held is filed under a *release clock*
and answered when V reaches it. A pull without a release clock is judged again when the worker that
it watches has pushed or left. A worker that has *paused* waits for other workers in a collective of
its script. Until it resumes, the shard does not wait for it in iterations that it has not pushed. A
worker whose process is *lost* may *rejoin* in a new one, with a later iteration than any that a
shard has of it. A policy may make the shard wait for some seconds: `next_deadline` is the time at
which `on_time` must be called. SetPolicy replaces the policy at any time: held pulls are judged
again, and an iteration with some gradients before and some after the change still makes only one
step.

With a policy that has a `cut_off`, a scheduler decides for all shards at once which
gradients count. Gradients of an iteration are then held back until a Close names its workers.

Versions count updates of the parameters. A push echoes the version that its gradient was
computed from, so the staleness of every gradient is known: the updates between its read and
its application.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable
from typing import Any

from outpace.blocks.block import Value
from outpace.errors import PolicyError, ProtocolError
from outpace.support.units import Time, nanoseconds
from outpace.sync.bookkeeping.pull_queue import Held, PullQueue
from outpace.sync.bookkeeping.refusals import (
    is_repeated,
    require_fits,
    require_may_pull,
    require_may_rejoin,
    require_member,
)
from outpace.sync.bookkeeping.updates import Updates
from outpace.sync.bookkeeping.view import View
from outpace.sync.checkpoint.state import ShardState
from outpace.sync.decision import ASK_AGAIN, Decision, Reason
from outpace.sync.messages import (
    Close,
    Leave,
    Lost,
    Message,
    Pause,
    Pull,
    Push,
    Rejoin,
    Reply,
    SetPolicy,
)
from outpace.sync.observer import NO_WORKER, Outcome, ShardObserver
from outpace.sync.parameter_block import ParameterBlock
from outpace.sync.policy import Policy


class Shard:
    """The state machine of one server; see the docstring of this module.

    Args:
        updated: called with each new version of the parameters.
        warn: called once if a sum has gradients of optimizers with different settings.

    Attributes:
        next_deadline: Time at which to call `on_time` unless a message arrives first; None: never.
    """

    def __init__(
        self,
        index: int,
        block: ParameterBlock,
        workers: int,
        policy: Policy,
        observer: ShardObserver,
        updated: Callable[[int], None] | None = None,
        warn: Callable[[str], None] | None = None,
    ) -> None:
        self.index = index
        self._follow(policy)
        self._observer = observer
        self._view = View(index, workers)
        self._updates = Updates(self._view, block, policy, observer, updated, warn)
        self._queue = PullQueue()
        self._handlers: dict[type, Callable[[Any, Time], list[Reply]]] = {
            Push: self._on_push,
            Pull: self._on_pull,
            Leave: self._on_leave,
            Pause: self._on_pause,
            Close: self._on_close,
            Lost: self._on_lost,
            Rejoin: self._on_rejoin,
            SetPolicy: self._on_policy,
        }
        # the wait for more pushes: its start and its worker
        self._wait: tuple[Time, int] | None = None
        self.next_deadline: Time | None = None

    @property
    def clock(self) -> int:
        """V, the number of iterations finished."""
        return self._view.clock

    @property
    def version(self) -> int:
        """The number of updates of the parameters."""
        return self._updates.version

    @property
    def live(self) -> int:
        """The number of workers that have not left."""
        return self._view.members

    @property
    def is_between_iterations(self) -> bool:
        """True if no worker has pushed an iteration that the shard has not finished."""
        return self._view.fastest < self._view.clock

    @property
    def policy(self) -> Policy:
        """The policy that the shard follows now."""
        return self._policy

    def read(self) -> Value:
        """Return the parameters: one copy per version, shared by all readers and never changed."""
        return self._updates.block.read()

    def receive(self, message: Message, now: Time) -> list[Reply]:
        """Process a message and return the replies that are due, without their parameters.

        Raises ProtocolError, in which case the shard has not changed, and DivergenceError.
        """
        try:
            handle = self._handlers[type(message)]
        except KeyError:
            raise ProtocolError(
                f"shard {self.index} cannot take a {type(message).__name__}"
            ) from None
        return handle(message, now)

    def on_time(self, now: Time) -> list[Reply]:
        """Return the replies due at `next_deadline` or later; raises the errors of `receive`."""
        return self._advance(NO_WORKER, now)

    def close(self, now: Time) -> None:
        """End the run: report the pushes not yet applied and the pulls not yet answered."""
        self._updates.dismiss_all(now)
        self._abandon(self._queue.take_all())

    def watermark(self, worker: int) -> int:
        """Return the highest iteration that this worker has pushed; -1: none."""
        return self._view.progress(worker)

    # -- taking over after a failure ------------------------------------------------

    def state(self) -> ShardState:
        """Return all that another shard needs to take the place of this one.

        Call this between two messages. It copies the optimizer's state and the sums of unfinished
        iterations, and with most optimizers the parameters.
        """
        view, updates = self._view, self._updates
        return ShardState(
            shard=self.index,
            clock=view.clock,
            version=updates.version,
            watermarks=tuple(view.watermarks),
            gone=tuple(sorted(view.gone)),
            pushes=updates.pushes,
            furthest=updates.furthest,
            mixed=updates.mixed,
            parameters=updates.block.read(),
            optimizer=updates.block.optimizer_state(),
            pending=updates.pending(),
        )

    def restore(self, state: ShardState, now: Time) -> None:
        """Take over a state; only before the first message. The state is not changed.

        All workers begin again (`first_iteration`), including those that had left. A wait for more
        pushes starts again. Raises ProtocolError if the state has another number of workers or
        parameters, or if the shard has begun already.
        """
        view, updates = self._view, self._updates
        require_fits(state, view, updates.block, updates.version)
        pushes = [(worker, each.iteration) for each in state.pending for worker, _ in each.pushes]
        view.restore(state.clock, state.watermarks, state.gone, pushes, now)
        updates.restore(state, now)
        for worker in state.gone:
            view.rejoin(worker, 0, now)
        if view.clock <= view.fastest:  # an iteration may have to end without a further message
            self._wait, self.next_deadline = (now, NO_WORKER), now

    def describe_waiting(self) -> str:
        """Return a text about the pulls that the shard holds, and until when; empty if none."""
        held = []
        for pull, _, decision in self._queue:
            release = decision.release_clock
            until = "its condition holds" if release == ASK_AGAIN else f"clock {release}"
            held.append(f"worker {pull.worker} (iteration {pull.iteration}) until {until}")
        if not held:
            return ""
        return f"shard {self.index}, at clock {self.clock}, holds {', '.join(held)}"

    def _abandon(self, pulls: Iterable[Held]) -> None:
        for pull, arrived, decision in pulls:
            self._observer.pull_abandoned(self.index, pull, arrived, decision)

    # -- messages --------------------------------------------------------------

    def _on_push(self, push: Push, now: Time) -> list[Reply]:
        view, updates = self._view, self._updates
        if is_repeated(push, view, updates.block, updates.version):
            updates.dismiss(push, now, now, Outcome.REPEATED)
            return []
        late = push.iteration < view.clock
        view.push(push.worker, push.iteration, now)
        updates.take(push, late, now)
        waits = self._waits_for_all and self._wait is None and view.reached < view.live
        if waits and not self._queue.watched:  # as after most pushes
            return []
        # A push exactly at the deadline counts, and more pushes may arrive at the same time.
        return self._advance(push.worker, now, at_end=False)

    def _on_pull(self, pull: Pull, now: Time) -> list[Reply]:
        view, worker, iteration = self._view, pull.worker, pull.iteration
        is_held = (worker, iteration) in self._queue.known
        if is_held or iteration < 0 or worker in view.absent or not 0 <= worker < view.workers:
            require_may_pull(pull, view, is_held=is_held)
            return []  # a repetition gets no second answer
        decision = self._policy.may_answer(pull, view)
        if decision.release_clock is not None:
            self._hold(pull, now, decision)
            view.forget_spared(worker)
            return []
        if decision.reason is Reason.SPARED:
            view.spare(worker, decision.lead)
        if self.next_deadline is None or now < self.next_deadline:
            return [self._answer(pull, now, now, decision, NO_WORKER)]
        # The deadline has passed but `on_time` has not been called: call it first. (With a global
        # barrier, the scheduler's deadline at the same time may have caused this pull.)
        replies = self.on_time(now)
        again = self._policy.may_answer(pull, view)
        return [*replies, self._answer(pull, now, now, again, NO_WORKER)]

    def _on_leave(self, leave: Leave, now: Time) -> list[Reply]:
        worker = leave.worker
        require_member(self._view, worker, "left")
        self._abandon(self._queue.take_worker(worker))
        self._view.leave(worker)
        return self._advance(worker, now)

    def _on_pause(self, message: Pause, now: Time) -> list[Reply]:
        worker, pauses = message.worker, not message.over
        require_member(self._view, worker, "paused" if pauses else "resumed")
        if pauses == self._view.is_paused(worker):
            why = "paused twice" if pauses else "resumed without a pause"
            raise ProtocolError(f"worker {worker} {why}")
        if pauses:
            self._view.pause(worker)
        else:
            self._view.resume(worker)
        return self._advance(worker, now, at_end=False)

    def _on_lost(self, lost: Lost, now: Time) -> list[Reply]:
        worker, view = lost.worker, self._view
        self._abandon(self._queue.take_worker(worker))
        if not view.is_member(worker):
            if not lost.stays or not 0 <= worker < view.workers:
                return []
            # The shard waits for it from now on. If it waited only from the Rejoin on, shards could
            # finish different iterations before that, and answer the first pulls too early.
            view.rejoin(worker, 0, now)
        elif lost.stays:
            view.resume(worker)
        else:
            view.leave(worker)
        return self._advance(worker, now, at_end=False)

    def _on_rejoin(self, rejoin: Rejoin, now: Time) -> list[Reply]:
        require_may_rejoin(rejoin, self._view)
        self._abandon(self._queue.take_worker(rejoin.worker))
        self._view.rejoin(rejoin.worker, rejoin.first, now)
        return self._advance(rejoin.worker, now, at_end=False)

    def _on_policy(self, message: SetPolicy, now: Time) -> list[Reply]:
        held = self._queue.take_all()
        self._view.forget_spared()
        self._follow(message.policy)
        self._updates.follow(message.policy, now)
        self._wait = self.next_deadline = None
        self._advance(NO_WORKER, now)  # returns no replies, because no pull is in the queue now
        return self._judge_again(held, NO_WORKER, now)

    def _on_close(self, close: Close, now: Time) -> list[Reply]:
        iteration = close.iteration
        if not self._updates.is_cut_off:
            raise ProtocolError(f"shard {self.index} closes its iterations itself")
        if iteration < self._view.clock or self._updates.is_closed(iteration):
            raise ProtocolError(f"shard {self.index}: iteration {iteration} was closed before")
        for worker in close.workers:
            if not 0 <= worker < self._view.workers:
                raise ProtocolError(
                    f"iteration {iteration} counts worker {worker}, which does not exist"
                )
        self._updates.close(close, now)
        self._view.close(iteration, close.workers)
        return self._advance(close.by, now)

    def _follow(self, policy: Policy) -> None:
        self._policy = policy
        self._waits_for_all = type(policy).patience_s is Policy.patience_s

    # -- pulls that wait -----------------------------------------------------------

    def _hold(self, pull: Pull, arrived: Time, decision: Decision) -> None:
        release, clock = decision.release_clock, self._view.clock
        if release is not None and release != ASK_AGAIN and release <= clock:
            raise PolicyError(
                f"policy {self._policy.kind!r} holds worker {pull.worker}'s pull of iteration "
                f"{pull.iteration} until clock {release}, but shard {self.index} is at {clock}"
            )
        self._queue.add(pull, arrived, decision)

    def _judge_again(self, pulls: Iterable[Held], mover: int, now: Time) -> list[Reply]:
        replies = []
        for pull, arrived, before in pulls:
            decision = self._policy.may_answer(pull, self._view)
            if decision.release_clock is None:
                self._queue.forget(pull)
                replies.append(self._answer(pull, arrived, now, before, mover))
            else:
                self._hold(pull, arrived, decision)
        return replies

    # -- progress --------------------------------------------------------------

    def _advance(self, mover: int, now: Time, *, at_end: bool = True) -> list[Reply]:
        """Finish the iterations that may be finished and answer the pulls that this releases.

        mover: the worker that pushed, paused, resumed or left, or NO_WORKER. at_end: True to finish
        an iteration whose deadline is now; False if more pushes may arrive at the present time.
        """
        view, cause, movers = self._view, mover, [mover]
        replies: list[Reply] = []
        released: list[tuple[int, Collection[Held]]] = []
        while view.clock <= view.fastest and self._is_time(cause, now, at_end):
            if self._wait is not None:  # the wait was begun by an earlier message
                cause = self._wait[1]
                self._wait = self.next_deadline = None
            self._updates.finish(view.clock, cause, now)
            movers += view.advance()
            released.append((cause, self._queue.take_clock(view.clock)))
        for by, held in released:
            for pull, arrived, decision in held:
                self._queue.forget(pull)
                replies.append(self._answer(pull, arrived, now, decision, by))
        if self._queue.watched:
            for moved in movers:
                replies += self._judge_again(self._queue.take_watching(moved), mover, now)
        return replies

    def _is_time(self, cause: int, now: Time, at_end: bool) -> bool:
        """True if the shard may finish iteration V now; else set `next_deadline` if it is known."""
        # When all workers have left or paused, no iteration needs to be finished.
        patience_s = self._policy.patience_s(self._view) if self._view.live else math.inf
        if patience_s == math.inf:
            self._wait = self.next_deadline = None
            return False
        if patience_s == 0.0:
            self._wait = self.next_deadline = None
            return True
        if self._wait is None:
            self._wait = now, cause
        self.next_deadline = self._wait[0] + nanoseconds(patience_s)
        return now >= self.next_deadline + (not at_end)

    def _answer(
        self, pull: Pull, arrived: Time, now: Time, decision: Decision, released_by: int
    ) -> Reply:
        view = self._view
        view.answered[pull.worker] = now
        if decision.release_clock is not None and released_by == NO_WORKER:
            released_by = pull.worker  # released by a change of policy or by a time-out
        version, held = self._updates.version, now - arrived
        reply = Reply(self.index, pull.worker, pull.iteration, version, view.clock, held)
        self._observer.pull_answered(reply, arrived, decision, released_by)
        return reply
