"""The trainer for the model of a user's script."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING

import torch

from outpace.blocks.block import Block, Pieces, StepSettings
from outpace.blocks.gathering import Gathering
from outpace.blocks.sums import all_finite
from outpace.config.experiment import Experiment
from outpace.engine.scripts.buffers import BufferLayout
from outpace.engine.scripts.gradient import (
    FirstGradient,
    gradient_in_pieces,
    is_skipped,
    require_finite_parameters,
)
from outpace.engine.scripts.model import ScriptModel
from outpace.engine.scripts.optimizer_state import lengths_of
from outpace.optim.torch_optimizers import State
from outpace.real.net.messages import Compared, Initialize
from outpace.real.node.worker_process import MustEnd, Trainer, WorkerProcess
from outpace.sync.programs.context import SendPart, Stopped
from outpace.tasks.abort_points import AbortPoints, Computation

if TYPE_CHECKING:
    from outpace.real.script.overlapped import OverlappedGradient


class ScriptTrainer(Trainer):
    """Stops the kernel while the user's script computes a gradient.

    Args:
        averaged: the model buffers that workers average.
    """

    def __init__(
        self,
        process: WorkerProcess,
        experiment: Experiment,
        script: ScriptModel,
        averaged: BufferLayout | None = None,
    ) -> None:
        self._process, self.script = process, script
        self.layers, self.layout = script.layers, script.layout
        if averaged is not None:
            self.layout = averaged.added_to(self.layout)
        self.used = json.dumps(script.used())
        self.iteration = 0  # the script computes its gradient
        self.stops = False  # only inside `outpace.abortable`
        self.first = FirstGradient(
            lambda iteration, digest: process.coordinator.send(
                Compared("gradient", iteration, digest)
            ),
            wanted=experiment.workers > 1,
        )
        self._slices = [slice(0, sum(self.layers))]
        self.step_settings: StepSettings | None = None  # for the next push
        self.overlapped: OverlappedGradient | None = None  # with `overlap`
        self._abort_points = AbortPoints(script.model)
        self._must_end: MustEnd | None = None
        self._stopped: Stopped | None = None  # True if this iteration's computation was stopped

    def read_buffers(self, *, unsaved: bool = False) -> torch.Tensor:
        return self.script.read_buffers(unsaved=unsaved)

    def load_buffers(self, data: torch.Tensor) -> None:
        self.script.load_buffers(data)

    def cut(self, slices: Sequence[slice]) -> list[Block]:
        self._slices, self._gathering = list(slices), Gathering(self.layers, slices)
        flat = self.script.flat()
        return [flat[part].clone() for part in slices]

    def initialize(self, server: int, block: Block) -> Initialize:
        script = self.script
        groups = [list(group) for group in script.places(self._slices[server])]
        return Initialize(
            type(script.optimizer).__name__,
            script.settings(),
            groups,
            block,
            script.has_taken_steps(),
        )

    def lengths(self, server: int) -> dict[int, int]:
        return lengths_of(self.script.places(self._slices[server]))

    def initial_state(self) -> Sequence[Mapping[int, State]]:
        return self.state() if self.script.has_taken_steps() else []

    def state(self) -> Sequence[dict[int, State]]:
        """Return a copy of the state in the script's optimizer, cut for the servers."""
        return [self.script.state_within(part) for part in self._slices]

    def joined_state(self, states: Sequence[Mapping[int, State]]) -> dict[int, State]:
        """Return the state of whole parameters from the states of the servers."""
        return self.script.joined_state(states, self._slices)

    async def gradient(
        self, parameters: Sequence[Block], iteration: int, must_end: MustEnd | None = None
    ) -> Sequence[Block | None] | Stopped:
        self._begin(parameters, iteration, None)
        self._must_end = must_end
        gradient = await self._process.from_script.get()
        return self._stopped or gradient

    async def gradient_in_parts(
        self, parameters: Sequence[Block], iteration: int, send: SendPart
    ) -> Sequence[Block | None]:
        self._begin(parameters, iteration, send)
        return await self._process.from_script.get()

    def _begin(self, parameters: Sequence[Block], iteration: int, send: SendPart | None) -> None:
        """Stop the kernel when this walker waits, so that the script computes the gradient.

        Args:
            parameters: loaded into the model first; empty: the model has them already.
            iteration: number of the iteration.
            send: see `OverlappedGradient`.
        """
        if parameters:
            self.script.load(parameters)
        self.iteration, self._must_end, self._stopped = iteration, None, None
        self.stops = False
        if self.overlapped is not None:
            self.overlapped.begin(self._slices, send)
        self._process.kernel.stop()

    @contextmanager
    def stopping(self) -> Iterator[Computation]:
        """Stop the computation in this context when a message ends the iteration."""
        if self._must_end is None:
            yield Computation()
            return
        self.stops = True
        with self._abort_points.stopping_at(self._must_end) as computation:
            yield computation
        if computation.stopped:
            self._stopped = Stopped(computation.share)

    def take_gradient(self) -> Sequence[Block | None]:
        """Return the script's gradient, one block per server; store this step's settings."""
        refused = [None] * len(self._slices)
        if self._stopped is not None:
            self.first.look(self.iteration, None)
            return refused
        self.step_settings = StepSettings(self.script.settings(), self.script.unused)
        blocks = self._judged(self._gathered)
        return refused if blocks is None else blocks.parts

    def _gathered(self) -> Pieces:
        parts = gradient_in_pieces(self.script).parts
        return Pieces(self._gathering.blocks(parts))

    def look_at_first(self) -> None:
        """Use the gradient in the model as this worker's first one, if it still can be."""
        if self.first.is_wanted:
            self.first.look(self.iteration, gradient_in_pieces(self.script))

    # -- the script's gradient ----------------------------------------------------------

    def gradient_in_place(self, *, check: bool) -> Pieces | None:
        """Return the gradient in pieces, if possible without a copy; None if it is not used.

        Args:
            check: True: refuse the gradient if it is not finite.
        """
        return self._judged(partial(gradient_in_pieces, self.script), check=check)

    def _judged(self, read: Callable[[], Pieces], *, check: bool = True) -> Pieces | None:
        """Return the gradient; None if GradScaler skips this step, or if it is refused.

        Args:
            read: returns the gradient.
            check: True: refuse the gradient if it is not finite.
        """
        found = None
        if is_skipped(self.script.optimizer):
            self._process.recorder.gradient_unusable()
        else:
            found = read()
            if check and not all_finite(found):
                self.refuse_gradient()
                found = None
        self.first.look(self.iteration, found)
        return found

    def refuse_gradient(self) -> None:
        """Report that the script's gradient is not finite.

        Raises:
            DivergenceError: if the run ends because of it, or if the parameters are not finite
                either.
        """
        require_finite_parameters(self.script, self._process.name, self.iteration)
        self._process.refuse_gradient("gradient", self.iteration)
