"""The process of a virtual worker's script, as the simulation sees it."""

from __future__ import annotations

import contextlib
import time
import weakref
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

import torch

from outpace.blocks.block import Block, parts, value_of
from outpace.config.experiment import Experiment
from outpace.engine.output import Output
from outpace.engine.scripts.requirements import with_name
from outpace.errors import RunError
from outpace.simulation.scripts.child.main import run_script
from outpace.simulation.scripts.collectives.matching import Part
from outpace.simulation.scripts.host import Host
from outpace.simulation.scripts.messages import (
    Attached,
    Awaits,
    Begin,
    Computes,
    Done,
    Ended,
    FinalParameters,
    FromScript,
    Go,
    Gradient,
    Joined,
    Left,
    LoadState,
    Logged,
    Outcome,
    Over,
    States,
    Stepped,
    Taken,
    TakeStep,
    ToScript,
    WantOutcome,
    WantState,
    Warns,
    Wrote,
    receive,
    send,
)
from outpace.simulation.scripts.shared_memory import CallMemory, Slots, StepGradient, fill
from outpace.support.notices import warn
from outpace.support.processes.forking import Child
from outpace.support.units import Time
from outpace.sync.messages import worker_name

LIMIT_REACHED: Final = "stop.iterations is reached"
_SILENT_S: Final = 120.0  # seconds without a message until a line says so


