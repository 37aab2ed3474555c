"""One shard: the part of the parameters that one server owns, without any IO.

A state machine: `receive(message, now)` changes it and returns the replies that are
due. An illegal message raises ProtocolError before anything has changed.

Per worker it keeps a *watermark*, the highest iteration pushed. Iterations of one
worker must increase; they may skip. A push equal to the watermark is a repetition, a
network's second try, and is not applied again. The *clock* V is the number of
iterations the shard has finished; the policy says when it may advance. A pull that may
not be answered yet is filed under a *release clock* and answered when V gets there.
Versions count updates of the parameters; pushes echo the version they read, so the
staleness of every gradient is known: the updates between its read and its application.
"""

from __future__ import annotations

import enum
from collections import defaultdict
from typing import Any, Protocol

from outpace.blocks import BlockSum, ParameterBlock
from outpace.errors import DivergenceError, ProtocolError
from outpace.messages import (
    Leave,
    Message,
    Pull,
    Push,
    Reply,
    StepSettings,
    Value,
    value_of,
)
from outpace.sync.decision import Decision
from outpace.sync.policy import Apply, Policy, Scale
from outpace.units import Time

_LARGEST_SKIP = 100_000  # iterations by which a push may lie before all others
NOBODY = -1  # released by: the pull was answered at once


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
        self, shard: int, worker: int, iteration: int, arrived: Time, settled: Time,
        version: int, outcome: Outcome, staleness: int,
    ) -> None:  # fmt: skip
        """A push got its outcome. `version` is the one it read; staleness is -1 if unapplied."""

    def pull_answered(
        self, shard: int, worker: int, iteration: int, arrived: Time, answered: Time,
        version: int, clock: int, decision: Decision, released_by: int,
    ) -> None:  # fmt: skip
        """A pull was answered; `released_by` is the worker whose message did it, or NOBODY."""

    def pull_abandoned(
        self, shard: int, worker: int, iteration: int, arrived: Time, decision: Decision
    ) -> None:
        """The run ended while this pull was held."""

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


