"""The parameters that a user's script trains without servers, and the steps that change them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import torch

from outpace.blocks.block import Pieces, StepSettings, Value, parts
from outpace.blocks.sums import all_finite
from outpace.engine.scripts.buffers import AveragedBuffers
from outpace.engine.scripts.model import ScriptModel
from outpace.engine.scripts.tail import Tail, numbers_in
from outpace.errors import DivergenceError
from outpace.optim import OptimizerState
from outpace.optim.torch_optimizers import State, TorchOptimizer
from outpace.real.node.saving.of_worker import Changes
from outpace.sync.checkpoint.state import ShardState


def load_own(script: ScriptModel, state: ShardState, own: ShardState | None) -> None:
    """Load the model of a script, and the state of its own optimizer, from a checkpoint.

    Args:
        state: of the model that all workers have.
        own: what the worker had beside it.
    """
    has_model = own is not None and own.parameters.nbytes > 0
    script.load([own.parameters if own is not None and has_model else state.parameters])
    if own is not None:
        script.replace_state({number: dict(values) for number, values in own.optimizer.items()})


class ScriptTail:
    """What travels behind the gradients of one script: a `Tail` of its model and optimizer."""

    def __init__(self, script: ScriptModel, buffers: AveragedBuffers, *, settings: bool) -> None:
        self._script, self._buffers = script, buffers
        numbers = numbers_in(script.settings()) if settings else ()
        self.layout = Tail(len(script.parameters), numbers, buffers.layout)

    def behind(self, gradient: Pieces) -> Pieces:
        """Return the gradient followed by its tail."""
        script = self._script
        settings = script.settings() if self.layout.numbers else ()
        buffers = self._buffers.read(gradient.parts[0].device)
        return self.layout.behind(gradient.parts, set(script.unused), settings, buffers)

    def cut_off(self, value: Value) -> tuple[Sequence[torch.Tensor], StepSettings]:
        """Return the gradient and the settings of the step; load the mean of the model buffers.

        Args:
            value: a sum or a mean of gradients with their tails.
        """
        settings = self._script.settings() if self.layout.numbers else ()
        gradient, how, buffers = self.layout.cut_off(value, settings)
        self._buffers.load(buffers)
        return gradient, how


class InPlace:
    """The parameters in the model, changed there by the script's own optimizer.

    Implements `CommonParameters` and `OwnParameters`. The model must not
    change while the script computes a gradient: `change` then takes effect in the model later.

    Args:
        changed: called after each commit with its number of gradients.
        stepped: called after each step on the worker's own parameters.
    """

    def __init__(
        self,
        script: ScriptModel,
        tail: ScriptTail,
        changed: Callable[[int], None],
        stepped: Callable[[], None],
    ) -> None:
        self._script, self._tail = script, tail
        self._changed, self._stepped = changed, stepped
        self._is_in_use = False
        self._later: torch.Tensor | None = None  # still to be added to the model
        self.noted: list[Changes] = []  # are told of each change that is no step

    def read(self) -> Value:
        flat = self._script.flat()
        return flat if self._later is None else flat.add_(self._later)

    @contextmanager
    def unchanged(self) -> Iterator[None]:
        """Leave the model unchanged in this context, in which a gradient is computed."""
        self._is_in_use = True
        yield
        self._is_in_use = False
        self._add()

    def change(self, by: torch.Tensor) -> None:
        """Add `by`, which the caller must not use again. `read` includes it at once."""
        for each in self.noted:
            each.add(by)
        self._later = by if self._later is None else self._later.add_(by)
        if not self._is_in_use:
            self._add()

    def _add(self) -> None:
        if self._later is not None:
            self._script.load([self.read()])
            self._later = None

    def replica(self) -> ScriptReplica:
        raise AssertionError("hpsgd has parameters beside the model's")

    def commit(self, gradient: Value, divisor: float, gradients: int, factor: float = 1.0) -> None:
        assert factor == 1, "hpsgd has parameters beside the model's"
        found, how = self._tail.cut_off(gradient)
        if divisor != 1:
            torch._foreach_div_(list(found), divisor)
        self._script.take_step(found, set(how.unused))
        self._changed(gradients)

    def step(self, gradient: Value, iteration: int) -> None:
        self._script.take_step(parts(gradient), set(self._script.unused))
        self._stepped()

    def replace(self, parameters: Value) -> None:
        self._script.load([parameters])


class WithBuffers:
    """A worker's own parameters, followed by its model buffers. Implements `OwnParameters`."""

    def __init__(self, own: InPlace, buffers: AveragedBuffers) -> None:
        self._own, self._buffers = own, buffers
        self.step = own.step

    def read(self) -> Value:
        flat = self._own.read()
        assert isinstance(flat, torch.Tensor)
        return Pieces([flat, self._buffers.read(flat.device)])

    def replace(self, parameters: Value) -> None:
        flat, *rest = parts(parameters)
        count = self._buffers.layout.elements
        buffers = rest[0] if rest else flat[-count:]
        self._own.replace(flat if rest else flat[:-count])
        self._buffers.load(buffers)


