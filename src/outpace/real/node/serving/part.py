"""A server's part of the parameters, and its shard."""

from __future__ import annotations

from outpace.blocks.block import Block
from outpace.blocks.slicing import layers_within
from outpace.config.experiment import Experiment
from outpace.real.net.block_frames import block_elements, head_of
from outpace.real.net.clock import RealClock
from outpace.real.net.messages import Initialize, OptimizerState, Plan, Snapshot
from outpace.real.node.serving.optimizer import ServerOptimizer
from outpace.real.node.serving.policy import FollowedPolicy
from outpace.real.node.serving.times import ServiceTimes, TimedShard
from outpace.record.recorder import Recorder
from outpace.support.units import Time
from outpace.sync.parameter_block import NewMemory, ParameterBlock, parameter_block


class ServerPart:
    """The parameters that a server holds, and their shard.

    Args:
        new_memory: for the copies of the parameters that are sent.

    Attributes:
        shard: not set before `has_begun`.
        has_begun: True when there is the shard.
        block: dtype and elements of the part on the wire; None: they are not known yet.
    """

    shard: TimedShard

    def __init__(
        self,
        clock: RealClock,
        index: int,
        experiment: Experiment,
        policy: FollowedPolicy,
        optimizer: ServerOptimizer,
        recorder: Recorder,
        times: ServiceTimes,
        new_memory: NewMemory,
    ) -> None:
        self.has_begun = False
        self.block: tuple[str, int] | None = None
        self._clock, self._index, self._experiment = clock, index, experiment
        self._policy, self._optimizer, self._new_memory = policy, optimizer, new_memory
        self._recorder, self._times = recorder, times
        self._plan: Plan

    def planned(self, plan: Plan) -> None:
        """Take the plan of the run."""
        self._plan = plan
        self.block = plan.dtype, block_elements(plan.dtype, plan.slices[self._index])

    def first_block(self, parameters: Block, initialize: Initialize) -> ParameterBlock:
        """Return the block, with what worker 0 says about the optimizer of a script."""
        plan = self._plan
        block = parameter_block(
            parameters,
            self._optimizer.settings(initialize),
            deterministic=self._experiment.deterministic,
            layers=layers_within(plan.slices[self._index], plan.layers),
            new_memory=self._new_memory,
        )
        self._optimizer.steps_on(block)
        return block

    def begin(self, block: ParameterBlock) -> None:
        """Begin with this block: there is a shard from now on."""
        workers, policy = self._experiment.workers, self._policy.present
        self.shard = TimedShard(self._index, block, workers, policy, self._recorder)
        self.shard.times = self._times
        self.has_begun = True

    def snapshot(self, request: int = 0, applied: int = 0) -> tuple[Snapshot, Block]:
        """Return the parameters as they are sent. For the arguments see `Snapshot`."""
        shard = self.shard
        block, now = shard.read(), self._clock.now
        return Snapshot(self._index, shard.version, request, now, applied, head_of(block)), block

    def close(self, now: Time) -> None:
        """End the run of the shard, if there is one."""
        if self.has_begun:
            self.shard.close(now)

    @property
    def all_left(self) -> bool:
        """True if all workers have left."""
        return self.has_begun and self.shard.live == 0

    def state_due(self, state: OptimizerState) -> int | None:
        """Return the bytes of an optimizer's state for this part; None if it does not fit."""
        return self._optimizer.bytes_due(state.entries)
