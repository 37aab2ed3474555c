"""The data that a run with servers saves: the shards, and the states of workers' scripts.

The servers save their shards (`real.node.saver`): all at the same clock, or each at once.

The worker of a script saves the script's state (`real.script.script_saver`). Where all servers are
saved at the same clock, scripts are saved when they begin the iteration of that number. Otherwise
the scripts are asked first, and save their state when they begin their next iteration. Then the
servers are asked, which have all earlier pushes by then. So the state of a script is never ahead of
the gradients that the servers have of its worker, and after a resume the script computes the
missing iterations again.

If workers skip iterations, it is not known how many iterations a script would have to compute
again. Then the scripts are asked after all servers have taken their states, so that the state of a
script is never behind.

At the beginning of a run all are asked before they are told to start, so the first checkpoint is
from the beginning.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Final

from outpace.engine.servers import is_exact, leaves_behind
from outpace.errors import ProtocolError
from outpace.real.coordinator.open_checkpoint import Mean, OpenCheckpoint, workers_in
from outpace.real.coordinator.run_state import RunState
from outpace.real.net.checkpoint_messages import MOST_CLOCK, CheckpointPart
from outpace.record.checkpoints import Index, ShardRecord
from outpace.record.checkpoints.shards import SUFFIX
from outpace.record.totals import Totals
from outpace.sync.checkpoint.planner import CutPlanner, Order
from outpace.sync.checkpoint.state import lacking

# number of clocks by which the chosen clock is ahead, so that no server is past it
_AHEAD: Final = 2


class ShardsAndScripts:
    """The data that the processes of a run with servers save.

    Args:
        number: number of the last checkpoint.
    """

    may_save = True
    waiting: Sequence[str] = ()

    def __init__(self, run: RunState, number: int = 0) -> None:
        experiment, resume = run.experiment, run.resume
        self._run, self._servers = run, run.servers
        self._scripts = run.workers if experiment.has_script else []
        self.parts = [*self._servers, *self._scripts]
        self.planner = CutPlanner(self.parts, is_exact(experiment), number)
        self._passes_over = leaves_behind(experiment)  # workers may pass over iterations
        # number of iterations before its first one that it did not do
        self._others = [0] * experiment.workers
        if resume is not None:
            done = resume.totals.iterations
            self._others = [n - done.get(worker, 0) for worker, n in enumerate(resume.first)]
        # By worker whose script has left: the last iteration that it pushed.
        self._last: dict[int, int] = {}
        self._ended: set[int] = set()  # workers whose scripts have ended

    @property
    def teller(self) -> str:
        return self._servers[0]

    def relax(self) -> None:
        self.planner.exact, self._passes_over = False, True

    def left(self, name: str, *, lost: bool, ended: bool, pushed: int) -> Sequence[Order]:
        worker = self._run.numbers[name]
        is_over = self._run.stop_reason is not None  # then its script has not ended
        if name not in self._scripts or worker in self._last or is_over:
            return []
        self._last[worker] = pushed - 1
        if ended:
            self._ended.add(worker)
        return self.planner.leave(name)

    # -- when --------------------------------------------------------------------

    def when_possible(self, action: Callable[[], None]) -> None:
        action()

    def target(self, clock: int) -> int:
        return min(max(clock, *self._run.totals.iterations.values(), 0), MOST_CLOCK) + _AHEAD

    def later(self, *, together: bool) -> Collection[str]:
        if together or not self._scripts:
            return ()
        return self._scripts if self._passes_over else self._servers

    def saves_common(self, *, at_start: bool) -> str:
        return ""

    # -- parts -------------------------------------------------------------------

    def files(self, present: OpenCheckpoint, part: str) -> Collection[str]:
        return {part + SUFFIX}

    def require(self, present: OpenCheckpoint, part: str, saved: CheckpointPart) -> None:
        record, files = saved.shard, [file.file for file in saved.parts]
        if part in self._scripts:
            if files != [part + SUFFIX] or record or saved.own:
                raise ProtocolError("it did not save what its script keeps, or more than that")
            return
        server = self._servers.index(part)
        if record is None or record.shard != server or files != [record.file] or saved.kept_at:
            raise ProtocolError(f"it saved another shard than {server}, or sent no file of it")
        if len(record.watermarks) != len(self._others):
            raise ProtocolError(f"it saved the progress of {len(record.watermarks)} workers")

    # -- the complete checkpoint -----------------------------------------------------------

    def _records(self, present: OpenCheckpoint) -> list[ShardRecord]:
        """Return the records of the servers' shards."""
        saved = [present.parts[server].shard for server in self._servers]
        return [record for record in saved if record is not None]

    def lacks_end(self, present: OpenCheckpoint) -> bool:
        scripts = workers_in(present, self._run.numbers)
        last = {worker: each for worker, each in self._last.items() if worker not in scripts}
        return bool(lacking(self._records(present), last))

    def mean(self, present: OpenCheckpoint) -> Callable[[], Mean] | None:
        return None

    def taken(self, present: OpenCheckpoint, totals: Totals) -> Index:
        plan = self._run.plan
        assert plan is not None
        records, scripts = self._records(present), workers_in(present, self._run.numbers)
        servers = [present.parts[server] for server in self._servers]
        for worker, others in enumerate(self._others):
            # The reports of workers may be a little older or newer than the checkpoint.
            most = 1 + max(record.watermarks[worker] for record in records) - others
            reported_count = totals.iterations.get(worker, 0)
            totals.iterations[worker] = min(reported_count, most) if self._passes_over else most
        return Index(
            number=present.number,
            now=0 if present.at_start else max(part.now for part in servers),
            updates=records[0].version,
            parts=tuple(file for part in (*servers, *scripts.values()) for file in part.parts),
            shards=tuple(records),
            totals=totals,
            bounds=tuple(plan.bounds),
            layers=tuple(plan.layers),
            of_script=bool(self._scripts),
            ended=tuple(sorted(self._ended - scripts.keys())),
            anew=tuple(worker for worker, part in scripts.items() if not part.is_complete),
        )