class BesideModel:
    """Common parameters apart from the model, changed by an optimizer like the script's.

    Implements `CommonParameters`.
    """

    def __init__(
        self,
        script: ScriptModel,
        tail: ScriptTail,
        initial: torch.Tensor,
        changed: Callable[[int], None],
    ) -> None:
        self._script, self._tail, self._changed = script, tail, changed
        self.version = 0  # number of commits
        self._flat = initial
        self._all = slice(0, len(initial))
        self._groups = script.places(self._all)
        kind = type(script.optimizer).__name__
        self._step = TorchOptimizer(kind, self._groups, script.settings()).on(initial)

    def state(self) -> dict[int, State]:
        """Return a copy of the optimizer's state, by number of the parameter, in its shape."""
        return self._script.joined_state([self._step.state()], [self._all])

    def load_state(self) -> None:
        """Replace the optimizer's state by that of the script's optimizer."""
        self._step.load(self._script.state_within(self._all))

    def restore(self, parameters: torch.Tensor, state: OptimizerState, version: int) -> None:
        """Go on from a checkpoint, before the first commit."""
        self._flat.copy_(parameters)
        self._step.load(state)
        self.version = version

    def optimizer_state(self) -> dict[int, State]:
        """Return a copy of the optimizer's state, for `restore`."""
        return self._step.state()

    def read(self) -> torch.Tensor:
        """Return the parameters themselves; the next commit changes them."""
        return self._flat

    def commit(self, gradient: Value, divisor: float, gradients: int, factor: float = 1.0) -> None:
        (flat,), how = self._tail.cut_off(gradient)
        self._step(flat, divisor, how, 0, factor)
        if not all_finite(self._flat):
            raise DivergenceError(
                "the parameters stopped being finite; try a smaller learning rate"
            )
        self.version += 1
        self._changed(gradients)

    def replica(self) -> ScriptReplica:
        return ScriptReplica(self, self._script)


class ScriptReplica:
    """A replica of the common parameters, in the model. Implements `ReplicaParameters`.

    With SGD it takes plain steps, with the learning rates of the script's optimizer. With others it
    takes the steps of that optimizer, from the state of the common one. The script's optimizer then
    has the state of the replica; what it saves is the common one's.
    """

    def __init__(self, common: BesideModel, script: ScriptModel) -> None:
        self._common, self._script = common, script
        self.takes_plain_steps = isinstance(script.optimizer, torch.optim.SGD)
        self._follows, self._stepped = True, False
        self.version = -1  # commits in the model, apart from own steps; -1: reload

    def read(self) -> Value:
        return self._script.flat()

    def show(self) -> None:
        """Load the common parameters into the model, if the replica follows newer ones."""
        if self._follows and self.version != self._common.version:
            self._script.load([self._common.read()])
            self.version = self._common.version

    def step(self, gradient: Value, iteration: int) -> None:
        self.stay()
        self._stepped = True
        gradients = parts(gradient)[: len(self._script.parameters)]
        if self.takes_plain_steps:
            self._take_plain_step(gradients)
        else:
            self._script.take_step(gradients, set(self._script.unused))

    def _take_plain_step(self, gradients: Sequence[torch.Tensor]) -> None:
        found = dict(zip(map(id, self._script.parameters), gradients, strict=True))
        for group in self._script.optimizer.param_groups:
            members = [p for p in group["params"] if id(p) in found]
            if not members:  # all of them are frozen
                continue
            with torch.no_grad():
                steps = [found[id(p)].view(p.shape).to(p.device) for p in members]
                rate = float(group["lr"]) * (1 if group["maximize"] else -1)
                torch._foreach_add_(members, steps, alpha=rate)

    def stay(self) -> None:
        if self._follows and not self.takes_plain_steps:
            self._script.replace_state(self._common.state())
        self.show()
        self._follows = False

    def follow(self) -> None:
        if self._stepped:
            self.version = -1
        self._follows, self._stepped = True, False
