"""The body of a run in which user's scripts compute the gradients, each in its own process."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import torch

from outpace.blocks.block import Block, StepSettings
from outpace.engine.scripts.model import with_batch_size
from outpace.engine.scripts.sameness import SameGradients
from outpace.record.tables import NONE
from outpace.simulation.collective.routes import Formula, Route
from outpace.simulation.computing import Body, Computation, WorkerLeft
from outpace.simulation.life import Process, Send
from outpace.simulation.scripts.collectives.matching import Part
from outpace.simulation.scripts.collectives.simulated import SimulatedCollectives
from outpace.simulation.scripts.host import Host, ScriptModels
from outpace.simulation.scripts.messages import Gradient, Joined, Stepped
from outpace.simulation.scripts.process import LIMIT_REACHED, ScriptProcess
from outpace.simulation.scripts.shared_memory import CallMemory
from outpace.simulation.scripts.workers import ScriptWorkload
from outpace.simulation.service_times import times_of
from outpace.simulation.virtual import VirtualRun
from outpace.support import notices
from outpace.support.units import Time
from outpace.sync import AllReduce
from outpace.sync.messages import Message, Push, worker_name

_MOST_FILES: Final = 100  # name in the summary


class ScriptBody(Body, Host):
    """Lets scripts compute gradients, and answers their messages.

    The scripts evaluate their model themselves, so the metrics are the values that they log.

    Args:
        route: route of the messages of the scripts' own collectives; None: the formula.
        all_reduce: how an all-reduce of the scripts is carried out.

    Attributes:
        collectives: the scripts' own collectives, besides the messages of the strategy.
    """

    may_leave = True

    def __init__(
        self,
        run: VirtualRun,
        workload: ScriptWorkload,
        models: ScriptModels,
        route: Route | None = None,
        all_reduce: AllReduce = "ring",
    ) -> None:
        self._run, self._workload, self.models = run, workload, models
        self._kernel, self._recorder = run.kernel, run.recorder
        experiment = run.experiment
        self._reached_target = False
        # workers about whose unusable gradients the user was warned
        self._unusable: set[int] = set()
        names = [worker_name(worker) for worker in range(experiment.workers)]
        self._warned: set[str] = set()
        self._first_gradients = SameGradients(names, run.warn)
        self.processes: Sequence[ScriptProcess] = workload.workers.processes
        self.collectives = SimulatedCollectives(
            run.kernel,
            route or Formula(run.kernel, run.network),
            experiment.workers,
            self._ended,
            all_reduce,
        )
        self._evaluations = [
            times_of(experiment.evaluation_time, experiment.seed, "evaluation time", worker)
            for worker in range(experiment.workers)
        ]
        for process in self.processes:
            process.host = self

    def start(self) -> None:
        self._workload.workers.begin(self._workload.slices)

    def computation(self, run: VirtualRun, worker: int, process: Process) -> ScriptComputation:
        return ScriptComputation(self, run, worker, process)

    # -- the end ---------------------------------------------------------------------------

    def end(self) -> None:
        run = self._run
        why = "stop.target_accuracy is reached" if self._reached_target else ""
        if not why and run.experiment.stop.virtual_time_s is not None:
            why = "stop.virtual_time_s is reached"
        for process in self.processes:
            process.begin_end(run.parameters(), why, self.models.buffers(process.worker))
        for process in self.processes:
            process.await_end()
        self._workload.workers.take_output()
        run.totals.require_trained()

    def close(self) -> None:
        self._workload.workers.close()

    def state_dict(self, parameters: Sequence[Block]) -> dict[str, torch.Tensor]:
        found = self._workload.state_dict(parameters)
        self.models.put_buffers(found)
        return found

    def used_by_script(self) -> dict[str, Any]:
        step = self.processes[0].step
        return with_batch_size(self._workload.first.used, None if step is None else step.batch_size)

    def summary(self) -> dict[str, Any]:
        ended = (process.ended for process in self.processes)
        written = {path for each in ended if each is not None for path in each.written}
        own = self._workload.workers.files
        if own is not None:
            written = {path for path in written if not Path(path).is_relative_to(own)}
        return {
            "executor": {"kind": "scripts", "processes": len(self.processes)},
            "files_written": sorted(written)[:_MOST_FILES],
        }

    def files_written(self) -> Mapping[int, Collection[str]]:
        ended = {process.worker: process.ended for process in self.processes}
        return {worker: each.overwritten for worker, each in ended.items() if each is not None}

    # -- iterations --------------------------------------------------------------------------

    async def evaluation(self, worker: int, iteration: int) -> Time:
        """Let the time of a script's evaluation before an iteration pass; return the time (ns)."""
        duration, begun = next(self._evaluations[worker]), self._kernel.now
        if duration:
            await self._kernel.sleep_ns(duration)
            self._recorder.untimed(worker, iteration, begun, self._kernel.now)
        return duration

    def note_step(self, worker: int, step: Stepped) -> None:
        """Note the data besides the gradient that a script reports at the end of a step."""
        if step.first is not None:
            self._first_gradients.add(worker_name(worker), *step.first)
        if step.gradient is Gradient.NOT_FINITE and worker not in self._unusable:
            self._unusable.add(worker)
            notices.warn(
                f"a gradient of {worker_name(worker)} is not finite: it is not pushed (iteration "
                f"{self._run.totals.iterations.get(worker, 1) - 1}), and later ones that "
                "are not finite are not pushed"
            )
        self.models.note_step(worker, step)

    def left(self, worker: int, *, is_over: bool = False) -> None:
        """Note that a worker has left the run; end its script if it still trains."""
        if is_over:
            self.collectives.end(worker)
        else:
            self.collectives.leave(worker)
        self._first_gradients.has_left(worker_name(worker))
        self.processes[worker].stop(LIMIT_REACHED)

    # -- the script's own collectives --------------------------------------------------------

    def _ended(self, part: Part) -> None:
        """Note that a worker has the result of a collective of its script."""
        # a backward pass records all its buckets as one all-reduce
        if part.call.bucket is not None:
            return
        iteration = self._run.totals.iterations.get(part.worker, 0)
        times = part.joined, part.all_joined, part.ended
        self._recorder.collective(part.worker, iteration, part.number, *times)

    def waiting(self) -> list[str]:
        waiting = self.collectives.waiting()
        remedy = (
            "some workers wait in a collective of the script, and the others wait for gradients of "
            "these workers: take a strategy that does not wait for their gradients, such as ssp, "
            "asp, hpsgd or local-sgd, or leave the collective out"
        )
        return [*waiting, *[remedy] * bool(waiting)]

    def joined(self, worker: int, call: Joined, memory: CallMemory) -> None:
        self.collectives.join(worker, call, memory)

    async def result(self, worker: int, number: int) -> Part | None:
        since, waits = self._kernel.now, self.collectives.must_wait(worker, number)
        if waits:
            self._run.exchange.pause(worker)
        part = await self.collectives.result(worker, number)
        if part is None:
            return None
        if waits:
            self._run.exchange.pause(worker, over=True)
        self.processes[worker].waited += self._kernel.now - since
        return part

    # -- what scripts say --------------------------------------------------------------------

    def warned(self, text: str) -> None:
        if text not in self._warned:
            self._warned.add(text)
            self._run.warn(text)

    def logged(self, worker: int, values: Mapping[str, float]) -> None:
        """Add a point to the metrics; end the run if it reaches the target."""
        run = self._run
        found = run.metrics.log(
            self._kernel.now,
            worker,
            run.totals.iterations.get(worker, 0),
            values,
            updates=run.updates,
            gradients=run.totals.applied,
        )
        if run.experiment.stop.ends_at(found.accuracy) and not self._reached_target:
            self._reached_target = True
            self._kernel.stop()


