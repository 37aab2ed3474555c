"""Models of the literature by name, for pictures of at least 28×28 pixels."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Final

import torch
from torch import nn

from outpace.errors import did_you_mean
from outpace.support.checks import require
from outpace.tasks.models.residual import cifar_resnet, resnet, wide_resnet

MODELS: Final[Mapping[str, Callable[[int, int], nn.Module]]] = {  # of (classes, channels)
    "resnet-20": partial(cifar_resnet, 20),
    "resnet-50": partial(resnet, (3, 4, 6, 3)),
    "resnet-56": partial(cifar_resnet, 56),
    "resnet-101": partial(resnet, (3, 4, 23, 3)),
    "resnet-110": partial(cifar_resnet, 110),
    "wide-resnet-16-4": partial(wide_resnet, 16, 4),
    "wide-resnet-28-10": partial(wide_resnet, 28, 10),
}


def make_model(name: str, classes: int, channels: int) -> nn.Module:
    """Return a model with new weights; `name` is a name that `require_model` accepts."""
    return MODELS[_BY_LETTERS[_letters(name)]](classes, channels)


def require_model(name: str, key: str = "model") -> None:
    """Require (`checks.require`) that the model exists; dashes can be left out."""
    known = _letters(name) in _BY_LETTERS
    hint = "" if known else did_you_mean(name, MODELS)
    require(known, key, "the name of a model", f"{name!r}.{hint}")


def layer_sizes(name: str, classes: int = 10, channels: int = 3) -> tuple[int, ...]:
    """Return the size of each parameter tensor, without allocating the model."""
    with torch.device("meta"):
        model = make_model(name, classes, channels)
    return tuple(parameter.numel() for parameter in model.parameters())


def _letters(name: str) -> str:
    return name.lower().replace("-", "")


_BY_LETTERS: Final = {_letters(name): name for name in MODELS}
