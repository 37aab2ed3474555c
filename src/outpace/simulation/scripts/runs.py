"""The common part of runs of a user's script in virtual time, with and without servers."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from outpace.blocks.block import Block
from outpace.config.experiment import Experiment
from outpace.engine.resuming import ResumePoint
from outpace.engine.scripts.model import with_batch_size
from outpace.engine.scripts.redividing import redivided, script_files
from outpace.engine.scripts.sameness import SameGradients
from outpace.record.checkpoints import Part as SavedFile
from outpace.record.curves import reaches
from outpace.simulation.collective.routes import Formula
from outpace.simulation.executors.gradients import Gradients
from outpace.simulation.scripts.collectives.matching import Part
from outpace.simulation.scripts.collectives.simulated import SimulatedCollectives
from outpace.simulation.scripts.messages import Gradient, Joined, Stepped
from outpace.simulation.scripts.process import LIMIT_REACHED, Host, ScriptProcess
from outpace.simulation.scripts.shared_memory import CallMemory
from outpace.simulation.scripts.workload import ScriptWorkload
from outpace.simulation.service_times import times_of
from outpace.simulation.virtual import VirtualRun
from outpace.support import notices
from outpace.support.units import Time, seconds
from outpace.sync.messages import Pause, worker_name
from outpace.tasks import Workload

_MOST_FILES: Final = 100  # in the summary


class ScriptRun(VirtualRun, Host):
    """The part of a run of scripts that does not depend on servers.

    The scripts evaluate their model themselves: the metrics are what they log.
    """

    _workload: ScriptWorkload

    def _gradients_of(self, experiment: Experiment, workload: Workload) -> Gradients:
        self._reached_target = False
        self._unusable: set[int] = set()  # workers whose unusable gradients were noted
        names = [worker_name(worker) for worker in range(experiment.workers)]
        self._warned: set[str] = set()
        self._first_gradients = SameGradients(names, self.warn)
        for process in self.script_processes:
            process.host = self
        self.collectives = self._collectives_of(experiment)
        self._evaluations = [
            times_of(experiment.evaluation_time, experiment.seed, "evaluation time", worker)
            for worker in range(experiment.workers)
        ]
        return self._workload  # type: ignore[return-value]

    @property
    def script_processes(self) -> Sequence[ScriptProcess]:
        return self._workload.workers.processes

    def _take_up_from(self, point: ResumePoint) -> Time:
        files, others = script_files(point), redivided(point)
        for process in self.script_processes:
            process.kept, process.redivided = files.get(process.worker), others
            process.had_ended = process.worker in point.checkpoint.index.ended
        return super()._take_up_from(point)

    def run(self) -> None:
        super().run()
        why = "stop.target_accuracy is reached" if self._reached_target else ""
        if not why and self.experiment.stop.virtual_time_s is not None:
            why = "stop.virtual_time_s is reached"
        for process in self.script_processes:
            process.begin_end(self.parameters(), why, self._own_buffers(process.worker))
        for process in self.script_processes:
            process.await_end()
        self._workload.workers.take_output()
        self.totals.require_trained()

    def used_by_script(self) -> dict[str, Any]:
        step = self.script_processes[0].step
        return with_batch_size(self._workload.first.used, None if step is None else step.batch_size)

    def times(self, host_s: float) -> dict[str, Any]:
        ended = (process.ended for process in self.script_processes)
        written = {path for each in ended if each is not None for path in each.written}
        own = self._workload.workers.files
        if own is not None:
            written = {path for path in written if not Path(path).is_relative_to(own)}
        return {**super().times(host_s), "files_written": sorted(written)[:_MOST_FILES]}

    def files_written(self) -> Mapping[int, Collection[str]]:
        ended = {process.worker: process.ended for process in self.script_processes}
        return {worker: each.overwritten for worker, each in ended.items() if each is not None}

    def _evaluate(self) -> None:
        """Do nothing: a script evaluates its model itself."""

    def _own_buffers(self, worker: int) -> Block | None:
        """Return the averaged model buffers of a worker's own model; None: it has none."""
        return None

    async def evaluate(self, worker: int, iteration: int) -> Time:
        """Let the time pass in which a script evaluates before an iteration; return it (ns)."""
        duration, begun = next(self._evaluations[worker]), self.kernel.now
        if duration:
            await self.kernel.sleep(seconds(duration))
            self.recorder.untimed(worker, iteration, begun, self.kernel.now)
        return duration

    def note_step(self, worker: int, step: Stepped) -> None:
        """Take what the end of a step says beside its gradient."""
        if step.first is not None:
            self._first_gradients.add(worker_name(worker), *step.first)
        if step.gradient is Gradient.NOT_FINITE and worker not in self._unusable:
            self._unusable.add(worker)
            notices.warn(
                f"a gradient of {worker_name(worker)} is not finite: it is not pushed (iteration "
                f"{self.totals.iterations.get(worker, 1) - 1}), nor are later ones like it"
            )

    def left(self, worker: int) -> None:
        """Note that a worker has left the run; end its script if it still trains."""
        self._note_end_of(worker)
        self._first_gradients.has_left(worker_name(worker))
        self.script_processes[worker].stop(LIMIT_REACHED)

    def _note_end_of(self, worker: int) -> None:
        """Note that a worker joins no more collectives."""
        self.collectives.matching.leave(worker)

    # -- the script's own collectives --------------------------------------------------------

    def _collectives_of(self, experiment: Experiment) -> SimulatedCollectives:
        """Return the collectives of the scripts, beside the messages of the strategy."""
        route = Formula(self.kernel, self.network)
        return SimulatedCollectives(self.kernel, route, experiment.workers, self._ended)

    def _ended(self, part: Part) -> None:
        """Note that a worker has the result of a collective of its script."""
        if part.call.bucket is not None:  # a backward pass notes all of its buckets as one
            return
        iteration = self.totals.iterations.get(part.worker, 0)
        times = part.joined, part.all_joined, part.ended
        self.recorder.collective(part.worker, iteration, part.number, *times)

    def _waiting(self) -> list[str]:
        waiting = self.collectives.matching.waiting()
        remedy = (
            "some workers wait in a collective of the script, and the others wait for gradients of "
            "these workers: take a strategy that does not wait for their gradients, such as ssp, "
            "asp, hpsgd or local-sgd, or leave the collective out"
        )
        return [*super()._waiting(), *waiting, *[remedy] * bool(waiting)]

    def joined(self, worker: int, call: Joined, memory: CallMemory) -> None:
        """See `Host`."""
        self.collectives.join(worker, call, memory)

    def script_saved(self, worker: int, saved: SavedFile | str) -> None:
        """See `Host`."""
        assert self._saving is not None
        self._saving.script_saved(worker, saved)

    async def result(self, worker: int, number: int) -> Part | None:
        """See `Host`."""
        since, waits = self.kernel.now, self.collectives.must_wait(worker, number)
        if waits:
            self._tell(worker, Pause(worker))
        part = await self.collectives.result(worker, number)
        if part is None:
            return None
        if waits:
            self._tell(worker, Pause(worker, over=True))
        self.script_processes[worker].waited += self.kernel.now - since
        return part

    def _tell(self, worker: int, message: Pause) -> None:
        """Tell the servers that wait for the worker's gradients; without servers do nothing."""

    # -- what scripts ask for --------------------------------------------------------------

    def warned(self, text: str) -> None:
        """See `Host`."""
        if text not in self._warned:
            self._warned.add(text)
            self.warn(text)

    def logged(self, worker: int, values: Mapping[str, float]) -> None:
        """Add a point to the metrics; end the run if it reaches the target."""
        found = self.metrics.log(
            self.kernel.now,
            worker,
            self.totals.iterations.get(worker, 0),
            values,
            updates=self.updates,
            gradients=self.totals.applied,
        )
        target = self.experiment.stop.target_accuracy
        if reaches(found.accuracy, None, target) and not self._reached_target:
            self._reached_target = True
            self.kernel.stop()
