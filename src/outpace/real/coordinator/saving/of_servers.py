"""Has the servers of a run save their shards (`real.node.checkpoint_writer`)."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path
from typing import Final

import msgspec

from outpace.engine.servers import is_exact, leaves_behind
from outpace.errors import ProtocolError
from outpace.real.coordinator.saving.base import Checkpoints
from outpace.real.coordinator.saving.open import Open, SavedRun, require_record
from outpace.real.net.checkpoint_messages import MOST_CLOCK, CheckpointPart, TakeCheckpoint
from outpace.real.node.checkpoint_writer import SavedShard
from outpace.record.checkpoints import Taken
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

    def _saved_of(self, number: int, message: CheckpointPart) -> tuple[SavedShard, int]:
        saved = msgspec.msgpack.decode(message.saved, type=SavedShard)
        if self._open is not None and self._fetched is not None:
            saved.part = next(iter(self._open.fetched.get(number, ())), None)
        part, record = saved.part, saved.record
        if record.shard != number or part is None or part.file != record.file:
            raise ProtocolError(f"it saved shard {record.shard}, or sent no file of it")
        require_record(record, len(self._others))
        return saved, record.clock

    def _files(self, present: Open, process: int) -> Collection[str]:
        return {server_name(process) + SUFFIX}

    def _ask(self, order: Order, folder: Path) -> None:
        self._tell(order.shard, TakeCheckpoint(order.number, order.clock, self._named(folder)))

    def _sums(self, present: Open, name: str, reported: Totals) -> Totals:
        """Return the sums of a process at a checkpoint. reported: what it has reported last."""
        server = self._servers.get(name)
        return reported if server is None else present.parts[server][0].totals

    def _taken(self, present: Open) -> Taken:
        assert self._plan is not None
        parts = [present.parts[server] for server in sorted(self._servers.values())]
        records = tuple(saved.record for _, saved in parts)
        totals = Totals()
        for name, reported in self._totals_of.items():
            totals.add(self._sums(present, name, reported))
        for worker, others in enumerate(self._others):
            # What workers have reported may be a little older or newer than the checkpoint.
            most = 1 + max(record.watermarks[worker] for record in records) - others
            reported_count = totals.iterations.get(worker, 0)
            totals.iterations[worker] = min(reported_count, most) if self._passes_over else most
        return Taken(
            number=present.number,
            now=0 if present.at_start else max(part.now for part, _ in parts),
            updates=records[0].version,
            parts=tuple(saved.part for _, saved in parts if saved.part is not None),
            shards=records,
            totals=totals,
            bounds=tuple(self._plan.bounds),
            layers=tuple(self._plan.layers),
            of_script=self._is_script,
        )
