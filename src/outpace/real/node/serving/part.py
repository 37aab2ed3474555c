"""A server's part of the parameters, and its shard."""

from __future__ import annotations

from outpace.blocks.block import Block
from outpace.blocks.slicing import layers_within
from outpace.real.net.block_frames import block_elements, head_of
from outpace.real.net.clock import RealClock
from outpace.real.net.messages import OptimizerState, Plan, ScriptOptimizer, Snapshot
from outpace.real.node.serving.new_shards import NewShards
from outpace.real.node.serving.times import TimedShard
from outpace.support.units import Time
from outpace.sync.parameter_block import ParameterBlock


class ServerPart:
    """The parameters that a server holds, and their shard.

    Attributes:
        shard: not set before `has_begun`.
        has_begun: True when there is the shard.
        block: dtype and elements of the part on the wire; None: they are not known yet.
    """

    shard: TimedShard

    def __init__(self, clock: RealClock, new: NewShards) -> None:
        self.has_begun = False
        self.block: tuple[str, int] | None = None
        self._clock, self._new = clock, new
        self._plan: Plan

    def planned(self, plan: Plan) -> None:
        """Take the plan of the run."""
        self._plan = plan
        self.block = plan.dtype, block_elements(plan.dtype, plan.slices[self._new.index])

    def first_block(self, parameters: Block, attached: ScriptOptimizer | None) -> ParameterBlock:
        """Return a block for the part at the start. attached: the optimizer of a script."""
        plan = self._plan
        return self._new.block(
            parameters, attached, layers_within(plan.slices[self._new.index], plan.layers)
        )

    def begin(self, block: ParameterBlock, workers: int) -> None:
        """Begin with this block: there is a shard from now on."""
        self.shard, self.has_begun = self._new.shard(block, workers), True

    def snapshot(self, request: int = 0, applied: int = 0) -> tuple[Snapshot, Block]:
        """Return the parameters as they are sent. For the arguments see `Snapshot`."""
        shard = self.shard
        block, now = shard.read(), self._clock.now
        index, head = self._new.index, head_of(block)
        return Snapshot(index, shard.version, request, now, applied, head), block

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
        return self._new.optimizer.bytes_due(state.entries)
