"""What the models have in common."""

from __future__ import annotations

from typing import TypeVar

from torch import nn

Model = TypeVar("Model", bound=nn.Module)


def conv(inputs: int, outputs: int, kernel: int = 3, stride: int = 1, groups: int = 1) -> nn.Conv2d:
    """A convolution that keeps the size, up to the stride. No bias: normalisation adds one."""
    return nn.Conv2d(
        inputs, outputs, kernel, stride, padding=kernel // 2, groups=groups, bias=False
    )


def conv_norm_relu(
    inputs: int, outputs: int, kernel: int = 3, stride: int = 1, groups: int = 1
) -> nn.Sequential:
    """Convolution, batch normalisation, ReLU."""
    return nn.Sequential(
        conv(inputs, outputs, kernel, stride, groups), nn.BatchNorm2d(outputs), nn.ReLU()
    )


def head(features: int, classes: int) -> nn.Sequential:
    """(n, features, height, width) of any size → (n, classes): mean over places, linear."""
    return nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(features, classes))


def he_normal(model: Model) -> Model:
    """The same model, its convolutions drawn anew: normal of variance 2 / fan-in.

    He et al. 2015, Delving Deep into Rectifiers, (10); fan-in is also right for depthwise
    convolutions, which read one channel each.
    """
    for module in model.modules():
        if isinstance(module, nn.Conv2d):
            nn.init.kaiming_normal_(module.weight, nonlinearity="relu")
    return model
