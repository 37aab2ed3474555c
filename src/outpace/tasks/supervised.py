"""Gradients and evaluation of a user's model, on flat parameter vectors."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from itertools import accumulate, pairwise
from typing import Any, Final

import torch
from torch.nn.modules.batchnorm import _NormBase

from outpace.blocks.block import Block
from outpace.blocks.pieces import Pieces
from outpace.errors import ConfigError
from outpace.support import generators
from outpace.support.user_code import brief
from outpace.tasks.sampler import Sampler
from outpace.tasks.stacked import Stacked
from outpace.tasks.task import Data, Evaluation, Task, fraction_correct

_EVALUATION_BATCH: Final = 100
_TRAIN_SAMPLES_EVALUATED: Final = 1000
_NOBODY: Final = (-1, 0)  # the worker and iteration whose random numbers an evaluation has


class SupervisedWorkload:
    """A `Task` cut into blocks and batches.

    The model's trainable parameters become views of one flat vector, in the order of
    `named_parameters()`; frozen ones are left alone.

    Values depend on the parameters given and nothing else, so buffers are put back before
    anything is computed: what a gradient does to them is forgotten. BatchNorm's averages are
    computed for the parameters that are evaluated, over the training samples that are
    evaluated too ("precise BN": Wu and Johnson, Rethinking "Batch" in BatchNorm, 2021).
    """

    def __init__(
        self, task: Task, workers: int, batch_size: int, seed: int, *, ours: bool = False
    ) -> None:
        """`ours`: it draws random numbers from torch's generator only, if at all.

        Raises ConfigError if the task cannot be trained.
        """
        self.task, self._seed = task, seed
        _require_samples(task.train, "train")
        if task.test is not None:
            _require_samples(task.test, "test")
        if not isinstance(task.model, torch.nn.Module):
            raise ConfigError(f"the task's model is a {type(task.model).__name__}, no nn.Module")
        named = [(n, p) for n, p in task.model.named_parameters() if p.requires_grad]
        if not named:
            raise ConfigError("the task's model has no parameter with requires_grad")
        kinds = {str(p.dtype) for _, p in named} | {str(p.device) for _, p in named}
        if len(kinds) != 2:
            raise ConfigError(
                f"the model's parameters must share one dtype and device, not {sorted(kinds)}"
            )
        if named[0][1].is_meta:
            raise ConfigError("the model's parameters are on the meta device: they have no values")
        self._accuracy = task.accuracy if _has_accuracy(task) else None
        self._parameters = [p for _, p in named]
        self._flat = torch.cat([p.detach().reshape(-1) for p in self._parameters])
        bounds = accumulate((p.numel() for p in self._parameters), initial=0)
        for parameter, (low, high) in zip(self._parameters, pairwise(bounds), strict=True):
            parameter.data = self._flat[low:high].view_as(parameter)
        self._buffers = list(task.model.buffers())
        self._initial_buffers = [buffer.detach().clone() for buffer in self._buffers]
        self._averaging: list[Any] = [m for m in task.model.modules() if _averages(m)]
        self._ours = ours
        self._sampler = Sampler(_length(task.train), workers, batch_size, seed)
        self._slices = [slice(0, self.size)]
        self._loaded: list[Block | None] = [None]

    @property
    def layers(self) -> list[int]:
        """How many parameters each trainable tensor has; not those that have none."""
        return [p.numel() for p in self._parameters if p.numel()]

    @property
    def model(self) -> torch.nn.Module:
        return self.task.model

    @property
    def size(self) -> int:
        """The number of trainable parameters."""
        return self._flat.numel()

    @property
    def samples(self) -> int:
        """The number of training samples."""
        return _length(self.task.train)

    @property
    def has_accuracy(self) -> bool:
        return self._accuracy is not None

    def cut(self, slices: Sequence[slice]) -> None:
        """From now on exchange one block for each of these slices of the flat vector."""
        self._slices = list(slices)
        self._loaded = [None] * len(slices)

    def initial_parameters(self) -> list[Block]:
        return [self._flat[part].clone() for part in self._slices]

    def gradient(
        self, parameters: Sequence[Block], worker: int, iteration: int
    ) -> tuple[float, Sequence[Block]]:
        self._load(parameters)
        self._seed_generators(worker, iteration)
        inputs, targets = _samples(self.task.train, self.samples_of(worker, iteration))
        loss = self.task.loss(self.task.model(inputs), targets)
        gradients = torch.autograd.grad(loss, self._parameters, materialize_grads=True)
        flat = torch.cat([gradient.reshape(-1) for gradient in gradients])
        return loss.item(), [flat[part] for part in self._slices]

    def samples_of(self, worker: int, iteration: int) -> torch.Tensor:
        """The numbers of the training samples in that batch, int64 of shape (batch_size,)."""
        return self._sampler.indices(worker, iteration)

    def stacked(self, device: str | None) -> Stacked:
        """What computes several gradients at once. Raises ValueError if that cannot be done."""
        return Stacked(self.task, self.samples_of, device)

    def draws(self, parameters: Sequence[Block]) -> bool:
        """Does a gradient draw random numbers, beside those of its samples?"""
        self._seed_generators(0, 0)
        before = generators.states()
        self.gradient(parameters, 0, 0)
        return generators.states() != before

    def _seed_generators(self, worker: int, iteration: int) -> None:
        """For dropout and the like: a stream of its own for each (worker, iteration)."""
        mixed = (self._seed * 1_000_003 + worker) * 1_000_033 + iteration
        if self._ours:
            torch.default_generator.manual_seed(mixed & (2**63 - 1))
        else:  # a Dataset that augments, a model that skips layers, any device
            generators.seed_all(mixed)

    def probe(self, target: str) -> None:
        """Raise ConfigError, naming the target, unless the first batch gives a gradient.

        Leaves traces in the model and whatever else the task remembers.
        """
        try:
            inputs, targets = _samples(self.task.train, self._sampler.indices(0, 0))
            loss = self.task.loss(self.task.model(inputs), targets)
            problem = self._fault(loss)
        except (Exception, SystemExit) as error:
            problem = f"its first batch raised {brief(error)}"
        if problem:
            raise ConfigError(f"task.target: {target}: {problem}")

    def _fault(self, loss: object) -> str:
        """What is wrong with a loss; an empty text if nothing is."""
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
        self._seed_generators(*_NOBODY)
        task = self.task
        with _evaluating(task.model):
            self._average_anew()
            most = _TRAIN_SAMPLES_EVALUATED
            train_loss, _ = self._mean(task.train, min(most, samples or most))
            if task.test is None:
                return Evaluation(train_loss)
            test_loss, accuracy = self._mean(task.test, samples or _length(task.test))
            return Evaluation(train_loss, test_loss, accuracy)

    def state_dict(self, parameters: Sequence[Block]) -> dict[str, torch.Tensor]:
        self._load(parameters)
        self._seed_generators(*_NOBODY)
        with _evaluating(self.task.model):
            self._average_anew()
        return {
            name: value.detach().clone().contiguous()
            for name, value in self.task.model.state_dict().items()
        }

    def _load(self, parameters: Sequence[Block]) -> None:
        # Blocks never change, so one that is loaded already need not be copied: under
        # BSP all workers compute from the same.
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

    def _average_anew(self) -> None:
        """Compute BatchNorm's averages for the parameters loaded; the rest is evaluating."""
        if not self._averaging:
            return
        momenta = [module.momentum for module in self._averaging]
        for module in self._averaging:
            module.reset_running_stats()
            module.momentum = None  # the plain average over all batches
            module.train()
        try:
            for _, inputs, _ in _batches(self.task.train, _TRAIN_SAMPLES_EVALUATED):
                self.task.model(inputs)
        finally:
            for module, momentum in zip(self._averaging, momenta, strict=True):
                module.momentum = momentum
                module.eval()

    def _mean(self, data: Data, samples: int) -> tuple[float, float | None]:
        """Mean loss and accuracy over so many samples."""
        count, loss, correct = 0, 0.0, 0.0
        accuracy = self._accuracy
        for size, inputs, targets in _batches(data, samples):
            output = self.task.model(inputs)
            count += size
            loss += size * self.task.loss(output, targets).item()
            if accuracy is not None:
                correct += size * float(accuracy(output, targets))
        return loss / count, None if accuracy is None else correct / count


