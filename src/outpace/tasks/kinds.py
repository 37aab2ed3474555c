"""The tasks that a configuration can name under `task:`."""

from __future__ import annotations

import contextlib
import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal, Protocol, TypeAlias

import numpy as np
import torch

from outpace.checks import not_negative, require
from outpace.errors import ConfigError
from outpace.tasks.digits import digits_cnn, digits_mlp
from outpace.tasks.fashion import fashion_mnist_cnn
from outpace.tasks.quadratic import QuadraticWorkload
from outpace.tasks.supervised import SupervisedWorkload
from outpace.tasks.target import absolute_target, brief, load_target, require_target
from outpace.tasks.task import Task, Workload
from outpace.tasks.timing import TimingWorkload


class CuttableWorkload(Workload, Protocol):
    """A workload that does not know its servers yet."""

    @property
    def size(self) -> int:
        """The number of parameters."""

    def cut(self, slices: Sequence[slice]) -> None:
        """From now on exchange one block for each of these slices of the flat vector."""


@dataclass(frozen=True, slots=True)
class DigitsMlp:
    """A perceptron on scikit-learn's digits."""

    kind: Literal["digits-mlp"] = "digits-mlp"

    def workload(self, workers: int, batch_size: int, seed: int) -> CuttableWorkload:
        return _supervised(digits_mlp, workers, batch_size, seed)


@dataclass(frozen=True, slots=True)
class DigitsCnn:
    """A small convolutional network on scikit-learn's digits."""

    kind: Literal["digits-cnn"] = "digits-cnn"

    def workload(self, workers: int, batch_size: int, seed: int) -> CuttableWorkload:
        return _supervised(digits_cnn, workers, batch_size, seed)


@dataclass(frozen=True, slots=True)
class Timing:
    """No gradients; `parameters` of four bytes each size the messages."""

    kind: Literal["timing"] = "timing"
    parameters: int = 1_000_000

    def __post_init__(self) -> None:
        require(0 < self.parameters <= 10**15, "parameters", "from 1 to 1e15", self.parameters)

    def workload(self, workers: int, batch_size: int, seed: int) -> CuttableWorkload:
        return TimingWorkload(self.parameters)


@dataclass(frozen=True, slots=True)
class FashionMnistCnn:
    """A convolutional network on Fashion-MNIST. folder: where its four files are."""

    kind: Literal["fashion-mnist-cnn"] = "fashion-mnist-cnn"
    folder: str | None = None

    def absolute(self, folder: Path) -> FashionMnistCnn:
        """With its folder seen from `folder`."""
        if self.folder is None:
            return self
        return replace(self, folder=str((folder / Path(self.folder).expanduser()).resolve()))

    def workload(self, workers: int, batch_size: int, seed: int) -> CuttableWorkload:
        """Raises ConfigError if a file is missing or damaged."""
        return _supervised(lambda: fashion_mnist_cnn(self.folder), workers, batch_size, seed)


@dataclass(frozen=True, slots=True)
class Quadratic:
    """½ Σ λ_j·w_j² from w = 1; `noise` is the standard deviation of each gradient entry."""

    eigenvalues: tuple[float, ...]
    noise: float = 0.0
    kind: Literal["quadratic"] = "quadratic"

    def __post_init__(self) -> None:
        require(len(self.eigenvalues) > 0, "eigenvalues", "a list of numbers", self.eigenvalues)
        for place, value in enumerate(self.eigenvalues):
            require(not_negative(value), f"eigenvalues[{place}]", "a number from 0 to 1e9", value)
        require(not_negative(self.noise), "noise", "a number from 0 to 1e9", self.noise)

    def workload(self, workers: int, batch_size: int, seed: int) -> CuttableWorkload:
        return QuadraticWorkload(self.eigenvalues, self.noise, seed)


@dataclass(frozen=True, slots=True)
class PythonTask:
    """What the user's function returns, an `outpace.Task`.

    `target` is `file.py:function` or `module:function`; `arguments` are given to it by name.
    """

    target: str
    arguments: dict[str, Any] = field(default_factory=dict)
    kind: Literal["python"] = "python"

    def __post_init__(self) -> None:
        require_target(self.target)

    def absolute(self, folder: Path) -> PythonTask:
        """With the path of its file seen from `folder`."""
        return replace(self, target=absolute_target(self.target, folder))

    def workload(self, workers: int, batch_size: int, seed: int) -> CuttableWorkload:
        """Raises ConfigError if it cannot be imported, made, or trained for one batch."""
        # With a task of its own, thrown away: what a model, a loss or a file remembers of
        # its use cannot be put back.
        probed = self.target, repr(self.arguments), workers, batch_size
        if probed not in _PROBED:
            with _no_trace():
                self._supervised(workers, batch_size, seed).probe(self.target)
            _PROBED.add(probed)
        return self._supervised(workers, batch_size, seed)

    def _supervised(self, workers: int, batch_size: int, seed: int) -> SupervisedWorkload:
        function = load_target(self.target)

        def make() -> Task:
            try:
                task = function(**self.arguments)
            except (Exception, SystemExit) as error:
                raise ConfigError(f"task.target: {self.target} raised {brief(error)}") from error
            if not isinstance(task, Task):
                raise ConfigError(
                    f"task.target: {self.target} must return an outpace.Task, "
                    f"not {type(task).__name__}"
                )
            return task

        return _supervised(make, workers, batch_size, seed)


_PROBED: set[tuple[object, ...]] = set()  # by this process: `compare` makes a task often


@contextlib.contextmanager
def _no_trace() -> Iterator[None]:
    """Give the global generators and torch's default dtype back as they were."""
    python, numpy = random.getstate(), np.random.get_state()
    state, dtype = torch.get_rng_state(), torch.get_default_dtype()
    try:
        yield
    finally:
        random.setstate(python)
        np.random.set_state(numpy)
        torch.set_rng_state(state)
        torch.set_default_dtype(dtype)


@dataclass(frozen=True, slots=True)
class Script:
    """A user's training script that calls `outpace.attach`; for real runs only.

    path "-": the workers are started by somebody else.
    """

    path: str
    arguments: tuple[str, ...] = ()
    kind: Literal["script"] = "script"

    def absolute(self, folder: Path) -> Script:
        """With its path seen from `folder`."""
        if self.path == "-":
            return self
        return replace(self, path=str((folder / self.path).resolve()))

    def workload(self, workers: int, batch_size: int, seed: int) -> CuttableWorkload:
        """Always raises ConfigError."""
        raise ConfigError(
            f"task: the script {self.path} can only be run for real (outpace run); "
            "to try strategies on its model in virtual time, make a python task of it"
        )


TaskKind: TypeAlias = (
    DigitsMlp | DigitsCnn | FashionMnistCnn | Quadratic | Timing | PythonTask | Script
)


def _supervised(
    make: Callable[[], Task], workers: int, batch_size: int, seed: int
) -> SupervisedWorkload:
    torch.manual_seed(seed)  # initial weights; whoever runs this restores the generator
    task = make()
    try:
        return SupervisedWorkload(task, workers, batch_size, seed)
    except ConfigError:
        raise
    except Exception as error:
        raise ConfigError(f"this task cannot be trained: {brief(error)}") from error