class View:
    """What the policy sees (`sync.policy.ShardView`); kept up to date by the shard."""

    __slots__ = ("_watermarks", "clock", "fastest", "live", "reached", "slowest", "workers")

    def __init__(self, workers: int) -> None:
        self.clock = 0
        self.workers = self.live = workers
        self.reached = 0
        self.slowest = self.fastest = -1
        self._watermarks = [-1] * workers

    def watermark(self, worker: int) -> int:
        return self._watermarks[worker]


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
        self._view = View(workers)
        self._gone: set[int] = set()
        self._at = {-1: workers}  # watermark -> live workers that have it
        self._sums: dict[int, BlockSum] = {}  # iteration -> gradients awaiting its end
        self._contributions: dict[int, list[tuple[int, int, Time]]] = defaultdict(list)
        self._settings: dict[int, _Settings] = {}  # of those gradients
        self._waiting: dict[int, list[tuple[Pull, Time, Decision]]] = defaultdict(list)

    @property
    def clock(self) -> int:
        """V, the number of iterations finished."""
        return self._view.clock

    @property
    def live(self) -> int:
        """How many workers have not left."""
        return self._view.live

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
        raise ProtocolError(f"shard {self.index} cannot take a {type(message).__name__}")

    def close(self, now: Time) -> None:
        """End of the run: report the pushes never applied and the pulls never answered."""
        for iteration, contributions in sorted(self._contributions.items()):
            for worker, version, arrived in contributions:
                self._observer.push_settled(
                    self.index, worker, iteration, arrived, now, version, Outcome.PENDING, -1
                )
        for _, filed in sorted(self._waiting.items()):
            for pull, arrived, decision in filed:
                self._observer.pull_abandoned(
                    self.index, pull.worker, pull.iteration, arrived, decision
                )
        self._contributions.clear()
        self._waiting.clear()

    def describe_waiting(self) -> str:
        """Which pulls it holds and for whom, in words; empty if none."""
        held = sorted(
            (pull.worker, pull.iteration, clock)
            for clock, pulls in self._waiting.items()
            for pull, _, _ in pulls
        )
        if not held:
            return ""
        pulls = ", ".join(f"worker {w} (iteration {i}) until clock {c}" for w, i, c in held)
        return f"shard {self.index}, at clock {self.clock}, holds {pulls}"

    # -- messages --------------------------------------------------------------

    def _on_push(self, push: Push, now: Time) -> list[Reply]:
        repeated = self._require_valid_push(push)
        if repeated:
            self._settle(push.worker, push.iteration, push.version, now, now, Outcome.REPEATED)
            return []
        late = push.iteration < self._view.clock
        self._raise_watermark(push.worker, push.iteration)
        if push.gradient is None:
            self._settle(push.worker, push.iteration, push.version, now, now, Outcome.ABSTAINED)
        elif self._policy.apply is Apply.ON_ARRIVAL:
            divisor = self._divisor(push.version)
            gradient = value_of(push.gradient)
            self._settle(push.worker, push.iteration, push.version, now, now, Outcome.APPLIED)
            self._update(gradient, divisor, push.worker, push.iteration, push.settings)
        elif late:
            self._settle(push.worker, push.iteration, push.version, now, now, Outcome.DROPPED)
        else:
            self._collect(push, value_of(push.gradient), now)
        return self._advance(push.worker, now)

    def _on_pull(self, pull: Pull, now: Time) -> list[Reply]:
        self._require_member(pull.worker, "pulled")
        if pull.iteration < 0:
            raise ProtocolError(f"worker {pull.worker} pulled iteration {pull.iteration}")
        decision = self._policy.may_answer(pull, self._view)
        if decision.release_clock is None:
            return [self._answer(pull, now, now, decision, NOBODY)]
        if decision.release_clock <= self._view.clock:
            raise ProtocolError(
                f"policy {self._policy.kind!r} holds a pull until clock "
                f"{decision.release_clock}, but shard {self.index} is at {self._view.clock}"
            )
        filed = self._waiting[decision.release_clock]
        if not any(p.worker == pull.worker and p.iteration == pull.iteration for p, _, _ in filed):
            filed.append((pull, now, decision))
        return []

    def _on_leave(self, leave: Leave, now: Time) -> list[Reply]:
        worker, view = leave.worker, self._view
        self._require_member(worker, "left")
        self._gone.add(worker)
        view.live -= 1
        watermark = view.watermark(worker)
        view.reached -= watermark >= view.clock
        self._uncount(watermark)
        for filed in self._waiting.values():
            filed[:] = [entry for entry in filed if entry[0].worker != worker]
        return self._advance(worker, now)

    # -- progress --------------------------------------------------------------

    def _raise_watermark(self, worker: int, iteration: int) -> None:
        view = self._view
        before = view._watermarks[worker]
        view._watermarks[worker] = iteration
        view.reached += before < view.clock <= iteration
        view.fastest = max(view.fastest, iteration)
        self._at[iteration] = self._at.get(iteration, 0) + 1
        self._uncount(before)

    def _uncount(self, watermark: int) -> None:
        """One live worker less has this watermark; `slowest` follows."""
        if self._at[watermark] > 1:
            self._at[watermark] -= 1
            return
        del self._at[watermark]
        view = self._view
        if watermark == view.slowest and self._at:
            while view.slowest not in self._at:
                view.slowest += 1

    def _advance(self, cause: int, now: Time) -> list[Reply]:
        """Finish the iterations that may be finished and answer the pulls that waited for it."""
        view = self._view
        released: list[tuple[Pull, Time, Decision]] = []
        while view.live and view.clock <= view.fastest and self._policy.may_advance(view):
            self._apply_iteration(view.clock, cause, now)
            view.reached -= self._at.get(view.clock, 0)
            view.clock += 1
            released += self._waiting.pop(view.clock, ())
        return [
            self._answer(pull, arrived, now, decision, cause)
            for pull, arrived, decision in released
        ]

    def _answer(
        self, pull: Pull, arrived: Time, now: Time, decision: Decision, released_by: int
    ) -> Reply:
        clock = self._view.clock
        self._observer.pull_answered(
            self.index, pull.worker, pull.iteration, arrived, now, self.version, clock, decision,
            released_by,
        )  # fmt: skip
        return Reply(self.index, pull.worker, pull.iteration, self.version, clock, now - arrived)

    # -- gradients -------------------------------------------------------------

    def _collect(self, push: Push, gradient: Value, now: Time) -> None:
        iteration = push.iteration
        if iteration not in self._sums:
            self._sums[iteration] = self._block.new_sum(self._view.workers)
        self._sums[iteration].add(push.worker, gradient)
        self._contributions[iteration].append((push.worker, push.version, now))
        if push.settings is not None:
            self._settings.setdefault(iteration, _Settings()).add(push.worker, push.settings)

    def _apply_iteration(self, iteration: int, cause: int, now: Time) -> None:
        total = self._sums.pop(iteration, None)
        if total is None:
            return
        for worker, version, arrived in self._contributions.pop(iteration):
            self._settle(worker, iteration, version, arrived, now, Outcome.APPLIED)
        gradient = total.mean() if self._policy.scale is Scale.MEAN else total.total()
        settings = self._settings.pop(iteration, None)
        self._update(gradient, 1, cause, iteration, settings.agreed if settings else None)

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
        self, gradient: Value, divisor: int, worker: int, iteration: int,
        settings: StepSettings | None,
    ) -> None:  # fmt: skip
        # Where each gradient is an update, N of them are an iteration.
        on_arrival = self._policy.apply is Apply.ON_ARRIVAL
        progress = self.version / self._view.workers if on_arrival else self._view.clock
        self._block.update(gradient, divisor, settings, progress)
        self.version += 1
        if not self._block.is_finite():
            raise DivergenceError(
                f"the parameters of shard {self.index} stopped being finite at update "
                f"{self.version}, which worker {worker}'s push of iteration {iteration} "
                "completed; try a smaller learning rate"
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
        seen = self._view.watermark(push.worker)
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
        if worker in self._gone:
            raise ProtocolError(f"worker {worker} {did} after it had left")
