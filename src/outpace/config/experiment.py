"""`Experiment`, the configuration of a run, as frozen dataclasses.

`__post_init__` checks ranges and contradictions, both for an Experiment written in Python and for
one read from plain data by `reading`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Annotated, ClassVar, Literal, TypeAlias

from pydantic import ConfigDict, Field

from outpace.blocks.slicing import Slicing, slices_of
from outpace.cluster.faults import Faults
from outpace.cluster.laws import ServiceLaw, ServiceSize
from outpace.cluster.machines import Machines
from outpace.cluster.network import NetworkLaw
from outpace.cluster.observed import ComputeLaw
from outpace.config.contradictions import contradictions
from outpace.config.executors import Auto, Executor
from outpace.config.goals import Checkpoint, Evaluate, Stop
from outpace.config.keys import FORWARD_SHARE, MOST_NODES
from outpace.config.launchers import LauncherKind, Local
from outpace.errors import ConfigError
from outpace.optim import Sgd, UpdaterKind
from outpace.predict.rules.settings import CutOffSettings
from outpace.support.checks import KINDS, Decay, check_ranges
from outpace.support.paths import TARGETS
from outpace.support.targets import Target
from outpace.sync import PeerStrategy
from outpace.sync.assignment import (
    Policies,
    SyncChange,
    Syncs,
    for_workers,
    strategy_of,
)
from outpace.sync.conditions import Conditions
from outpace.sync.membership.events import OnLoss
from outpace.sync.programs.partial_pull import PartialPull
from outpace.sync.programs.skipping import Skips
from outpace.tasks import Script, TaskKind

Nodes: TypeAlias = Annotated[int, Field(ge=1, le=MOST_NODES)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Experiment:
    """The configuration of a run. Raises ValueError if values contradict each other.

        keys = {
            "task": {"kind": "quadratic", "eigenvalues": [1.0, 10.0]},
            "workers": 4,
            "sync": {"kind": "ssp", "staleness": 3},
            "compute": {"kind": "exponential", "mean_s": 0.1},
            "stop": {"iterations": 20},
        }
        experiment = outpace.experiment_from(keys, "these keys")
        result = outpace.simulate(experiment)

    Attributes:
        task: what is trained.
        workers: number of workers, 1 to 20,000.
        sync: synchronization strategy; a list gives each server a separate one.
        stop: when the run ends; a script needs no limit.
        compute: run times of the workers; required in virtual time. None: no delay is added to a
            real run.
        seed: source of weights, batches, run times and coins, 0 to 2^63 − 1.
        servers: number of parameter servers, 1 to 20,000; times `workers` at most 1,000,000.
        network: simulated network; None: messages take no time.
        sync_changes: strategies that change during the run.
        conditions: the user's functions that replace conditions of a strategy.
        colocate: server m runs on the machine of worker m; their messages use no network and do not
            count in `bytes_sent`. Virtual time.
        pull: partial pull; None: a worker waits for all servers.
        skip: pushes and pulls that workers choose not to send.
        push_time, pull_time: service time of a server for a push, and for a pull; messages are
            served one after the other in the order of arrival. It counts as communication. None: 0.
            Virtual time.
        update_time: service time of an update, after the push that causes it; answers and later
            messages wait for its end. None: 0. Virtual time.
        service_size: size of a server to which these times apply, except `judge_time`; None: any
            size.
        evaluation_time: virtual time of each evaluation of a script between two steps: forward
            passes without gradients, or `outpace.untimed()`; None: 0.
        forward_share: share of a computation that is its forward pass, from 0 to below 1.
            DistributedDataParallel's buckets, and with `overlap` the servers' parts of the
            gradient, are computed in the rest. Virtual time, and real runs with `overlap` and
            `compute`.
        overlap: backward: a worker pushes to each server as soon as backward has made the server's
            part of the gradient.
        judge_time: service time to judge a pull; the pull then costs `pull_time` once, when it is
            answered. None: the same as `pull_time`, so a held pull costs `pull_time` twice.
        slicing: which server owns which parameters: equal numbers of elements, or whole tensors.
        optimizer: the optimizer that servers use.
        batch_size: samples for each worker and iteration.
        evaluate: when the model is evaluated, in addition to the end.
        target: accuracy or loss by which a run or a comparison is judged.
        executor: where the gradients of virtual time are computed.
        on_server_loss: what happens when a server's process dies, in real runs and with `faults`.
            restart: all processes begin again from the last checkpoint. continue (not with
            `faults`): they begin again with the remaining servers. stop: the run ends.
        checkpoint: when the state of the run is saved; None: the run cannot be resumed.
        faults: failures of workers, servers and the network; virtual time.
        trackers: functions that make experiment trackers, `file.py:function` or
            `package.module:function`; they get the configuration and the metrics.
        deterministic: real runs: add gradients in the order of workers, not in the order of
            arrival.
        non_finite: real runs: whether a gradient with NaN or infinity is refused or ends the run.
        on_worker_loss: what happens when a worker's process dies or falls silent, in real runs and
            with `faults`. restart: another process takes its place; without servers all processes
            begin again from the last checkpoint. continue: the run continues with the remaining
            workers. stop: the run ends.
        probe: real runs: measure the network for up to half a second before the run begins.
        shared_memory: real runs: keep blocks of 128 KiB and more in memory that the processes of a
            machine share.
        launcher: what starts the processes of a real run.
    """

    __pydantic_config__: ClassVar = ConfigDict(extra="forbid")  # of all its sections

    task: TaskKind
    workers: Nodes
    sync: Syncs
    stop: Stop = field(default_factory=Stop)
    compute: ComputeLaw | None = None
    seed: Annotated[int, Field(ge=0, lt=2**63)] = 0
    servers: Nodes = 1
    network: NetworkLaw | None = None
    sync_changes: tuple[SyncChange, ...] = ()
    conditions: tuple[Conditions, ...] = ()
    colocate: bool = False
    pull: PartialPull | None = None
    skip: Skips | None = None
    push_time: ServiceLaw | None = None
    pull_time: ServiceLaw | None = None
    update_time: ServiceLaw | None = None
    service_size: ServiceSize | None = None
    evaluation_time: ServiceLaw | None = None
    forward_share: Decay = FORWARD_SHARE
    overlap: Literal["none", "backward"] = "none"
    judge_time: ServiceLaw | None = None
    slicing: Slicing = Slicing.EVEN
    optimizer: Annotated[UpdaterKind, KINDS] = field(default_factory=Sgd)
    batch_size: Annotated[int, Field(ge=1, le=10**9)] = 32
    evaluate: Evaluate = field(default_factory=Evaluate)
    target: Target | None = None
    executor: Executor = field(default_factory=Auto)
    on_server_loss: Literal["restart", "continue", "stop"] = "restart"
    checkpoint: Checkpoint | None = None
    faults: Faults | None = None
    trackers: tuple[str, ...] = field(default=(), metadata=TARGETS)
    # For real runs; virtual time is always deterministic, and stops at a non-finite gradient.
    deterministic: bool = False
    non_finite: Literal["refuse", "stop"] = "refuse"
    on_worker_loss: OnLoss = "restart"
    probe: bool = True
    shared_memory: bool = True
    launcher: LauncherKind = field(default_factory=Local)

    def __post_init__(self) -> None:
        check_ranges(self)
        self._settle()
        problems = list(contradictions(self, load=False))
        if problems:
            raise ValueError("\n".join(problems))

    def _settle(self) -> None:
        """Set the keys that follow from other keys, so that the configuration shows their values.

        Shares of the workers become numbers of workers.
        """
        changes = tuple(change.for_workers(self.workers) for change in self.sync_changes)
        object.__setattr__(self, "sync", for_workers(self.sync, self.workers))
        object.__setattr__(self, "sync_changes", changes)

    @property
    def machines(self) -> Machines:
        """The machines of the run, and the nodes on each machine."""
        has_one = self.peers is None and not isinstance(self.sync, tuple)
        scheduler = has_one and self.policies.strategy.scheduler is not None
        shared = {} if self.network is None else self.network.machines
        return Machines(self.workers, self.servers_in_run, self.colocate, scheduler, shared)

    @property
    def peers(self) -> PeerStrategy | None:
        """The strategy if it has no servers, else None."""
        if isinstance(self.sync, tuple):
            return None
        strategy = strategy_of(self.sync)
        return strategy if isinstance(strategy, PeerStrategy) else None

    @property
    def has_script(self) -> bool:
        """True if a user's script, and not a task, has the model and computes its gradients."""
        return isinstance(self.task, Script)

    @property
    def script(self) -> Script:
        """The user's script, if `has_script`."""
        assert isinstance(self.task, Script)
        return self.task

    @property
    def is_elsewhere(self) -> bool:
        """True if the run has a script whose workers are not started by Outpace."""
        return self.has_script and self.script.is_elsewhere

    @property
    def has_stale_gradients(self) -> bool:
        """See `Strategy`; also True if workers skip pulls, or if there is a pull condition.

        Nothing is known about a pull condition that replaces a policy's own. Loads the user's
        files.
        """
        if self.skip is not None and self.skip.pull is not None:
            return True
        strategies = self.policies.strategies(load=True)
        is_unknown = any(each.pull is not None for each in self.conditions)
        return is_unknown or any(strategy.has_stale_gradients for strategy in strategies)

    @property
    def accuracies(self) -> dict[str, float]:
        """The target accuracies, by configuration key."""
        goal = None if self.target is None else self.target.accuracy
        keys = {"stop.target_accuracy": self.stop.target_accuracy, "target.accuracy": goal}
        return {key: accuracy for key, accuracy in keys.items() if accuracy is not None}

    @property
    def goal(self) -> Target | None:
        """The target that the time is measured to: `target`, or else `stop.target_accuracy`."""
        if self.target is None and self.stop.target_accuracy is not None:
            return Target(accuracy=self.stop.target_accuracy)
        return self.target

    @property
    def decided_by_script(self) -> list[str]:
        """The keys that have no meaning for a script."""
        return ["batch_size", "evaluate", "optimizer"]

    @property
    def policies(self) -> Policies:
        """The policies and conditions of the servers."""
        return Policies(self.sync, self.sync_changes, self.conditions, self.servers, self.workers)

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
        problems = list(contradictions(self, load=True))
        if problems:
            raise ConfigError("\n".join(problems))
        if self.peers is None:
            self.policies.initial()
        if self.skip is not None:
            self.skip.load()

    def slices(self, layers: Sequence[int]) -> list[slice]:
        """Return each server's slice of the flat parameter vector.

        layers: sizes of the parameter tensors. Raises ConfigError if a slice would be empty.
        """
        return slices_of(self.slicing, layers, self.servers)

    def optimizer_in_run(self, samples: int | None) -> UpdaterKind:
        """Return the optimizer for this run, with a schedule in iterations.

        samples: number of training samples; None: the task has no data. Raises ConfigError if
        the schedule is in epochs and the task has no data.
        """
        return self.optimizer.in_run(self.workers, self.batch_size, samples)
