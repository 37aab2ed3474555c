"""Cut-offs over several shards, whatever overtakes what: the same gradients count everywhere.

Messages of one sender to one shard keep their order, all others come in any. Worker w's gradient
of iteration i is 4^i at place w, added up undivided with a rate of 1: the parameters, written in
base 4, say which gradients are in them and how often.
"""

from __future__ import annotations

from collections import deque

import pytest
import torch
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    rule,
    run_state_machine_as_test,
)

from outpace.optim import Sgd
from outpace.sync import CutOff, Scale
from outpace.sync.messages import Close, Leave, Pull, Push
from outpace.sync.observer import Outcome
from outpace.sync.parameter_block import parameter_block
from outpace.sync.shard import Shard
from outpace.testing.shard_driver import Account

MOST = 12  # iterations: 4^12 is exact in float64
any_of = st.integers(0, 10**6)
SCHEDULER = -1


class Worker:
    def __init__(self, shards: int) -> None:
        self.iteration = 0
        self.is_computing = True
        self.aborted = -1  # the last iteration of which it knows that it is over
        self.read = [0] * shards  # versions
        self.clock = 0  # the highest that it was told
        self.answered: set[int] = set()  # shards, of its pull
        self.has_left = False


class CutOffs(RuleBasedStateMachine):
    """Workers continue when `quorum` shards have answered (partial pull)."""

    @initialize(workers=st.integers(2, 4), shards=st.integers(1, 3), data=st.data())
    def begin(self, workers, shards, data):
        self.now = 0
        self.quorum = data.draw(st.integers(1, shards))
        self.accounts = [Account() for _ in range(shards)]
        self.shards = [
            Shard(
                n,
                parameter_block(torch.zeros(workers, dtype=torch.float64), Sgd(lr=1.0)),
                workers,
                CutOff(scale=Scale.SUM),
                account,
            )
            for n, account in enumerate(self.accounts)
        ]
        self.workers = [Worker(shards) for _ in range(workers)]
        self.channels = {
            (who, shard): deque() for who in range(-1, workers) for shard in range(shards)
        }
        self.words: list[tuple[int, int]] = []  # on their way: this worker has that gradient
        self.aborts: list[tuple[int, int]] = []  # on their way: to this worker, of that iteration
        self.named: list[set[int]] = []  # by iteration that was closed
        self.arrived = [set() for _ in range(shards)]  # worker and iteration of pushes
        self.done: set[int] = set()  # with a gradient of the open one, as the scheduler knows

    @rule(
        what=st.sampled_from(
            ["finish", "finish", "hear", "close", "abort", "arrive", "arrive", "leave"]
        ),
        picks=st.lists(any_of, min_size=1, max_size=12),
    )
    def happen(self, what, picks):
        """One rule for all, so that there is no run in which some of them never come."""
        for pick in picks if what != "leave" else ():
            getattr(self, what)(pick)
        if what == "leave" and sum(picks) % 8 == 0:
            self.leave(picks[0])

    # -- what workers do -------------------------------------------------------------------

    @property
    def computing(self):
        return [n for n, each in enumerate(self.workers) if each.is_computing]

    def finish(self, pick):
        if self.computing and len(self.named) < MOST:
            worker = self.computing[pick % len(self.computing)]
            self.words.append((worker, self.workers[worker].iteration))
            self.push(worker, aborted=False)

    def push(self, worker, *, aborted):
        me = self.workers[worker]
        me.is_computing, me.answered = False, set()
        for shard, version in enumerate(me.read):
            gradient = torch.zeros(len(self.workers), dtype=torch.float64)  # a shard may keep it
            gradient[worker] = 4.0**me.iteration
            push = Push(worker, me.iteration, version, None if aborted else gradient)
            self.channels[worker, shard] += [push, Pull(worker, me.iteration)]

    def go_on(self, worker):
        me = self.workers[worker]
        me.iteration, me.is_computing = max(me.iteration + 1, me.clock), True
        if me.iteration <= me.aborted:  # told while it waited
            self.push(worker, aborted=True)

    def leave(self, pick):
        worker = pick % len(self.workers)
        if self.workers[worker].has_left:
            return
        self.workers[worker].has_left, self.workers[worker].is_computing = True, False
        for shard in range(len(self.shards)):
            self.channels[worker, shard].append(Leave(worker))

    # -- what the scheduler does -----------------------------------------------------------

    def hear(self, pick):
        if self.words:
            worker, iteration = self.words.pop(pick % len(self.words))
            if iteration == len(self.named):  # else it comes too late
                self.done.add(worker)

    def close(self, pick):
        if not self.done:  # nothing ends before somebody has come
            self.hear(pick)
            return
        iteration, named = len(self.named), self.done
        self.named.append(named)
        self.done = set()
        for shard in range(len(self.shards)):
            close = Close(iteration, sorted(named), pick % len(self.workers))
            self.channels[SCHEDULER, shard].append(close)
        self.aborts += [(n, iteration) for n in range(len(self.workers)) if n not in named]

    def abort(self, pick):
        if not self.aborts:
            return
        worker, iteration = self.aborts.pop(pick % len(self.aborts))
        me = self.workers[worker]
        me.aborted = max(me.aborted, iteration)
        if me.is_computing and me.iteration <= me.aborted:
            self.push(worker, aborted=True)

    # -- what arrives -------------------------------------------------------------------------

    def arrive(self, pick):
        waiting = [key for key, channel in self.channels.items() if channel]
        if waiting:
            self.take(*waiting[pick % len(waiting)])

    def take(self, sender, shard):
        self.now += 1
        message = self.channels[sender, shard].popleft()
        if isinstance(message, Push):
            self.arrived[shard].add((message.worker, message.iteration))
        for reply in self.shards[shard].receive(message, self.now):
            self.answer(shard, reply)

    def answer(self, shard, reply):
        me = self.workers[reply.worker]
        assert reply.clock > reply.iteration  # never before that iteration was closed
        assert len(self.named) > reply.iteration
        me.read[shard], me.clock = reply.version, max(me.clock, reply.clock)
        if reply.iteration != me.iteration or me.is_computing or me.has_left:
            return  # late: it has continued without
        me.answered.add(shard)
        if len(me.answered) == self.quorum:
            self.go_on(reply.worker)

    # -- what is always true ----------------------------------------------------------------

    def applied(self, shard):
        """By iteration: whose gradients are in the parameters, as often as they are."""
        found = [[] for _ in range(MOST + 1)]
        for worker, value in enumerate((-self.shards[shard].read()).tolist()):
            number = int(value)
            assert number == value >= 0
            for iteration in found:
                number, times = divmod(number, 4)
                iteration += [worker] * times
            assert number == 0
        return found

    @invariant()
    def of_every_iteration_exactly_those_named_are_applied_once_and_everywhere(self):
        for number, shard in enumerate(self.shards):
            named = [sorted(workers) for workers in self.named[: shard.clock]]
            nobody = [[]] * (MOST + 1 - shard.clock)
            assert self.applied(number) == named + nobody

    @invariant()
    def no_gradient_has_two_fates(self):
        for account in self.accounts:
            settled = [(worker, iteration) for worker, iteration, _, _ in account.settled]
            assert len(set(settled)) == len(settled)
            for worker, iteration, outcome, _ in account.settled:
                if outcome is Outcome.APPLIED:
                    assert worker in self.named[iteration]
                elif outcome is Outcome.DROPPED:
                    assert worker not in self.named[iteration]

    def teardown(self):
        """After all messages have arrived, no pull and no gradient of a closed iteration waits."""
        if not hasattr(self, "shards"):
            return
        while any(self.channels.values()):
            self.arrive(0)
        self.of_every_iteration_exactly_those_named_are_applied_once_and_everywhere()
        for shard, account, arrived in zip(self.shards, self.accounts, self.arrived, strict=True):
            clock = shard.clock
            assert clock == len(self.named) or not shard.live
            settled = {(worker, iteration) for worker, iteration, _, _ in account.settled}
            assert settled >= {(worker, number) for worker, number in arrived if number < clock}
            for worker, each in enumerate(self.workers):
                waits = f"worker {worker} (iteration {each.iteration}) until"
                assert each.iteration >= clock or waits not in shard.describe_waiting()


@pytest.mark.stateful
def test_the_same_gradients_count_at_all_shards():
    run_state_machine_as_test(
        CutOffs,
        settings=settings(
            max_examples=80,
            stateful_step_count=60,
            phases=[Phase.generate],  # add Phase.shrink for a short example
            suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
        ),
    )
