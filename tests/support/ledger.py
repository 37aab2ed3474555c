"""A small run with servers, whose parameters count how often each gradient was applied.

The gradient of worker w in iteration i is 1 at place (w, i) of every shard, and a step subtracts
the sum: the parameters are minus the number of times that each gradient is in them.
"""

from __future__ import annotations

import random
from collections import defaultdict
from functools import partial

import torch

from outpace.kernel import Kernel, Mailbox
from outpace.optim import Sgd
from outpace.predict.interface import Wait
from outpace.predict.rules.baselines import Fixed
from outpace.support.units import nanoseconds, seconds
from outpace.sync.checkpoint.cuts import Cuts, place_of
from outpace.sync.checkpoint.state import scheduler_state
from outpace.sync.messages import SCHEDULER, Lost, server_name, worker_name
from outpace.sync.parameter_block import PhantomBlock, parameter_block
from outpace.sync.programs.context import Stopped
from outpace.sync.programs.cutoff import CutOffWorker, cut_off
from outpace.sync.programs.parameter_server import parameter_server, parameter_server_worker
from outpace.sync.programs.partial_pull import PartialPull
from outpace.sync.shard import Shard


class Observer:
    """Ignores what a shard tells."""

    def __getattr__(self, name):
        return lambda *_: None


class Node:
    """The context of a program: a mailbox that messages reach some time after they are sent."""

    def __init__(self, cluster, name):
        self._cluster, self.name = cluster, name
        cluster.nodes[name] = self
        self.mailbox = Mailbox(cluster.kernel, name)

    @property
    def clock(self):
        return self._cluster.kernel

    @property
    def now(self):
        return self._cluster.kernel.now

    async def recv(self):
        return await self.mailbox.get()

    async def recv_within(self, timeout_s):
        return await self.mailbox.get_within(timeout_s)

    def send(self, to, *messages):
        self._cluster.carry(self, to, messages)

    def refuse(self, message, error):
        raise error


class Server(Node):
    def __init__(self, cluster, name, shard):
        super().__init__(cluster, name)
        self.shard = shard


class Scheduler(Node):
    """The context of a scheduler that cuts iterations off."""

    def __init__(self, cluster):
        super().__init__(cluster, SCHEDULER)

    async def decide(self, decision):
        return decision()

    def iteration_closed(self, *_):
        pass


class Killed(Exception):
    """Ends the program of a worker."""


class Worker(Node):
    """Computes for a random time. Its messages reach the servers that it knows of."""

    dies = None, 0

    def __init__(self, cluster, worker, first):
        super().__init__(cluster, worker_name(worker))
        self.worker, self.first_iteration = worker, first
        self.servers = [server_name(server) for server in range(len(cluster.shards))]
        self.computed, self.sent = -1, 0  # iteration, messages in it
        self.known = dict(cluster.nodes)

    async def recv_several(self, count):
        return [await self.recv()]

    def recv_nowait(self):
        return self.mailbox.get_nowait()

    def initial_parameters(self):
        return [shard.read() for shard in self._cluster.shards]

    def coin(self, iteration):
        return random.Random(f"{self.worker} {iteration}").random()

    def must_stop(self, iteration):
        return iteration >= self._cluster.iterations

    def send(self, to, *messages):
        for message in messages:
            self._die_if_due()
            self.sent += 1
            super().send(to, message)

    def _die_if_due(self):
        if (self.computed, self.sent) == tuple(self.dies):
            raise Killed

    async def execute(self, parameters, iteration):
        return await self.execute_until(parameters, iteration, None)

    async def execute_until(self, parameters, iteration, ends_it):
        cluster, self.computed, self.sent = self._cluster, iteration, 0
        until = cluster.kernel.now + nanoseconds(cluster.random.lognormvariate(-3, 0.7))
        if ends_it is None:
            await cluster.kernel.sleep(seconds(until - cluster.kernel.now))
        else:
            while message := await self.recv_within(seconds(max(0, until - cluster.kernel.now))):
                if ends_it(message):
                    return Stopped(0.5)
        gradient = torch.zeros(cluster.workers, cluster.iterations, dtype=torch.float64)
        gradient[self.worker, iteration] = 1.0
        return [gradient.flatten().clone() for _ in self.servers]

    def iteration_finished(self, *_):
        self._die_if_due()


async def _cut_off(program, me):
    await program(CutOffWorker(me))


