"""Drives one shard as its workers would, legally, in any order, and records the events."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import torch

from outpace.optim import Sgd
from outpace.support.units import Time
from outpace.sync import Decision, Policy
from outpace.sync.messages import Close, FromWorker, Leave, Pause, Pull, Push, Reply
from outpace.sync.observer import Outcome
from outpace.sync.parameter_block import parameter_block
from outpace.sync.shard import Shard


@dataclass
class Account:
    """A `ShardObserver` that records the reports that it receives.

    Attributes:
        settled: worker, iteration, outcome and staleness of each push.
        decisions: decisions about the answered pulls.
    """

    settled: list[tuple[int, int, Outcome, int]] = field(default_factory=list)
    decisions: list[Decision] = field(default_factory=list)

    def push_settled(
        self, shard: int, push: Push, arrived: Time, settled: Time, outcome: Outcome, staleness: int
    ) -> None:
        self.settled.append((push.worker, push.iteration, outcome, staleness))

    def pull_answered(
        self, reply: Reply, arrived: Time, decision: Decision, released_by: int
    ) -> None:
        self.decisions.append(decision)

    def pull_abandoned(self, shard: int, pull: Pull, arrived: Time, decision: Decision) -> None:
        pass


class Driver:
    """Workers of one shard that push, pull, wait for the answer, and continue.

    Attributes:
        steps: what the workers did, as text, in order.
        iteration: the next iteration of each worker.
        waiting: the iteration of each worker's pull that has no answer yet.
        gone, paused: the workers that have left, and those that wait in a collective of their
            script.
        pushed: worker and iteration of the pushes with a gradient.
        answers: worker, iteration and clock of each answered pull, and the number of steps before.
    """

    def __init__(self, policy: Policy, workers: int) -> None:
        self.account = Account()
        block = parameter_block(torch.zeros(1, dtype=torch.float64), Sgd(lr=1.0))
        self.shard = Shard(0, block, workers, policy, self.account)
        self.steps: list[str] = []
        self.iteration = [0] * workers
        self.waiting: dict[int, int] = {}
        self.gone: set[int] = set()
        self.paused: set[int] = set()
        self.pushed: list[tuple[int, int]] = []
        self.answers: list[tuple[int, int, int, int]] = []
        self._cut_off = policy.cut_off is not None
        self._now: Time = 0
        self._watermark = [-1] * workers  # the last iteration pushed: an answer may skip iterations
        self._version = [0] * workers

    def free(self) -> list[int]:
        """Return the workers that can take a step."""
        busy = {*self.waiting, *self.gone, *self.paused}
        return [worker for worker in range(len(self.iteration)) if worker not in busy]

    def act(self, worker: int, action: str) -> None:
        """Make a worker act. `step`, `leave` and `pause` are for free workers.

        Args:
            action: `step`: push and pull. `abstain`: push without a gradient, and pull. `withhold`:
                push and say that the worker chose not to send its gradient, and pull. `skip`: push
                two iterations later, and pull. `no pull`: push only. `leave`. `pause`: wait in a
                collective of the script. `resume`: continue after it. `repeat`: push the last push
                a second time.
        """
        iteration = self.iteration[worker] + 2 * (action == "skip")
        self.steps.append(f"worker {worker}: {action} {iteration}")
        if action == "leave":
            self.gone.add(worker)
            self._send(Leave(worker))
        elif action in ("pause", "resume"):
            (self.paused.add if action == "pause" else self.paused.remove)(worker)
            self._send(Pause(worker, over=action == "resume"))
        elif action == "repeat":
            self._push(worker, self._watermark[worker])
        else:
            self._watermark[worker], self.iteration[worker] = iteration, iteration + 1
            has_gradient = action not in ("abstain", "withhold")
            if has_gradient:
                self.pushed.append((worker, iteration))
            self._push(worker, iteration, has_gradient, skipped=action == "withhold")
            if action != "no pull":
                self.waiting[worker] = iteration
                self._send(Pull(worker, iteration, coin=(0.37 * worker + 0.61 * iteration) % 1))

    def can_repeat(self, worker: int) -> bool:
        """True if the last push of this worker can arrive a second time."""
        return self._watermark[worker] >= 0 and worker not in self.gone

    def wait(self) -> bool:
        """Let time pass until the shard acts by itself; return False if it never will."""
        deadline, iteration = self.shard.next_deadline, self.shard.clock
        if deadline is not None:
            self._now = max(self._now, deadline)
            self._take(self.shard.on_time(self._now))
        elif self._cut_off and self.waiting:  # the scheduler ends the iteration
            self._send(Close(iteration, [w for w, pushed in self.pushed if pushed == iteration]))
        return self.shard.next_deadline != deadline or self.shard.clock != iteration

    def _push(
        self, worker: int, iteration: int, has_gradient: bool = True, skipped: bool = False
    ) -> None:
        gradient = torch.ones(1, dtype=torch.float64) if has_gradient else None
        self._send(Push(worker, iteration, self._version[worker], gradient, skipped=skipped))

    def _send(self, message: FromWorker | Close) -> None:
        self._now += 1
        while (deadline := self.shard.next_deadline) is not None and deadline <= self._now:
            self._take(self.shard.on_time(self._now))
        self._take(self.shard.receive(message, self._now))

    def _take(self, replies: Sequence[Reply]) -> None:
        for reply in replies:
            assert self.waiting.pop(reply.worker) == reply.iteration, "answered once, and who asked"
            self.answers.append((reply.worker, reply.iteration, reply.clock, len(self.steps)))
            self._version[reply.worker] = reply.version
            self.iteration[reply.worker] = max(reply.iteration + 1, reply.clock)
