"""A user's script in the process of a virtual worker.

The simulation decides when the script continues: `optimizer.step()` hands over the gradient and
blocks until the simulation sends the next parameters. In between, the script computes, in parallel
with the scripts of other workers. The results do not depend on how long that takes.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from torch._compile import _disable_dynamo
from torch.nn.modules.module import register_module_forward_pre_hook

from outpace.blocks.sums import all_finite
from outpace.config.experiment import Experiment
from outpace.engine.scripts.buffers import AveragedBuffers
from outpace.engine.scripts.gradient import (
    gradient_in_pieces,
    is_skipped,
    not_finite,
    require_finite_parameters,
)
from outpace.engine.scripts.model import ScriptModel
from outpace.engine.scripts.requirements import require_steps
from outpace.engine.scripts.watched import WatchedGradients
from outpace.errors import ConfigError, RunError
from outpace.optim.torch_optimizers import State, is_known
from outpace.simulation.scripts.child.pipe import ScriptPipe
from outpace.simulation.scripts.child.piped import PipedDriver
from outpace.simulation.scripts.messages import (
    FinalParameters,
    Go,
    Gradient,
    Left,
    LoadState,
    Outcome,
    States,
    Stepped,
    Taken,
    TakeStep,
    WantOutcome,
    WantState,
)
from outpace.simulation.scripts.shared_memory import Slots, fill
from outpace.support.memory import own_bytes
from outpace.support.place import HERE
from outpace.tasks.abort_points import Computation


class VirtualAttached(PipedDriver):
    """The driver of a worker in its script's process. Implements `StepDriver`.

    Args:
        pipe: pipe to the simulation.
    """

    carries = True

    def __init__(
        self,
        pipe: ScriptPipe,
        slots: Slots,
        number: int,
        experiment: Experiment,
        model: torch.nn.Module,
        optimizer: torch.optim.Optimizer,
    ) -> None:
        script, peers = ScriptModel(model, optimizer), experiment.peers
        require_steps(script, experiment)
        # The script's optimizer takes the steps if only the script knows the optimizer's class.
        takes_steps = peers is not None and not is_known(type(optimizer))
        if takes_steps and peers is not None and not peers.has_own:
            raise ConfigError(
                f"in virtual time sync.kind={peers.kind} takes the steps itself, and the steps of "
                f"{type(optimizer).__name__} only the script can take: use one of torch's "
                "optimizers, DistributedDataParallel with sync.kind=ssgd, or local-sgd"
            )
        super().__init__(pipe, number, experiment, script, takes_steps=takes_steps)
        self._slots, self._slices = slots, list[slice]()  # slices of the flat parameters, by block
        self._settings()  # raises if a setting cannot be sent
        self._buffers = AveragedBuffers.of_script(script, peers)
        self._stops_at_non_finite = experiment.non_finite == "stop"
        # then the step may be cut off, and the model buffers are stored
        self._may_stop = experiment.cut_off is not None
        self._before = torch.empty(0)  # the model buffers when the present step began
        self._abortable = 0  # number of `abortable` contexts that the script is in
        self._is_abortable = False  # the present step may be cut off
        self._stopped: bool | None = None  # it was cut off; None: not known yet
        self._hook: torch.utils.hooks.RemovableHandle | None = None
        watches = experiment.overlap != "none"
        self.gradients = WatchedGradients(script, self.presence.is_elsewhere) if watches else None
        self.holds_state = not takes_steps
        HERE.tell = self.tell

    def join(self) -> bool:
        script, number = self.script, self._number
        before = own_bytes(os.getpid())  # memory without the copies that are made here
        # The state of an optimizer that takes its own steps remains in this process.
        has_state = script.has_taken_steps() and not self._takes_steps
        begin = self._attach(
            layout=self._buffers.layout.added_to(script.layout),
            settings=self._settings(),
            state=script.state_within(slice(0, sum(script.layers))) if has_state else {},
            state_digest=script.state_digest(),
            averaged=self._buffers.read(torch.device("cpu")),
            averaged_layout=self._buffers.layout,
            own_bytes=before,
        )
        self._slots.open(begin.elements, script.dtype, self._buffers.layout)
        self._slices = begin.slices
        if number != 0:
            script.load_buffers(begin.buffers)
        return False

    def restore(self) -> None:
        """Do nothing: in virtual time scripts are not saved."""

    def begin(self) -> None:
        self._buffers.begin()
        self._continue()

    @property
    def iteration(self) -> int:
        return self._iteration

    def computes(self) -> None:
        self._clock.start()

    def computed(self) -> int:
        self._computed_s = self._clock.read()
        self._unhook()
        return self._iteration

    def step(self, *, sets: bool) -> None:
        sets = self._sets(sets)
        if self.gradients is not None:
            self.gradients.check()
        flat = self._gradient()
        self._told = None
        self._first.look(self._iteration, flat if isinstance(flat, torch.Tensor) else None)
        kind = Gradient.READY if isinstance(flat, torch.Tensor) else flat
        settings, unused, computed_s = self._settings(), self.script.unused, self._computed_s
        self._pipe.send(
            Stepped(kind, settings, unused, computed_s, self._told, HERE.batch_size, sets)
        )
        self._continue()

    def _sets(self, sets: bool) -> bool:
        """Put parameters that the script has set into their slot. sets: True if it has."""
        if sets:
            fill(self._slots.parameters, [self.script.flat()])
        return sets

    def _settings(self) -> list[dict[str, Any]]:
        """Return the settings of a step, which the simulation uses or compares with others'."""
        script = self.script
        return script.used_settings() if self._takes_steps else script.settings()

    def _gradient(self) -> torch.Tensor | Gradient:
        """Put the gradient and the averaged buffers into their slots.

        Returns:
            The gradient, or why there is none.
        """
        script, slots = self.script, self._slots
        slots.computed.copy_(self._buffers.read(slots.computed.device))
        if is_skipped(script.optimizer):
            return Gradient.SKIPPED
        fill(slots.gradient, gradient_in_pieces(script).parts)
        flat = slots.gradient[: sum(script.layers)]
        if all_finite(flat):
            return flat
        require_finite_parameters(script, self.name, self._iteration)
        if self._stops_at_non_finite:
            raise not_finite("gradient", self.name, self._iteration)
        return Gradient.NOT_FINITE

    def _continue(self) -> None:
        """Wait for the next parameters, and load them into the model."""
        message = self._pipe.receive()
        while isinstance(message, TakeStep):
            self._take_step(message)
            message = self._pipe.receive()
        assert isinstance(message, Go)
        script = self.script
        self._is_abortable, self._stopped = False, None
        if self._may_stop:
            if message.discard:
                script.load_buffers(self._before)
            else:
                self._before = script.read_buffers()
        self._load(buffers=message.averages)
        self._iteration = message.iteration
        if self.gradients is not None:
            self.gradients.begin()
        self._hook = register_module_forward_pre_hook(self._forward)

    def _take_step(self, message: TakeStep) -> None:
        """Take a step of the script's own optimizer."""
        script, slots = self.script, self._slots
        self._load(buffers=False)
        # copied, because the script may change it later
        flat = slots.gradient[: sum(script.layers)].clone()
        script.take_step([flat], message.unused)
        fill(slots.parameters, [script.flat()])
        self._pipe.send(Taken())

    def _load(self, *, buffers: bool) -> None:
        """Load the parameters, and averaged model buffers if given, from their slots."""
        self.script.load([self._slots.parameters])
        if buffers:
            self._buffers.load(self._slots.to_load)

    @_disable_dynamo
    def _forward(self, *_: Any) -> None:
        """Tell the simulation about the first forward pass with gradients."""
        if self.presence.is_copy or self.presence.is_untimed:
            return
        if not torch.is_grad_enabled():
            self._clock.evaluates()
            return
        self._unhook()
        self._is_abortable = self._abortable > 0
        self._tell_computes(is_abortable=self._is_abortable)

    def _unhook(self) -> None:
        if self._hook is not None:
            self._hook.remove()
            self._hook = None

    # -- the end ---------------------------------------------------------------------------

    def leave(self, *, fetch: bool, sets: bool) -> None:
        self.presence.has_left = True
        self._unhook()
        self.script.tell_own_buffers()
        self._pipe.send(Left(fetch, self.script.read_buffers(), sets=self._sets(sets)))
        if fetch:
            message = self._pipe.receive()
            assert isinstance(message, FinalParameters)
            self._load(buffers=message.has_buffers)

    def _discard(self) -> None:
        if self._may_stop:
            self.script.load_buffers(self._before)

    # -- the state of the optimizer, which is in the simulation --------------------------------

    def state(self) -> Mapping[int, State]:
        if self.presence.is_copy:
            raise RunError(
                f"the optimizer's state can be fetched only by {self.name} itself, not by "
                "processes that it forks: call optimizer.state_dict() there"
            )
        self._pipe.send(WantState())
        message = self._pipe.receive()
        assert isinstance(message, States)
        return self.script.joined_state(message.states, self._slices)

    def load_state(self) -> None:
        whole = slice(0, sum(self.script.layers))
        self._pipe.send(LoadState(self.script.state_within(whole)))

    # -- contexts of the script --------------------------------------------------------

    @contextmanager
    def abortable(self) -> Iterator[Computation]:
        """See `outpace.abortable`. The block always runs to its end.

        The script computes ahead of virtual time. At the end of the block it waits until the
        virtual time of the step has passed, and it is known whether the step was cut off.
        """
        self._abortable += 1
        computation = Computation()
        try:
            yield computation
        finally:
            self._abortable -= 1
        computation.stopped = self._was_cut_off()

    def _was_cut_off(self) -> bool:
        """Wait until it is known whether the present step was cut off, and return that."""
        if self.presence.is_out or not (self._is_abortable and self._may_stop):
            return False
        if self._stopped is None:
            self._pipe.send(WantOutcome())
            message = self._pipe.receive()
            assert isinstance(message, Outcome)
            self._stopped = message.stopped
            if self._stopped:
                self.script.load_buffers(self._before)
        return self._stopped
