"""The messages between the simulation and a script's process.

These are processes of one run on one machine, so messages are pickled objects in a pipe. Parameters
and gradients are in shared memory (`Slots`), written by one side while the other waits.

Messages are pickled here, because a pipe's own `send` would put their tensors into shared memory,
which does not exist any more if the sender ends before they are read.
"""

from __future__ import annotations

import pickle
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, Protocol

import torch

from outpace.engine.distributed.call import Signature
from outpace.engine.scripts.buffers import BufferLayout
from outpace.errors import OutpaceError
from outpace.optim.step import OptimizerState
from outpace.optim.torch_optimizers import State


class FromScript:
    """Base class of the messages from the script's process."""

    __slots__ = ()


class ToScript:
    """Base class of the messages from the simulation."""

    __slots__ = ()


# -- from the script's process ---------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Attached(FromScript):
    """Tells that the script has called `outpace.attach`, and waits for `Begin`.

    Attributes:
        layout, layers: see `ScriptModel`.
        dtype: dtype of the parameters.
        optimizer: name of the optimizer's class.
        takes_steps: True if the optimizer takes its steps in the script's process, because only the
            script knows its class; then `state` is empty.
        settings: settings of the optimizer's groups.
        members: for each group, the numbers of its parameters.
        state: the state with which the optimizer begins, by number of the parameter; empty if it
            has not taken steps.
        state_digest: digest of that state; empty if the optimizer has not taken steps.
        digest: digest of the parameters.
        parameters: only from worker 0; shape (parameters,).
        averaged: the vector of the model buffers that workers average.
        averaged_layout: layout of that vector.
        buffers, used: see `ScriptModel`.
        own_bytes: the memory that the process shares with no other; None if it is unknown.
        is_followed: True if the script's own collectives and optimizer do the training; then
            settings, state and averaged are empty.
    """

    layout: str
    layers: list[int]
    dtype: torch.dtype
    optimizer: str
    takes_steps: bool
    settings: list[dict[str, Any]] = field(default_factory=list)
    members: list[list[int]]
    state: Mapping[int, State] = field(default_factory=dict)
    state_digest: str = ""
    digest: str
    parameters: torch.Tensor | None
    averaged: torch.Tensor = field(default_factory=lambda: torch.empty(0, device="cpu"))
    averaged_layout: BufferLayout = field(default_factory=lambda: BufferLayout({}))
    buffers: torch.Tensor
    used: dict[str, Any]
    own_bytes: int | None = None
    is_followed: bool = False


@dataclass(frozen=True, slots=True)
class Computes(FromScript):
    """Tells that the script has begun a forward pass with gradients.

    Attributes:
        abortable: True if the pass is in `outpace.abortable`.
        evaluated: True if the script has evaluated its model since the last step.
    """

    abortable: bool
    evaluated: bool


@dataclass(frozen=True, slots=True)
class Reaches(FromScript):
    """Tells that the script joins no collective before this share of its iteration is computed."""

    progress: float


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Joined(Signature, FromScript):
    """Tells that the script has begun its part in a collective.

    Attributes:
        place: where the inputs are in the memory for collectives, one after the other, and where
            the outputs are expected; in bytes.
        progress: completed share of the computation of the present iteration, in [0, 1].
    """

    place: int
    progress: float = 0.0


@dataclass(frozen=True, slots=True)
class Awaits(FromScript):
    """Tells that the script waits for `Done`, the end of a collective."""

    number: int


class Gradient(Enum):
    """The kind of gradient that a step of the script hands over."""

    READY = "ready"  # the gradient is in the slot
    SKIPPED = "skipped"  # GradScaler skips the step
    NOT_FINITE = "not finite"


@dataclass(frozen=True, slots=True)
class Stepped(FromScript):
    """Tells that the script has called `optimizer.step()`, and waits for `Go` or `Over`.

    Attributes:
        settings: settings of the optimizer's groups in this step.
        unused: numbers of the parameters without a gradient.
        computed_s: seconds of computation since `Go`, without untimed spans.
        first: iteration and digest of the worker's first gradient; see `FirstGradient`.
        batch_size: see `Place.batch_size`.
        sets: True if the script has set its own parameters since `Go`; they are in their slot.
    """

    gradient: Gradient
    settings: list[dict[str, Any]]
    unused: list[int]
    computed_s: float
    first: tuple[int, str] | None = None
    batch_size: int | None = None
    sets: bool = False


@dataclass(frozen=True, slots=True)
class Taken(FromScript):
    """Tells that the script has done `TakeStep`: the new parameters are in their slot."""