def _averages(module: torch.nn.Module) -> bool:
    """Does it keep averages over the batches that it has seen?"""
    return isinstance(module, _NormBase) and module.track_running_stats


def _batches(data: Data, samples: int) -> Iterator[tuple[int, torch.Tensor, torch.Tensor]]:
    """(size, inputs, targets) of batches of at most so many samples in all, evenly spaced:
    neighbours may be alike."""
    length = _length(data)
    samples = min(samples, length)
    indices = torch.arange(samples) * length // samples
    for batch in torch.split(indices, _EVALUATION_BATCH):
        yield len(batch), *_samples(data, batch)


def _length(data: Data) -> int:
    return len(data[0]) if isinstance(data, tuple) else len(data)  # type: ignore[arg-type]


def _samples(data: Data, indices: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    if isinstance(data, tuple):
        return data[0][indices], data[1][indices]
    inputs, targets = torch.utils.data.default_collate([data[i] for i in indices.tolist()])
    return inputs, targets


def _has_accuracy(task: Task) -> bool:
    """The default one counts classes, which are whole numbers."""
    if task.test is None or task.accuracy is not fraction_correct:
        return task.test is not None and task.accuracy is not None
    _, targets = _samples(task.test, torch.zeros(1, dtype=torch.int64))
    return not targets.is_floating_point()


def _require_samples(data: Data, name: str) -> None:
    pair = isinstance(data, tuple) and len(data) == 2
    if not isinstance(data, torch.utils.data.Dataset) and not (
        pair and all(isinstance(part, torch.Tensor) for part in data)
    ):
        raise ConfigError(
            f"the task's {name} data must be a tuple (inputs, targets) of two tensors or a "
            f"map-style torch Dataset, not a {type(data).__name__}"
        )
    if isinstance(data, torch.utils.data.IterableDataset):
        raise ConfigError(f"the task's {name} data must be a map-style Dataset, with a length")
    if isinstance(data, tuple) and len(data[0]) != len(data[1]):
        raise ConfigError(
            f"the task's {name} data has {len(data[0])} inputs but {len(data[1])} targets"
        )
    if _length(data) == 0:
        raise ConfigError(f"the task's {name} data is empty")


@contextlib.contextmanager
def _evaluating(model: torch.nn.Module) -> Iterator[None]:
    modes = [(module, module.training) for module in model.modules()]
    model.eval()
    try:
        with torch.no_grad():
            yield
    finally:
        for module, training in modes:  # a user may have frozen some of them
            module.training = training
