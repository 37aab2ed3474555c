"""One shard: the part of the parameters that one server owns, without any IO.

A state machine: `receive(message, now)` changes it and returns the replies that are
due. An illegal message raises ProtocolError before anything has changed.

Per worker it keeps a *watermark*, the highest iteration pushed. Iterations of one
worker must increase; they may skip. A push equal to the watermark is a repetition, a
network's second try, and is not applied again. The *clock* V is the number of
iterations the shard has finished; the policy says when it may advance. A pull that may
not be answered yet is filed under a *release clock* and answered when V gets there, or,
where no clock decides, judged again when the workers it hangs on have moved. A policy may
have the shard wait for some time: `next_deadline` says when `on_time` is due. It may be
exchanged at any time (SetPolicy): pulls that wait are judged again, gradients that wait
are applied as before.

Where somebody decides for all shards at once whose gradients count (a policy that is
`cut_off`) those of an iteration are held back until a Close names them.

Versions count updates of the parameters; pushes echo the version they read, so the
staleness of every gradient is known: the updates between its read and its application.
"""

from __future__ import annotations

import enum
import math
from collections import defaultdict
from typing import Any, Final, Protocol, TypeAlias

from outpace.blocks.block import StepSettings, Value, value_of
from outpace.blocks.sums import norm_of
from outpace.errors import DivergenceError, PolicyError, ProtocolError
from outpace.support.units import Time, nanoseconds
from outpace.sync.decision import ANYBODY, ASK_AGAIN, Decision
from outpace.sync.messages import Close, Leave, Message, Pull, Push, Reply, SetPolicy
from outpace.sync.parameter_block import BlockSum, ParameterBlock
from outpace.sync.policy import Apply, Policy, Scale
from outpace.sync.view import View

_LARGEST_SKIP = 100_000  # iterations by which a push may lie before all others
NOBODY = -1  # released by: the pull was answered at once


_Entry: TypeAlias = tuple[Pull, Time, Decision]  # when it came, and what was said then
_Filed: TypeAlias = dict[tuple[int, int], _Entry]  # by worker and iteration
_NOTHING: Final[_Filed] = {}


class Outcome(enum.IntEnum):
    """What became of a push. The numbers are in traces: never reuse one."""

    APPLIED = 0
    DROPPED = 1  # too late: its iteration was finished without it
    ABSTAINED = 2  # it carried no gradient
    REPEATED = 3  # seen before
    PENDING = 4  # the run ended before it was applied


class ShardObserver(Protocol):
    """Is told what the shard does; the trace."""

    def push_settled(
        self,
        shard: int,
        worker: int,
        iteration: int,
        arrived: Time,
        settled: Time,
        version: int,
        outcome: Outcome,
        staleness: int,
    ) -> None:
        """A push got its outcome. `version` is the one it read; staleness is -1 if unapplied."""

    def pull_answered(
        self,
        shard: int,
        worker: int,
        iteration: int,
        arrived: Time,
        answered: Time,
        version: int,
        clock: int,
        decision: Decision,
        released_by: int,
    ) -> None:
        """A pull was answered; `released_by` is the worker whose message did it, or NOBODY."""

    def pull_abandoned(
        self, shard: int, worker: int, iteration: int, arrived: Time, decision: Decision
    ) -> None:
        """The run ended, or its worker left, while this pull was held."""

    def updated(self, shard: int, version: int) -> None:
        """The parameters have a new version."""


class _Settings:
    """Those of one iteration: the lowest worker's, and what nobody used."""

    def __init__(self) -> None:
        self._worker: int | None = None
        self._groups: list[dict[str, Any]] = []
        self._unused: set[int] | None = None

    def add(self, worker: int, settings: StepSettings) -> None:
        if self._worker is None or worker < self._worker:
            self._worker, self._groups = worker, settings.groups
        unused = set(settings.unused)
        self._unused = unused if self._unused is None else self._unused & unused

    @property
    def agreed(self) -> StepSettings:
        return StepSettings(self._groups, sorted(self._unused or ()))


