"""`Experiment`, the configuration of a run, as frozen dataclasses.

`__post_init__` checks ranges and contradictions, whether an Experiment is written in Python
or read from plain data by `reading`.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final, Literal

from outpace.blocks.slicing import Slicing, slices_of
from outpace.cluster.faults import Faults
from outpace.cluster.laws import ServiceLaw, wrong_number_of_factors
from outpace.cluster.machines import Machines
from outpace.cluster.network import NetworkLaw
from outpace.cluster.observed import ComputeLaw
from outpace.cluster.service_size import ServiceSize
from outpace.config.checkpoint import Checkpoint
from outpace.config.executors import Auto, Executor
from outpace.config.goals import Evaluate, Stop, Target
from outpace.config.trackers import TrackerKind
from outpace.errors import ConfigError
from outpace.optim import Sgd, UpdaterKind
from outpace.optim.python import PythonOptimizer
from outpace.predict.rules.settings import CutOffSettings
from outpace.support.checks import require
from outpace.sync import PeerStrategy
from outpace.sync.assignment import (
    Policies,
    SyncChange,
    Syncs,
    for_workers,
    strategy_of,
    without_servers,
)
from outpace.sync.conditions import Conditions
from outpace.sync.membership import OnLoss
from outpace.sync.programs.partial_pull import PartialPull
from outpace.sync.programs.skipping import Skips
from outpace.sync.python import PythonStrategy
from outpace.tasks import Quadratic, Script, TaskKind, Timing

SERVICE_TIMES: Final = ("push_time", "pull_time", "update_time", "judge_time")
_MACHINES: Final = ("servers", "workers")
_OF_SERVERS: Final = (
    "servers",
    "sync_changes",
    "conditions",
    "colocate",
    "pull",
    "skip",
    "barrier",
    *SERVICE_TIMES,
    "service_size",
    "slicing",
    "on_server_loss",
)
_NODES: Final = 20_000  # most workers, and servers: 15 kB of memory each, 1 ms per iteration
FORWARD_SHARE: Final = 1 / 3  # one matrix product forward, two backward
_LINKS: Final = 10**6  # most pairs of a worker and a server, which each worker waits for


@dataclass(frozen=True, slots=True, kw_only=True)
class Experiment:
    """The configuration of a run. Raises ValueError where values contradict each other."""

    task: TaskKind
    workers: int
    sync: Syncs
    stop: Stop = field(default_factory=Stop)  # a script needs none
    compute: ComputeLaw | None = None  # None: no delay is added; real runs only
    seed: int = 0
    servers: int = 1
    network: NetworkLaw | None = None  # None: instantaneous
    sync_changes: tuple[SyncChange, ...] = ()
    conditions: tuple[Conditions, ...] = ()
    colocate: bool = False  # server m runs on worker m's machine; in virtual time
    pull: PartialPull | None = None  # None: a worker waits for all servers
    skip: Skips | None = None  # pushes and pulls that workers choose not to send
    # global: a scheduler that sees whole iterations lets workers pull (PS-Lite)
    barrier: Literal["per-server", "global"] = "per-server"
    push_time: ServiceLaw | None = None  # a server's virtual time per push; None: 0
    pull_time: ServiceLaw | None = None  # a server's virtual time per pull; None: 0
    update_time: ServiceLaw | None = None  # more per update; None: 0
    service_size: ServiceSize | None = None  # None: these times are for servers of any size
    # virtual time of each evaluation of a script between two steps; None: 0
    evaluation_time: ServiceLaw | None = None
    # of the computation of a script: when DistributedDataParallel's buckets are ready; virtual time
    forward_share: float = FORWARD_SHARE
    # to judge a pull, which then costs pull_time once, when it is answered; None: that is pull_time
    judge_time: ServiceLaw | None = None
    slicing: Slicing = Slicing.EVEN
    optimizer: UpdaterKind | PythonOptimizer = field(default_factory=Sgd)
    batch_size: int = 32  # per worker
    evaluate: Evaluate = field(default_factory=Evaluate)
    target: Target | None = None  # the report measures the time to reach it
    executor: Executor = field(default_factory=Auto)  # in virtual time only
    # restart: the run goes on from its last checkpoint, with all processes started again
    on_server_loss: Literal["restart", "stop"] = "restart"
    checkpoint: Checkpoint | None = None  # None: the run cannot be resumed
    faults: Faults | None = None  # of the machines, in virtual time
    trackers: tuple[TrackerKind, ...] = ()  # get the configuration and the metrics of the run
    # For real runs; virtual time is always deterministic, and stops at a non-finite gradient.
    deterministic: bool = False  # sum gradients in order of workers, not of arrival
    non_finite: Literal["refuse", "stop"] = "refuse"  # refuse: the push abstains
    on_worker_loss: OnLoss = "restart"  # what is done when a worker's process dies
    probe: bool = True  # measure the network for up to half a second before the run

    def __post_init__(self) -> None:
        require(0 <= self.seed < 2**63, "seed", "from 0 to 2^63 − 1", self.seed)
        share = self.forward_share
        require(0 <= share < 1, "forward_share", "from 0 to 1, and not 1", share)
        limits = (("batch_size", 10**9, "1e9"), *((k, _NODES, f"{_NODES:,}") for k in _MACHINES))
        for key, most, words in limits:
            count = getattr(self, key)
            require(count > 0, key, "at least 1", count)
            require(count <= most, key, f"at most {words}", count)
        self._count_shares()
        contradictions = list(self._contradictions(load=False))
        if contradictions:
            raise ValueError("\n".join(contradictions))

    def _count_shares(self) -> None:
        """Replace shares of the workers by their number, which the configuration of a run has."""
        changes = tuple(change.for_workers(self.workers) for change in self.sync_changes)
        object.__setattr__(self, "sync", for_workers(self.sync, self.workers))
        object.__setattr__(self, "sync_changes", changes)

    @property
    def machines(self) -> Machines:
        """The machines of the run and the nodes on each."""
        has_one = self.peers is None and not isinstance(self.sync, tuple)
        scheduler = has_one and self.policies.strategy.scheduler is not None
        return Machines(self.workers, self.servers_in_run, self.colocate, scheduler)

    @property
    def peers(self) -> PeerStrategy | None:
        """The strategy if it has no servers, else None."""
        if isinstance(self.sync, tuple):
            return None
        strategy = strategy_of(self.sync)
        return strategy if isinstance(strategy, PeerStrategy) else None

    @property
    def accuracies(self) -> dict[str, float]:
        """The target accuracies by configuration key."""
        goal = None if self.target is None else self.target.accuracy
        keys = {"stop.target_accuracy": self.stop.target_accuracy, "target.accuracy": goal}
        return {key: accuracy for key, accuracy in keys.items() if accuracy is not None}

    @property
    def goal(self) -> tuple[float | None, float | None]:
        """The accuracy or the training loss to which the time is measured; None for the other.

        `target` goes before `stop.target_accuracy`.
        """
        if self.target is None:
            return self.stop.target_accuracy, None
        return self.target.accuracy, self.target.loss

    @property
    def decided_by_script(self) -> list[str]:
        """The keys that have no meaning for a script."""
        own = ["optimizer"] if not isinstance(self.optimizer, PythonOptimizer) else []
        return ["batch_size", "evaluate", *own]

    @property
    def policies(self) -> Policies:
        """The policies and conditions of the servers."""
        barrier = self.barrier == "global"
        return Policies(
            self.sync, self.sync_changes, self.conditions, barrier, self.servers, self.workers
        )

    @property
    def cut_off(self) -> CutOffSettings | None:
        """The settings of the cut-off rule, if the policy has one."""
        return None if self.peers is not None else self.policies.strategy.cut_off

    @property
    def servers_in_run(self) -> int:
        """The number of servers; 0 for a strategy without servers."""
        return 0 if self.peers is not None else self.servers

    def load_user_code(self) -> None:
        """Load and check the strategies and conditions in the user's files.

        Raises ConfigError listing all problems.
        """
        contradictions = list(self._contradictions(load=True))
        if contradictions:
            raise ConfigError("\n".join(contradictions))
        if self.peers is None:
            self.policies.initial()
        if self.skip is not None:
            self.skip.load()

    def slices(self, layers: Sequence[int]) -> list[slice]:
        """Return each server's slice of the flat parameter vector.

        layers: sizes of the parameter tensors. Raises ConfigError if a slice would be empty.
        """
        return slices_of(self.slicing, layers, self.servers)

    def optimizer_in_run(self, samples: int | None) -> UpdaterKind | PythonOptimizer:
        """Return the optimizer for this run, with a schedule in iterations.

        samples: number of training samples; None: the task has no data. Raises ConfigError if
        the schedule is in epochs and the task has no data.
        """
        optimizer = self.optimizer
        if isinstance(optimizer, PythonOptimizer):
            return optimizer
        return optimizer.in_run(self.workers, self.batch_size, samples)

    def _left_to_the_script(self) -> Iterator[str]:
        """Yield keys that have no meaning for a script."""
        if self.batch_size != 32:
            yield "batch_size: a script makes its own batches"
        if self.evaluate != Evaluate():
            yield "evaluate: a script evaluates its model itself, and logs it with outpace.log"
        if not isinstance(self.optimizer, PythonOptimizer) and self.optimizer != Sgd():
            yield "optimizer: a script brings its own (only kind: python can replace it)"

    def _excluded(self, load: bool) -> Iterator[str]:
        """Yield keys that cannot be combined with the servers' policies."""
        for key, why in self.policies.excludes(load).items():
            if key == "sync":
                is_given = isinstance(self.sync, tuple)
            elif key.startswith("conditions."):
                which = key.removeprefix("conditions.")
                is_given = any(getattr(each, which) is not None for each in self.conditions)
            else:
                is_given = getattr(self, key) != _USUAL[key]
            if is_given:
                yield f"{key}: {why}"
        if self.skip is not None:
            yield from self._unskippable(self.skip, load)

    def _unskippable(self, skip: Skips, load: bool) -> Iterator[str]:
        """Yield why workers cannot skip these messages."""
        accumulates = skip.push is not None and skip.push.gradient == "accumulate"
        if accumulates and isinstance(self.task, Script):
            yield (
                "skip.push.gradient: accumulate needs a task: the optimizer of a script decides in "
                "each step which parameters have no gradient; use drop"
            )
        if skip.pull is None:
            return
        for policy in self.policies.traits(load):
            if policy.cut_off is not None:
                yield (
                    f"skip.pull: with {policy.kind} all workers compute the same iteration, so "
                    "none may begin the next one without an answer"
                )
            elif self.barrier == "global":
                yield "skip.pull: with barrier: global a worker pulls when the scheduler lets it"
            elif policy.worker_program(self.workers, None) is not None:
                yield f"skip.pull: {policy.kind} has workers of its own, which decide when to pull"

    def _without_servers(self, sync: PeerStrategy) -> Iterator[str]:
        """Yield keys that a strategy without servers cannot have."""
        none = without_servers(sync)
        for key in _OF_SERVERS:
            if getattr(self, key) != _USUAL[key]:
                yield f"{key}: {none}: leave it out; a variant with servers can have it"
        if self.network is not None and self.network.delays:
            yield f"network.delays: {none}, so no push, pull or reply can be late"
        if self.checkpoint is not None and not sync.can_be_saved:
            yield (
                f"checkpoint: what the workers of {sync.kind} keep beside their models cannot be "
                "saved yet; leave it out"
            )
        if self.workers == 1:
            yield f"workers: {sync.kind} needs at least 2 workers, which average among themselves"

    def _contradictions(self, load: bool) -> Iterator[str]:
        if self.stop == Stop() and not isinstance(self.task, Script):
            yield "stop: needs at least one of iterations, virtual_time_s, target_accuracy"
        if isinstance(self.task, Script):
            yield from self._left_to_the_script()
        else:
            if self.evaluation_time is not None:
                yield (
                    "evaluation_time: only a script evaluates its model in a worker's time: remove "
                    "it"
                )
            if self.forward_share != FORWARD_SHARE:
                yield "forward_share: only scripts have gradient buckets: remove it"
        if isinstance(self.task, Timing | Quadratic):
            for key in self.accuracies:
                yield f"{key}: the task {self.task.kind!r} has no accuracy"
        if isinstance(self.task, Timing) and self.target is not None and self.target.loss:
            yield "target.loss: the task 'timing' has no loss"
        only_target = (
            self.stop.target_accuracy is not None
            and self.stop.iterations is None
            and self.stop.virtual_time_s is None
        )
        if only_target and self.evaluate == Evaluate() and not isinstance(self.task, Script):
            yield (
                "stop.target_accuracy alone would never be checked: "
                "set evaluate.every_updates or another stop"
            )
        if not all(0 < getattr(self, key) <= _NODES for key in _MACHINES):
            return
        if self.workers * self.servers > _LINKS:
            yield (
                f"workers, servers: {self.workers:,} workers times {self.servers:,} servers must "
                f"be at most {_LINKS:,}, the messages of one iteration"
            )
            return
        yield from self.policies.contradictions(load)
        slow = () if self.compute is None else self.compute.slow
        for worker in (worker for period in slow for worker in period.workers):
            if worker >= self.workers:
                yield f"compute.slow.workers must be from 0 to {self.workers - 1}, not {worker}"
        factors = getattr(self.compute, "factors", ())
        if factors and len(factors) != self.workers:
            yield wrong_number_of_factors(len(factors), self.workers)
        is_known = load or not isinstance(self.sync, PythonStrategy)
        if is_known and self.peers is not None:
            yield from self._without_servers(self.peers)
        else:
            yield from self._excluded(load)
        if self.faults is not None and is_known:
            yield from self.faults.contradictions(self.workers, self.servers_in_run)
            if isinstance(self.task, Script) and self.peers is not None:
                yield (
                    "faults: failures of scripts without servers cannot be simulated yet: leave it "
                    "out, or use a task with layers of the same sizes, such as task={kind: timing, "
                    "layers: [...]}"
                )
            elif isinstance(self.task, Script):
                yield from self.faults.losses_of_processes()
        for key in (*SERVICE_TIMES, "evaluation_time"):
            law = getattr(self, key)
            if law is None:
                continue
            if law.errors is not None:
                yield f"{key}.errors: only the law of run times can be drawn within its errors"
            if key == "evaluation_time":
                if law.worker_cv or law.slow:
                    yield f"{key}: worker_cv and slow are for run times; factors are possible"
                if law.factors and len(law.factors) != self.workers:
                    yield wrong_number_of_factors(len(law.factors), self.workers, key)
            elif law.worker_cv or law.slow:
                yield f"{key}: worker_cv and slow are for workers; servers may have factors"
            elif law.factors and len(law.factors) != self.servers:
                yield (
                    f"{key}.factors must be one for each of the {self.servers} servers, "
                    f"not {len(law.factors)}"
                )
        if self.network is not None and is_known:
            try:
                self.network.require_machines(self.machines)
            except ValueError as error:
                yield str(error)


_USUAL: Final = {entry.name: entry.default for entry in dataclasses.fields(Experiment)}
