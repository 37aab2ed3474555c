"""Completes the checkpoints of a real run with all that this process has recorded."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from pathlib import Path

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from outpace.config.experiment import Experiment
from outpace.engine.cut_offs import saved_history
from outpace.engine.keeper import CheckpointKeeper
from outpace.predict.rules.history import History
from outpace.real.quality import Quality
from outpace.real.training import Training
from outpace.record.checkpoints import Taken
from outpace.record.recovery import Recovery
from outpace.record.timing import Timing
from outpace.record.trace import Trace
from outpace.support.units import Time, seconds
from outpace.tasks import Script


class Completion:
    """Adds to a checkpoint what the processes that saved its parts do not know.

    Args:
        recovery: the counts of the run.
        history: returns that of the rule which cuts iterations off, if there is one.
    """

    def __init__(
        self,
        keeper: CheckpointKeeper,
        experiment: Experiment,
        training: Training,
        trace: Trace,
        timing: Timing,
        recovery: Recovery,
        quality: Quality,
        history: Callable[[], History | None],
    ) -> None:
        self._keeper, self._experiment, self._training = keeper, experiment, training
        self._trace, self._timing, self._recovery = trace, timing, recovery
        self._quality, self._history = quality, history

    def complete(self, taken: Taken, folder: Path, saved: Mapping[int, Time]) -> None:
        """Complete a checkpoint, with all that has been recorded so far.

        saved: for each worker whose script is saved, when. What it has logged after that comes
        again.
        """
        self._trace.flush()
        self._timing.hand_on()
        iterations = max(record.clock for record in taken.shards)
        observed = saved_history(self._history(), folder, iterations)
        taken = msgspec.structs.replace(
            taken,
            parts=(*taken.parts, *observed),
            layout=self._training.layout or self._quality.layout,
            recovery=self._recovery,
        )
        metrics = self._quality.metrics.kept()
        is_script = isinstance(self._experiment.task, Script)
        if self._experiment.peers and not is_script:  # saved at times that differ a little
            metrics = metrics.filter(pc.less_equal(metrics["updates"], taken.updates))
        else:
            metrics = _until(metrics, taken, saved)
        self._keeper.commit(taken, metrics)


def _until(metrics: pa.Table, taken: Taken, saved: Mapping[int, Time]) -> pa.Table:
    """Return the rows until a checkpoint; those of a script until it was saved."""
    limits = np.full(1 + taken.workers, seconds(taken.now))  # the last place is for no worker
    for worker, at in saved.items():
        limits[worker] = seconds(at)
    limits[list(taken.ended)] = math.inf
    workers = pc.fill_null(metrics["worker"], taken.workers).to_numpy()
    return metrics.filter(pa.array(metrics["time_s"].to_numpy() <= limits[workers]))
