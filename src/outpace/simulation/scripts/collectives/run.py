"""Runs in virtual time of scripts whose own collectives and optimizers do the training."""

from __future__ import annotations

from collections.abc import Coroutine, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from outpace.blocks.block import Block
from outpace.cluster.paths import Paths
from outpace.config.checkpoint import Checkpoint
from outpace.config.experiment import Experiment
from outpace.engine.distributed.requirements import require_followable
from outpace.engine.scripts.redividing import require_same_workers, script_files
from outpace.optim.step import OptimizerState
from outpace.optim.torch_optimizers import State
from outpace.record.checkpoints import Part as SavedFile
from outpace.simulation.collective.routes import Formula, Messages, Route
from outpace.simulation.control import SimulationControl
from outpace.simulation.scripts.collectives.matching import Part
from outpace.simulation.scripts.collectives.messages import Awaits, Joined, Reaches
from outpace.simulation.scripts.collectives.saving import FollowedSaving
from outpace.simulation.scripts.collectives.simulated import SimulatedCollectives
from outpace.simulation.scripts.messages import Computes, FromScript, Left, Stepped
from outpace.simulation.scripts.process import ScriptProcess
from outpace.simulation.scripts.runs import ScriptRun
from outpace.simulation.service_times import times_of
from outpace.support.notices import warn
from outpace.support.processes.checkpoint_signal import checkpoint_on_signal
from outpace.support.units import Time, nanoseconds, seconds
from outpace.sync.messages import worker_name
from outpace.tasks import Workload


class FollowedSimulation(ScriptRun):
    """A run of a script with DistributedDataParallel and `sync.kind=ssgd`."""

    def _set_up(self, experiment: Experiment, workload: Workload) -> None:
        require_followable(experiment)
        self._steps = [0] * experiment.workers
        if self.resume is not None:
            require_same_workers(self.resume)
            for process, file in zip(
                self._script_processes, script_files(self.resume).values(), strict=True
            ):
                process.kept = file
            self._steps = list(self.resume.first)
        self._saving: FollowedSaving | None = None
        if (settings := experiment.checkpoint) is not None:
            self._saving = self._new_saving(settings, workload)
        if settings is not None and self._saving is not None:
            self._at_start.append(self._saving.begin)
            if settings.every_s is not None:
                self._periods.add(self._saving.soon, nanoseconds(settings.every_s), self.kernel.now)
        self._control = SimulationControl(self, [], [])
        self._start()

    def _start(self) -> None:
        """Start to follow all scripts, which have taken `_steps`."""
        self.workers = [self._worker(process) for process in self._script_processes]
        for worker in self.workers:
            self._spawn_program(worker_name(worker.number), worker.run())

    def _worker(self, process: ScriptProcess) -> FollowedWorker:
        return FollowedWorker(self, process, self._steps[process.worker])

    def _spawn_program(self, name: str, program: Coroutine[Any, Any, None]) -> None:
        """Start to follow a script."""
        self.kernel.spawn(program, name)

    # -- checkpoints --------------------------------------------------------------------

    def _new_saving(self, settings: Checkpoint, workload: Workload) -> FollowedSaving | None:
        """Return what takes checkpoints; None if there is no place for them."""
        if self._keeper is None:
            return None
        return FollowedSaving(self, workload, self._keeper, settings, self._script_processes)

    def run(self) -> None:
        with checkpoint_on_signal(self._save_soon):
            super().run()

    def _save_soon(self) -> None:
        if self._saving is None:
            warn("SIGUSR1 is ignored: the run has no `checkpoint`, or no folder")
        else:
            self._saving.soon()

    def goes_on(self, worker: int) -> None:
        """A worker may begin its next iteration."""
        if self.experiment.checkpoint is None:
            return
        steps = self._steps[worker]
        if self._saving is not None:
            self._saving.look(worker, steps, steps)
        if steps != self.experiment.stop.iterations:  # its script waits for this
            self._script_processes[worker].go_on(steps)

    def script_saved(self, worker: int, saved: SavedFile | str) -> None:
        """See `Host`."""
        assert self._saving is not None
        self._saving.script_saved(worker, saved)

    def left(self, worker: int) -> None:
        super().left(worker)
        if self._saving is not None:
            self._saving.leave(worker, None, 0)

    def close(self) -> None:
        if self._saving is not None:
            self._saving.close()
        super().close()

    # ---------------------------------------------------------------------------------

    def _collectives_of(self, experiment: Experiment) -> SimulatedCollectives:
        strategy, law = experiment.peers, experiment.network
        assert strategy is not None
        paths = None if law is None else Paths(law, experiment.machines)
        kind, count = strategy.all_reduce, experiment.workers
        is_fair = law is not None and law.contention == "fair" and law.all_reduce is None
        # Routes that send messages one by one add the workers to the network.
        direct = Formula(self.kernel, self.network, paths, 0 if is_fair else count)
        route: Route = Messages(self.kernel, self.network, count) if is_fair else direct
        self._routes = direct, route
        return SimulatedCollectives(self.kernel, route, direct, kind, count, self._ended)

    def _ended(self, part: Part) -> None:
        if part.call.bucket is None:
            super()._ended(part)

    def parameters(self) -> list[Block]:
        found = self._script_processes[0].parameters
        return self._workload.initial_parameters() if found is None else [found]

    @property
    def updates(self) -> int:
        return min(self._steps)

    @property
    def _changes(self) -> tuple[int, ...]:
        return tuple(self._steps)

    def stepped(self, worker: int, step: Stepped) -> None:
        """Count a step of a worker's optimizer."""
        before = self.updates
        self._steps[worker] += 1
        self.recorder.gradients_applied(1, [0])
        self._note_step(worker, step)
        if self.updates > before:
            self._on_update(0, self.updates)

    def _values(self, worker: int) -> Sequence[Block]:
        return []  # each script has them already

    def optimizer_state(self, worker: int) -> Sequence[OptimizerState]:
        raise NotImplementedError("the script's own optimizer has its state")

    def load_optimizer_state(self, worker: int, state: Mapping[int, State]) -> None:
        raise NotImplementedError("the script's own optimizer has its state")

    def state_dict(self) -> dict[str, torch.Tensor]:
        return self._workload.state_dict(self.parameters())


