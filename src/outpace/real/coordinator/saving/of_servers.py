"""Has the servers of a run save their shards (`real.node.saving.saver`)."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path
from typing import Final

from outpace.engine.servers import is_exact, leaves_behind
from outpace.errors import ProtocolError
from outpace.real.coordinator.saving.base import Checkpoints
from outpace.real.coordinator.saving.open import Open, SavedRun
from outpace.real.net.checkpoint_messages import MOST_CLOCK, TakeCheckpoint
from outpace.real.node.saving.saver import SavedPart
from outpace.record.checkpoints import ShardRecord, Taken
from outpace.record.checkpoints.shards import SUFFIX
from outpace.record.totals import Totals
from outpace.sync.checkpoint.planner import CutPlanner, Order
from outpace.sync.messages import server_name
from outpace.tasks import Script

_AHEAD: Final = 2  # clocks, so that no server is past the chosen one


class CheckpointsOfServers(Checkpoints):
    """The checkpoints of a run with servers."""

    def __init__(self, run: SavedRun) -> None:
        experiment, resume = run.experiment, run.resume
        self._servers = {server_name(n): n for n in range(experiment.servers)}
        planner = CutPlanner(len(self._servers), is_exact(experiment), run.saving.keeper.last)
        super().__init__(run, self._servers, planner, "servers")
        self._is_script = isinstance(experiment.task, Script)
        self._passes_over = leaves_behind(experiment)  # workers may pass over iterations
        self._others = [0] * experiment.workers  # iterations before its first that it did not do
        if resume is not None:
            done = resume.totals.iterations
            self._others = [n - done.get(worker, 0) for worker, n in enumerate(resume.first)]

    def relax(self) -> None:
        super().relax()
        self._passes_over = True

    def _target(self, clock: int) -> int:
        return min(max(clock, *self._iterations().values(), 0), MOST_CLOCK) + _AHEAD

    def _iterations(self) -> dict[int, int]:
        """Return how many iterations each worker has reported."""
        totals = Totals()
        for reported in self._totals_of.values():
            totals.add(reported)
        return totals.iterations

    def _require(self, present: Open, process: int, saved: SavedPart) -> None:
        record, files = saved.shard, [part.file for part in saved.parts]
        if record is None or record.shard != process or files != [record.file]:
            raise ProtocolError(f"it saved another shard than {process}, or sent no file of it")
        if len(record.watermarks) != len(self._others):
            raise ProtocolError(f"it saved the progress of {len(record.watermarks)} workers")

    def _files(self, present: Open, process: int) -> Collection[str]:
        return {server_name(process) + SUFFIX}

    def _ask(self, order: Order, folder: Path) -> None:
        self._tell(order.shard, TakeCheckpoint(order.number, order.clock, self._named(folder)))

    def _taken(self, present: Open) -> Taken:
        assert self._plan is not None
        parts = [part for _, part in sorted(present.parts.items())]
        records, totals = shards_in(present), self._totals(present)
        for worker, others in enumerate(self._others):
            # What workers have reported may be a little older or newer than the checkpoint.
            most = 1 + max(record.watermarks[worker] for record in records) - others
            reported_count = totals.iterations.get(worker, 0)
            totals.iterations[worker] = min(reported_count, most) if self._passes_over else most
        return Taken(
            number=present.number,
            now=0 if present.at_start else max(part.now for part, _ in parts),
            updates=records[0].version,
            parts=tuple(part for _, saved in parts for part in saved.parts),
            shards=records,
            totals=totals,
            bounds=tuple(self._plan.bounds),
            layers=tuple(self._plan.layers),
            of_script=self._is_script,
        )


def shards_in(present: Open) -> tuple[ShardRecord, ...]:
    """Return the records of the servers' shards that are saved."""
    parts = sorted(present.parts.items())
    return tuple(saved.shard for _, (_, saved) in parts if saved.shard is not None)
