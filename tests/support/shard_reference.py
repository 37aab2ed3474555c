"""A reference model of one shard, computed from lists, anew at every question.

It knows the definitions (FluentPS, table III; PSP-SGD; the docstrings of the policies) and
nothing of the shard's bookkeeping. Policies are judged here by their fields alone. A policy may be
left out; the contract suite then covers it alone.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from outpace.sync import Apply, Buffer
from outpace.sync.messages import Pull
from outpace.sync.observer import Outcome
from outpace.sync.policies.coins import coin_of, sample_of

SIZE = 3

Criterion = Callable[[], bool]  # may this pull be answered now?


@dataclass(frozen=True)
class UserPolicy:
    """Conditions of a user's, over this model instead of a view."""

    pull: Callable[[Reference, Any], bool]
    patience: Callable[[Reference], float]  # ns
    apply: Apply = Apply.ON_ARRIVAL
    buffer: Buffer | None = None
    kind: str = "user"
    uses_significance: bool = True


@dataclass
class Waiting:
    pull: Any
    since: int
    may_go: Criterion


@dataclass
class Reference:
    """Times are ns. `laggard` stands for the choice that a policy leaves to its shard."""

    workers: int
    policy: Any
    laggard: Callable[[], int]
    clock: int = 0
    version: int = 0
    progress: list[int] = field(init=False)
    pushed: dict[int, set[int]] = field(default_factory=dict)  # iteration -> workers
    gone: set[int] = field(default_factory=set)
    paused: set[int] = field(default_factory=set)
    parameters: list[float] = field(default_factory=lambda: [0.0] * SIZE)
    significance: dict[int, float] = field(default_factory=dict)
    spared: dict[int, int] = field(default_factory=dict)  # worker -> highest lead since a hold
    last_push: list[int] = field(init=False)
    step_time: list[int] = field(init=False)
    last_answer: list[int] = field(init=False)
    collected: list[tuple[int, int, int, list[float]]] = field(default_factory=list)
    held_back: list[tuple[int, int, int, list[float]]] = field(default_factory=list)
    counting: dict[int, frozenset[int]] = field(default_factory=dict)  # of those that were closed
    waiting: list[Waiting] = field(default_factory=list)
    settled: list[tuple[int, int, Outcome, int]] = field(default_factory=list)
    abandoned: list[Pull] = field(default_factory=list)
    patient_since: int | None = None
    deadline: int | None = None

    def __post_init__(self) -> None:
        self.progress = [-1] * self.workers
        self.last_push, self.step_time, self.last_answer = ([0] * self.workers for _ in "abc")

    # -- what a view must say ----------------------------------------------------------

    @property
    def members(self) -> list[int]:
        return [worker for worker in range(self.workers) if worker not in self.gone]

    @property
    def live(self) -> list[int]:
        """Without those that are paused and have not pushed this iteration."""
        return [
            worker
            for worker in self.members
            if worker not in self.paused or self.progress[worker] >= self.clock
        ]

    @property
    def active(self) -> list[int]:
        return [worker for worker in self.members if worker not in self.paused]

    def count(self, iteration: int) -> int:
        return sum(self.progress[worker] >= iteration for worker in self.live)

    @property
    def laggards(self) -> list[int]:
        return [worker for worker in self.live if self.progress[worker] < self.clock]

    @property
    def is_cut_off(self) -> bool:
        return self.policy.kind == "cutoff"

    # -- messages; each returns the pulls answered by it, by worker and iteration ----------

    def push(self, worker, iteration, version, gradient, now):
        if iteration == self.progress[worker]:
            self.settled.append((worker, iteration, Outcome.REPEATED, -1))
            return {}
        late = iteration < self.clock
        self.progress[worker] = iteration
        self.pushed.setdefault(iteration, set()).add(worker)
        self.last_push[worker] = now
        self.step_time[worker] = now - self.last_answer[worker]
        arrival = self.policy.apply is Apply.ON_ARRIVAL
        if gradient is None:
            self.settled.append((worker, iteration, Outcome.ABSTAINED, -1))
        elif late and not arrival:
            self.settled.append((worker, iteration, Outcome.DROPPED, -1))
        elif self.is_cut_off and iteration not in self.counting:
            self.held_back.append((worker, iteration, version, gradient))
        elif self.is_cut_off:
            self._count((worker, iteration, version, gradient))
        else:
            self._weigh(worker, gradient)
            if arrival:
                self.settled.append((worker, iteration, Outcome.APPLIED, self.version - version))
                self._update(gradient)
            else:
                self.collected.append((worker, iteration, version, gradient))
        return self.look(now, at_end=False)  # others may come at the end of a wait

    def pull(self, pull, now):
        if any(
            (each.pull.worker, each.pull.iteration) == (pull.worker, pull.iteration)
            for each in self.waiting
        ):
            return {}  # a repetition: one answer is enough
        may_go = self.judge(pull)
        lead = pull.iteration - self.clock
        if not may_go():
            self.spared.pop(pull.worker, None)
        elif self.policy.kind in ("pssp", "dynamic-pssp") and lead >= self.policy.staleness:
            self.spared[pull.worker] = max(lead, self.spared.get(pull.worker, -1))
        if may_go():
            due = self.deadline is not None and now >= self.deadline
            others = self.look(now) if due else {}
            return {**others, self._answered(pull, now): 0}
        self.waiting.append(Waiting(pull, now, may_go))
        return {}

    def leave(self, worker, now):
        self.gone.add(worker)
        self.paused.discard(worker)
        self._abandon(worker)
        return self.look(now)

    def pause(self, worker, now):
        self.paused.add(worker)
        return self.look(now, at_end=False)

    def resume(self, worker, now):
        self.paused.discard(worker)
        return self.look(now, at_end=False)

    def close(self, iteration, workers, now):
        self.counting[iteration] = frozenset(workers)
        for each in [each for each in self.held_back if each[1] == iteration]:
            self.held_back.remove(each)
            self._count(each)
        return self.look(now)

    def follow(self, policy, now):
        self.policy, self.spared = policy, {}
        if not self.is_cut_off:  # nobody will say any more which of them count
            for each in sorted(self.held_back, key=lambda each: each[1]):
                self._weigh(each[0], each[3])
                self.collected.append(each)
            self.held_back = []
        self.patient_since = self.deadline = None
        self._advance(now)
        for each in self.waiting:
            each.may_go = self.judge(each.pull)
        return self._answer_all(now)

    def lost(self, worker, stays, now):
        if worker in self.gone:
            return self.rejoin(worker, 0, now) if stays else {}
        self._abandon(worker)
        self.paused.discard(worker)
        if not stays:
            self.gone.add(worker)
        return self.look(now, at_end=False)

    def rejoin(self, worker, first, now):
        self._abandon(worker)
        self._begin_again(worker, first, now)
        return self.look(now, at_end=False)

    def go_on_elsewhere(self, now):
        """Another shard takes over; what the workers will ask for again is forgotten."""
        self.waiting, self.held_back, self.counting = [], [], {}
        self.paused, self.significance, self.spared = set(), {}, {}
        # It knows the last pushes, and those whose gradients wait.
        self.pushed = {}
        for worker in self.members:
            self.pushed.setdefault(self.progress[worker], set()).add(worker)
        for worker, iteration, _, _ in self.collected:
            self.pushed.setdefault(iteration, set()).add(worker)
        self.last_push, self.last_answer = [now] * self.workers, [now] * self.workers
        self.step_time = [0] * self.workers
        self.patient_since = self.deadline = None
        for worker in sorted(self.gone):
            self._begin_again(worker, 0, now)
        return self.look(now)

    def look(self, now, at_end=True):
        """Something has changed, or the time has come."""
        self._advance(now, at_end)
        return self._answer_all(now)

    def left_over(self):
        return [(w, i, Outcome.PENDING, -1) for w, i, _, _ in self.collected + self.held_back]

    # -- inside ------------------------------------------------------------------------

    def _abandon(self, worker):
        self.abandoned += [each.pull for each in self.waiting if each.pull.worker == worker]
        self.waiting = [each for each in self.waiting if each.pull.worker != worker]

    def _begin_again(self, worker, first, now):
        self.paused.discard(worker)
        before = max(first - 1, self.clock - 1 if worker in self.gone else -1)
        self.gone.discard(worker)
        if before > self.progress[worker]:
            self.progress[worker], self.last_push[worker] = before, now
        self.step_time[worker] = 0

    def _answer_all(self, now):
        ready = [each for each in self.waiting if each.may_go()]
        self.waiting = [each for each in self.waiting if each not in ready]
        return {self._answered(each.pull, now): now - each.since for each in ready}

    def _answered(self, pull, now):
        self.last_answer[pull.worker] = now
        return pull.worker, pull.iteration

    def _weigh(self, worker, gradient):
        if getattr(self.policy, "uses_significance", False):
            norm = math.hypot(*self.parameters)
            self.significance[worker] = math.hypot(*gradient) / norm if norm else 0.0

    def _count(self, pushed):
        worker, iteration, _, _ = pushed
        if worker in self.counting[iteration]:
            self.collected.append(pushed)
        else:
            self.settled.append((worker, iteration, Outcome.DROPPED, -1))

    def _update(self, gradient):
        self.parameters = [w - g for w, g in zip(self.parameters, gradient, strict=True)]
        self.version += 1

    def _advance(self, now, at_end=True):
        while self.live and self.clock <= max(self.progress):
            patience = self.patience()
            if patience == math.inf:
                break
            if patience > 0:
                if self.patient_since is None:
                    self.patient_since = now
                self.deadline = self.patient_since + round(patience)
                if now < self.deadline or (now == self.deadline and not at_end):
                    return
            self._finish()
        self.patient_since = self.deadline = None

    def _finish(self):
        of_it = [each for each in self.collected if each[1] == self.clock]
        self.collected = [each for each in self.collected if each[1] != self.clock]
        total = [0.0] * SIZE
        for worker, iteration, version, gradient in of_it:
            self.settled.append((worker, iteration, Outcome.APPLIED, self.version - version))
            total = [a + b for a, b in zip(total, gradient, strict=True)]
        if of_it:
            self._update(total)
        self.clock += 1
        self.patient_since = self.deadline = None

    def patience(self) -> float:
        """ns until the clock may advance, counted from when this became finite."""
        policy, pushed = self.policy, self.count(self.clock)
        if isinstance(policy, UserPolicy):
            return policy.patience(self)
        if self.is_cut_off:
            named = self.counting.get(self.clock)
            late = {worker for worker in self.members if self.progress[worker] < self.clock}
            return math.inf if named is None or named & late else 0
        if pushed == len(self.live):
            return 0
        pushed = len(self.pushed.get(self.clock, ()))  # without the workers that have skipped it
        if policy.kind == "drop-stragglers" and pushed >= policy.quorum:
            return 0
        if policy.kind == "partial-push" and pushed >= policy.quorum:
            return policy.timeout_s * 1e9
        return math.inf

    def judge(self, pull) -> Criterion:
        """Return the condition under which this pull, judged now, is answered."""
        policy, i, filed = self.policy, pull.iteration, self.clock
        lead = i - filed

        def at(clock: int) -> Criterion:
            return lambda: self.clock >= clock

        def held(bound: int | None = None) -> Criterion:
            if policy.buffer is Buffer.LAZY:
                return at(max(i, filed) + 1)
            return at(filed + 1 if bound is None else max(filed + 1, i - bound + 1))

        now = at(0)
        match policy.kind:
            case "user":
                if policy.buffer is None:
                    return lambda: policy.pull(self, pull)
                return now if policy.pull(self, pull) else held()
            case "asp":
                return now
            case "bsp" | "drop-stragglers" | "partial-push" | "cutoff":
                return at(i + 1)
            case "ssp":
                return now if i < filed + policy.staleness else held(policy.staleness)
            case "pssp" | "dynamic-pssp":
                coin = pull.coin if policy.coin == "worker" else coin_of(pull, 0)
                spared = coin >= self.probability(pull.worker, lead)
                if policy.kind == "pssp" and policy.draw == "lead":
                    spared = spared or lead <= self.spared.get(pull.worker, -1)
                hard = policy.kind == "pssp" and policy.block_probability == 1
                return (
                    now
                    if lead < policy.staleness or spared
                    else held(policy.staleness if hard else None)
                )
            case "dsps":
                bound = self.dsps_bound(pull.worker, lead) if lead >= policy.staleness else lead + 1
                return now if lead < bound else held(bound)
            case "psp-sampling":
                sample = sample_of(pull, policy.sample, self.workers)
                return lambda: all(
                    self.progress[n] >= i - policy.staleness for n in sample if n in self.live
                )
        raise AssertionError(policy.kind)

    def probability(self, worker: int, lead: int) -> float:
        policy = self.policy
        if policy.kind == "pssp":
            return policy.block_probability
        alpha = policy.alpha
        if alpha == "significance":
            alpha = min(1.0, self.significance.get(worker, 0.0))
        return alpha / (1 + math.exp(policy.staleness - lead))

    def dsps_bound(self, puller: int, lead: int) -> int:
        """The formula in the docstring of `Dsps`, term by term."""
        policy, slow = self.policy, self.laggard()
        assert slow in self.laggards
        t_q, d_q = self.last_push[slow], self.step_time[slow]
        t_p, d_p = self.last_push[puller], self.step_time[puller]
        best = 0
        if d_q > 0 and d_p > 0:
            held = []
            for r in range(max(0, policy.staleness + policy.extra - lead) + 1):
                j = 1
                while (h := t_q + j * d_q - (t_p + r * d_p)) < 0:
                    j += 1
                held.append(h)
            best = held.index(min(held))
        upper = policy.staleness + policy.extra
        return max(policy.staleness, min(lead + best, upper))
