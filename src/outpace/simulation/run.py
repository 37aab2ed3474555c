"""A run in virtual time with servers: real gradients on a simulated cluster.

Connects the programs of servers and workers with the kernel, the network, the shards and the
laws of the cluster. Nothing here decides about synchronization.
"""

from __future__ import annotations

import itertools
import warnings
from collections.abc import Callable, Coroutine, Sequence
from functools import partial
from typing import Any

import numpy as np

from outpace.blocks.block import Block
from outpace.cluster import RunTime
from outpace.config.experiment import Experiment
from outpace.engine.cut_offs import cut_off_rule
from outpace.engine.servers import scheduler_shard, server_program, worker_program
from outpace.errors import ProtocolError
from outpace.kernel import Kernel
from outpace.predict.fitting import FittingAtOnce
from outpace.predict.interface import Model, Rule
from outpace.predict.recorded.table import Seconds
from outpace.predict.rules.settings import CutOffSettings
from outpace.record.recorder import Totals
from outpace.simulation.computing import Computing, run_time_of
from outpace.simulation.control import SimulationControl
from outpace.simulation.network.network import Network
from outpace.simulation.service import Service
from outpace.simulation.virtual import VirtualRun
from outpace.support.randomness import RandomStream
from outpace.support.units import Time, nanoseconds, seconds
from outpace.sync.messages import (
    SCHEDULER,
    Leave,
    Message,
    Reply,
    server_name,
    size_bytes,
    worker_name,
)
from outpace.sync.parameter_block import parameter_block
from outpace.sync.programs.context import Stopped
from outpace.sync.programs.cutoff import cut_off
from outpace.sync.programs.parameter_server import parameter_server
from outpace.sync.shard import Shard
from outpace.tasks import CuttableWorkload


class Simulation(VirtualRun):
    """A run with servers. Implements `Engine`."""

    def _set_up(self, experiment: Experiment, workload: CuttableWorkload) -> None:
        self._followed = experiment.policies.initial()
        self._shards = [
            Shard(
                server,
                parameter_block(block, self._optimizer, layers=self._layers_of[server]),
                experiment.workers,
                self._followed[server].policy,
                self.recorder,
            )
            for server, block in enumerate(workload.initial_parameters())
        ]
        self._scheduler = scheduler_shard(experiment, self.recorder)
        self._fitting: FittingAtOnce | None = None
        self._leaves = 0
        self._spawn()

    def run_time_model(self) -> Model | None:
        return None if self._fitting is None else self._fitting.model

    @property
    def totals(self) -> Totals:
        totals = super().totals
        totals.messages -= self._leaves
        return totals

    def parameters(self) -> list[Block]:
        return [shard.read() for shard in self._shards]

    @property
    def updates(self) -> int:
        return self._shards[0].version

    @property
    def _changes(self) -> list[int]:
        return [shard.version for shard in self._shards]

    def _waiting(self) -> list[str]:
        return [text for shard in self._all_shards if (text := shard.describe_waiting())]

    def _abandon(self) -> None:
        for shard in self._all_shards:
            shard.close(self.kernel.now)

    @property
    def _all_shards(self) -> list[Shard]:
        """The shards of the servers and of the scheduler, if there is one."""
        return self._shards if self._scheduler is None else [*self._shards, self._scheduler]

    # -- wiring ----------------------------------------------------------------

    def _spawn(self) -> None:
        experiment = self.experiment
        run_time = run_time_of(experiment)
        servers = [server_name(server) for server in range(experiment.servers)]
        serve = server_program(experiment)
        timed = experiment.push_time is not None or experiment.pull_time is not None
        nodes = [
            (_TimedServer if timed else _Server)(self, name, shard)
            for name, shard in zip(servers, self._shards, strict=True)
        ]
        # Before anything starts: a later policy or the rule may turn out to be impossible.
        self._control = SimulationControl(
            experiment,
            self.kernel,
            self._followed,
            [node.mailbox for node in nodes],
            lambda: self.totals,
        )
        settings = experiment.cut_off
        rule = None if settings is None else self._rule(settings, run_time)
        for name, node in zip(servers, nodes, strict=True):
            self.kernel.spawn(serve(node), name, daemon=True)
        if self._scheduler is not None:
            scheduler = _Server(self, SCHEDULER, self._scheduler)
            self.kernel.spawn(parameter_server(scheduler), SCHEDULER, daemon=True)
        elif rule is not None:
            ends = cut_off(_CutOffScheduler(self), rule, experiment.workers, experiment.servers)
            self.kernel.spawn(ends, SCHEDULER, daemon=True)
        train = worker_program(experiment)
        for index in range(experiment.workers):
            worker = _Worker(self, index, servers, run_time)
            self.kernel.spawn(train(worker), worker_name(index))
        self._start_evaluations()

    def _rule(self, settings: CutOffSettings, run_time: RunTime) -> Rule:
        """Return the rule that says when iterations are cut off."""
        experiment = self.experiment
        iterations = itertools.count()

        def truth() -> Seconds:
            """Return the run times of all workers in the iteration that begins now."""
            iteration, now = next(iterations), self.kernel.now
            times = [run_time(worker, iteration, now) for worker in range(experiment.workers)]
            return np.array(times)

        if settings.fitted_in_run:
            self._fitting = FittingAtOnce(settings.model, experiment.seed)
        return cut_off_rule(experiment, settings, say=_warn, fitting=self._fitting, truth=truth)


