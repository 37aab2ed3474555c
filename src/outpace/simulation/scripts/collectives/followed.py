"""A script that trains with its own collectives and optimizer, in the process of a virtual worker.

An iteration begins with the first forward pass with gradients after a step, and ends with the next
step. The progress of the computation when the script hands over a gradient bucket is estimated.
Forward takes the share a of the time (`forward_share`), and a bucket's share of backward is its
share s of the elements. So in the f-th of F forward passes of an iteration, a bucket is handed over
at (f - 1 + a + s·(1 - a))/F, where s includes the earlier buckets. F is the number of forward
passes in the previous iteration, at least f.
"""

from __future__ import annotations

import weakref
from typing import Any

import torch
from torch._compile import _disable_dynamo
from torch.nn.modules.module import register_module_forward_pre_hook

from outpace.config.experiment import Experiment
from outpace.engine.distributed.call import Call
from outpace.engine.scripts.model import ScriptModel
from outpace.simulation.scripts.child.pipe import ScriptPipe
from outpace.simulation.scripts.child.piped import PipedDriver
from outpace.simulation.scripts.collectives.script import VirtualCollectives
from outpace.simulation.scripts.messages import (
    Gradient,
    Left,
    Over,
    Reaches,
    Stepped,
)
from outpace.support.place import HERE


class VirtualFollowed(PipedDriver):
    """The driver of this process's worker, in virtual time. Implements `FollowedDriver`."""

    def __init__(
        self,
        pipe: ScriptPipe,
        collectives: VirtualCollectives,
        number: int,
        experiment: Experiment,
        model: torch.nn.Module,
        optimizer: torch.optim.Optimizer,
    ) -> None:
        script = ScriptModel(model, optimizer, is_exchanged=False)
        super().__init__(pipe, number, experiment, script, takes_steps=True, follows=True)
        self._last = experiment.stop.iterations
        self._forward = experiment.forward_share
        self._passes = 0  # number of forward passes of this iteration so far
        self._expected = 1  # number of forward passes of an iteration
        self._progress = 0.0
        collectives.progress, collectives.waiting = self._progress_of, self._clock.waiting
        # Hooks on the model itself would be copied and saved with it.
        self._model = weakref.ref(model)
        register_module_forward_pre_hook(self._enters)

    def start(self) -> None:
        """Describe the script's model to the simulation; return when the run begins."""
        self._attach(layout=self.script.layout)
        self._clock.start()

    # -- an iteration ------------------------------------------------------------------------

    def forward(self) -> None:
        """Note that a forward pass with gradients begins."""
        if self.presence.is_copy or self.presence.is_untimed:
            return
        if not self._passes:
            self._tell_computes(is_abortable=False)
        self._passes += 1
        self._expected = max(self._expected, self._passes)
        self._progress = max(self._progress, (self._passes - 1) / self._expected)

    @_disable_dynamo
    def _enters(self, module: torch.nn.Module, _: Any) -> None:
        """Note that a module's forward pass begins."""
        if self.presence.is_copy or self.presence.is_untimed:
            return
        if not torch.is_grad_enabled():
            self._clock.evaluates()
        elif self._passes and module is self._model():  # after the broadcast of its buffers
            self._reach(self._forward)
            self._pipe.send(Reaches(self._progress))

    def _progress_of(self, call: Call) -> float:
        if self._passes and call.bucket is not None:
            share = call.bucket.handed_over / call.bucket.total
            self._reach(self._forward + (1 - self._forward) * share)
            self._first.add(self._iteration, call.inputs, completes=call.bucket.is_last)
        return self._progress

    def _reach(self, share: float) -> None:
        """Set the progress to this share of the present forward and backward pass."""
        self._progress = max(self._progress, (self._passes - 1 + share) / self._expected)

    def stepped(self) -> None:
        """End an iteration after an optimizer step. Raises RunOver if it was the last iteration."""
        self.script.await_gpus()
        computed_s = self._clock.read()
        self._pipe.send(Stepped(Gradient.READY, [], [], computed_s, self._told, HERE.batch_size))
        self._told = None
        self._expected, self._passes, self._progress = max(1, self._passes), 0, 0.0
        self._iteration += 1
        if self._iteration == self._last:
            self._pipe.exit(Over("stop.iterations is reached"))
        self._clock.start()

    # -- the end -----------------------------------------------------------------------------

    def leave(self, *, fetch: bool, sets: bool) -> None:
        """Leave the run. The model has the final parameters already."""
        self.presence.has_left = True
        script = self.script
        parameters = script.flat().cpu() if self._number == 0 else None
        self._pipe.send(Left(False, script.read_buffers(), parameters))
