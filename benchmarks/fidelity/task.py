"""Two models: one with a large and cheap gradient, one with a small gradient that takes long.

`make_task`: a pixel of a digit has 17 levels of brightness, so a digit is 64 of 1,088 words. The
model adds the vectors of the words and classifies the sum. The gradient is dense and has the size
of the model.

`make_network`: a convolutional network with 1.2 MB of parameters. A gradient of 128 samples takes
a core about 80 ms.
"""

from __future__ import annotations

from typing import Final

import torch
from torch import nn

from outpace import Task
from outpace.tasks.data.digits import load_digits

PIXELS: Final = 64
LEVELS: Final = 17  # of brightness, 0 to 16
CLASSES: Final = 10
_BYTES: Final = 4
_TRAIN: Final = 1437  # samples; the others are the test data


def make_task(mb: float = 1.0) -> Task:
    """Return the task with a model of about `mb` million bytes."""
    words = PIXELS * LEVELS
    width = max(1, round(mb * 1e6 / _BYTES / (words + CLASSES)))
    bag = nn.EmbeddingBag(words, width, mode="sum")
    nn.init.normal_(bag.weight, std=(PIXELS * width) ** -0.5)
    model = nn.Sequential(bag, nn.Linear(width, CLASSES, bias=False))
    pixels, classes = load_digits()
    inputs = pixels.reshape(-1, PIXELS).long() + LEVELS * torch.arange(PIXELS)
    return _classifying(model, inputs, classes)


def make_network(channels: int = 128) -> Task:
    """Return the task with a convolutional network of three layers, each of `channels` channels."""
    layers: list[nn.Module] = []
    for before in (1, channels, channels):
        layers += [nn.Conv2d(before, channels, 3, padding=1), nn.ReLU()]
    head = (nn.AdaptiveAvgPool2d(2), nn.Flatten(), nn.Linear(4 * channels, CLASSES))
    pixels, classes = load_digits()
    inputs = pixels.reshape(-1, 1, 8, 8).float() / LEVELS
    return _classifying(nn.Sequential(*layers, *head), inputs, classes)


def _classifying(model: nn.Module, inputs: torch.Tensor, classes: torch.Tensor) -> Task:
    return Task(
        model=model,
        loss=nn.functional.cross_entropy,
        train=(inputs[:_TRAIN], classes[:_TRAIN]),
        test=(inputs[_TRAIN:], classes[_TRAIN:]),
    )
