"""Makes the shards of a server's process."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from outpace.blocks.block import Block
from outpace.config.experiment import Experiment
from outpace.engine.narrowing import is_narrow
from outpace.real.net.messages import ScriptOptimizer
from outpace.real.node.serving.optimizer import ServerOptimizer
from outpace.real.node.serving.policy import FollowedPolicy
from outpace.real.node.serving.times import ServiceTimes, TimedShard
from outpace.record.recorder import Recorder
from outpace.sync.parameter_block import NewMemory, ParameterBlock, no_memory, parameter_block


@dataclass(frozen=True, slots=True)
class NewShards:
    """Makes each shard of the process, all with the same settings.

    new_memory: for the copies of the parameters that are sent.
    """

    index: int
    experiment: Experiment
    policy: FollowedPolicy
    optimizer: ServerOptimizer
    recorder: Recorder
    times: ServiceTimes
    new_memory: NewMemory

    def block(
        self, parameters: Block, attached: ScriptOptimizer | None, layers: Sequence[slice]
    ) -> ParameterBlock:
        """Return a block whose optimizer's state is that of this server from now on.

        attached: the optimizer that a script attached. layers: where each tensor of the model is.
        """
        block = parameter_block(
            parameters,
            self.optimizer.settings(attached),
            deterministic=self.experiment.deterministic,
            layers=layers,
            new_memory=self.new_memory,
        )
        self.optimizer.steps_on(block)
        return block

    def shard(self, block: ParameterBlock, workers: int) -> TimedShard:
        """Return a shard of this block that follows the present policy."""
        shard = TimedShard(self.index, block, workers, self.policy.present, self.recorder)
        shard.times = self.times
        return shard


def memory_for_copies(experiment: Experiment, memory: NewMemory) -> NewMemory:
    """Return what gives memory for the copies of the parameters that are sent.

    If they are narrowed, others are sent.
    """
    return no_memory if is_narrow(experiment) else memory
