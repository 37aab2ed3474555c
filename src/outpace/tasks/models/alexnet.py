"""AlexNet (Krizhevsky et al. 2012), changed for small pictures.

It has five 3×3 convolutions with the channels of the one-tower version (Krizhevsky 2014), and the
two linear layers of 4096 with dropout, which hold nine tenths of the parameters, as published.
There is no normalisation.
"""

from __future__ import annotations

from torch import nn

from outpace.tasks.models.layers import he_normal


def alexnet(classes: int, channels: int) -> nn.Module:
    """Return the model, with convolutions of 64, 192, 384, 256 and 256 channels."""
    model = nn.Sequential(
        nn.Conv2d(channels, 64, 3, stride=2, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(64, 192, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(192, 384, 3, padding=1),
        nn.ReLU(),
        nn.Conv2d(384, 256, 3, padding=1),
        nn.ReLU(),
        nn.Conv2d(256, 256, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.AdaptiveAvgPool2d(2),
        nn.Flatten(),
        nn.Dropout(),
        nn.Linear(1024, 4096),
        nn.ReLU(),
        nn.Dropout(),
        nn.Linear(4096, 4096),
        nn.ReLU(),
        nn.Linear(4096, classes),
    )
    return he_normal(model)
