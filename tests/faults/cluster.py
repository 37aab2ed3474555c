"""A simulated cluster: its processes, its faults, and one run of it."""

from __future__ import annotations

import random
from dataclasses import replace
from functools import partial
from typing import Any

import torch
from tests.faults.coordinator import DETECTED_S, Coordinator
from tests.faults.oracle import Oracle, Violation
from tests.faults.processes import (
    Judge,
    Network,
    Process,
    SchedulerProcess,
    ServerProcess,
    WorkerProcess,
)
from tests.faults.scenario import KNOWN, LEASE_S, Fault, Scenario

from outpace.kernel import DeadlockError, Future, Kernel
from outpace.optim import Sgd
from outpace.predict.interface import Wait
from outpace.predict.rules.baselines import Fixed
from outpace.support.units import nanoseconds
from outpace.sync.checkpoint.state import ShardState, scheduler_state
from outpace.sync.membership.fence import Fence
from outpace.sync.messages import SCHEDULER, server_name, worker_name
from outpace.sync.parameter_block import PhantomBlock, parameter_block
from outpace.sync.programs.cutoff import CutOffWorker, cut_off
from outpace.sync.programs.overlapping import overlapping_worker
from outpace.sync.programs.parameter_server import parameter_server, parameter_server_worker
from outpace.sync.shard import Shard

LIMIT_S = 60.0  # of virtual time; without failures a run takes about one second
UNKILLABLE_S = 0.05  # after it continues, of a process that could not be killed meanwhile


class Silent:
    """Ignores what a shard tells."""

    def __getattr__(self, name: str) -> Any:
        return lambda *_: None