@dataclass(frozen=True, slots=True)
class Logged(FromScript):
    """Tells that the script has called `outpace.log`; see `outpace.record.logged.checked`."""

    values: dict[str, float]


@dataclass(frozen=True, slots=True)
class Warns(FromScript):
    """A warning for the user. If several workers give the same warning, it is shown once."""

    text: str


@dataclass(frozen=True, slots=True)
class WantOutcome(FromScript):
    """Tells that the script asks whether its step was cut off, and waits for `Outcome`."""


@dataclass(frozen=True, slots=True)
class WantState(FromScript):
    """Tells that the script saves its optimizer's state, and waits for `States`."""


@dataclass(frozen=True, slots=True)
class LoadState(FromScript):
    """Tells that the script has loaded a state into its optimizer."""

    state: Mapping[int, State]


@dataclass(frozen=True, slots=True)
class Left(FromScript):
    """Tells that the script takes no more steps.

    Attributes:
        fetch: True if the script waits for `FinalParameters`.
        buffers: see `Attached`.
        parameters: parameters of worker 0's model, if the script trains it itself; shape
            (parameters,).
        sets: see `Stepped`.
    """

    fetch: bool
    buffers: torch.Tensor
    parameters: torch.Tensor | None = None
    sets: bool = False


@dataclass(frozen=True, slots=True)
class Wrote(FromScript):
    """Tells that a measured script writes a file before enough steps are measured."""

    path: str


@dataclass(frozen=True, slots=True)
class Ended(FromScript):
    """Tells that the script has ended.

    Attributes:
        error: how it failed: type and text of the error.
        written: files that it has opened to write to them.
        overwritten: files that it has not only appended to.
    """

    error: tuple[type[OutpaceError], str] | None
    written: frozenset[str] = frozenset()
    overwritten: frozenset[str] = frozenset()


# -- from the simulation ---------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Begin(ToScript):
    """Tells that the run begins.

    Attributes:
        elements: number of parameters.
        slices: slices of the flat parameters, one for each server.
        buffers: worker 0's buffers, with which all workers begin.
    """

    elements: int
    slices: list[slice]
    buffers: torch.Tensor


@dataclass(frozen=True, slots=True)
class Go(ToScript):
    """Tells the script to continue with the next gradient; the parameters are in the slot.

    discard: True: the last step was cut off, so the model buffers must be restored. averages: True:
    new averaged model buffers are stored with the parameters.
    """

    iteration: int
    discard: bool
    averages: bool = False


@dataclass(frozen=True, slots=True)
class TakeStep(ToScript):
    """Tells the script to take an optimizer step along the gradient in the slots.

    unused: numbers of the parameters without a gradient.
    """

    unused: Sequence[int]


@dataclass(frozen=True, slots=True)
class Outcome(ToScript):
    """Tells whether the step was cut off, after its virtual time has passed."""

    stopped: bool


@dataclass(frozen=True, slots=True)
class Done(ToScript):
    """Tells that a collective has ended.

    has_outputs: True if this worker's outputs are in the memory; otherwise they do not change.
    """

    has_outputs: bool


@dataclass(frozen=True, slots=True)
class States(ToScript):
    """The state of the optimizer, for the pieces of parameters in each slice."""

    states: Sequence[OptimizerState]


@dataclass(frozen=True, slots=True)
class FinalParameters(ToScript):
    """Tells that all workers have left, and that the final parameters are in the slot.

    has_buffers: True if the averaged model buffers are stored with them.
    """

    has_buffers: bool


@dataclass(frozen=True, slots=True)
class Over(ToScript):
    """Tells the script to exit, because the run is over.

    Attributes:
        reason: text to print; empty if the run was ended early.
        discard: True if the last step did not end in time; see `Go`.
    """

    reason: str
    discard: bool = False


class Pipe(Protocol):
    """Carries the bytes of messages, as `multiprocessing.connection.Connection` does."""

    def send_bytes(self, data: bytes, /) -> None: ...

    def recv_bytes(self) -> bytes: ...


def send(pipe: Pipe, message: FromScript | ToScript) -> None:
    """Send a message. Raises ConnectionError if the other side has ended."""
    pipe.send_bytes(pickle.dumps(message, pickle.HIGHEST_PROTOCOL))


def receive(pipe: Pipe) -> Any:
    """Return the next message. Raises EOFError or ConnectionError if the other side has ended."""
    return pickle.loads(pipe.recv_bytes())
