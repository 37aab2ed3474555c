"""The tasks that a configuration can name under `task:` which bring their data along."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final, Literal, TypeAlias

from outpace.support.checks import require
from outpace.tasks.data.cifar import cifar10
from outpace.tasks.data.digits import digits_cnn, digits_mlp
from outpace.tasks.data.fashion import fashion_mnist, fashion_mnist_cnn
from outpace.tasks.making import CuttableWorkload, supervised
from outpace.tasks.models import require_model
from outpace.tasks.models.char_gpt import char_gpt

_DEPTHS: Final = (20, 50, 56, 101, 110)


@dataclass(frozen=True, slots=True)
class DigitsMlp:
    """A perceptron on the digits."""

    kind: Literal["digits-mlp"] = "digits-mlp"

    def workload(self, workers: int, batch_size: int, seed: int) -> CuttableWorkload:
        return supervised(digits_mlp, workers, batch_size, seed)


@dataclass(frozen=True, slots=True)
class DigitsCnn:
    """A small convolutional network on the digits."""

    kind: Literal["digits-cnn"] = "digits-cnn"

    def workload(self, workers: int, batch_size: int, seed: int) -> CuttableWorkload:
        return supervised(digits_cnn, workers, batch_size, seed)


@dataclass(frozen=True, slots=True)
class FashionMnistCnn:
    """A convolutional network on Fashion-MNIST. folder: where its four files are."""

    kind: Literal["fashion-mnist-cnn"] = "fashion-mnist-cnn"
    folder: str | None = None

    def absolute(self, folder: Path) -> FashionMnistCnn:
        """With its folder seen from `folder`."""
        return replace(self, folder=_seen_from(folder, self.folder))

    def workload(self, workers: int, batch_size: int, seed: int) -> CuttableWorkload:
        """Raises ConfigError if a file is missing or damaged."""
        return supervised(lambda: fashion_mnist_cnn(self.folder), workers, batch_size, seed)


@dataclass(frozen=True, slots=True)
class FashionMnist:
    """One of `models.MODELS` on Fashion-MNIST. folder: where its four files are."""

    model: str
    folder: str | None = None
    kind: Literal["fashion-mnist"] = "fashion-mnist"

    def __post_init__(self) -> None:
        require_model(self.model)

    def absolute(self, folder: Path) -> FashionMnist:
        """With its folder seen from `folder`."""
        return replace(self, folder=_seen_from(folder, self.folder))

    def workload(self, workers: int, batch_size: int, seed: int) -> CuttableWorkload:
        """Raises ConfigError if a file is missing or damaged."""
        return supervised(lambda: fashion_mnist(self.model, self.folder), workers, batch_size, seed)


@dataclass(frozen=True, slots=True)
class Cifar10:
    """One of `models.MODELS` on CIFAR-10. folder: where the archive or its six files are."""

    model: str
    folder: str | None = None
    kind: Literal["cifar10"] = "cifar10"

    def __post_init__(self) -> None:
        require_model(self.model)

    def absolute(self, folder: Path) -> Cifar10:
        """With its folder seen from `folder`."""
        return replace(self, folder=_seen_from(folder, self.folder))

    def workload(self, workers: int, batch_size: int, seed: int) -> CuttableWorkload:
        """Raises ConfigError if a file is missing or damaged."""
        return supervised(lambda: cifar10(self.model, self.folder), workers, batch_size, seed)


@dataclass(frozen=True, slots=True)
class Cifar10Resnet:
    """The residual network of this depth on CIFAR-10: `cifar10` under a shorter name."""

    depth: int = 20
    folder: str | None = None
    kind: Literal["cifar10-resnet"] = "cifar10-resnet"

    def __post_init__(self) -> None:
        known = ", ".join(map(str, _DEPTHS))
        require(self.depth in _DEPTHS, "depth", f"one of {known}", self.depth)

    def absolute(self, folder: Path) -> Cifar10Resnet:
        """With its folder seen from `folder`."""
        return replace(self, folder=_seen_from(folder, self.folder))

    def workload(self, workers: int, batch_size: int, seed: int) -> CuttableWorkload:
        """Raises ConfigError if a file is missing or damaged."""
        return Cifar10(f"resnet-{self.depth}", self.folder).workload(workers, batch_size, seed)


@dataclass(frozen=True, slots=True)
class CharGpt:
    """A transformer that guesses a text's next character. path: of the text, UTF-8.

    Without a path the text is Python's own standard library. context: how many
    characters it sees.
    """

    kind: Literal["char-gpt"] = "char-gpt"
    path: str | None = None
    context: int = 64
    layers: int = 2
    heads: int = 4
    width: int = 64

    def __post_init__(self) -> None:
        for key, most in (("context", 10_000), ("layers", 1000), ("heads", 1000), ("width", 10**5)):
            value = getattr(self, key)
            require(0 < value <= most, key, f"from 1 to {most:,}", value)
        if self.heads > 0:
            divisible = self.width % self.heads == 0
            require(divisible, "width", f"divisible by heads ({self.heads})", self.width)

    def absolute(self, folder: Path) -> CharGpt:
        """With its path seen from `folder`."""
        return replace(self, path=_seen_from(folder, self.path))

    def workload(self, workers: int, batch_size: int, seed: int) -> CuttableWorkload:
        """Raises ConfigError if the text cannot be read or is too short."""
        return supervised(
            lambda: char_gpt(self.path, self.context, self.layers, self.heads, self.width),
            workers,
            batch_size,
            seed,
        )


DataTask: TypeAlias = (
    DigitsMlp | DigitsCnn | FashionMnistCnn | FashionMnist | Cifar10 | Cifar10Resnet | CharGpt
)


def _seen_from(folder: Path, path: str | None) -> str | None:
    return None if path is None else str((folder / Path(path).expanduser()).resolve())
