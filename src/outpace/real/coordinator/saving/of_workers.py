"""Has the workers of a run without servers save their models (`real.node.saving.of_worker`).

Where workers average by all-reduces, all save at the same number of results. One of them saves the
model that all have, and each what it has beside it. With models that differ
(`PeerStrategy.saved_apart`) all save at once, when no average of two is under way; then their
models are read back here, and the mean of them is saved.
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
from outpace.real.coordinator.saving.base import Checkpoints
from outpace.real.coordinator.saving.open import Open, SavedRun
from outpace.real.net.checkpoint_messages import MOST_CLOCK, CheckpointPart, TakeCheckpoint
from outpace.real.node.saving.of_worker import COMMON
from outpace.record.checkpoints import Part, ShardRecord, Taken, write_shard
from outpace.record.checkpoints.shards import SUFFIX, mean_parameters
from outpace.sync.checkpoint.planner import CutPlanner, Order
from outpace.sync.checkpoint.workers import common_state
from outpace.sync.messages import worker_name

_AHEAD: Final = 1  # results of all-reduces
_COMMON: Final = COMMON + SUFFIX


class Groups(Protocol):
    """The groups or pairs in which workers average."""

    @property
    def averages(self) -> int:
        """Averages that have begun since the run began."""

    def when_idle(self, action: Callable[[], None]) -> None:
        """Call this when no average of two is under way, before another one begins."""


class CheckpointsOfWorkers(Checkpoints):
    """The checkpoints of a run without servers."""

    def __init__(self, run: SavedRun, groups: Groups) -> None:
        experiment, strategy = run.experiment, run.experiment.peers
        assert strategy is not None
        self._workers = experiment.workers
        names = {worker_name(worker): worker for worker in range(self._workers)}
        self._apart, self._has_common = strategy.saved_apart, strategy.has_common
        planner = CutPlanner(self._workers, not self._apart, run.saving.keeper.last, math.inf)
        super().__init__(run, names, planner, "workers")
        self._groups = groups
        self._here = list(range(self._workers))
        self._last = experiment.stop.iterations
        self._finished: set[int] = set()  # workers that have done all their iterations
        self._is_script = experiment.has_script
        # Workers that have finished wait. Scripts do not: no more checkpoints are taken then.
        self._waits = self._apart and not self._is_script
        self._beside = run.beside
        if run.resume is not None:
            self._version = run.resume.updates

    def leave(self, name: str, *, lost: bool) -> None:
        """Save this worker no more. The open checkpoint is given up, and begun again.

        A worker of a task with a model of its own that has finished waits, and is still saved.
        """
        worker = self._names[name]
        if worker not in self._here:
            return
        if not lost:
            self._finished.add(worker)
            if self._waits:
                return
        tells = worker == self._teller
        self._here.remove(worker)
        was_open, present = self._planner.is_open, self._open
        orders = self._planner.leave(worker)
        if present is not None and was_open:
            self._begin_anew(present, orders)
        if tells and self._has_begun and self._can_save:
            self._await_version()

    @property
    def waiting(self) -> list[str]:
        return [worker_name(each) for each in sorted(self._finished)] if self._waits else []

    @property
    def _can_save(self) -> bool:
        """True unless the run ends, or the model of a worker that has finished is missing."""
        goes_on = bool(self._here) and not (self._is_over or self._stops)
        if self._is_script and len(self._here) < self._workers:
            return False
        return goes_on and not (self._apart and not self._finished <= set(self._here))

    # -- what is different without servers -----------------------------------------------

    @property
    def _teller(self) -> int:
        return self._here[0]

    def _target(self, clock: int) -> int:
        return min(max(clock, self._groups.averages), MOST_CLOCK) + _AHEAD

    def _begin_if_due(self, clock: int = 0) -> None:
        if self._is_due and self._open is None and self._can_save:
            self._groups.when_idle(lambda: self._begin_now(clock))

    def _begin_now(self, clock: int) -> None:
        if self._can_save:
            super()._begin_if_due(clock)

    def _saves_common(self, present: Open, worker: int) -> bool:
        """True if this worker is the one that saves the model that all have."""
        return worker == self._here[0] and (not self._apart or present.at_start)

    def _ask(self, order: Order, folder: Path) -> None:
        assert self._open is not None
        common = self._saves_common(self._open, order.shard)
        clock = order.clock if self._has_begun else 0
        where = self._named(folder, order.shard)
        self._tell(order.shard, TakeCheckpoint(order.number, clock, where, common))

    def _require(self, present: Open, process: int, part: CheckpointPart) -> None:
        if part.own is not None and part.own.shard != process:
            raise ProtocolError(f"it saved worker {part.own.shard}")
        if (part.shard is not None) != self._saves_common(present, process):
            raise ProtocolError("it saved the common model unasked, or did not save it")
        if self._apart and part.own is None and not present.at_start:
            raise ProtocolError("it did not save its model, of which the mean is saved")
        names = {each.file for each in part.parts}
        if self._is_script and kept_in(process) not in names:
            raise ProtocolError(f"it did not send the file {kept_in(process)}")
        for record, name in ((part.shard, _COMMON), (part.own, self._own_file(process))):
            if record is not None and (record.file != name or name not in names):
                raise ProtocolError(f"it did not send the file {record.file}")

    def _own_file(self, worker: int) -> str:
        """Return the name of the file with the model of a worker."""
        return model_of(worker) + SUFFIX if self._is_script else kept_in(worker)

    def _files(self, present: Open, process: int) -> Collection[str]:
        common = {_COMMON} if self._saves_common(present, process) else set()
        return {self._own_file(process), kept_in(process)} | common

    def _missing(self, present: Open) -> list[str]:
        return [worker_name(worker) for worker in self._here if worker not in present.parts]

    # -- the mean of models that differ ------------------------------------------------

    def _lacks_mean(self, present: Open) -> bool:
        """True if the workers have saved their models, and their mean is not there yet."""
        awaited = self._apart and not present.at_start and not self._planner.is_open
        return awaited and present.mean is None

    def _has_all_parts(self, present: Open) -> None:
        if not self._lacks_mean(present):
            super()._has_all_parts(present)
            return
        own = [part.own for _, part in sorted(present.parts.items()) if part.own]
        sizes = [record.phantom_bytes for record in own]
        phantom = next((Phantom(size) for size in sizes if size is not None), None)
        write = partial(_mean_of, present.folder, [record.file for record in own], phantom)
        self._beside(write, partial(self._has_mean, present))

    def _has_mean(self, present: Open, mean: tuple[ShardRecord, Part] | Exception) -> None:
        if self._open is not present:  # it was given up
            return
        if isinstance(mean, Exception):
            self._fail(present, str(mean))
            return
        present.mean = mean
        super()._has_all_parts(present)

    def _finish(self, present: Open) -> None:
        if self._open is present and self._lacks_mean(present):  # the run ends
            self._give_up(present, [])
            return
        super()._finish(present)

    # -- the complete checkpoint -----------------------------------------------------------

    def _taken(self, present: Open) -> Taken:
        assert self._plan is not None
        saved = present.parts
        files = [part for worker in sorted(saved) for part in saved[worker].parts]
        common = next((each.shard for each in saved.values() if each.shard is not None), None)
        if present.mean is not None:
            common, part = present.mean
            files.append(part)
        if common is None:
            raise AssertionError("a worker was asked for the common model")
        updates = [each.updates for each in saved.values()]
        return Taken(
            number=present.number,
            # No worker has ended a later iteration than its checkpoint's by then.
            now=0 if present.at_start else min(part.now for part in saved.values()),
            updates=max(updates) if self._has_common else sum(updates) // self._workers,
            parts=tuple(files),
            shards=(self._with_all_workers(common, saved),),
            anew=tuple(sorted(self.unrepeatable & saved.keys())),
            own=tuple(each.own for _, each in sorted(saved.items()) if each.own is not None),
            totals=self._totals(present),
            bounds=tuple(self._plan.bounds),
            layers=tuple(self._plan.layers),
        )

    def _with_all_workers(
        self, common: ShardRecord, saved: Mapping[int, CheckpointPart]
    ) -> ShardRecord:
        """Return the record of the common model with the progress of all workers.

        A worker that was lost begins with the others again, if the run goes on from here.
        """
        furthest = max(each.iteration for each in saved.values())
        iterations = {worker: each.iteration for worker, each in saved.items()}
        for worker in range(self._workers):
            last = self._last if worker in self._finished else None
            iterations.setdefault(worker, furthest if last is None else last)
        pushes = common.pushes
        if not self._has_common:
            pushes = sum(each.updates for each in saved.values())
        return msgspec.structs.replace(
            common,
            clock=min(iterations.values()),
            version=max(self._groups.averages if self._apart else 0, common.version),
            watermarks=tuple(iterations[worker] - 1 for worker in range(self._workers)),
            pushes=pushes,
            furthest=float(min(iterations.values())),
        )


def _mean_of(
    folder: Path, files: Sequence[str], phantom: Value | None
) -> tuple[ShardRecord, Part] | Exception:
    """Write the mean of the models in these files; return it, or why it cannot be written.

    phantom: of models that have no values, the mean.
    """
    try:
        mean = mean_parameters(folder, files) if phantom is None else phantom
        return write_shard(folder, common_state({0: 0}, 0, 0, mean, {}), name=COMMON)
    except (OSError, OutpaceError, RuntimeError, KeyError) as error:  # a worker sent other models
        return error
