"""Layers and initial weights that the models share."""

from __future__ import annotations

from typing import TypeVar

from torch import nn

Model = TypeVar("Model", bound=nn.Module)


def conv(inputs: int, outputs: int, kernel: int = 3, stride: int = 1, groups: int = 1) -> nn.Conv2d:
    """Return a convolution without bias, padded to keep the size apart from the stride."""
    return nn.Conv2d(
        inputs, outputs, kernel, stride, padding=kernel // 2, groups=groups, bias=False
    )


def conv_norm_relu(
    inputs: int, outputs: int, kernel: int = 3, stride: int = 1, groups: int = 1
) -> nn.Sequential:
    """Return a convolution, batch normalisation and ReLU."""
    return nn.Sequential(
        conv(inputs, outputs, kernel, stride, groups), nn.BatchNorm2d(outputs), nn.ReLU()
    )


def head(features: int, classes: int) -> nn.Sequential:
    """Return layers from (n, features, height, width) of any size to (n, classes)."""
    return nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(features, classes))


def he_normal(model: Model) -> Model:
    """Draw the weights of the model's convolutions, normal with variance 2 / fan-in.

    He et al. 2015, Delving Deep into Rectifiers, (10). Fan-in is also right for depthwise
    convolutions, which read one channel each.
    """
    for module in model.modules():
        if isinstance(module, nn.Conv2d):
            nn.init.kaiming_normal_(module.weight, nonlinearity="relu")
    return model