class Ledger:
    """The run. `run()` drives it to its end, or to a time in seconds.

    Args:
        states: of the shards that it goes on from; `first`: the first iterations of the workers.
        dies: a worker, an iteration, and the number of messages of that iteration after which the
            worker is killed; a new process takes its place 50 ms later.
    Attributes:
        cuts: of each server; `saved`: number of a request -> server -> state.
    """

    def __init__(
        self,
        policy,
        *,
        workers=3,
        servers=2,
        iterations=8,
        seed=0,
        states=None,
        first=None,
        dies=None,
    ):
        self.kernel, self.random = Kernel(tie_seed=seed), random.Random(seed)
        self.workers, self.iterations, self.nodes = workers, iterations, {}
        self.saved, self.missed, self.policy = defaultdict(dict), [], policy
        self._arrivals = {}
        self.shards = [self.new_shard(server, policy) for server in range(servers)]
        for shard, state in zip(self.shards, states or (), strict=False):
            shard.restore(state, 0)
        self.cuts = [self._cuts(server) for server in range(servers)]
        for server in range(servers):
            self._serve(server)
        self.scheduler = None
        if policy.scheduler is not None:
            block = PhantomBlock(0)
            self.scheduler = Shard(servers, block, workers, policy.scheduler, Observer())
            if states:
                self.scheduler.restore(scheduler_state(states), 0)
            node = Server(self, SCHEDULER, self.scheduler)
            self.kernel.spawn(parameter_server(node), SCHEDULER, daemon=True)
        elif policy.cut_off is not None:
            rule = Fixed(Wait(count=workers - 1))
            ends = cut_off(Scheduler(self), rule, workers, servers, first[0] if first else 0)
            self.kernel.spawn(ends, SCHEDULER, daemon=True)
        program = policy.worker_program(workers, None) or partial(
            parameter_server_worker, pull=PartialPull(quorum_percent=100)
        )
        if policy.cut_off is not None:
            program = partial(_cut_off, program)
        self._program = program
        for worker in range(workers):
            self._start(worker, first and first[worker])
        if dies is not None:
            worker, *self.nodes[worker_name(worker)].dies = dies

    def _serve(self, server):
        node = Server(self, server_name(server), self.shards[server])
        program = partial(parameter_server, acknowledge=self.policy.acknowledges)
        self.kernel.spawn(program(node, after_each=self.cuts[server].look), node.name, daemon=True)

    def _start(self, worker, first):
        node = Worker(self, worker, first)
        self.kernel.spawn(self._live(node), node.name)

    async def _live(self, node):
        try:
            await self._program(node)
        except Killed:
            await self.kernel.sleep(0.05)
            await self._replace(node)

    async def _replace(self, dead):
        """The coordinator tells all that a process is lost, asks for its watermarks, starts one."""
        del self.nodes[dead.name]  # nothing that it has sent arrives from now on
        waiting = [node for node in self.nodes.values() if not isinstance(node, Worker)]
        for node in waiting:
            node.mailbox.put(Lost(dead.worker, stays=True))
        await self.kernel.sleep(0.001)
        shards = [*self.shards, *([self.scheduler] if self.scheduler else [])]
        self._start(
            dead.worker, max(max(1 + each.watermark(dead.worker), each.clock) for each in shards)
        )

    def new_shard(self, server, policy):
        zeros = torch.zeros(self.workers * self.iterations, dtype=torch.float64)
        return Shard(server, parameter_block(zeros, Sgd(lr=1.0)), self.workers, policy, Observer())

    def _cuts(self, server):
        return Cuts(
            lambda: place_of(self.shards[server]),
            lambda number: self.saved[number].update({server: self.shards[server].state()}),
            lambda number, clock: self.missed.append((number, server, clock)),
        )

    def carry(self, sender, to, messages):
        """Deliver messages after a random time, in order, if both ends are still the same."""
        for message in messages:
            if getattr(message, "parameters", None) is not None:
                message.parameters = message.parameters.clone()
            due = self.kernel.now + nanoseconds(self.random.uniform(0.001, 0.02))
            last = self._arrivals.get((sender.name, to), 0)
            due = self._arrivals[sender.name, to] = max(due, last + 1)
            known = sender.known if isinstance(sender, Worker) else self.nodes
            self.kernel.call_at(due, partial(self._deliver, sender, known.get(to)), message)

    def _deliver(self, sender, receiver, message):
        if receiver is not None and {sender, receiver} <= set(self.nodes.values()):
            receiver.mailbox.put(message)

    def run(self, until_s=None):
        self.kernel.run(None if until_s is None else nanoseconds(until_s))
        return self

    def counts(self):
        """How often each gradient is in the parameters. Shape (servers, workers, iterations)."""
        counts = torch.stack([-shard.read() for shard in self.shards])
        return counts.reshape(len(self.shards), self.workers, self.iterations).round().int()