class _Node:
    """What the contexts of servers, workers and the scheduler have in common."""

    def __init__(self, kernel: Kernel, network: Network, name: str) -> None:
        self._kernel, self._network, self._name = kernel, network, name
        self.mailbox = mailbox = network.add(name)
        self.recv: Callable[[], Coroutine[Any, Any, Message]] = mailbox.get
        self.recv_within: Callable[[float], Coroutine[Any, Any, Message | None]]
        self.recv_within = mailbox.get_within

    @property
    def now(self) -> Time:
        return self._kernel.now

    def send(self, to: str, *messages: Message) -> None:
        for message in messages:
            self._network.send(self._name, to, message, size_bytes(message))

    def refuse(self, message: Message, error: ProtocolError) -> None:
        raise error


class _Server(_Node):
    """The context of a server's program."""

    def __init__(self, simulation: Simulation, name: str, shard: Shard) -> None:
        super().__init__(simulation.kernel, simulation.network, name)
        self.shard = shard


class _TimedServer(_Server):
    """The context of a server that needs time for each push and pull."""

    def __init__(self, simulation: Simulation, name: str, shard: Shard) -> None:
        super().__init__(simulation, name, shard)
        experiment = simulation.experiment
        self._service = Service(
            self._kernel,
            self.mailbox,
            experiment.seed,
            shard.index,
            experiment.push_time,
            experiment.pull_time,
        )
        self.recv, self.recv_within = self._service.next, self._service.next_within

    def send(self, to: str, *messages: Message) -> None:
        for message in messages:
            if isinstance(message, Reply):
                self._service.answer(message, partial(super().send, to))
            else:
                super().send(to, message)


class _CutOffScheduler(_Node):
    """The context of the program that cuts iterations off."""

    def __init__(self, simulation: Simulation) -> None:
        super().__init__(simulation.kernel, simulation.network, SCHEDULER)
        self.iteration_closed = simulation.recorder.iteration_closed


class _Worker(Computing, _Node):
    """The context of a worker's program."""

    def __init__(
        self, simulation: Simulation, worker: int, servers: Sequence[str], run_time: RunTime
    ) -> None:
        _Node.__init__(self, simulation.kernel, simulation.network, worker_name(worker))
        Computing.__init__(self, simulation, worker, run_time)
        self.servers = servers
        self.recv_nowait = self.mailbox.get_nowait
        self._simulation = simulation
        self.iteration_finished = partial(self._recorder.iteration_finished, worker)
        seed = simulation.experiment.seed
        self._coins = RandomStream(seed, "coin", worker, lambda source, n: source.random(n))

    def send(self, to: str, *messages: Message) -> None:
        super().send(to, *messages)
        self._simulation._leaves += isinstance(messages[0], Leave)

    def initial_parameters(self) -> list[Block]:
        return self._simulation.parameters()

    def coin(self, iteration: int) -> float:
        return self._coins[iteration]

    async def execute_until(
        self, parameters: Sequence[Block], iteration: int, ends_it: Callable[[Message], bool]
    ) -> Sequence[Block | None] | Stopped:
        kernel, started = self._kernel, self._kernel.now
        duration = nanoseconds(self._run_time(self.worker, iteration, started))
        due = started + duration
        gradient = self._simulation.gradients.submit(parameters, self.worker, iteration, due)
        while message := await self.mailbox.get_within(seconds(max(0, due - kernel.now))):
            if ends_it(message):  # nothing refers to the gradient any more: never computed
                self._simulation.finished_step()
                layers = self._simulation.layers  # a real worker stops between two layers
                return Stopped((kernel.now - started) * layers // max(1, duration) / layers)
        self._has_computed()
        return gradient


def _warn(text: str) -> None:
    warnings.warn(text, RuntimeWarning, stacklevel=2)
