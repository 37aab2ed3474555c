"""Checkpoints of a run with servers in virtual time. Writing one takes no virtual time."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from outpace.config.checkpoint import Checkpoint
from outpace.engine.cut_offs import saved_history
from outpace.engine.resuming import CheckpointKeeper
from outpace.engine.servers import in_lockstep
from outpace.errors import ConfigError
from outpace.record.checkpoints import Part, ShardRecord, Taken, write_shard
from outpace.record.totals import Totals
from outpace.simulation.awaited_scripts import AwaitedScripts
from outpace.sync.checkpoint.cuts import Cuts
from outpace.sync.checkpoint.planner import CutPlanner, GiveUp, Order
from outpace.sync.checkpoint.state import ShardState, lacking
from outpace.sync.shard import Shard
from outpace.tasks import Script, Workload

if TYPE_CHECKING:
    from outpace.simulation.servers import Simulation
    from outpace.simulation.virtual import VirtualRun


class Saving:
    """Takes the checkpoints of a run, and writes each as soon as all shards have been saved.

    Args:
        keeper: where they go; None: `_write` is another one.
        settings: when to take one.
        exact: True if all shards are saved between the same two iterations.
    """

    def __init__(
        self,
        run: Simulation,
        workload: Workload,
        shards: Sequence[Shard],
        keeper: CheckpointKeeper | None,
        settings: Checkpoint,
        exact: bool,
    ) -> None:
        self._run, self._workload = run, workload
        self._shards, self._keeper = shards, keeper
        self._every, self._is_exact = settings.every_updates, exact
        self._planner = CutPlanner(len(shards), exact, 0 if keeper is None else keeper.last)
        self._states: dict[int, ShardState] = {}
        self._scripts = AwaitedScripts(run, keeper, lambda: self._may_complete)
        self._records: Sequence[ShardRecord] = ()  # of the checkpoint that lacks scripts
        self.cuts = [
            _Cuts(
                partial(shards.__getitem__, server),
                partial(self._saved, server),
                partial(self._missed, server),
                self._begin_if_due if server == 0 else None,
            )
            for server in range(len(shards))
        ]
        self._is_due = False
        self._clock = shards[0].clock  # of shard 0, after its last message

    def begin(self) -> None:
        """Take the first checkpoint of a run that has none; before any message."""
        if not self._planner.number:
            self._begin_at(0)

    def updated(self, version: int) -> None:
        """Note that shard 0 has this version."""
        if self._every is not None and version % self._every == 0:
            self._is_due = True

    def soon(self) -> None:
        """Take one after the next message of shard 0. May be called by a signal handler."""
        self._is_due = True

    def now(self) -> None:
        """Take one now, or when all shards are at the same iteration; between two messages."""
        self._is_due = True
        if not self.is_taking:
            self._is_due = False
            self._begin_at(self._furthest + 1)

    @property
    def is_taking(self) -> bool:
        """True while a checkpoint has been begun and is not complete."""
        return self._planner.is_open or self._scripts.is_open

    @property
    def _furthest(self) -> int:
        return max(shard.clock for shard in self._shards)

    def _begin_if_due(self) -> None:
        """Begin one after a message of shard 0, whose answers have not been sent yet."""
        first, before = self._shards[0], self._clock
        self._clock = first.clock
        if not self._is_due or self.is_taking:
            return
        self._is_due = False
        furthest = self._furthest
        # Where shard 0 has just begun an iteration no worker knows of it, and none is in it.
        begins = before < first.clock == furthest and first.is_between_iterations
        self._begin_at(furthest if begins else furthest + 1)

    def _begin_at(self, clock: int) -> None:
        self._planner.exact = self._can_be_exact
        self._follow(self._planner.begin(clock))

    @property
    def _can_be_exact(self) -> bool:
        """True unless the policies have been changed to others during the run."""
        followed = [shard.policy for shard in self._shards]
        return self._is_exact and all(map(in_lockstep, followed))

    def _follow(self, orders: Sequence[Order | GiveUp]) -> None:
        for order in orders:
            if isinstance(order, GiveUp):
                self.cuts[order.shard].give_up(order.number)
                self._states.clear()
            else:
                self.cuts[order.shard].ask(order.number, order.clock)

    def _saved(self, server: int, number: int, state: ShardState) -> None:
        self._states[server] = state
        if self._planner.saved(number, server, state.clock):
            states = [self._states[each] for each in range(len(self._shards))]
            self._states.clear()
            self._write(number, states)

    def _missed(self, server: int, number: int, clock: int) -> None:
        self._planner.exact = self._can_be_exact
        self._follow(self._planner.missed(number, server, clock))

    def _write(self, number: int, states: Sequence[ShardState]) -> None:
        if lacking(states, self._run.last_pushed()):
            self._is_due = True
            return
        history, keeper = self._run.rule_history, self._keeper
        assert keeper is not None
        folder_of: list[Path] = []

        def put(folder: Path) -> Written:
            folder_of.append(folder)
            written = [write_shard(folder, state) for state in states]
            parts = [part for _, part in written]
            parts += saved_history(history, folder, states[0].clock)
            return Written([record for record, _ in written], parts)

        taken = written_now(self._run, self._workload, keeper, number, put)
        if taken is not None:
            self._records = taken.shards
            self._scripts.begin(number, self._run.save_scripts(folder_of[0]))
            self._scripts.add_rest(taken, self._run.metrics.kept())

    def script_saved(self, worker: int, saved: Part | str | None) -> None:
        """Note the file of what a script keeps, or why there is none; None: the script has ended.

        A script is saved when it begins its next iteration, so what it keeps is never behind the
        iterations that the shards have of it. If the script has ended instead, and the shards lack
        its last gradient, another checkpoint is taken.
        """
        if saved is None and self._scripts.awaits(worker):
            last = self._run.last_pushed()[worker]
            if lacking(self._records, {worker: last}):
                self._scripts.abandon()
                self._is_due = True
                return
        self._scripts.saved(worker, saved)

    @property
    def _may_complete(self) -> bool:
        """False while a checkpoint whose files are written is not complete yet."""
        return True

    def close(self) -> None:
        """Remove what is not complete."""
        self._scripts.abandon()


class Written(NamedTuple):
    """The files of a checkpoint, and the records that go into its index."""

    shards: list[ShardRecord]
    parts: list[Part]
    own: Sequence[ShardRecord] = ()


def written_now(
    run: VirtualRun,
    workload: Workload,
    keeper: CheckpointKeeper,
    number: int,
    put: Callable[[Path], Written],
    folder: Path | None = None,
) -> Taken | None:
    """Write the files of a checkpoint of the present instant; None if they cannot be written.

    Args:
        put: writes the files into a folder.
        folder: that of the checkpoint, if it has been begun already.

    Raises:
        ConfigError: if an optimizer keeps something that cannot be saved.
    """
    run.settle(wait=True)  # the evaluations until now
    try:
        shards, parts, own = put(folder or keeper.begin(number))
    except OSError as error:
        keeper.abandon(number, error.strerror or str(error))
        return None
    except ConfigError:
        keeper.abandon(number)
        raise
    totals = Totals()
    totals.add(run.totals)  # a copy: the sums go on
    return Taken(
        number=number,
        now=run.kernel.now,
        updates=run.updates,
        parts=tuple(parts),
        shards=tuple(shards),
        own=tuple(own),
        totals=totals,
        bounds=(0, *(each.stop for each in run.slices)),
        layers=tuple(workload.layers),
        layout=workload.layout,
        recovery=run.recovery(),
        costs=run.costs(),
        of_script=isinstance(run.experiment.task, Script),
    )


class _Cuts(Cuts):
    """The requests for a shard; `before` is called after each of its messages."""

    def __init__(
        self,
        shard: Callable[[], Shard],
        saved: Callable[[int, ShardState], None],
        missed: Callable[[int, int], None],
        before: Callable[[], None] | None,
    ) -> None:
        super().__init__(shard, saved, missed)
        self._before = before

    def look(self) -> None:
        if self._before is not None:
            self._before()
        super().look()
