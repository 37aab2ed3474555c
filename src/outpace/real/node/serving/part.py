"""A server's part of the parameters: their optimizer, the policy, and the shard."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from outpace.blocks.block import whole, whole_tensor
from outpace.blocks.slicing import layers_within
from outpace.config.experiment import Experiment
from outpace.engine.scripts.optimizer_state import lengths_of
from outpace.kernel import Future, Kernel
from outpace.optim import Optimizer
from outpace.optim.python import PythonOptimizer
from outpace.optim.torch_optimizers import State, TorchOptimizer, TorchSteps
from outpace.real.control import changed
from outpace.real.net.block_frames import block_elements
from outpace.real.net.clock import RealClock
from outpace.real.net.messages import (
    ChangePolicy,
    Initialize,
    OptimizerState,
    Plan,
    Snapshot,
)
from outpace.real.node.optimizer_state import entries_of, state_from
from outpace.real.node.serving.times import ServiceTimes, TimedShard
from outpace.record.recorder import Recorder
from outpace.sync import Policy
from outpace.sync.messages import SetPolicy
from outpace.sync.parameter_block import NewMemory, TensorBlock, parameter_block


class ServerPart:
    """The parameters that a server holds, and their shard.

    Only the state of an optimizer of torch travels; the state of others is empty.

    Attributes:
        shard: not set before `has_begun`.
        has_begun: True when there is the shard.
        lengths: elements of each tensor of the model in the part.
        block: dtype and elements of the part on the wire; None: they are not known yet.
    """

    shard: TimedShard

    def __init__(
        self,
        clock: RealClock,
        kernel: Kernel,
        index: int,
        experiment: Experiment,
        recorder: Recorder,
        times: ServiceTimes,
    ) -> None:
        self.has_begun = False
        self.block: tuple[str, int] | None = None
        self._clock, self._index, self._experiment = clock, index, experiment
        self._recorder, self._times = recorder, times
        self._followed = experiment.policies.initial()[index]
        self._plan: Plan
        self._initialized = Future[Initialize](kernel, "worker-0's parameters")
        self._steps: TorchSteps | None = None  # of the block; None: there is no state that travels
        self.lengths: dict[int, int] = {}
        self._initial_state = Future[dict[int, State]](kernel, "the optimizer's state")

    # -- before the run begins -----------------------------------------------------------

    def planned(self, plan: Plan) -> None:
        """Take the plan of the run."""
        self._plan = plan
        self.block = plan.dtype, block_elements(plan.dtype, plan.slices[self._index])

    def initialize(self, initialize: Initialize) -> bool:
        """Take what worker 0 begins with; False if it has come before."""
        if self._initialized.done:
            return False
        self.lengths = lengths_of(initialize.groups)
        self._initialized.set(initialize)
        return True

    async def begin(self, new_memory: NewMemory, updated: Callable[[int], None]) -> None:
        """Wait for what worker 0 begins with, and begin: there is a shard from now on.

        Args:
            new_memory: for the copies of the parameters that are sent.
            updated: called with each new version of the parameters.
        """
        initialize = await self._initialized
        plan, experiment = self._plan, self._experiment
        block = parameter_block(
            whole(initialize.block),
            self._optimizer(initialize),
            deterministic=experiment.deterministic,
            layers=layers_within(plan.slices[self._index], plan.layers),
            new_memory=new_memory,
        )
        if isinstance(block, TensorBlock) and isinstance(block.take_step, TorchSteps):
            self._steps = block.take_step
            if initialize.has_state:
                self._steps.load(await self._initial_state)
        workers, policy = experiment.workers, self._followed.policy
        told = self._recorder, updated
        self.shard = TimedShard(self._index, block, workers, policy, *told)
        self.shard.times = self._times
        self.has_begun = True

    def _optimizer(self, attached: Initialize) -> Optimizer:
        """Return the optimizer for the block: the configuration's, or what a script attached."""
        configured = self._experiment.optimizer
        if not attached.optimizer:
            return configured
        if isinstance(configured, PythonOptimizer):  # code named by the configuration
            return configured.of_groups(attached.groups, attached.settings)
        return TorchOptimizer(attached.optimizer, attached.groups, attached.settings)

    # -- the policy ------------------------------------------------------------------------

    def follow(self, policy: Policy) -> SetPolicy:
        """Return the message for the shard to follow a policy, under the same conditions."""
        self._followed = replace(self._followed, base=policy)
        return SetPolicy(self._followed.policy)

    def change_policy(self, order: ChangePolicy) -> SetPolicy:
        """Return the message for the shard to follow an order of the coordinator.

        Raises:
            ConfigError: the server's configuration does not name the policy or condition.
        """
        self._followed = changed(self._followed, self._experiment, order)
        return SetPolicy(self._followed.policy)

    # -- the state of the optimizer ----------------------------------------------------------

    def load_state(self, message: OptimizerState) -> bool:
        """Replace the optimizer's state, or begin with it; False if it must not come now."""
        may_load = self._steps is not None if self.has_begun else not self._initial_state.done
        if may_load:
            state = state_from(message.entries, whole_tensor(message.block))
            if self.has_begun:
                assert self._steps is not None
                self._steps.load(state)
            else:
                self._initial_state.set(state)
        return may_load

    def optimizer_state(self) -> OptimizerState:
        """Return the optimizer's state as it is sent."""
        entries, data = entries_of({} if self._steps is None else self._steps.state())
        return OptimizerState(self._index, entries, data)

    # -- the shard ---------------------------------------------------------------------------

    def snapshot(self, request: int = 0, applied: int = 0) -> Snapshot:
        """Return the parameters as they are sent. For the arguments see `Snapshot`."""
        shard, now = self.shard, self._clock.now
        return Snapshot(self._index, shard.version, request, now, applied, shard.read())
