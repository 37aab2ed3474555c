"""A server's part of the parameters, and its shard."""

from __future__ import annotations

from collections.abc import Callable

from outpace.blocks.block import Block
from outpace.blocks.division import Division
from outpace.blocks.slicing import layers_of, layers_within
from outpace.real.net.block_frames import block_elements, head_of
from outpace.real.net.clock import RealClock
from outpace.real.net.messages import OptimizerState, Plan, ScriptOptimizer, Snapshot
from outpace.real.node.moving_server import Around, ServerMoves
from outpace.real.node.serving.new_shards import NewShards
from outpace.real.node.serving.times import TimedShard
from outpace.support.units import Time
from outpace.sync.checkpoint.state import ShardState
from outpace.sync.parameter_block import ParameterBlock


class ServerPart:
    """The parameters that a server holds in the present division, and their shard.

    Where servers stay, there is one division, number 0.

    Attributes:
        shard: the last one that has begun; not set before `has_begun`.
        has_begun: True from the first shard on.
        block: dtype and elements of the part on the wire; None: they are not known yet.
        moves: takes part in new divisions; None: servers stay, or there is no plan yet.
    """

    shard: TimedShard

    def __init__(self, clock: RealClock, new: NewShards) -> None:
        self.has_begun = False
        self.block: tuple[str, int] | None = None
        self.moves: ServerMoves | None = None
        self._clock, self._new = clock, new
        self._plan: Plan
        self._moved: Callable[[int], None]

    def planned(self, plan: Plan, *, joins: bool) -> None:
        """Take the plan of the run. joins: the others train already; the server has no part yet."""
        self._plan = plan
        if not joins:
            self.block = plan.dtype, block_elements(plan.dtype, plan.slices[self._new.index])

    def first_block(self, parameters: Block, attached: ScriptOptimizer | None) -> ParameterBlock:
        """Return a block for the part at the start. attached: the optimizer of a script."""
        plan = self._plan
        if attached is not None:
            self._new.optimizer.attached(attached)
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
        head, division, index = head_of(block), self.division, self._new.index
        return Snapshot(index, shard.version, request, now, applied, head, division), block

    def close(self, now: Time) -> None:
        """End the run of the shard, unless the server has none now."""
        if self.has_begun and (self.moves is None or self.moves.moves.shard is not None):
            self.shard.close(now)

    # -- divisions ---------------------------------------------------------------------

    def may_move(self, around: Around, division: Division, moved: Callable[[int], None]) -> None:
        """Take part in new divisions.

        Args:
            division: the present one.
            moved: called with the number of a division when its shard has begun here.
        """
        self._moved, plan = moved, self._plan
        shard, script = self.shard if self.has_begun else None, self._new.optimizer.script
        self.moves = ServerMoves(
            around, division, shard, plan.dtype, self._go_on, plan.layers, script
        )

    def _go_on(self, division: Division, state: ShardState, workers: int | None) -> TimedShard:
        """Go on with the parameters of another part. workers: see `Moves`."""
        assert self.moves is not None
        new, ranges = self._new, division.parts[self._new.index]
        self.block = self.moves.block(division.size(new.index))
        script = new.optimizer.script
        attached = None if script is None else script.of(ranges)
        block = new.block(state.parameters, attached, layers_of(ranges, self._plan.layers))
        shard = new.shard(block, len(state.watermarks))
        shard.restore(state, self._clock.now, everyone=False, workers=workers)
        self.shard, self.has_begun = shard, True
        if attached is not None:
            new.optimizer.set_groups(attached.groups)
        self._moved(division.number)
        return shard

    @property
    def division(self) -> int:
        """The number of the division to which the shard belongs."""
        return 0 if self.moves is None else self.moves.moves.division.number

    def has(self, division: int) -> bool:
        """True if the shard is this server's part of this division."""
        if self.moves is None:
            return division == 0
        return self.moves.moves.shard is not None and division == self.division

    @property
    def all_left(self) -> bool:
        """True if all workers have left, and no parameters are on their way to another server."""
        is_moving = self.moves is not None and self.moves.moves.is_moving
        return self.has_begun and not is_moving and self.shard.live == 0

    def state_due(self, state: OptimizerState) -> int | None:
        """Return the bytes of an optimizer's state for this part; None if it does not fit."""
        ranges = None if self.moves is None else self.moves.part(state.division)
        return self._new.optimizer.bytes_due(state.entries, ranges)