class ScriptProcess:
    """Starts the script of one worker, and exchanges messages with it.

    Every method that waits for the script raises the script's exception as ConfigError or RunError
    with the number of the worker.

    Args:
        files: the folder for files of all workers' scripts.
        has_reader: called during a wait for the script; raises if nothing reads the output of
            scripts.
        measured: see `run_script`.
    """

    def __init__(
        self,
        worker: int,
        experiment: Experiment,
        files: Path | None,
        output: Output,
        has_reader: Callable[[], None],
        measured: int | None = None,
    ) -> None:
        self.worker, self._name = worker, worker_name(worker)
        self._slots = Slots()
        self.memory = CallMemory()  # memory of the script's own collectives
        arguments = self._slots, self.memory, experiment, files, output.for_process, measured
        self.child = Child(self._name, run_script, worker, *arguments)
        self._has_reader = has_reader
        output.started()
        self.host: Host
        self.step: Stepped | None = None  # the last step
        self.has_left = False
        self.waited: Time = 0  # time in its own collectives, in the present iteration
        self.written: list[str] = []  # files written before enough steps were measured
        self.buffers = torch.empty(0)  # model buffers, as bytes
        # final parameters, if the script trains them itself
        self.parameters: torch.Tensor | None = None
        self.ended: Ended | None = None
        self._ahead: Stepped | None = None  # a message that arrived before it was needed
        self._averaged = 0  # elements of the vector of averaged model buffers
        self._given: torch.Tensor | None = None  # the vector that the script was last given
        self._is_computing = self._waits_for_final = self._is_stopped = False
        self._is_waiting = False  # the script is in a collective of its own
        self._is_cut_off = False  # the step whose virtual time has passed
        self._gradient: weakref.ref[StepGradient] | None = None
        self._shown: Sequence[Block] = ()  # the parameters that the script was given last

    # -- before the run ------------------------------------------------------------------

    def begin(self, first: Attached, slices: list[slice]) -> None:
        """Begin the run; see `Begin`. first: the model of worker 0."""
        elements, self._averaged = sum(first.layers), first.averaged_layout.elements
        self._slots.open(elements, first.dtype, first.averaged_layout)
        self._send(Begin(elements, slices, first.buffers))

    def done(self, part: Part) -> None:
        """Wake a script that awaits the end of a collective; see `Done`."""
        self._send(Done(part.has_outputs))

    # -- steps ---------------------------------------------------------------------------

    async def go(self, parameters: Sequence[Block], iteration: int) -> Computes | None:
        """Let the script continue; return when it computes, or return None if it leaves the run.

        If the end of the last step was not awaited, that step was cut off.
        """
        discard = self._is_computing
        if discard and await self.finish_step(cut_off=True) is None:
            return None
        self._free_slot()
        self._shown = parameters
        averages = self._fill(parameters)
        self._send(Go(iteration, discard, averages))
        self._is_computing = True
        message = await self.next_of_step()
        if isinstance(message, Left):
            self._take_set(message)
            return None
        if isinstance(message, Stepped):  # the script takes a step without a forward pass
            self._ahead = message
            return Computes(abortable=False, evaluated=False)
        assert isinstance(message, Computes)
        return message

    def gradient(self) -> StepGradient | None:
        """Return the gradient of the step that has ended; None if it has no usable one."""
        if self.step is None or self.step.gradient is not Gradient.READY:
            return None
        gradient = StepGradient(self._slots.gradient)
        self._gradient = weakref.ref(gradient)
        return gradient

    @property
    def computed_buffers(self) -> torch.Tensor:
        """The slot of the averaged model buffers of that step."""
        return self._slots.computed

    def take_step(
        self, parameters: torch.Tensor, gradient: torch.Tensor, unused: Sequence[int]
    ) -> torch.Tensor:
        """Return the parameters after a step of the script's own optimizer, between two steps.

        Args:
            unused: numbers of the parameters without a gradient.

        Raises:
            RunError: if the script, and so its optimizer, has left the run.
        """
        if self.has_left:
            raise RunError(
                f"the script of {self._name} has ended before the last step of its own optimizer, "
                "which only the script can take: use one of torch's optimizers with this strategy"
            )
        self._free_slot()
        fill(self._slots.parameters, [parameters])
        fill(self._slots.gradient, [gradient])
        self._send(TakeStep(unused))
        message = self.receive()
        assert isinstance(message, Taken)
        return self._slots.parameters[: parameters.numel()].clone()

    def _fill(self, parameters: Sequence[Block], *, has_buffers: bool = True) -> bool:
        """Put parameters into their slot, and the vector that follows them next to the slot.

        Returns:
            True if the script has not been given this vector of averaged model buffers yet.
        """
        pieces = [piece for block in parameters for piece in parts(block)]
        is_new = False
        if self._averaged and has_buffers:
            *pieces, buffers = pieces
            is_new = buffers is not self._given
            self._given = buffers
            self._slots.to_load.copy_(buffers)
        fill(self._slots.parameters, pieces)
        return is_new

    def _free_slot(self) -> None:
        """Copy a gradient that is still needed out of its slot, before the slot is overwritten."""
        held = None if self._gradient is None else self._gradient()
        if held is not None:
            held.take()

    async def finish_step(self, *, cut_off: bool = False) -> Stepped | None:
        """Return the present step of the script at its end; None if the script leaves the run.

        cut_off: the virtual time of the step was cut off.
        """
        self._is_cut_off = cut_off
        message, self._ahead = self._ahead or await self.next_of_step(), None
        self._is_computing = False
        assert isinstance(message, Left | Stepped)
        self._take_set(message)
        if isinstance(message, Left):
            return None
        self.step = message
        return message

    def _take_set(self, message: Left | Stepped) -> None:
        """Take the parameters that the script has set itself, if it has."""
        if message.sets:
            shown = value_of(self._shown[0])
            self.host.models.parameters_set(self.worker, shown, self._slots.parameters.clone())

    async def next_of_step(self) -> FromScript:
        """Return the next message about a step, after the script's own collectives before it."""
        while True:
            message = self.receive()
            if isinstance(message, Joined):
                self.host.joined(self.worker, message, self.memory)
            elif isinstance(message, Awaits):
                self._is_waiting = True
                part = await self.host.result(self.worker, message.number)
                self._is_waiting = False
                if part is None:
                    self._end_wait(LIMIT_REACHED)
                else:
                    self.done(part)
            else:
                return message

    # -- the end ---------------------------------------------------------------------------

    def stop(self, reason: str) -> None:
        """Make a script that waits for its next step exit. reason: text to print."""
        if not self.has_left and not self._is_computing:
            self._send(Over(reason))
            self._is_stopped = True

    def begin_end(self, parameters: Sequence[Block], reason: str, buffers: Block | None) -> None:
        """Let the script continue to its end; `await_end` waits for the end.

        Args:
            parameters: the final parameters, for a script that waits for them.
            reason: why a script that still trains ends here.
            buffers: the averaged model buffers of the worker's own model; None: it has no own
                model.
        """
        has_buffers = buffers is not None
        discard = self._is_computing and not self.has_left
        if discard:
            self._await_step(reason)
        if self._waits_for_final:
            values = parameters if buffers is None else [*parameters, buffers]
            self._fill(values, has_buffers=has_buffers)
            self._send(FinalParameters(has_buffers))
        elif not (self.has_left or self._is_stopped):
            self._send(Over(reason, discard))
            self._is_stopped = True

    def _await_step(self, reason: str) -> None:
        """Let the script compute until its step, or until it waits for other workers."""
        self._is_cut_off = True
        if self._is_waiting:
            self._end_wait(reason)
        while not isinstance(message := self.receive(), Stepped | Left):
            if isinstance(message, Awaits):
                self._end_wait(reason)
        self._is_computing = False

    def _end_wait(self, reason: str) -> None:
        """Make a script exit that waits for other workers. reason: text to print."""
        self._send(Over(reason, discard=True))
        self._is_stopped = True

    def await_end(self) -> None:
        """Wait for the end of the script."""
        while self.ended is None:
            message = self.receive()
            if isinstance(message, Awaits) and not self._is_stopped:
                raise RunError(
                    f"the script of {self._name} waits in a collective after it has left the run: "
                    "call outpace.finish() after the last collective, or leave it out"
                )

    def end_early(self) -> bool:
        """Tell the script that the run was ended early. Return False if it has ended."""
        if self.child.pipe.closed or self.ended is not None:
            return False
        with contextlib.suppress(ConnectionError):
            self._send(Over(""))
        return True

    def close(self) -> None:
        """End the process in any state. Idempotent."""
        if self.child.pipe.closed:
            return
        self.child.end(by_itself=self.ended is not None)
        self.child.close()
        self._slots.close()
        self.memory.close()

    # -- messages ----------------------------------------------------------------------------

    def _send(self, message: ToScript) -> None:
        """Send a message. Raises ConnectionError if the process has ended."""
        send(self.child.pipe, message)

    def _next(self) -> FromScript:
        """Wait for the next message. Raises RunError if the process has ended."""
        since = time.monotonic()
        is_told = False
        self._has_reader()
        while not self.child.pipe.poll(1.0):
            self._has_reader()
            if not is_told and time.monotonic() - since > _SILENT_S:
                is_told = True
                warn(
                    f"the script of {self._name} has not come to its next step for "
                    f"{_SILENT_S:.0f} s; if it waits for another worker outside of outpace, for "
                    "a file or a lock for instance, it waits without end: interrupt it (Ctrl-C)"
                )
        try:
            message: FromScript = receive(self.child.pipe)
        except (EOFError, ConnectionError):
            how = self.child.how_it_ended()
            raise RunError(f"the process of {self._name}'s script {how}") from None
        return message

    def receive(self) -> FromScript:
        """Return the next message that the caller has to handle; handle the others."""
        while True:
            message = self._next()
            if isinstance(message, Logged):
                self.host.logged(self.worker, message.values)
            elif isinstance(message, Warns):
                self.host.warned(message.text)
            elif isinstance(message, WantOutcome):
                self._send(Outcome(self._is_cut_off))
            elif isinstance(message, WantState):
                self._send(States(self.host.models.optimizer_state(self.worker)))
            elif isinstance(message, LoadState):
                self.host.models.load_optimizer_state(self.worker, message.state)
            elif isinstance(message, Wrote):
                self.written.append(message.path)
            elif isinstance(message, Ended):
                self.ended, self.has_left = message, True
                if message.error is not None:
                    kind, text = message.error
                    raise kind(with_name(self._name, text))
                return message
            else:
                if isinstance(message, Left):
                    self.has_left, self._waits_for_final = True, message.fetch
                    self.buffers, self.parameters = message.buffers, message.parameters
                return message
