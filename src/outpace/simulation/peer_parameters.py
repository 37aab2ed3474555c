"""The models of workers without servers in virtual time: the common one, and their own.

The newest version of the common model is evaluated; if there is none, the mean of the workers' own
models.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Protocol

from outpace.blocks.block import Block, Value, value_of
from outpace.optim import Optimizer, OptimizerState
from outpace.sync.checkpoint.state import PendingIteration, ShardState
from outpace.sync.checkpoint.workers import (
    Restored,
    common_state,
    restore_own,
    state_of_worker,
)
from outpace.sync.parameter_block import ParameterBlock
from outpace.sync.peers.parameters import (
    Common,
    OptimizedBlocks,
    Own,
    Replicas,
    SharedModel,
    average,
)
from outpace.sync.peers.strategy import PeerStrategy
from outpace.tasks import Workload

if TYPE_CHECKING:
    from outpace.simulation.virtual import VirtualRun


class PeerBlocks(Protocol):
    """Makes the parameters of models; an optimizer takes their steps.

    Attributes:
        initial: the value that training starts from.
        size_bytes: size of the parameters.
        exact: number of elements at the end of a value that are not rounded when they are sent.
    """

    initial: Value
    size_bytes: int
    exact: int

    def common(self) -> ParameterBlock:
        """Return the parameters of a common model."""

    def own(self, worker: int) -> ParameterBlock:
        """Return the parameters of the model that this worker alone changes."""

    def replicas(self) -> Replicas | None:
        """Return how replicas take steps; None if the strategy has none."""

    def flat(self, value: Value) -> Block:
        """Return the parameters in a value."""


class TaskBlocks(OptimizedBlocks):
    """Makes the parameters of a task. Implements `PeerBlocks`."""

    exact = 0

    def __init__(self, workload: Workload, strategy: PeerStrategy, optimizer: Optimizer) -> None:
        (initial,) = workload.initial_parameters()
        super().__init__(value_of(initial), workload.layers, strategy, optimizer)
        self.size_bytes = initial.nbytes

    def flat(self, value: Value) -> Block:
        return value


class PeerModels:
    """The models of a run, and their states in checkpoints.

    Attributes:
        model: the common model.
        averages: number of all-reduces, or of averages of two workers, before the run was started
            or restarted.
        restored: what each worker had in addition to its models at that time.
        left: workers whose program has ended.

    Raises:
        ConfigError: if the checkpoint of a resumed run cannot be read.
    """

    model: SharedModel
    averages: int
    restored: Sequence[Restored]

    def __init__(self, run: VirtualRun, strategy: PeerStrategy, blocks: PeerBlocks) -> None:
        self._run, self.strategy, self.blocks = run, strategy, blocks
        self._workers = run.experiment.workers
        self._own: dict[int, ParameterBlock] = {}  # by worker
        # By all-reduce: the versions of the common model at which its gradients were computed.
        self._computed_at: dict[int, list[int]] = {}
        self.left: set[int] = set()
        if run.resume is None:
            self.begin(None, ())
        else:
            self.begin(run.resume.state(0), run.resume.own_states())

    def begin(self, state: ShardState | None, own: Sequence[ShardState | None]) -> None:
        """Begin with the models of a checkpoint, or with new models.

        Args:
            state: state of the model that all workers have; None: the run is new.
            own: state of each worker's own model and optimizer; None: the worker has none.
        """
        strategy = self.strategy
        for each in (self._own, self._computed_at, self.left):
            each.clear()
        block = self.blocks.common()
        self.model = SharedModel(block, self._workers, self.committed, self.blocks.replicas())
        self.restored, self.averages, self._steps = [Restored()] * self._workers, 0, 0
        if state is not None:
            self.averages = state.version
            if strategy.has_common:
                self.model.restore(state.parameters, state.optimizer, state.pushes, state.version)
            else:
                self._steps = state.pushes  # steps of workers on their own parameters
            if strategy.has_own:
                for worker, kept in enumerate(own):
                    restore_own(self.own_block(worker), state, kept)
            self.restored = [Restored.of(state, kept) for kept in own]

    # -- the models of workers ----------------------------------------------------------

    def common(self) -> Common:
        """Return a worker's view of the common model."""
        return Common(self.model)

    def own(self, worker: int) -> Own:
        """Return the model that this worker alone changes."""
        return Own(self.own_block(worker), worker, self._stepped)

    def own_block(self, worker: int) -> ParameterBlock:
        """Return the block of the model that this worker alone changes."""
        if worker not in self._own:
            self._own[worker] = self.blocks.own(worker)
        return self._own[worker]

    def average(self, one: int, other: int) -> None:
        """Set the own models of two workers to their mean."""
        blocks = [self._own[one], self._own[other]]
        mean = average(blocks)
        for block in blocks:
            block.replace(mean)

    @property
    def mean(self) -> Value:
        """The mean of the own models of all workers that are not lost."""
        gone = self._run.life.gone
        return average([block for n, block in sorted(self._own.items()) if n not in gone])

    # -- what is evaluated ------------------------------------------------------------------

    def parameters(self) -> list[Block]:
        """Return the parameters that are evaluated."""
        has_one = self.strategy.has_common or not self._own
        return [self.blocks.flat(self.model.newest.value if has_one else self.mean)]

    @property
    def updates(self) -> int:
        """Number of commits to the common model; without it, N steps of workers count as one."""
        return self.model.version if self.strategy.has_common else self._steps // self._workers

    @property
    def changes(self) -> tuple[int, int]:
        """A value that is different after each change of the parameters."""
        return self.model.version, self._steps

    def computed(self, number: int, versions: Sequence[int]) -> None:
        """Note at which versions of the common model an all-reduce's gradients were computed."""
        if versions:
            self._computed_at.setdefault(number, []).extend(versions)

    def committed(self, gradients: int) -> None:
        """Note a commit of the common model, with this number of gradients."""
        before = self.model.version - 1  # the result of all-reduce n becomes commit n
        versions = self._computed_at.pop(before, ())
        ages = (before - version for version in versions)
        self._run.recorder.gradients_applied(gradients, ages)
        self._run.on_update(self.updates)

    def _stepped(self) -> None:
        if self.strategy.has_common:
            return  # the number of commits counts
        self._steps += 1
        self._run.recorder.gradients_applied(1)
        if self._steps % self._workers == 0:
            self._run.on_update(self.updates)

    # -- checkpoints --------------------------------------------------------------------

    def state(self, iterations: Mapping[int, int], averages: int, parameters: Value) -> ShardState:
        """Return the state of the model that all workers have when they begin these iterations."""
        optimizer: OptimizerState = {}
        pushes = self._steps
        if self.strategy.has_common:
            parameters, optimizer, pushes = self.model.state()
        return common_state(iterations, averages, pushes, parameters, optimizer)

    def own_states(self, iterations: Mapping[int, int]) -> list[ShardState]:
        """Return copies of the workers' own states when they begin these iterations."""
        workers, apart = sorted(iterations), self.strategy.saved_apart
        if not self.strategy.has_own:
            return []
        return [self.own_state(each, iterations[each], None, differs=apart) for each in workers]

    def parameters_of(self, worker: int) -> Value:
        """Return a worker's own parameters; the common parameters if it has no own model."""
        has_own = self.strategy.has_own
        return self.own_block(worker).read() if has_own else self.model.newest.value

    def own_state(
        self, worker: int, iteration: int, pending: PendingIteration | None, *, differs: bool
    ) -> ShardState:
        """Return what a worker has besides the common model when it begins this iteration.

        Args:
            pending: a sum that the worker has received and not used yet.
            differs: True if its own model has steps that no other model has.
        """
        sums = () if pending is None else (pending,)
        if not self.strategy.has_own:
            return state_of_worker(worker, iteration, {}, sums)
        block = self.own_block(worker)
        parameters = block.read() if differs else None
        return state_of_worker(worker, iteration, block.optimizer_state(), sums, parameters)
