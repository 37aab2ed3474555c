"""A script that trains with its own collectives and optimizer, in the process of a virtual worker.

An iteration begins with the first forward pass with gradients after a step, and ends with the next
step. How far its computation is when the script hands over a gradient bucket is estimated. Forward
takes the share a of the time (`forward_share`), and a bucket's share of backward is its share s of
the elements. So in the f-th of F forward passes of an iteration, a bucket is handed over at
(f - 1 + a + s·(1 - a))/F, where s contains the buckets before it, too. F is the number of forward
passes in the iteration before, at least f.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NoReturn

import torch
from torch._compile import _disable_dynamo
from torch.nn.modules.module import register_module_forward_pre_hook

from outpace.blocks.block import Pieces, parameters_digest
from outpace.config.experiment import Experiment
from outpace.engine.distributed.call import Call
from outpace.engine.scripts.buffers import BufferLayout
from outpace.engine.scripts.gradient import FirstGradient
from outpace.engine.scripts.kept import KeptState
from outpace.engine.scripts.recorded import RecordedModel
from outpace.engine.scripts.running import EndedEarly, RunOver
from outpace.record.checkpoints import Part
from outpace.record.checkpoints.trees import Unfit, read_tree, write_tree
from outpace.simulation.scripts.child.notes import ScriptNotes
from outpace.simulation.scripts.child.pipe import ScriptPipe
from outpace.simulation.scripts.child.stopwatch import Stopwatch
from outpace.simulation.scripts.collectives.script import VirtualCollectives
from outpace.simulation.scripts.messages import (
    Attached,
    Begin,
    Computes,
    Go,
    Gradient,
    Left,
    Over,
    Reaches,
    Stepped,
)
from outpace.support.place import HERE
from outpace.sync.messages import worker_name
from outpace.tasks.abort_points import Computation


class FollowedScript:
    """The worker of this process, in virtual time. Implements `Followed`."""

    def __init__(
        self,
        pipe: ScriptPipe,
        collectives: VirtualCollectives,
        number: int,
        experiment: Experiment,
        model: torch.nn.Module,
        optimizer: torch.optim.Optimizer,
    ) -> None:
        self._pipe, self._number, self._name = pipe, number, worker_name(number)
        self._script = RecordedModel(model, optimizer)
        self._is_saved = experiment.checkpoint is not None
        self._kept = KeptState(self._script, HERE.kept, self._is_saved, follows=True)
        self._save_to: Path | None = None
        self._last = experiment.stop.iterations
        self._forward = experiment.forward_share
        self._iteration = 0
        self._passes = 0  # forward passes of this iteration so far
        self._expected = 1  # forward passes of an iteration
        self._progress = 0.0
        self._left = False
        self._clock = Stopwatch()
        notes = self._notes = ScriptNotes(pipe, self._name, self._clock)
        self.log, self.untimed = notes.log, notes.untimed
        self._told: tuple[int, str] | None = None
        self._first = FirstGradient(self._tell_first, wanted=experiment.workers > 1)
        self._gradients: list[torch.Tensor] | None = []  # buckets, until the first gradient is told
        pipe.on_over = self._exit
        collectives.progress, collectives.waiting = self._progress_of, self._clock.waiting
        # Hooks on the model itself would be copied and saved with it.
        self._model = weakref.ref(model)
        register_module_forward_pre_hook(self._enters)

    def start(self) -> None:
        """Tell the simulation what the script trains; return when its time begins."""
        script = self._script
        flat = script.flat().cpu()
        self._pipe.send(
            Attached(
                layout=script.layout,
                layers=script.layers,
                dtype=script.dtype,
                optimizer=type(script.optimizer).__name__,
                takes_steps=True,
                settings=[],
                members=script.members,
                state={},
                state_digest="",
                digest=parameters_digest([flat]),
                parameters=flat if self._number == 0 else None,
                averaged=flat[:0],
                averaged_layout=BufferLayout({}),
                buffers=script.read_buffers(),
                used=script.used(),
                is_followed=True,
            )
        )
        begin = self._pipe.receive()
        assert isinstance(begin, Begin)
        if begin.kept is not None:
            kept = read_tree(begin.kept)
            script.load([kept["model"]])
            script.replace_state(kept["optimizer"])
            others = begin.redivided
            self._kept.restore(kept if others is None else others.of(self._number, kept))
        self._continue()
        self._clock.start()

    def _continue(self) -> None:
        """Wait until the next iteration may begin, where the run has checkpoints."""
        if self._is_saved:
            go = self._pipe.receive()
            assert isinstance(go, Go)
            self._iteration, self._save_to = go.iteration, go.save
            HERE.data.steps()

    # -- an iteration ------------------------------------------------------------------------

    def forward(self) -> None:
        """Note that a forward pass with gradients begins."""
        if self._notes.is_copy or self._notes.is_untimed:
            return
        if not self._passes:
            path, self._save_to = self._save_to, None
            saved = None if path is None else self._save(path)
            anew = not self._kept.is_complete
            self._pipe.send(Computes(False, self._clock.has_evaluated, saved, anew))
            self._clock.computes()
        self._passes += 1
        self._expected = max(self._expected, self._passes)
        self._progress = max(self._progress, (self._passes - 1) / self._expected)

    def _save(self, path: Path) -> Part | str:
        """Write all that the script goes on with; return the file, or why it cannot be written."""
        script = self._script
        try:
            state = {"optimizer": script.whole_state(), "model": script.flat().cpu()}
            state |= self._kept.state()
            return write_tree(path, state, f"what the script of {self._name} keeps")
        except (OSError, Unfit) as error:
            return str(error)

    @_disable_dynamo
    def _enters(self, module: torch.nn.Module, _: Any) -> None:
        """Note that a module's forward pass begins."""
        if self._notes.is_copy or self._notes.is_untimed:
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
            self._keep(call)
        elif self._passes and call.computed is not None:
            self._reach(self._forward + (1 - self._forward) * call.computed)
        return self._progress

    def _reach(self, share: float) -> None:
        """Set the progress to this share of the present forward and backward pass."""
        self._progress = max(self._progress, (self._passes - 1 + share) / self._expected)

    def stepped(self) -> None:
        """End the iteration: the optimizer has taken a step. Raises RunOver if it was the last."""
        if self._notes.is_copy or self._left:
            return
        self._script.await_gpus()
        computed_s = self._clock.read()
        self._compare()
        self._pipe.send(Stepped(Gradient.READY, [], [], computed_s, self._told, HERE.batch_size))
        self._told = None
        self._expected, self._passes, self._progress = max(1, self._passes), 0, 0.0
        self._iteration += 1
        if self._iteration == self._last:
            self._pipe.exit(Over("stop.iterations is reached"))
        self._continue()
        self._clock.start()

    # -- the first gradient ------------------------------------------------------------------

    def _keep(self, call: Call) -> None:
        """Keep a copy of this worker's own gradients, until `_first` has told their digest."""
        if self._gradients is not None:
            self._gradients += [tensor.detach().cpu().reshape(-1).clone() for tensor in call.inputs]

    def _compare(self) -> None:
        if self._gradients is not None:
            found = Pieces(self._gradients) if self._gradients else None
            self._first.look(self._iteration, found)
            self._gradients = [] if self._first.is_wanted else None

    def _tell_first(self, iteration: int, digest: str) -> None:
        self._told = iteration, digest

    # -- the end -----------------------------------------------------------------------------

    def leave(self, *, fetch: bool = False) -> None:
        """Leave the run. The model has the final parameters already."""
        if self._left or self._notes.is_copy:
            return
        self._left = True
        script = self._script
        parameters = script.flat().cpu() if self._number == 0 else None
        self._pipe.send(Left(False, script.read_buffers(), parameters))

    def end(self, error: Exception | None) -> None:
        """Leave the run at the end of the script."""
        if error is None:
            self.leave()

    def _exit(self, over: Over) -> NoReturn:
        """Exit the script because the run is over."""
        if not over.reason:
            self._left = True
            raise EndedEarly
        if not self._left:
            self.leave()
            print(f"outpace: {over.reason}; the script of {self._name} ends here", flush=True)  # noqa: T201
        raise RunOver(0)

    # -- contexts of the script ------------------------------------------------------

    @contextmanager
    def abortable(self) -> Iterator[Computation]:
        """See `outpace.abortable`; nothing is stopped."""
        yield Computation()
