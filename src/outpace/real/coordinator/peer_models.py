"""The saved data of a run without servers: the models (`real.node.worker_saver`).

If workers average by all-reduces, all save at the same number of results. One worker saves the
common model, and each worker saves its state in addition to that model. If models differ
(`PeerStrategy.saved_apart`), all workers save at once when no average of two is running; then this
process reads their models, and saves their mean.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Final, Protocol

import msgspec

from outpace.blocks.block import Phantom, Value
from outpace.engine.resuming import kept_in, model_of
from outpace.errors import OutpaceError, ProtocolError
from outpace.real.coordinator.open_checkpoint import Mean, OpenCheckpoint, workers_in
from outpace.real.coordinator.run_state import RunState
from outpace.real.net.checkpoint_messages import MOST_CLOCK, CheckpointPart
from outpace.real.node.worker_saver import COMMON
from outpace.record.checkpoints import Index, ShardRecord, write_shard
from outpace.record.checkpoints.shards import SUFFIX, mean_parameters
from outpace.record.totals import Totals
from outpace.sync.checkpoint.planner import CutPlanner, Order
from outpace.sync.checkpoint.workers import common_state
from outpace.sync.messages import worker_name

_AHEAD: Final = 1  # number of all-reduce results
_COMMON: Final = COMMON + SUFFIX


class Groups(Protocol):
    """The groups or pairs in which workers average."""

    @property
    def averages(self) -> int:
        """Number of averages that have begun since the run began."""

    def when_idle(self, action: Callable[[], None]) -> None:
        """Call `action` when no average of two workers is running, before the next one begins."""


class PeerModels:
    """The data that the processes of a run without servers save.

    Args:
        number: number of the last checkpoint.
    """

    def __init__(self, run: RunState, groups: Groups, number: int = 0) -> None:
        experiment, strategy = run.experiment, run.experiment.peers
        assert strategy is not None
        self._run, self._groups, self._last = run, groups, experiment.stop.iterations
        self.parts = run.workers
        self._here = list(self.parts)
        self._apart, self._has_common = strategy.saved_apart, strategy.has_common
        self.planner = CutPlanner(self.parts, not self._apart, number, math.inf)
        self._finished: set[str] = set()  # workers that have finished all their iterations
        self._is_script = experiment.has_script
        # Workers that have finished wait. Scripts do not wait, so no more checkpoints are taken
        # then.
        self._waits = self._apart and not self._is_script

    @property
    def teller(self) -> str:
        return self._here[0] if self._here else ""

    @property
    def may_save(self) -> bool:
        """True unless the run ends, or the model of a worker that has finished is missing."""
        if not self._here or self._run.stop_reason is not None:
            return False
        if self._is_script and len(self._here) < len(self.parts):
            return False
        return not self._apart or self._finished <= set(self._here)

    @property
    def waiting(self) -> list[str]:
        return [name for name in self.parts if name in self._finished] if self._waits else []

    def relax(self) -> None:
        """Change nothing, because there are no policies."""

    def left(self, name: str, *, lost: bool, ended: bool, pushed: int) -> Sequence[Order]:
        """Return the orders that follow; a worker that waits with its own model is still saved."""
        if name not in self._here:
            return []
        if not lost:
            self._finished.add(name)
            if self._waits:
                return []
        self._here.remove(name)
        return self.planner.end(name)

    # -- when --------------------------------------------------------------------

    def when_possible(self, action: Callable[[], None]) -> None:
        self._groups.when_idle(action)

    def target(self, clock: int) -> int:
        run, known = self._run, self._groups.averages
        if any(join.follows for join in run.joined.values()):
            # Each step of these scripts is a result, and they receive orders after the next step.
            known = max(run.totals.iterations.values(), default=0) + 1
        return min(max(clock, known), MOST_CLOCK) + _AHEAD

    def later(self, *, together: bool) -> Collection[str]:
        return ()

    def saves_common(self, *, at_start: bool) -> str:
        return self.teller if not self._apart or at_start else ""

    # -- parts -------------------------------------------------------------------

    def files(self, present: OpenCheckpoint, part: str) -> Collection[str]:
        common = {_COMMON} if part == present.common else set()
        return {self._own_file(part), part + SUFFIX} | common

    def _own_file(self, part: str) -> str:
        """Return the name of the file with the model of a worker."""
        worker = self._run.numbers[part]
        return model_of(worker) + SUFFIX if self._is_script else kept_in(worker)

    def require(self, present: OpenCheckpoint, part: str, saved: CheckpointPart) -> None:
        if saved.own is not None and worker_name(saved.own.shard) != part:
            raise ProtocolError(f"it saved worker {saved.own.shard}")
        if (saved.shard is not None) != (part == present.common):
            raise ProtocolError("it saved the common model unasked, or did not save it")
        if self._apart and saved.own is None and not present.at_start:
            raise ProtocolError("it did not save its own model, which the mean of all models needs")
        names = {file.file for file in saved.parts}
        if self._is_script and part + SUFFIX not in names:
            raise ProtocolError(f"it did not send the file {part + SUFFIX}")
        for record, name in ((saved.shard, _COMMON), (saved.own, self._own_file(part))):
            if record is not None and (record.file != name or name not in names):
                raise ProtocolError(f"it did not send the file {record.file}")

    # -- the complete checkpoint -----------------------------------------------------------

    def lacks_end(self, present: OpenCheckpoint) -> bool:
        return False

    def mean(self, present: OpenCheckpoint) -> Callable[[], Mean] | None:
        if not self._apart or present.at_start or present.mean is not None:
            return None
        saved = workers_in(present, self._run.numbers).values()
        own = [part.own for part in saved if part.own is not None]
        sizes = [record.phantom_bytes for record in own]
        phantom = next((Phantom(size) for size in sizes if size is not None), None)
        return partial(_mean_of, present.folder, [record.file for record in own], phantom)

    def taken(self, present: OpenCheckpoint, totals: Totals) -> Index:
        plan, saved = self._run.plan, workers_in(present, self._run.numbers)
        assert plan is not None
        files = [file for part in saved.values() for file in part.parts]
        common = next((part.shard for part in saved.values() if part.shard is not None), None)
        if present.mean is not None:
            common, file = present.mean
            files.append(file)
        if common is None:
            raise AssertionError("a worker was asked for the common model")
        updates = [part.updates for part in saved.values()]
        return Index(
            number=present.number,
            # By then, no worker has ended an iteration after its checkpoint's.
            now=0 if present.at_start else min(part.now for part in saved.values()),
            updates=max(updates) if self._has_common else sum(updates) // len(self.parts),
            parts=tuple(files),
            shards=(self._with_all_workers(common, saved),),
            anew=tuple(worker for worker, part in saved.items() if not part.is_complete),
            own=tuple(part.own for part in saved.values() if part.own is not None),
            totals=totals,
            bounds=tuple(plan.bounds),
            layers=tuple(plan.layers),
        )

    def _with_all_workers(
        self, common: ShardRecord, saved: Mapping[int, CheckpointPart]
    ) -> ShardRecord:
        """Return the record of the common model with the progress of all workers.

        If the run is resumed from here, a worker that was lost begins again with the others.
        """
        furthest = max(part.iteration for part in saved.values())
        iterations = {worker: part.iteration for worker, part in saved.items()}
        for worker, name in enumerate(self.parts):
            last = self._last if name in self._finished else None
            iterations.setdefault(worker, furthest if last is None else last)
        pushes = common.pushes
        if not self._has_common:
            pushes = sum(part.updates for part in saved.values())
        return msgspec.structs.replace(
            common,
            clock=min(iterations.values()),
            version=max(self._groups.averages if self._apart else 0, common.version),
            watermarks=tuple(iterations[worker] - 1 for worker in range(len(self.parts))),
            pushes=pushes,
            furthest=float(min(iterations.values())),
        )


def _mean_of(folder: Path, files: Sequence[str], phantom: Value | None) -> Mean:
    """Write the mean of the models in these files; return it, or why it cannot be written.

    phantom: the mean of models without values.
    """
    try:
        mean = mean_parameters(folder, files) if phantom is None else phantom
        return write_shard(folder, common_state({0: 0}, 0, 0, mean, {}), name=COMMON)
    # a worker has sent different models
    except (OSError, OutpaceError, RuntimeError, KeyError) as error:
        return error
