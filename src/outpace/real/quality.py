"""The quality of the model during a real run, and the parameters at its end."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import torch

from outpace.blocks.block import Block
from outpace.config.experiment import Experiment
from outpace.engine.resuming import ResumePoint
from outpace.real.background import BackgroundThread
from outpace.real.coordinator.coordinator import Coordinator
from outpace.real.net.messages import Snapshot
from outpace.real.net.report_messages import ScriptLog
from outpace.real.training import Training
from outpace.record.checkpoints import Index
from outpace.record.metrics import Metrics
from outpace.record.totals import Totals
from outpace.support.units import Time, seconds
from outpace.tasks import Evaluation


class Quality:
    """Evaluates consistent snapshots, and records what scripts log, for all attempts of a run.

    Ends the run at its target accuracy.

    Args:
        resume: the point at which the run is resumed; None: it begins.
    """

    def __init__(
        self, experiment: Experiment, training: Training, resume: ResumePoint | None
    ) -> None:
        self.metrics = Metrics()
        if resume is not None:
            self.metrics.take_up(resume.metrics())
        self._experiment, self._training, self._resume = experiment, training, resume
        self._known = training.initial  # the last evaluated parameters
        self._evaluated: int | None = None  # the version of these parameters
        self._evaluations: BackgroundThread | None = None

    def attach(self, coordinator: Coordinator) -> None:
        """Evaluate the snapshots of this attempt from now on."""
        self._coordinator = coordinator
        if self._evaluations is None:
            threads = torch.get_num_threads()
            self._evaluations = BackgroundThread(coordinator.clock, "evaluation", threads)
        else:
            self._evaluations.move_to(coordinator.clock)

    def goes_back(self, point: ResumePoint) -> None:
        """Forget later measurements, because the run is resumed from this checkpoint."""
        self._resume = point
        self.metrics.take_up(point.metrics())

    def start(self) -> None:
        """Evaluate the initial parameters, if the run evaluates any and begins with them."""
        evaluate, training = self._experiment.evaluate, self._training
        if self._resume is None and (evaluate.every_updates or evaluate.every_s):
            self._add(0, 0, training.evaluate(training.initial), Totals())
            self._evaluated = 0

    def begin(self, blocks: list[Block], at: Snapshot, done: Callable[[], None]) -> None:
        """Begin to evaluate a snapshot. done: called after the evaluation."""
        coordinator = self._coordinator
        totals = coordinator.state.totals
        before = 0 if self._resume is None else self._resume.totals.applied
        totals.applied = before + at.applied  # servers report their counts later
        self._evaluated, self._known = at.version, blocks

        def told(evaluation: Evaluation | None) -> None:
            # otherwise the run has gone back to an earlier point
            if coordinator is self._coordinator:
                self._add(at.now, at.version, evaluation, totals)
                done()

        assert self._evaluations is not None
        self._evaluations.do(partial(self._training.evaluate, blocks), told)

    def settle(self) -> None:
        """Evaluate the final parameters as well, and wait for all evaluations."""
        if self._coordinator.snapshots.final is not None:
            blocks, at = self._coordinator.snapshots.final
            if at.version != self._evaluated:
                self.begin(blocks, at, lambda: None)
        if self._evaluations is not None:
            self._evaluations.settle()

    def close(self, limit_s: float) -> None:
        """Wait up to `limit_s` for the running evaluation."""
        if self._evaluations is not None:
            self._evaluations.close(limit_s)

    def log(self, worker: int, message: ScriptLog) -> None:
        """Record the values that the script of a worker has logged."""
        known = self._coordinator.state.totals_of.values()  # as reported last
        gradients = sum(totals.applied for totals in known)
        for point in message.points:
            evaluation = self.metrics.log(
                point.time, worker, point.iteration, point.values, gradients=gradients
            )
            self._end_at_target(evaluation)

    def _add(self, now: Time, version: int, evaluation: Evaluation | None, totals: Totals) -> None:
        if evaluation is None:
            return
        self.metrics.add(now, version, evaluation, totals)
        self._end_at_target(evaluation)

    def _end_at_target(self, evaluation: Evaluation) -> None:
        if self._experiment.stop.ends_at(evaluation.accuracy):
            self._coordinator.end("the target accuracy is reached")

    def metrics_until(self, taken: Index, saved: Mapping[int, Time]) -> pa.Table:
        """Return the measurements until a checkpoint.

        saved: the time at which each worker's script was saved; it will log later values again.
        """
        metrics, experiment = self.metrics.kept(), self._experiment
        if experiment.peers and not experiment.has_script:
            # Models are saved at times that differ a little.
            return metrics.filter(pc.less_equal(metrics["updates"], taken.updates))
        # the last place is for rows without a worker
        limits = np.full(1 + taken.workers, seconds(taken.now))
        for worker, at in saved.items():
            limits[worker] = seconds(at)
        limits[list(taken.ended)] = math.inf
        workers = pc.fill_null(metrics["worker"], taken.workers).to_numpy()
        return metrics.filter(pa.array(metrics["time_s"].to_numpy() <= limits[workers]))

    # -- the parameters ------------------------------------------------------------------

    def parameters(self) -> Sequence[Block]:
        """Return the final parameters, or the last known ones if a server was lost."""
        final = self._coordinator.snapshots.final
        if final is not None:
            return final[0]
        if (point := self._without_others) is not None:
            return point.checkpoint.blocks()
        return self._known

    def state_dict(self) -> dict[str, torch.Tensor]:
        buffers, layout = self._coordinator.reports.buffers, self.layout
        point = self._without_others
        if point is not None and layout != point.checkpoint.index.layout:
            # The workers train another model, or have not yet reported which one.
            buffers, layout = None, point.checkpoint.index.layout
        return self._training.state_dict(self.parameters(), layout, buffers)

    @property
    def layout(self) -> str:
        """Names and shapes of the parameters, as sent by worker 0."""
        first = self._coordinator.state.joined.get(self._coordinator.workers[0])
        return "" if first is None else first.layout

    @property
    def _without_others(self) -> ResumePoint | None:
        """The checkpoint from which the run is resumed, if no later parameters are known."""
        is_known = self._coordinator.snapshots.final is not None or self._evaluated is not None
        return None if is_known else self._resume
