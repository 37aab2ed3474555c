"""Drives one shard as workers would, legally, in any order; keeps account of everything.

Gradients are one-hot integers in float64, so sums are exact and what was applied can be
read off the parameters.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import torch

from outpace.optim import Sgd
from outpace.sync import Policy
from outpace.sync.messages import (
    Close,
    FromWorker,
    Leave,
    Pause,
    Pull,
    Push,
    Reply,
    SetPolicy,
)
from outpace.sync.observer import NO_WORKER, Outcome
from outpace.sync.parameter_block import parameter_block
from outpace.sync.shard import Shard


@dataclass
class Account:
    """A `ShardObserver` that remembers."""

    settled: list[tuple[int, int, Outcome, int]] = field(default_factory=list)
    answered: list[tuple[int, int, int, int]] = field(default_factory=list)
    abandoned: list[tuple[int, int]] = field(default_factory=list)
    versions: list[int] = field(default_factory=list)

    def push_settled(self, shard, push, arrived, settled, outcome, staleness):
        assert arrived <= settled
        self.settled.append((push.worker, push.iteration, outcome, staleness))

    def pull_answered(self, reply, arrived, decision, released_by):
        assert reply.held >= 0
        assert (decision.release_clock is None) == (released_by == NO_WORKER)
        self.answered.append((reply.worker, reply.iteration, reply.clock, released_by))

    def pull_abandoned(self, shard, pull, arrived, decision):
        self.abandoned.append((pull.worker, pull.iteration))

    def updated(self, version):
        self.versions.append(version)


class Driver:
    """`workers` that push, pull, wait for the answer, and continue."""

    def __init__(self, policy: Policy, workers: int, size: int = 3) -> None:
        self.policy, self.workers, self.size = policy, workers, size
        self.account = Account()
        block = parameter_block(torch.zeros(size, dtype=torch.float64), Sgd(lr=1.0))
        self.shard = Shard(0, block, workers, policy, self.account, self.account.updated)
        self.now = 0
        self.iteration = [0] * workers  # the one to compute next
        self.watermark = [-1] * workers  # the last one pushed: an answer may skip iterations
        self.version = [0] * workers
        self.waiting: dict[int, int] = {}  # worker -> iteration of its pull
        self.gone: set[int] = set()
        self.paused: set[int] = set()
        self.pushed: list[tuple[int, int]] = []  # with a gradient
        self.withheld: list[tuple[int, int]] = []  # pushes that the worker chose not to send
        self.replies: list[Reply] = []

    def free(self) -> list[int]:
        busy = {*self.waiting, *self.gone, *self.paused}
        return [n for n in range(self.workers) if n not in busy]

    def gradient(self, worker: int, iteration: int) -> torch.Tensor:
        gradient = torch.zeros(self.size, dtype=torch.float64)
        gradient[(worker + iteration) % self.size] = 1 + worker + 7 * iteration
        return gradient

    def step(
        self,
        worker: int,
        *,
        abstain: bool = False,
        withhold: bool = False,
        skip: int = 0,
        pull: bool = True,
    ) -> None:
        """The worker finishes an iteration: push, and pull unless it chooses not to."""
        iteration = self.iteration[worker] + skip
        gradient = None if abstain or withhold else self.gradient(worker, iteration)
        if gradient is not None:
            self.pushed.append((worker, iteration))
        elif withhold:
            self.withheld.append((worker, iteration))
        self.iteration[worker] = self.watermark[worker] = iteration
        self.send(Push(worker, iteration, self.version[worker], gradient, skipped=withhold))
        if not pull:
            self.iteration[worker] = iteration + 1
            return
        self.waiting[worker] = iteration
        self.send(Pull(worker, iteration, coin=(0.37 * worker + 0.61 * iteration) % 1))

    def repeat(self, worker: int) -> None:
        """The network delivers the worker's last push a second time."""
        watermark = self.watermark[worker]
        if watermark >= 0 and worker not in self.gone:
            gradient = self.gradient(worker, watermark)
            self.send(Push(worker, watermark, self.version[worker], gradient))

    def leave(self, worker: int) -> None:
        self.gone.add(worker)
        self.send(Leave(worker))

    def pause(self, worker: int) -> None:
        self.paused.add(worker)
        self.send(Pause(worker))

    def resume(self, worker: int) -> None:
        self.paused.remove(worker)
        self.send(Pause(worker, over=True))

    def send(self, message: FromWorker | SetPolicy | Close) -> None:
        self.now += 1
        while (deadline := self.shard.next_deadline) is not None and deadline <= self.now:
            self.take_all(lambda: self.shard.on_time(self.now))
        self.take_all(lambda: self.shard.receive(message, self.now))

    def wait(self) -> bool:
        """Let time pass until the shard does something of itself. False: it never will."""
        deadline = self.shard.next_deadline
        if deadline is None:
            return self.close()
        self.now = max(self.now, deadline)
        self.take_all(lambda: self.shard.on_time(self.now))
        assert self.shard.next_deadline != deadline, "time moves it on"
        return True

    def close(self) -> bool:
        """With a policy that has a cut-off: end the iteration with all workers that have pushed."""
        if not getattr(self.policy, "cut_off", False) or not self.waiting:
            return False
        iteration = self.shard.clock
        came = [worker for worker, pushed in self.pushed if pushed == iteration]
        self.send(Close(iteration, came))
        return True

    def take_all(self, act: Callable[[], list[Reply]]) -> None:
        clock, version = self.shard.clock, self.shard.version
        replies = act()
        assert self.shard.clock >= clock
        assert self.shard.version >= version
        for reply in replies:
            self.take(reply)

    def take(self, reply: Reply) -> None:
        assert self.waiting.pop(reply.worker) == reply.iteration, "answered once, and who asked"
        assert reply.clock == self.shard.clock
        assert reply.version == self.shard.version
        self.replies.append(reply)
        self.version[reply.worker] = reply.version
        self.iteration[reply.worker] = max(reply.iteration + 1, reply.clock)

    def applied(self) -> list[tuple[int, int]]:
        return [(w, i) for w, i, outcome, _ in self.account.settled if outcome is Outcome.APPLIED]
