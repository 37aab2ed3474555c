"""Checkpoints of a run with servers in virtual time: all shards at one clock, or at once."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING

from outpace.config.goals import Checkpoint
from outpace.engine.keeper import CheckpointKeeper
from outpace.engine.servers import in_lockstep, is_exact
from outpace.simulation.checkpoints import Saving
from outpace.sync.checkpoint.cuts import Cuts, Place, place_of
from outpace.sync.checkpoint.planner import CutPlanner, GiveUp, Order, Take, Whole
from outpace.sync.checkpoint.state import ShardState
from outpace.sync.messages import server_name
from outpace.tasks import Workload

if TYPE_CHECKING:
    from outpace.simulation.faults.held_rows import CheckpointInMemory
    from outpace.simulation.servers import Servers
    from outpace.simulation.virtual import VirtualRun


class ServerSaving(Saving):
    """Takes the checkpoints of a run; writes each as soon as all shards have been saved."""

    def __init__(
        self,
        run: VirtualRun,
        exchange: Servers,
        workload: Workload,
        keeper: CheckpointKeeper | None,
        settings: Checkpoint,
    ) -> None:
        super().__init__(run, workload, keeper, settings)
        shards = self._shards = exchange.shards
        # all shards are saved between the same two iterations
        self._is_exact = is_exact(run.experiment)
        self._names = [server_name(server) for server in range(len(shards))]
        self._planner = CutPlanner(self._names, self._is_exact, self._number)
        self._states: dict[int, ShardState] = {}
        self._cuts = [
            Cuts(
                partial(self._place, server),
                partial(self._save, server),
                partial(self._missed, server),
            )
            for server in range(len(shards))
        ]
        self._clock = shards[0].clock  # clock of shard 0 after its last message

    def look(self, server: int) -> Callable[[], None]:
        """Return the function to call after each message of a server, before its answers."""
        return self._cuts[server].look if server else self._look_at_first

    def begin(self) -> None:
        if not self._planner.number:
            self._begin_at(0)
        elif self._life.keeps_in_memory:  # the run was resumed from this one
            states = [shard.state() for shard in self._shards]
            kept = self._life.kept(self._planner.number, states)
            assert kept is not None
            self._life.keep(kept)

    def begin_again(self, kept: CheckpointInMemory) -> None:
        """Continue with the shards of the last checkpoint; give up the open checkpoint."""
        self._follow(self._planner.abandon())
        self._states.clear()
        self._planner = CutPlanner(self._names, self._is_exact, self._planner.number)
        self._is_due = False
        self._clock = self._shards[0].clock

    def now(self) -> None:
        self.soon()
        if self._is_due and not self._planner.is_open:
            self._is_due = False
            self._begin_at(self._furthest + 1)

    @property
    def _furthest(self) -> int:
        return max(shard.clock for shard in self._shards)

    def _look_at_first(self) -> None:
        """Begin a checkpoint after a message of shard 0, if one is due."""
        first, before = self._shards[0], self._clock
        self._clock = first.clock
        if self._is_due and not self._planner.is_open:
            self._is_due = False
            furthest = self._furthest
            # If shard 0 has just begun an iteration, no worker knows of it, and none computes it.
            begins = before < first.clock == furthest and first.is_between_iterations
            self._begin_at(furthest if begins else furthest + 1)
        self._cuts[0].look()

    def _begin_at(self, clock: int | None) -> None:
        self._planner.exact = self._can_be_exact
        self._follow(self._planner.begin(clock))

    @property
    def _can_be_exact(self) -> bool:
        """True unless the run has changed to other policies."""
        followed = [shard.policy for shard in self._shards]
        return self._is_exact and all(map(in_lockstep, followed))

    def _follow(self, orders: Sequence[Order]) -> None:
        for order in orders:
            match order:
                case GiveUp(part, number):
                    self._cuts[self._names.index(part)].give_up(number)
                    self._states.clear()
                case Take(part, number, clock):
                    self._cuts[self._names.index(part)].ask(number, clock)
                case Whole(number):
                    states = {name: self._states[n] for n, name in enumerate(self._names)}
                    self._states.clear()
                    self._take(number, states)

    def _place(self, server: int) -> Place:
        return place_of(self._shards[server])

    def _save(self, server: int, number: int) -> None:
        state = self._shards[server].state()
        self._states[server] = state
        self._follow(self._planner.saved(number, self._names[server], state.clock))

    def _missed(self, server: int, number: int, clock: int) -> None:
        self._follow(self._planner.missed(number, self._names[server], clock))
        if self._planner.is_due:
            self._begin_at(None)