class Cluster:
    """One run of a scenario."""

    def __init__(self, scenario: Scenario) -> None:
        self.scenario, self.strategy = scenario, KNOWN[scenario.strategy]
        self.policy = self.strategy.policy(scenario.workers)
        self.kernel = Kernel(tie_seed=scenario.seed)
        self.draw = random.Random(scenario.seed)
        self.oracle = Oracle(scenario)
        self.network = Network(self, random.Random(-1 - scenario.seed))
        self.processes: dict[str, Process] = {}  # the present ones
        self.generation = 0
        self._late: list[Fault] = []  # that strike when a worker finishes
        self.over: Future[None] = Future(self.kernel, "the end of the run")
        self.coordinator = Coordinator(self)

    def run(self) -> None:
        """Drive it to its end. Raises Violation, or whatever a program raised."""
        self.coordinator.begin(None)
        for fault in self.scenario.faults:
            if fault.kind == "late":
                self._late.append(replace(fault, kind="server"))
            else:
                self.kernel.call_at(nanoseconds(fault.at_s), self._strike, fault)
        self.kernel.spawn(self._supervise(), "the coordinator")
        try:
            self.kernel.run(nanoseconds(LIMIT_S))
            if not self.over.done:
                raise Violation(f"no progress: {self._waiting()}")
        except DeadlockError as error:
            raise Violation(f"no progress: {self._waiting()}; {error}") from error
        finally:
            self.kernel.close()
        result = self.coordinator.result
        self.oracle.end([result[server] for server in range(self.scenario.servers)])

    async def _supervise(self) -> None:
        await self.over

    def _waiting(self) -> str:
        shards = [each.shard for each in self.processes.values() if isinstance(each, ServerProcess)]
        return "; ".join(filter(None, (shard.describe_waiting() for shard in shards)))

    # -- processes -----------------------------------------------------------------

    def peer(self, sender: Process, to: str) -> Process | None:
        """Return the process that a message goes to; None: the sender knows of none."""
        if isinstance(sender, WorkerProcess):
            return sender.connected.get(to)
        process, fence = self.processes.get(to), sender.fences.get(to)
        if process is None or (fence is not None and fence.generation != process.generation):
            return None
        return process

    @property
    def judges(self) -> list[Judge]:
        return [each for each in self.processes.values() if isinstance(each, Judge)]

    def start_servers(self, states: list[ShardState] | None) -> None:
        """Start all servers, and the scheduler."""
        for server in range(self.scenario.servers):
            self.start_server(server, None if states is None else states[server])
        workers, servers = self.scenario.workers, self.scenario.servers
        if self.policy.scheduler is not None:
            block = PhantomBlock(0)
            shard = Shard(servers, block, workers, self.policy.scheduler, Silent())
            if states:
                shard.restore(scheduler_state(states), self.kernel.now)
            process = ServerProcess(self, SCHEDULER, self.generation, shard)
            process.run(parameter_server(process))
            self.processes[SCHEDULER] = process
        elif self.policy.cut_off is not None:
            scheduler = SchedulerProcess(self, SCHEDULER, self.generation)
            rule, first = Fixed(Wait(count=max(1, workers - 1))), states[0].clock if states else 0
            scheduler.run(cut_off(scheduler, rule, workers, servers, first))
            self.processes[SCHEDULER] = scheduler

    def start_server(self, server: int, state: ShardState | None) -> None:
        scenario, name = self.scenario, server_name(server)
        zeros = torch.zeros(scenario.workers * scenario.iterations, dtype=torch.float64)
        block = parameter_block(zeros, Sgd(lr=1.0, momentum=self.strategy.momentum))
        shard = Shard(server, block, scenario.workers, self.policy, Silent())
        if state is not None:
            shard.restore(state, self.kernel.now)
        process = ServerProcess(self, name, self.generation, shard)
        acknowledge = self.policy.acknowledges
        process.run(
            parameter_server(
                process,
                acknowledge=acknowledge,
                after_each=process.cuts.look,
            )
        )
        self.processes[name] = process

    def start_worker(self, worker: int, generation: int, first: int | None) -> None:
        process = WorkerProcess(self, worker, generation, first)
        process.connected = {judge.name: judge for judge in self.judges}
        for judge in process.connected.values():
            judge.fences.setdefault(process.name, Fence(generation))
            process.fences[judge.name] = Fence(judge.generation)
        self.processes[process.name] = process
        process.run(self._live(process))

    async def _live(self, process: WorkerProcess) -> None:
        workers, cut_offs = self.scenario.workers, self.policy.cut_off is not None
        program: Any = self.policy.worker_program(workers, None) or partial(
            parameter_server_worker,
            pull=self.strategy.pull,
            skip=self.strategy.skip,
            seed=self.scenario.seed,
        )
        if self.strategy.overlaps:
            program = partial(overlapping_worker, pull=self.strategy.pull)
        me: Any = process
        self.coordinator.hears(process, partial(self.coordinator.began, process))
        await program(CutOffWorker(me) if cut_offs else me)
        await process.awake()
        if self._late:
            fault = self._late.pop()
            self._later(fault.for_s / 100, self._strike, fault)
        self.coordinator.hears(process, partial(self.coordinator.finished, process))
        while not process.may_end:
            await process.recv_within(0.01)
        process.alive = False

    # -- faults --------------------------------------------------------------------

    def _strike(self, fault: Fault) -> None:
        if self.over.done:
            return
        if fault.kind == "launcher":
            self.coordinator.restart_all()
            return
        if fault.kind == "slow":
            self.network.slow_until = self.kernel.now + nanoseconds(fault.for_s)
            return
        if fault.kind == "both":
            server = fault.node % self.scenario.servers
            self._strike(replace(fault, kind="crash"))
            self._later(fault.for_s / 20, self._strike, replace(fault, kind="server", node=server))
            return
        is_server = "server" in fault.kind
        process = self.processes.get((server_name if is_server else worker_name)(fault.node))
        if process is None or not process.alive:
            return
        until = self.kernel.now + nanoseconds(fault.for_s)
        match fault.kind:
            case "crash":
                process.end(drops=not fault.flag)
                self._later(DETECTED_S, self.coordinator.lost, process)
            case "server":
                process.end()
                self._later(DETECTED_S, self.coordinator.lost, process)
            case "lose" | "repeat" | "lose last" | "overtake":
                self.network.tampers[process.name] = fault.kind
            case "freeze" | "freeze server":
                process.freeze()
                if fault.flag and not is_server:
                    process.killable_at = until + nanoseconds(UNKILLABLE_S)
                self._later(fault.for_s, lambda _: process.thaw())
                self._silent(process, fault.for_s)
            case "partition":
                process.killable_at = until + nanoseconds(UNKILLABLE_S)
                self.network.partitions[process] = until
                self._silent(process, fault.for_s)

    def _silent(self, process: Process, for_s: float) -> None:
        if for_s > LEASE_S:
            self._later(LEASE_S, self.coordinator.lost, process)

    def _later(self, delay_s: float, function: Any, argument: Any = None) -> None:
        self.kernel.call_at(self.kernel.now + nanoseconds(delay_s), function, argument)
