"""A user's script in the process of a virtual worker.

The simulation decides when the script continues: `optimizer.step()` hands the gradient over and
blocks until the simulation sends the next parameters. Between these moments the script computes,
beside the scripts of other workers. Nothing that it does depends on how long that takes.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, NoReturn

import torch
from torch._compile import _disable_dynamo
from torch.nn.modules.module import register_module_forward_pre_hook

from outpace.blocks.block import parameters_digest
from outpace.blocks.sums import all_finite
from outpace.config.experiment import Experiment
from outpace.engine.momentum import stale_momentum
from outpace.engine.scripts.buffers import AveragedBuffers
from outpace.engine.scripts.gradient import (
    FirstGradient,
    gradient_in_pieces,
    is_skipped,
    require_finite_parameters,
)
from outpace.engine.scripts.kept import KeptState
from outpace.engine.scripts.misuse import require_step
from outpace.engine.scripts.model import ScriptModel
from outpace.engine.scripts.optimizer_state import require_loadable
from outpace.engine.scripts.optimizers import require_workers_can_step
from outpace.engine.scripts.running import EndedEarly, RunOver
from outpace.engine.scripts.takeover import HeldState, take_over
from outpace.engine.scripts.watched import WatchedGradients
from outpace.engine.scripts.watched_parameters import WatchedParameters
from outpace.errors import DivergenceError
from outpace.optim.python import PythonOptimizer
from outpace.optim.torch_optimizers import is_known, require_known
from outpace.record.checkpoints import Part
from outpace.record.checkpoints.trees import Unfit, read_tree, write_tree
from outpace.simulation.scripts.child.notes import ScriptNotes
from outpace.simulation.scripts.child.pipe import ScriptPipe
from outpace.simulation.scripts.child.state import SimulatedState
from outpace.simulation.scripts.child.stopping import AwaitedComputation, StepOutcome
from outpace.simulation.scripts.child.stopwatch import Stopwatch
from outpace.simulation.scripts.messages import (
    Attached,
    Begin,
    Computes,
    FinalParameters,
    Go,
    Gradient,
    Left,
    Outcome,
    Over,
    Stepped,
    Taken,
    TakeStep,
    WantOutcome,
)
from outpace.simulation.scripts.shared_memory import Slots, fill
from outpace.support.memory import own_bytes
from outpace.support.place import HERE
from outpace.sync.messages import worker_name
from outpace.tasks.abort_points import Computation


class SimulatedScript:
    """The worker in the script's process: what `outpace.attach` returns control through.

    Args:
        pipe: to the simulation.
    """

    def __init__(
        self,
        pipe: ScriptPipe,
        slots: Slots,
        number: int,
        experiment: Experiment,
        model: torch.nn.Module,
        optimizer: torch.optim.Optimizer,
    ) -> None:
        self._pipe, self._slots, self._number = pipe, slots, number
        self._name, self._experiment = worker_name(number), experiment
        script = self._script = ScriptModel(model, optimizer)
        self._takes_steps = _takes_steps(script, experiment)
        self._settings()  # raises if a setting cannot be sent
        peers = experiment.peers
        averages = peers is not None and peers.buffers == "average"
        self._buffers = AveragedBuffers(script.model, averages, script.tell_own_buffers)
        self._may_stop = experiment.cut_off is not None  # then it keeps model buffers
        self._before = torch.empty(0)  # the model buffers when the present step began
        self._iteration = 0
        self._left = False
        self._abortable = 0  # contexts that the script is in
        self._outcome = StepOutcome()  # of the present step
        self._hook: torch.utils.hooks.RemovableHandle | None = None
        self._clock = Stopwatch()
        notes = self._notes = ScriptNotes(pipe, self._name, self._clock)
        self.log, self.untimed, self._send = notes.log, notes.untimed, pipe.send
        self._told: tuple[int, str] | None = None
        self._first = FirstGradient(self._tell_first, wanted=experiment.workers > 1)
        self._kept = KeptState(script, HERE.kept, experiment.checkpoint is not None)
        self._watched: WatchedGradients | None = None
        if experiment.overlap != "none":
            self._watched = WatchedGradients(script, self._is_passive)
        self._save_to: Path | None = None
        pipe.on_over = self._exit
        self._holder = SimulatedState(
            self._name,
            script,
            pipe,
            holds=not self._takes_steps,
            has_left=lambda: self._left,
            is_copy=lambda: notes.is_copy,
            check=self._require_loadable,
        )
        self._state = HeldState(script, self._holder)
        HERE.tell = notes.tell
        self._parameters = WatchedParameters(script, experiment, self._name, carries=True)
        take_over(optimizer, self.step, self._state.whole, self._state.loading)

    def start(self) -> None:
        """Tell the simulation what the script trains; return when the first step may begin."""
        script, number = self._script, self._number
        before = own_bytes(os.getpid())  # without the copies that are made here
        flat = script.flat().cpu()
        # The state of an optimizer that takes its steps itself stays where it is.
        has_state = script.has_taken_steps() and not self._takes_steps
        self._send(
            Attached(
                layout=self._buffers.layout.added_to(script.layout),
                layers=script.layers,
                dtype=script.dtype,
                optimizer=type(script.optimizer).__name__,
                takes_steps=self._takes_steps,
                settings=self._settings(),
                members=script.members,
                state=script.state_within(slice(0, flat.numel())) if has_state else {},
                state_digest=script.state_digest(),
                digest=parameters_digest([flat]),
                parameters=flat if number == 0 else None,
                averaged=self._buffers.read(flat.device),
                averaged_layout=self._buffers.layout,
                buffers=script.read_buffers(),
                used=script.used(),
                own_bytes=before,
            )
        )
        del flat  # as large as the model
        begin = self._pipe.receive()
        assert isinstance(begin, Begin)
        self._slots.open(begin.elements, script.dtype, self._buffers.layout)
        self._holder.slices = begin.slices
        if number != 0:
            script.load_buffers(begin.buffers)
        self._state.begin()
        if begin.has_ended:
            self.leave()
            raise RunOver(0)
        if begin.kept is not None:
            kept = read_tree(begin.kept)
            others = begin.redivided
            self._kept.restore(kept if others is None else others.of(number, kept))
            if self._takes_steps:
                script.replace_state(kept["optimizer"])
        for warning in stale_momentum(self._experiment, script.momenta):
            HERE.tell(warning)
        self._buffers.begin()
        self._continue()

    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Hand over the gradient in the model; return when the model has the next parameters."""
        notes = self._notes
        is_ended = self._pipe.is_ended_early  # then the script has a while to end by itself
        left = self._left and not is_ended
        require_step(self._name, left=left, copy=notes.is_copy, untimed=notes.is_untimed)
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        if is_ended:
            raise EndedEarly
        self._script.await_gpus()
        computed_s = self._clock.read()
        self._unhook()
        script = self._script
        script.require_as_begun(self._iteration)
        sets = self._sets(self._parameters.at_step(self._iteration))
        self._state.before_step()
        if self._watched is not None:
            self._watched.check()
        flat = self._gradient()
        self._told = None
        self._first.look(self._iteration, flat if isinstance(flat, torch.Tensor) else None)
        kind = Gradient.READY if isinstance(flat, torch.Tensor) else flat
        settings, unused = self._settings(), script.unused
        self._send(Stepped(kind, settings, unused, computed_s, self._told, HERE.batch_size, sets))
        self._continue()
        return loss

    def _sets(self, sets: bool) -> bool:
        """Put parameters that the script has set into their slot, if it has."""
        if sets:
            fill(self._slots.parameters, [self._script.flat()])
        return sets

    def _is_passive(self) -> bool:
        """True if a backward pass of this process is not one of the training."""
        return self._left or self._notes.is_copy or self._notes.is_untimed

    def _settings(self) -> list[dict[str, Any]]:
        """Return the settings of a step, which the simulation takes or compares with others'."""
        script = self._script
        return script.used_settings() if self._takes_steps else script.settings()

    def _gradient(self) -> torch.Tensor | Gradient:
        """Put the gradient into its slot and return it, or return why there is none."""
        script = self._script
        if is_skipped(script.optimizer):
            self._fill_buffers()
            return Gradient.SKIPPED
        size = sum(script.layers)
        fill(self._slots.gradient, gradient_in_pieces(script).parts)
        flat = self._slots.gradient[:size]
        if not all_finite(flat):
            require_finite_parameters(script, self._name, self._iteration)
            if self._experiment.non_finite == "stop":
                raise DivergenceError(
                    f"the gradient of {self._name} is not finite in its iteration "
                    f"{self._iteration}; try a smaller learning rate"
                )
            self._fill_buffers()
            return Gradient.NOT_FINITE
        self._fill_buffers()
        return flat

    def _fill_buffers(self) -> None:
        """Put the averaged model buffers to their place beside the gradient."""
        slot = self._slots.computed
        slot.copy_(self._buffers.read(slot.device))

    def _tell_first(self, iteration: int, digest: str) -> None:
        self._told = iteration, digest

    def _continue(self) -> None:
        """Wait for the next parameters, and load them into the model."""
        message = self._pipe.receive()
        while isinstance(message, TakeStep):
            self._take_step(message)
            message = self._pipe.receive()
        assert isinstance(message, Go)
        script = self._script
        self._outcome.stopped, self._outcome = message.discard, StepOutcome()
        if self._may_stop:
            if message.discard:
                script.load_buffers(self._before)
            else:
                self._before = script.read_buffers()
        self._load(buffers=message.averages)
        self._iteration = message.iteration
        self._save_to = message.save
        HERE.data.steps()
        if self._watched is not None:
            self._watched.begin()
        self._hook = register_module_forward_pre_hook(self._forward)
        self._parameters.begin()
        self._clock.start()

    def _take_step(self, message: TakeStep) -> None:
        """Take a step of the script's own optimizer."""
        script, slots = self._script, self._slots
        self._load(buffers=False)
        flat = slots.gradient[: sum(script.layers)].clone()  # the script may change its parts later
        script.take_step(torch.split(flat, script.layers), message.unused)
        fill(slots.parameters, [script.flat()])
        self._send(Taken())

    def _load(self, *, buffers: bool) -> None:
        """Load the parameters, and perhaps averaged model buffers, from their slots."""
        self._script.load([self._slots.parameters])
        if buffers:
            self._buffers.load(self._slots.to_load)

    @_disable_dynamo
    def _forward(self, *_: Any) -> None:
        """Tell the simulation about the first forward pass with gradients."""
        if self._notes.is_copy or self._notes.is_untimed:
            return
        if not torch.is_grad_enabled():
            self._clock.evaluates()
            return
        self._unhook()
        self._outcome.is_abortable = self._abortable > 0
        saved = None if self._save_to is None else self._save(self._save_to)
        outcome = self._outcome.is_abortable, self._clock.has_evaluated
        self._send(Computes(*outcome, saved, begins_anew=not self._kept.is_complete))
        self._clock.computes()

    def _save(self, path: Path) -> Part | str:
        """Write what the script keeps; return the file, or why it could not be written."""
        try:
            state = self._kept.state()
            if self._takes_steps:  # elsewhere the simulation has it
                state["optimizer"] = self._script.whole_state()
            return write_tree(path, state, f"what the script of {self._name} keeps")
        except (OSError, Unfit) as error:
            return str(error)

    def _unhook(self) -> None:
        if self._hook is not None:
            self._hook.remove()
            self._hook = None

    # -- the end ---------------------------------------------------------------------------

    def leave(self, *, fetch: bool = False) -> None:
        """Leave the run, so that no worker waits for this one. fetch: see `outpace.finish`."""
        if self._left or self._notes.is_copy:
            return
        sets, own = self._parameters.leave(fetch=fetch)
        self._leave(fetch, sets)
        if fetch:
            message = self._pipe.receive()
            assert isinstance(message, FinalParameters)
            self._load(buffers=message.has_buffers)
        if own is not None:
            self._script.load([own])

    def _leave(self, fetch: bool, sets: bool = False) -> None:
        self._left = True
        self._unhook()
        self._script.tell_own_buffers()
        self._send(Left(fetch, self._script.read_buffers(), sets=self._sets(sets)))

    def _exit(self, over: Over) -> NoReturn:
        """Exit the script because the run is over."""
        if not over.reason:
            self._left = True
            raise EndedEarly
        if not self._left:
            if over.discard and self._may_stop:
                self._script.load_buffers(self._before)
            self._leave(fetch=False)
        print(f"outpace: {over.reason}; the script of {self._name} ends here", flush=True)  # noqa: T201
        raise RunOver(0)

    def end(self, error: Exception | None) -> None:
        """Leave the run at the end of the script."""
        if error is None and not self._notes.is_copy:
            self.leave()

    def _require_loadable(self) -> None:
        """Raise ConfigError if a state that is loaded now would make the workers differ."""
        if self._watched is not None:
            self._watched.require_between_steps()
        if self._experiment.peers is not None:
            require_loadable(self._experiment.peers, self._iteration)

    # -- contexts of the script --------------------------------------------------------

    @contextmanager
    def abortable(self) -> Iterator[Computation]:
        """See `outpace.abortable`. The block always runs to its end, whatever the strategy does."""
        self._abortable += 1
        computation = AwaitedComputation(partial(self._was_cut_off, self._outcome))
        try:
            yield computation
        finally:
            self._abortable -= 1
            computation.is_over = True

    def _was_cut_off(self, step: StepOutcome) -> bool:
        """Return whether a step was cut off; if that is not known yet, wait until it is."""
        is_present = step is self._outcome and not (self._left or self._notes.is_copy)
        can_be = step.is_abortable and self._may_stop
        if step.stopped is None and is_present and can_be:
            self._send(WantOutcome())
            message = self._pipe.receive()
            assert isinstance(message, Outcome)
            step.stopped = message.stopped
            if step.stopped:
                self._script.load_buffers(self._before)
        return bool(step.stopped)


def _takes_steps(script: ScriptModel, experiment: Experiment) -> bool:
    """True if the script's optimizer takes the steps itself, because only the script knows it.

    Raises:
        ConfigError: if no process can take its steps.
    """
    kind = type(script.optimizer)
    if experiment.peers is None:
        if not isinstance(experiment.optimizer, PythonOptimizer):  # made by the simulation
            require_known(kind)
        return False
    require_workers_can_step(script, experiment.optimizer, experiment.peers)
    return not is_known(kind)
