"""MobileNet of width 1: Howard et al. 2017, table 1. The stem's stride is 1, not 2."""

from __future__ import annotations

from typing import Final

from torch import nn

from outpace.tasks.models.layers import conv_norm_relu, he_normal, head

_BLOCKS: Final = (  # channels, stride
    (64, 1),
    (128, 2),
    (128, 1),
    (256, 2),
    (256, 1),
    (512, 2),
    *[(512, 1)] * 5,
    (1024, 2),
    (1024, 1),
)


def mobilenet(classes: int, channels: int) -> nn.Module:
    """Return thirteen depthwise separable convolutions."""
    layers = [conv_norm_relu(channels, 32)]
    inputs = 32
    for outputs, stride in _BLOCKS:
        layers.append(conv_norm_relu(inputs, inputs, stride=stride, groups=inputs))
        layers.append(conv_norm_relu(inputs, outputs, kernel=1))
        inputs = outputs
    return he_normal(nn.Sequential(*layers, head(inputs, classes)))