class Shard:
    """See the head of this file."""

    def __init__(
        self,
        index: int,
        block: ParameterBlock,
        workers: int,
        policy: Policy,
        observer: ShardObserver,
    ) -> None:
        self.index = index
        self.version = 0
        self._block = block
        self._policy = policy
        self._observer = observer
        self._view = View(index, workers)
        self._pushes, self._furthest = 0, 0.0
        # iteration -> gradients that await its end, and what they will be divided by
        self._sums: dict[int, tuple[BlockSum, Scale]] = {}
        self._contributions: dict[int, list[tuple[int, int, Time]]] = defaultdict(list)
        self._settings: dict[int, _Settings] = {}  # of those gradients
        self._held_back: dict[int, dict[int, tuple[Push, Time]]] = {}  # iteration -> worker ->
        self._counting: dict[int, frozenset[int]] = {}  # iteration -> whose gradients count
        self._waiting: dict[int, _Filed] = {}  # release clock -> pulls
        self._asking: dict[int, _Filed] = {}  # worker or ANYBODY -> pulls to be judged again
        self._unanswered: set[tuple[int, int]] = set()  # all of these
        self._ripe: tuple[Time, int] | None = None  # when patience began, and by whose message
        self._deadline: Time | None = None
        self._norm: tuple[int, float] = (-1, 0.0)  # of the parameters at a version
        self._uses_significance = policy.uses_significance
        self._is_cut_off = policy.cut_off is not None

    @property
    def clock(self) -> int:
        """V, the number of iterations finished."""
        return self._view.clock

    @property
    def live(self) -> int:
        """How many workers have not left."""
        return self._view.live

    @property
    def policy(self) -> Policy:
        """The one that it follows now."""
        return self._policy

    @property
    def next_deadline(self) -> Time | None:
        """When to call `on_time`, unless a message comes first; None: not at all."""
        return self._deadline

    def read(self) -> Value:
        """The parameters of this version: one copy, shared by all who read it, never changed."""
        return self._block.read()

    def receive(self, message: Message, now: Time) -> list[Reply]:
        """Take a message in; return the replies due, their parameters still to be filled in.

        Raises ProtocolError (and nothing has changed), DivergenceError.
        """
        if isinstance(message, Push):
            return self._on_push(message, now)
        if isinstance(message, Pull):
            return self._on_pull(message, now)
        if isinstance(message, Leave):
            return self._on_leave(message, now)
        if isinstance(message, Close):
            return self._on_close(message, now)
        if isinstance(message, SetPolicy):
            return self._on_policy(message.policy, now)
        raise ProtocolError(f"shard {self.index} cannot take a {type(message).__name__}")

    def on_time(self, now: Time) -> list[Reply]:
        """It is `next_deadline`, or later: return the replies that are due. Raises as `receive`."""
        return self._advance(NOBODY, now)

    def close(self, now: Time) -> None:
        """End of the run: report the pushes never applied and the pulls never answered."""
        for iteration, contributions in sorted(self._contributions.items()):
            for worker, version, arrived in contributions:
                self._observer.push_settled(
                    self.index, worker, iteration, arrived, now, version, Outcome.PENDING, -1
                )
        for _, held_back in sorted(self._held_back.items()):
            for push, arrived in held_back.values():
                self._settle(
                    push.worker, push.iteration, push.version, arrived, now, Outcome.PENDING
                )
        for pull, arrived, decision in self._held():
            self._observer.pull_abandoned(
                self.index, pull.worker, pull.iteration, arrived, decision
            )
        self._held_back.clear()
        self._contributions.clear()
        self._waiting.clear()
        self._asking.clear()

    def describe_waiting(self) -> str:
        """Which pulls it holds and for whom, in words; empty if none."""
        held = [
            f"worker {pull.worker} (iteration {pull.iteration}) until "
            + (
                "its condition holds"
                if decision.release_clock == ASK_AGAIN
                else f"clock {decision.release_clock}"
            )
            for pull, _, decision in self._held()
        ]
        if not held:
            return ""
        return f"shard {self.index}, at clock {self.clock}, holds {', '.join(held)}"

    def _held(self) -> list[_Entry]:
        """All pulls that wait, by worker and iteration."""
        filed = [*self._waiting.values(), *self._asking.values()]
        entries = [entry for each in filed for entry in each.values()]
        return sorted(entries, key=lambda entry: (entry[0].worker, entry[0].iteration))

    # -- messages --------------------------------------------------------------

    def _on_push(self, push: Push, now: Time) -> list[Reply]:
        repeated = self._require_valid_push(push)
        if repeated:
            self._settle(push.worker, push.iteration, push.version, now, now, Outcome.REPEATED)
            return []
        late = push.iteration < self._view.clock
        self._view.push(push.worker, push.iteration, now)
        on_arrival = self._policy.apply is Apply.ON_ARRIVAL
        if push.gradient is None:
            self._settle(push.worker, push.iteration, push.version, now, now, Outcome.ABSTAINED)
        elif late and not on_arrival:  # and never computed
            self._settle(push.worker, push.iteration, push.version, now, now, Outcome.DROPPED)
        elif self._is_cut_off:
            self._hold_back(push, now)
        else:
            self._take_gradient(push, value_of(push.gradient), on_arrival, now)
        self._pushes += 1
        # What comes at the very end of a wait counts, and so may others that come then.
        return self._advance(push.worker, now, at_end=False)

    def _on_pull(self, pull: Pull, now: Time) -> list[Reply]:
        self._require_member(pull.worker, "pulled")
        if pull.iteration < 0:
            raise ProtocolError(f"worker {pull.worker} pulled iteration {pull.iteration}")
        if (pull.worker, pull.iteration) in self._unanswered:
            return []  # a repetition, which may be judged otherwise: one answer is enough
        decision = self._judged(pull)
        if decision.release_clock is not None:
            self._file(pull, now, decision)
            return []
        if self._deadline is None or now < self._deadline:
            return [self._answer(pull, now, now, decision, NOBODY)]
        # It came between the deadline and `on_time`, and is answered as after it. (Behind a
        # global barrier the scheduler's own deadline, of the same time, may have sent it.)
        replies = self.on_time(now)
        return [*replies, self._answer(pull, now, now, self._judged(pull), NOBODY)]

    def _on_leave(self, leave: Leave, now: Time) -> list[Reply]:
        worker = leave.worker
        self._require_member(worker, "left")
        for each in (self._waiting, self._asking):
            for filed in each.values():
                for key in [key for key in filed if key[0] == worker]:
                    self._unanswered.discard(key)
                    pull, arrived, decision = filed.pop(key)
                    self._observer.pull_abandoned(
                        self.index, worker, pull.iteration, arrived, decision
                    )
        self._view.leave(worker)
        return self._advance(worker, now)

    def _on_policy(self, policy: Policy, now: Time) -> list[Reply]:
        held = self._held()
        self._waiting.clear()
        self._asking.clear()
        self._policy, self._uses_significance = policy, policy.uses_significance
        self._is_cut_off = policy.cut_off is not None
        for _, held_back in sorted(self._held_back.items()) if not self._is_cut_off else ():
            for push, arrived in held_back.values():
                self._count(push, arrived, now, True)
            held_back.clear()
        self._ripe = self._deadline = None
        self._advance(NOBODY, now)
        replies = []
        for pull, arrived, before in held:
            decision = self._judged(pull)
            if decision.release_clock is None:
                replies.append(self._answer(pull, arrived, now, before, pull.worker))
            else:
                self._file(pull, arrived, decision)
        return replies

    # -- whose gradients count -----------------------------------------------------

    def _hold_back(self, push: Push, now: Time) -> None:
        """Until it is known whether this gradient counts. It is not computed before, either."""
        counting = self._counting.get(push.iteration)
        if counting is None:
            self._held_back.setdefault(push.iteration, {})[push.worker] = push, now
        else:
            self._count(push, now, now, push.worker in counting)

    def _count(self, push: Push, arrived: Time, now: Time, counts: bool) -> None:
        if counts:
            assert push.gradient is not None
            self._take_gradient(push, value_of(push.gradient), False, arrived)
        else:
            self._settle(push.worker, push.iteration, push.version, arrived, now, Outcome.DROPPED)

    def _on_close(self, close: Close, now: Time) -> list[Reply]:
        iteration = close.iteration
        if not self._is_cut_off:
            raise ProtocolError(f"shard {self.index} closes its iterations itself")
        if iteration < self._view.clock or iteration in self._counting:
            raise ProtocolError(f"shard {self.index}: iteration {iteration} was closed before")
        for worker in close.workers:
            if not 0 <= worker < self._view.workers:
                raise ProtocolError(f"iteration {iteration} counts on worker {worker}: not there")
        self._counting[iteration] = counting = frozenset(close.workers)
        for worker, (push, arrived) in self._held_back.pop(iteration, {}).items():
            self._count(push, arrived, now, worker in counting)
        self._view.close(iteration, counting)
        return self._advance(close.by, now)

    # -- pulls that wait -----------------------------------------------------------

    def _judged(self, pull: Pull) -> Decision:
        decision = self._policy.may_answer(pull, self._view)
        release = decision.release_clock
        if release is not None and release != ASK_AGAIN and release <= self._view.clock:
            raise PolicyError(
                f"policy {self._policy.kind!r} holds worker {pull.worker}'s pull of iteration "
                f"{pull.iteration} until clock {release}, but shard {self.index} is at "
                f"{self._view.clock}"
            )
        return decision

    def _file(self, pull: Pull, arrived: Time, decision: Decision) -> None:
        """Under what it waits for."""
        release = decision.release_clock
        assert release is not None
        where, key = (
            (self._asking, decision.watch) if release == ASK_AGAIN else (self._waiting, release)
        )
        filed = where.get(key)
        if filed is None:
            filed = where[key] = {}
        worker_and_iteration = pull.worker, pull.iteration
        filed[worker_and_iteration] = pull, arrived, decision
        self._unanswered.add(worker_and_iteration)

    def _ask_again(self, mover: int, now: Time) -> list[Reply]:
        """Judge those pulls again that hang on a worker that has pushed, or left."""
        replies = []
        for watched in {mover, ANYBODY}:
            for pull, arrived, before in self._asking.pop(watched, _NOTHING).values():
                decision = self._judged(pull)
                if decision.release_clock is None:
                    replies.append(self._answer(pull, arrived, now, before, mover))
                else:
                    self._file(pull, arrived, decision)
        return replies

    # -- progress --------------------------------------------------------------

    def _advance(self, mover: int, now: Time, *, at_end: bool = True) -> list[Reply]:
        """Finish the iterations that may be finished and answer the pulls that waited for it.

        mover: the worker that pushed or left, or NOBODY. at_end: of a wait that ends now, has
        all come that could?
        """
        view, cause = self._view, mover
        replies: list[Reply] = []
        released: list[tuple[int, _Filed]] = []
        while view.clock <= view.fastest and self._is_time(cause, now, at_end):
            if self._ripe is not None:  # it was not this message that ended the wait
                cause = self._ripe[1]
                self._ripe = self._deadline = None
            self._apply_iteration(view.clock, cause, now)
            self._counting.pop(view.clock, None)
            view.advance()
            filed = self._waiting.pop(view.clock, None)
            if filed is not None:
                released.append((cause, filed))
        for by, filed in released:
            for pull, arrived, decision in filed.values():
                replies.append(self._answer(pull, arrived, now, decision, by))
        return replies + self._ask_again(mover, now) if self._asking else replies

    def _is_time(self, cause: int, now: Time, at_end: bool) -> bool:
        """May the shard finish iteration V now? Else `_deadline` says when, if that is known."""
        # When all have left there is nobody to finish it for, and nothing to wait for.
        patience_s = self._policy.patience_s(self._view) if self._view.live else math.inf
        if patience_s == 0.0 or patience_s == math.inf:
            self._ripe = self._deadline = None
            return patience_s == 0.0
        if self._ripe is None:
            self._ripe = now, cause
        self._deadline = self._ripe[0] + nanoseconds(patience_s)
        return now >= self._deadline + (not at_end)

    def _answer(
        self, pull: Pull, arrived: Time, now: Time, decision: Decision, released_by: int
    ) -> Reply:
        clock = self._view.clock
        self._view.answer(pull.worker, now)
        self._unanswered.discard((pull.worker, pull.iteration))
        if decision.release_clock is not None and released_by == NOBODY:
            released_by = pull.worker  # nobody's message: another policy, or its timeout
        self._observer.pull_answered(
            self.index,
            pull.worker,
            pull.iteration,
            arrived,
            now,
            self.version,
            clock,
            decision,
            released_by,
        )
        return Reply(self.index, pull.worker, pull.iteration, self.version, clock, now - arrived)

    # -- gradients -------------------------------------------------------------

    def _take_gradient(self, push: Push, gradient: Value, on_arrival: bool, now: Time) -> None:
        if self._uses_significance:
            self._view.weigh(push.worker, self._significance(gradient))
        if on_arrival:
            divisor = self._divisor(push.version)
            self._settle(push.worker, push.iteration, push.version, now, now, Outcome.APPLIED)
            self._update(gradient, divisor, push.worker, push.iteration, push.settings)
        else:
            self._collect(push, gradient, now)

    def _collect(self, push: Push, gradient: Value, now: Time) -> None:
        iteration = push.iteration
        if iteration not in self._sums:
            self._sums[iteration] = self._block.new_sum(self._view.workers), self._policy.scale
        self._sums[iteration][0].add(push.worker, gradient)
        self._contributions[iteration].append((push.worker, push.version, now))
        if push.settings is not None:
            self._settings.setdefault(iteration, _Settings()).add(push.worker, push.settings)

    def _apply_iteration(self, iteration: int, cause: int, now: Time) -> None:
        if iteration not in self._sums:
            return
        total, scale = self._sums.pop(iteration)
        for worker, version, arrived in self._contributions.pop(iteration):
            self._settle(worker, iteration, version, arrived, now, Outcome.APPLIED)
        gradient = total.mean() if scale is Scale.MEAN else total.total()
        settings = self._settings.pop(iteration, None)
        self._update(gradient, 1, cause, iteration, settings.agreed if settings else None)

    def _significance(self, gradient: Value) -> float:
        """|g| / |w|; 0 where there is nothing to compute with, or the parameters are 0."""
        if self._norm[0] != self.version:
            self._norm = self.version, norm_of(self._block.read())
        return norm_of(gradient) / self._norm[1] if self._norm[1] else 0.0

    @property
    def _progress(self) -> float:
        """Of the training, in iterations. Where each push is an update, N are an iteration."""
        progress: float = self._view.clock
        if self._policy.apply is Apply.ON_ARRIVAL:
            progress = max(progress, self._pushes / self._view.workers)
        self._furthest = max(self._furthest, progress)  # another policy may count otherwise
        return self._furthest

    def _divisor(self, version: int) -> int:
        """Of a gradient that is applied on arrival and was computed from this version."""
        match self._policy.scale:
            case Scale.MEAN:
                return self._view.workers
            case Scale.STALENESS:
                return max(1, self.version - version)
            case Scale.SUM:
                return 1

    def _update(
        self,
        gradient: Value,
        divisor: int,
        worker: int,
        iteration: int,
        settings: StepSettings | None,
    ) -> None:
        self._block.update(gradient, divisor, settings, self._progress)
        self.version += 1
        if not self._block.is_finite():
            by = f", which worker {worker}'s push completed" if worker >= 0 else ""
            raise DivergenceError(
                f"the parameters of shard {self.index} stopped being finite at update "
                f"{self.version}, in iteration {iteration}{by}; try a smaller learning rate"
            )
        self._observer.updated(self.index, self.version)

    def _settle(
        self, worker: int, iteration: int, version: int, arrived: Time, now: Time, outcome: Outcome
    ) -> None:
        staleness = self.version - version if outcome is Outcome.APPLIED else -1
        self._observer.push_settled(
            self.index, worker, iteration, arrived, now, version, outcome, staleness
        )

    # -- refusals --------------------------------------------------------------

    def _require_valid_push(self, push: Push) -> bool:
        """Raise unless the push is legal. True if it repeats the worker's last one."""
        self._require_member(push.worker, "pushed")
        seen = self._view.progress(push.worker)
        if push.iteration < 0 or push.iteration < seen:
            raise ProtocolError(
                f"worker {push.worker} pushed iteration {push.iteration} after {seen}: "
                "a worker's iterations must increase"
            )
        if push.iteration > self._view.fastest + _LARGEST_SKIP:
            raise ProtocolError(
                f"worker {push.worker} pushed iteration {push.iteration}, when nobody had pushed "
                f"any after {self._view.fastest}"
            )
        if not 0 <= push.version <= self.version:
            raise ProtocolError(
                f"worker {push.worker} says that it read version {push.version} of shard "
                f"{self.index}, which is at {self.version}"
            )
        if push.gradient is not None and (
            refusal := self._block.refusal(push.gradient, push.settings)
        ):
            raise ProtocolError(
                f"worker {push.worker}, iteration {push.iteration}, shard {self.index}: {refusal}"
            )
        return push.iteration == seen

    def _require_member(self, worker: int, did: str) -> None:
        if not 0 <= worker < self._view.workers:
            raise ProtocolError(
                f"worker {worker} {did}, but there are only workers 0 to {self._view.workers - 1}"
            )
        if not self._view.is_live(worker):
            raise ProtocolError(f"worker {worker} {did} after it had left")