@dataclass(slots=True)
class FollowedIteration:
    """The iteration that a worker is in.

    Attributes:
        duration: time that its computation takes.
        computed: time that it has computed.
        held: time for which it waited until the other workers had joined a collective.
    """

    started: Time
    duration: Time
    computed: Time = 0
    held: Time = 0
    buckets: list[Part] = field(default_factory=list)  # of the present backward pass
    computed_at_first: Time = 0  # `computed` when the first of them was joined


class FollowedWorker:
    """Follows the script of a worker through virtual time."""

    def __init__(self, run: FollowedSimulation, process: ScriptProcess, first: int) -> None:
        self._run, self._process, self.number = run, process, process.worker
        self._kernel, self._recorder = run.kernel, run.recorder
        self.iteration = first
        self._present: FollowedIteration | None = None
        experiment = run.experiment
        self._evaluations: Iterator[Time] = times_of(
            experiment.evaluation_time, experiment.seed, "evaluation time", self.number
        )
        self._buckets: dict[int, Time] = {}  # `computed` when a bucket was joined, by number
        self._reductions = first  # backward passes whose gradients were all-reduced

    async def run(self) -> None:
        """Follow the script until it leaves the run."""
        self._run.goes_on(self.number)
        while True:
            message: Any = self._receive()
            if isinstance(message, Left):
                break
            if isinstance(message, Computes):
                self._process.computes(message)
                await self._begin(message.evaluated)
            elif isinstance(message, Reaches):
                await self._compute(message.progress)
            elif isinstance(message, Joined):
                await self._join(message)
            elif isinstance(message, Awaits):
                await self._await(message.number)
            elif isinstance(message, Stepped):
                await self._end(message)
            else:
                raise AssertionError(f"{worker_name(self.number)} sent {message}")
        self._run.left(self.number)

    def _receive(self) -> FromScript:
        """Return the next message of the script."""
        return self._process.receive()

    async def _begin(self, evaluated: bool) -> FollowedIteration:
        """Begin an iteration, after an evaluation that takes time."""
        kernel = self._kernel
        if evaluated and (duration := next(self._evaluations)):
            begun = kernel.now
            await self._spend(duration)
            self._recorder.untimed(self.number, self.iteration, begun, kernel.now)
        self._present = FollowedIteration(kernel.now, nanoseconds(self._duration_s()))
        return self._present

    def _duration_s(self) -> float:
        """Return how long the iteration takes that begins to compute now."""
        return self._run.run_time(self.number, self.iteration, self._kernel.now)

    async def _spend(self, duration: Time) -> None:
        """Let the time of a computation pass (ns)."""
        await self._kernel.sleep(seconds(duration))

    async def _compute(self, progress: float) -> None:
        """Let time pass until this share of the iteration has been computed."""
        present = self._present
        if present is None:
            return
        until = round(progress * present.duration)
        if until > present.computed:
            duration, present.computed = until - present.computed, until
            await self._spend(duration)

    async def _join(self, call: Joined) -> None:
        await self._compute(call.progress)
        if self._present is not None and call.bucket is not None:
            self._buckets[call.number] = self._present.computed
        self._run.collectives.join(self.number, call, self._process.memory)

    async def _await(self, number: int) -> None:
        since = self._kernel.now
        part = await self._run.collectives.result(self.number, number)
        assert part is not None, "all workers take the same number of steps"
        present = self._present
        if present is not None:
            present.held += max(0, min(part.all_joined, part.ended) - since)
            if part.call.bucket is not None:
                self._reduced(present, part)
        self._process.done(part)

    def _reduced(self, present: FollowedIteration, part: Part) -> None:
        """Note the all-reduce of a backward pass when its last bucket is done."""
        if not present.buckets:
            present.computed_at_first = self._buckets[part.call.number]
        del self._buckets[part.call.number]
        present.buckets.append(part)
        bucket = part.call.bucket
        if bucket is not None and bucket.is_last:
            average = _Average(self._reductions, present.buckets, len(self._run.workers))
            self._reductions += 1
            overlapped = present.computed - present.computed_at_first
            self._recorder.averaged(self.number, self.iteration, average, overlapped)
            present.buckets = []

    async def _end(self, step: Stepped) -> None:
        present = self._present or await self._begin(evaluated=False)
        await self._compute(1.0)
        self._recorder.gradient_computed(self.number)
        self._run.finished_step()
        self._run.stepped(self.number, step)
        started, computed = present.started, present.started + present.duration
        self._recorder.iteration_finished(
            self.number, self.iteration, started, computed, self._kernel.now, present.held
        )
        self._present = None
        self.iteration += 1
        self._run.goes_on(self.number)


class _Average:
    """All all-reduces of a backward pass, recorded as one. Implements `record.Average`."""

    weight = 1

    def __init__(self, number: int, buckets: Sequence[Part], workers: int) -> None:
        last = buckets[-1]
        self.number, self.members = number, range(workers)
        self.joined = min(part.joined for part in buckets)
        self.began, self.ended = last.all_joined, last.ended
