"""Gradients and evaluation of a user's model, on flat parameter vectors."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final

import torch
from torch.nn.modules.batchnorm import _NormBase

from outpace.blocks.block import Block, Pieces
from outpace.blocks.gathering import Gathering
from outpace.blocks.naming import aliases_in, layout_of
from outpace.blocks.packing import dtype_name
from outpace.errors import ConfigError
from outpace.support import repeatable
from outpace.support.user_code import brief
from outpace.tasks.in_parts import BackwardInParts, SendPart
from outpace.tasks.samples import (
    Sampler,
    accuracy_of,
    batches_of,
    length_of,
    require_samples,
    samples_at,
)
from outpace.tasks.stacked import Stacked
from outpace.tasks.task import Data, Evaluation, Pair, Task, fraction_correct

_TRAIN_SAMPLES_EVALUATED: Final = 1000
_EVALUATION: Final = (-1, 0)  # worker and iteration that seed an evaluation's random numbers


def supervised(
    make: Callable[[], Task], workers: int, batch_size: int, seed: int, *, ours: bool = True
) -> SupervisedWorkload:
    """Make a task with the initial weights of `seed`, and return its workload.

    The caller restores torch's generator.

    Args:
        ours: see `SupervisedWorkload`.

    Raises:
        ConfigError: if the task cannot be trained.
    """
    torch.manual_seed(seed)
    task = make()
    try:
        return SupervisedWorkload(task, workers, batch_size, seed, ours=ours)
    except ConfigError:
        raise
    except Exception as error:
        raise ConfigError(f"this task cannot be trained: {brief(error)}") from error


class SupervisedWorkload:
    """A `Task` cut into blocks and batches.

    The model's trainable parameters become views of one flat vector, in the order of
    `named_parameters()`; frozen parameters are left alone. The model may be on a GPU; blocks are on
    the CPU.

    The model's buffers are reset before each computation, so that losses and gradients depend only
    on the given parameters; changes that a gradient makes to buffers are lost. An evaluation
    computes BatchNorm's averages for its parameters, over the training samples that it uses
    ("precise BN": Wu and Johnson, Rethinking "Batch" in BatchNorm, 2021).
    """

    def __init__(
        self, task: Task, workers: int, batch_size: int, seed: int, *, ours: bool = False
    ) -> None:
        """Make the workload of a task.

        Args:

        Raises:
            ConfigError: if the task cannot be trained.
        """
        require_samples(task.train, "train")
        if task.test is not None:
            require_samples(task.test, "test")
        if not isinstance(task.model, torch.nn.Module):
            raise ConfigError(
                f"the task's model must be an nn.Module, not a {type(task.model).__name__}"
            )
        self._parameters = [p for p in task.model.parameters() if p.requires_grad]
        if not self._parameters:
            raise ConfigError("the task's model has no parameter with requires_grad")
        kinds = {str(kind) for p in self._parameters for kind in (p.dtype, p.device)}
        if len(kinds) != 2:
            raise ConfigError(
                f"the model's parameters must share one dtype and device, not {sorted(kinds)}"
            )
        if self._parameters[0].is_meta:
            raise ConfigError("the model's parameters are on the meta device: they have no values")
        self.task, self.model = task, task.model
        self._accuracy = accuracy_of(task)
        self.has_accuracy = self._accuracy is not None
        self.layers = [p.numel() for p in self._parameters if p.numel()]
        self._flat = torch.cat([p.detach().reshape(-1) for p in self._parameters])
        self.size = self._flat.numel()
        parts = torch.split(self._flat, [p.numel() for p in self._parameters])
        for parameter, part in zip(self._parameters, parts, strict=True):
            parameter.data = part.view_as(parameter)
        self._buffers = list(task.model.buffers())
        self._initial_buffers = [buffer.detach().clone() for buffer in self._buffers]
        # Normalisation that keeps averages over the batches that it has seen.
        self._averaging: list[Any] = [
            module
            for module in task.model.modules()
            if isinstance(module, _NormBase) and module.track_running_stats
        ]
        self._seed, self._ours = seed, ours
        self.samples = length_of(task.train)
        self._sampler = Sampler(self.samples, workers, batch_size, seed)
        self._in_parts: BackwardInParts | None = None
        self.cut([slice(0, self.size)])

    @property
    def layout(self) -> str:
        trained = {id(p) for p in self._parameters}
        named = {name: p for name, p in self.model.named_parameters() if id(p) in trained}
        saved = self.model.state_dict(keep_vars=True)
        aliases = aliases_in(saved, named)
        others = [
            (name, list(tensor.shape), dtype_name(tensor.dtype))
            for name, tensor in saved.items()
            if name not in named and name not in dict(aliases)
        ]
        return layout_of(named.items(), aliases, others)

    def cut(self, slices: Sequence[slice]) -> None:
        assert self._in_parts is None, "its hooks stay on the parameters"
        self._slices = list(slices)
        self._gathering = Gathering([p.numel() for p in self._parameters], slices)
        self._loaded: list[Block | None] = [None] * len(slices)

    def initial_parameters(self) -> list[Block]:
        return [self._flat[part].to("cpu", copy=True) for part in self._slices]

    def gradient(
        self, parameters: Sequence[Block], worker: int, iteration: int
    ) -> tuple[float, Sequence[Block]]:
        loss = self.forward(parameters, worker, iteration)
        gradients = torch.autograd.grad(loss, self._parameters, materialize_grads=True)
        return loss.item(), self._gathering.blocks(gradients)

    def forward(self, parameters: Sequence[Block], worker: int, iteration: int) -> torch.Tensor:
        """Return the loss of the worker's batch of this iteration, as the task computes it."""
        self._load(parameters)
        inputs, targets = self._read_batch(worker, iteration)
        return self.task.loss(self.model(inputs), targets)

    def backward(self, loss: torch.Tensor, send: SendPart) -> None:
        """Compute the gradient of a loss; send each block of the gradient when it is complete.

        The gradient is bitwise equal to the result of `gradient`. Raises what `send` raises.
        """
        if self._in_parts is None:
            self._in_parts = BackwardInParts(self._parameters, self._slices)
        self._in_parts.run(loss, send)

    def _read_batch(self, worker: int, iteration: int) -> Pair:
        self._seed_generators(worker, iteration)
        return samples_at(self.task.train, self.samples_of(worker, iteration))

    def samples_of(self, worker: int, iteration: int) -> torch.Tensor:
        """Return the indices of the batch's samples, int64 of shape (batch_size,)."""
        return self._sampler.indices(worker, iteration)

    def stacked(self, device: str | None) -> Stacked:
        """Return a `Stacked` of this task. Raises ValueError if batches cannot be stacked."""
        return Stacked(self.task, self.samples_of, device)

    def draws(self, parameters: Sequence[Block]) -> bool:
        """True if a gradient draws random numbers, not counting the choice of its samples."""
        self._seed_generators(0, 0)
        before = repeatable.states()
        self.gradient(parameters, 0, 0)
        return repeatable.states() != before

    def _seed_generators(self, worker: int, iteration: int) -> None:
        """Seed the generators (for dropout, for example) by worker and iteration."""
        mixed = (self._seed * 1_000_003 + worker) * 1_000_033 + iteration
        if self._ours:
            torch.default_generator.manual_seed(mixed & (2**63 - 1))
        else:  # such as a Dataset that augments, or a model on any device
            repeatable.seed_all(mixed)

    def probe(self, where: str) -> None:
        """Raise ConfigError, beginning with `where`, unless the first batch gives a gradient.

        The call may change the state of the model and other state of the task.
        """
        try:
            inputs, targets = samples_at(self.task.train, self.samples_of(0, 0))
            output = self.model(inputs)
            loss = self.task.loss(output, targets)
            problem = self._unset() or self._fault(loss)
            # a user's accuracy function is called only in evaluations
            if self._accuracy is fraction_correct:
                fraction_correct(output, targets)
        except (Exception, SystemExit) as error:
            problem = f"its first batch raised {brief(error)}"
        if problem:
            raise ConfigError(f"{where}: {problem}")

    def _unset(self) -> str:
        """Describe a parameter that is not finite before the first step; empty if there is none."""
        for name, parameter in self.model.named_parameters():
            if parameter.requires_grad and not bool(parameter.detach().isfinite().all()):
                return (
                    f"the parameter {name} is not finite before the first step: initialize it, or "
                    "check the file it was loaded from"
                )
        return ""

    def _fault(self, loss: object) -> str:
        """Describe what is wrong with a loss; empty if nothing is."""
        if not isinstance(loss, torch.Tensor):
            return f"its loss must be a scalar tensor, not a {type(loss).__name__}"
        if loss.numel() != 1:
            return (
                f"its loss must be a scalar, such as the mean over the batch, "
                f"not of shape {tuple(loss.shape)}"
            )
        found = loss.requires_grad and any(
            gradient is not None
            for gradient in torch.autograd.grad(loss, self._parameters, allow_unused=True)
        )
        if not found:
            return "its loss has no gradient: it does not depend on the model's parameters"
        return ""

    def evaluate(self, parameters: Sequence[Block], samples: int | None = None) -> Evaluation:
        self._load(parameters)
        train, test = self.task.train, self.task.test
        with self._evaluating():
            most = _TRAIN_SAMPLES_EVALUATED
            train_loss, _ = self._mean(train, min(most, samples or most))
            if test is None:
                return Evaluation(train_loss)
            test_loss, accuracy = self._mean(test, samples or length_of(test))
            return Evaluation(train_loss, test_loss, accuracy)

    def state_dict(self, parameters: Sequence[Block]) -> dict[str, torch.Tensor]:
        self._load(parameters)
        with self._evaluating():
            return {
                name: value.to("cpu", copy=True).contiguous()
                for name, value in self.model.state_dict().items()
            }

    def _load(self, parameters: Sequence[Block]) -> None:
        # Blocks never change, so a block that is loaded already need not be copied again: under
        # BSP all workers compute from the same blocks.
        for k, (part, block) in enumerate(zip(self._slices, parameters, strict=True)):
            if self._loaded[k] is block:
                continue
            self._loaded[k] = block
            if isinstance(block, Pieces):
                block.copy_to(self._flat[part])
            else:
                assert isinstance(block, torch.Tensor)
                self._flat[part] = block
        for buffer, initial in zip(self._buffers, self._initial_buffers, strict=True):
            buffer.copy_(initial)

    @contextlib.contextmanager
    def _evaluating(self) -> Iterator[None]:
        """Put the model into `eval` mode, with averages computed for the loaded parameters."""
        self._seed_generators(*_EVALUATION)
        modes = [(module, module.training) for module in self.model.modules()]
        self.model.eval()
        try:
            with torch.no_grad():
                self._average_anew()
                yield
        finally:
            for module, training in modes:  # the user may have put some modules in `eval` mode
                module.training = training

    def _average_anew(self) -> None:
        """Compute BatchNorm's averages for the loaded parameters; other modules stay in `eval`."""
        if not self._averaging:
            return
        for module in self._averaging:
            module.reset_running_stats()
            module.train()
        batches = batches_of(self.task.train, _TRAIN_SAMPLES_EVALUATED)
        for number, (_, inputs, _) in enumerate(batches, 1):
            for module in self._averaging:
                module.momentum = 1 / number  # the plain average over all batches
            self.model(inputs)
        for module in self._averaging:
            module.eval()

    def _mean(self, data: Data, samples: int) -> tuple[float, float | None]:
        """Return the mean loss and accuracy over at most `samples` samples."""
        count, loss, correct = 0, 0.0, 0.0
        accuracy = self._accuracy
        for size, inputs, targets in batches_of(data, samples):
            output = self.model(inputs)
            count += size
            loss += size * self.task.loss(output, targets).item()
            if accuracy is not None:
                correct += size * float(accuracy(output, targets))
        return loss / count, None if accuracy is None else correct / count
