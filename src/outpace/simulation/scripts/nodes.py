"""The contexts of workers whose gradients a user's script computes, in virtual time."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import torch

from outpace.blocks.block import Block, Deferred, Pieces, StepSettings
from outpace.engine.scripts.tail import Tail
from outpace.record.trace import NONE
from outpace.simulation.nodes import Computing, WorkerNode
from outpace.simulation.peer_context import SimulatedPeer
from outpace.simulation.scripts.messages import Gradient, Stepped
from outpace.simulation.scripts.step import Step, StepGradient
from outpace.support.units import Time, nanoseconds
from outpace.sync.messages import Message, Push
from outpace.sync.peers.context import Parameters
from outpace.sync.programs.context import SendPart

if TYPE_CHECKING:
    from outpace.simulation.scripts.runs import ScriptRun
    from outpace.simulation.scripts.without_servers.run import ScriptPeerSimulation


class ScriptLeft(Exception):  # no error: the script has taken its last step
    """Ends the program of a worker whose script takes no more steps."""


class ScriptComputing(Computing, ABC):
    """The part of a worker's context that is about its gradients.

    When an iteration begins, the script gets the parameters. The simulation then waits until the
    script begins a forward pass, because it may end instead. When the virtual time of the
    iteration has passed, the simulation waits for the end of the script's step. In between, the
    scripts of all workers compute side by side.
    """

    def __init__(self, run: ScriptRun, worker: int, *more: Any) -> None:
        super().__init__(run, worker, *more)
        self._script_run, self.process = run, run.script_processes[worker]
        self._evaluated: Time = 0  # duration of the evaluation before the present iteration
        self.iteration_finished = partial(self._iteration_finished)

    async def _begin(self, parameters: Sequence[Block], iteration: int) -> Time:
        """Return when the script begins to compute, after an evaluation that takes time."""
        found = await self.process.go(parameters, iteration)
        if found is None:
            raise ScriptLeft
        self._evaluated = 0
        if found.evaluated:
            self._evaluated = await self._script_run.evaluate(self.worker, iteration)
        self._is_abortable = found.abortable
        return nanoseconds(self._duration_s(iteration))

    async def _end(self) -> Sequence[Block | None]:
        step = await self.process.finish_step()
        if step is None:
            raise ScriptLeft
        self._note(step)
        return self._blocks(step)

    def _note(self, step: Step) -> None:
        """Count a step, at its end."""
        self._has_computed()
        self._script_run.note_step(self.worker, step.what)
        if step.what.gradient is not Gradient.READY:
            self._recorder.gradient_unusable()

    def _iteration_finished(
        self,
        iteration: int,
        started: Time,
        computed: Time,
        finished: Time,
        held: Time,
        last_shard: int = NONE,
    ) -> None:
        """Note an iteration; an evaluation before it and waits for others are no computation."""
        waited, self.process.waited = self.process.waited, 0
        started += self._evaluated
        computed = max(started, computed - waited)
        note = self._recorder.iteration_finished
        note(self.worker, iteration, started, computed, finished, held, last_shard)

    @abstractmethod
    def _blocks(self, step: Step) -> Sequence[Block | None]:
        """Return the gradient of a step in blocks; None in place of each if there is none."""


class ScriptWorkerNode(ScriptComputing, WorkerNode):
    """The context of a worker's program in a run with servers.

    Attributes:
        pushed: the last iteration that it has pushed; -1: none.
    """

    pushed = -1
    _settings: StepSettings

    def _send(self, to: str, *messages: Message) -> None:
        for message in messages:
            if isinstance(message, Push):
                self.pushed = message.iteration
                if message.gradient is not None:
                    message.settings = self._settings
        super()._send(to, *messages)

    async def execute_in_parts(
        self, parameters: Sequence[Block], iteration: int, send: SendPart
    ) -> None:
        duration, parts = await self._begin(parameters, iteration), self._run.parts
        first = parts.first_after(duration)
        await self._spend(first)
        step = await self.process.finish_step()
        if step is None:
            await self._spend(duration - first)
            raise ScriptLeft
        await parts.send(self._blocks(step), duration, self._spend, send, first)
        self._note(step)

    def _blocks(self, step: Step) -> Sequence[Block | None]:
        self._settings = StepSettings(step.what.settings, step.what.unused)
        if step.gradient is None:
            return [None] * len(self._run.slices)
        return step.gradient.blocks(self._run.slices)


class ScriptPeer(ScriptComputing, SimulatedPeer):
    """The context of a worker's program in a run without servers."""

    _script_run: ScriptPeerSimulation
    has_left = False

    def must_stop(self, iteration: int) -> bool:
        return self.has_left or super().must_stop(iteration)

    async def compute(self, at: Parameters, iteration: int) -> Block | None:
        try:
            return await super().compute(at, iteration)
        except ScriptLeft:
            self.has_left, self._computing_since = True, None
            return None

    def _blocks(self, step: Step) -> Sequence[Block | None]:
        if step.gradient is None:
            self._script_run.keep_buffers(self.worker, step.buffers.clone())
            return [None]
        tail, gradient = self._script_run.tail, step.gradient
        # The script is in its step: nothing has been written over what lies beside the gradient.
        made = partial(_with_tail, tail, gradient, step.what, step.buffers.clone())
        found = Deferred(gradient.elements + tail.elements, gradient.dtype, made)
        found.nbytes += tail.elements * (tail.dtype.itemsize - gradient.dtype.itemsize)
        return [found]


def _with_tail(tail: Tail, gradient: StepGradient, step: Stepped, buffers: torch.Tensor) -> Pieces:
    return tail.behind([gradient.read()], set(step.unused), step.settings, buffers)
