"""The exchange of scripts in virtual time that train with their own collectives and optimizers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from outpace.blocks.block import Block
from outpace.engine.distributed.backward import BackwardTimes
from outpace.simulation.control import SimulationControl
from outpace.simulation.scripts.body import ScriptBody
from outpace.simulation.scripts.collectives.matching import Part
from outpace.simulation.scripts.messages import (
    Awaits,
    Computes,
    Joined,
    Left,
    Reaches,
    Stepped,
)
from outpace.simulation.scripts.process import ScriptProcess
from outpace.simulation.scripts.workers import ScriptWorkload
from outpace.simulation.virtual import Exchange, VirtualRun
from outpace.support.units import Time, nanoseconds
from outpace.sync.messages import worker_name


class Followed(Exchange[Any]):
    """The exchange of a script with DistributedDataParallel and `sync.kind=ssgd`."""

    def __init__(self, run: VirtualRun, workload: ScriptWorkload, body: ScriptBody) -> None:
        self._run, self._workload, self._body = run, workload, body
        self._steps = [0] * run.experiment.workers

    def start(self, saving: None) -> None:
        run = self._run
        self.control = SimulationControl(run, [])
        for process in self._body.processes:
            worker = FollowedWorker(run, self, self._body, process)
            run.kernel.spawn(worker.run(), worker_name(process.worker))

    def left(self, worker: int) -> None:
        """Note that a script takes no more steps."""
        self._body.left(worker)

    def parameters(self) -> list[Block]:
        found = self._body.processes[0].parameters
        return self._workload.initial_parameters() if found is None else [found]

    @property
    def updates(self) -> int:
        return min(self._steps)

    @property
    def changes(self) -> tuple[int, ...]:
        return tuple(self._steps)

    def stepped(self, worker: int, step: Stepped) -> None:
        """Count a step of a worker's optimizer."""
        before = max(self._steps)
        self._steps[worker] += 1
        self._run.recorder.gradients_applied(1, [0])
        self._body.note_step(worker, step)
        if max(self._steps) > before:  # the first worker that has taken this step
            self._run.on_update(before + 1)


@dataclass(slots=True)
class FollowedIteration:
    """The present iteration of a worker.

    Attributes:
        duration: time that its computation takes (ns).
        computed: time that it has computed (ns).
        held: time for which it waited until the other workers had joined a collective.
        joined: when it joined the first bucket of the present backward pass.
        computed_before: time that it had computed before that.
    """

    started: Time
    duration: Time
    computed: Time = 0
    held: Time = 0
    joined: Time = 0
    computed_before: Time = 0


class FollowedWorker:
    """Follows the script of a worker through virtual time."""

    def __init__(
        self,
        run: VirtualRun,
        exchange: Followed,
        body: ScriptBody,
        process: ScriptProcess,
    ) -> None:
        self._run, self._exchange, self._body = run, exchange, body
        self._process, self.number = process, process.worker
        self._kernel, self._recorder = run.kernel, run.recorder
        self.iteration = 0
        self._present: FollowedIteration | None = None
        self._reductions = 0  # number of backward passes whose gradients were all-reduced

    async def run(self) -> None:
        """Follow the script until it leaves the run."""
        while True:
            message: Any = self._process.receive()
            if isinstance(message, Left):
                break
            if isinstance(message, Computes):
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
        self._exchange.left(self.number)

    async def _begin(self, evaluated: bool) -> FollowedIteration:
        """Begin an iteration, after an evaluation that takes time."""
        kernel = self._kernel
        if evaluated:
            await self._body.evaluation(self.number, self.iteration)
        duration_s = self._run.run_time(self.number, self.iteration, kernel.now)
        self._present = FollowedIteration(kernel.now, nanoseconds(duration_s))
        return self._present

    async def _compute(self, progress: float) -> None:
        """Let time pass until this share of the iteration has been computed."""
        present = self._present
        if present is None:
            return
        until = round(progress * present.duration)
        if until > present.computed:
            duration, present.computed = until - present.computed, until
            await self._kernel.sleep_ns(duration)

    async def _join(self, call: Joined) -> None:
        await self._compute(call.progress)
        present = self._present
        if present is not None and call.bucket is not None and call.bucket.index == 0:
            present.joined, present.computed_before = self._kernel.now, present.computed
        self._body.collectives.join(self.number, call, self._process.memory)

    async def _await(self, number: int) -> None:
        since = self._kernel.now
        part = await self._body.collectives.result(self.number, number)
        assert part is not None, "all workers take the same number of steps"
        present = self._present
        if present is not None:
            present.held += max(0, min(part.all_joined, part.ended) - since)
            if part.call.bucket is not None and part.call.bucket.is_last:
                self._reduced(present, part)
        self._process.done(part)

    def _reduced(self, present: FollowedIteration, last: Part) -> None:
        """Record the all-reduces of a backward pass as one, after the end of its last bucket."""
        members, joined = range(self._run.experiment.workers), present.joined
        average = BackwardTimes(self._reductions, members, joined)
        average.began, average.ended = last.all_joined, last.ended
        self._reductions += 1
        overlapped = present.computed - present.computed_before
        self._recorder.averaged(self.number, self.iteration, average, overlapped)

    async def _end(self, step: Stepped) -> None:
        present = self._present or await self._begin(evaluated=False)
        await self._compute(1.0)
        self._recorder.gradient_computed(self.number)
        self._run.finished_step()
        self._exchange.stepped(self.number, step)
        started, computed = present.started, present.started + present.duration
        self._recorder.iteration_finished(
            self.number, self.iteration, started, computed, self._kernel.now, present.held
        )
        self._present = None
        self.iteration += 1