class ScriptComputation(Computation):
    """Computes the gradients of one worker by its script.

    When an iteration begins, the script gets the parameters. The simulation then waits until the
    script begins a forward pass, because it may end instead. When the virtual time of the iteration
    has passed, the simulation waits for the end of the script's step. In between, the scripts of
    all workers compute in parallel.
    """

    def __init__(
        self,
        body: ScriptBody,
        run: VirtualRun,
        worker: int,
        process: Process,
    ) -> None:
        super().__init__(run, worker, process)
        self._body, self._script = body, body.processes[worker]
        self._evaluated: Time = 0  # duration of the evaluation before the present iteration (ns)
        self._rest: Time = 0  # rest of the computation after the share that `begin` was given
        self._step: Stepped
        self._settings: StepSettings
        self._has_left = False

    def must_stop(self, iteration: int) -> bool:
        return self._has_left or super().must_stop(iteration)

    def sending(self, send: Send) -> Send:
        def sent(to: str, *messages: Message) -> None:
            for message in messages:
                if isinstance(message, Push) and message.gradient is not None:
                    message.settings = self._settings
            send(to, *messages)

        return sent

    async def begin(self, parameters: Sequence[Block], iteration: int, share: float = 1.0) -> Time:
        """Return the time when the script begins to compute, which is after a timed evaluation."""
        found = await self._script.go(parameters, iteration)
        if found is None:
            self._has_left = True
            raise WorkerLeft
        self._evaluated = 0
        if found.evaluated:
            self._evaluated = await self._body.evaluation(self.worker, iteration)
        self.is_abortable = found.abortable
        duration = self._duration(iteration)
        self._rest = duration - round(share * duration)
        return duration

    async def gradient(self) -> Sequence[Block | None]:
        step = await self._script.finish_step()
        if step is None:
            self._has_left = True
            if self._rest:
                await self._kernel.sleep_ns(self._rest)
            raise WorkerLeft
        self._step, self._settings = step, StepSettings(step.settings, step.unused)
        return self._body.models.gradient(self.worker, step, self._script.gradient())

    def has_computed(self) -> None:
        super().has_computed()
        self._body.note_step(self.worker, self._step)
        if self._step.gradient is not Gradient.READY:
            self._recorder.gradient_unusable()

    def iteration_finished(
        self,
        iteration: int,
        started: Time,
        computed: Time,
        finished: Time,
        held: Time,
        last_shard: int = NONE,
    ) -> None:
        """Note an iteration; an evaluation before it, and waits for others, are not computation."""
        waited, self._script.waited = self._script.waited, 0
        started += self._evaluated
        computed = max(started, computed - waited)
        super().iteration_finished(iteration, started, computed, finished, held, last_shard)
