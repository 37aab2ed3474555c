"""A model of any size with a cheap gradient: what is exchanged is large, what is computed is small.

A pixel of a digit has 17 levels of brightness, so a digit is 64 of 1,088 words. The model adds the
vectors of the words and classifies the sum. The gradient is dense and has the size of the model.
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
    return Task(
        model=model,
        loss=nn.functional.cross_entropy,
        train=(inputs[:_TRAIN], classes[:_TRAIN]),
        test=(inputs[_TRAIN:], classes[_TRAIN:]),
    )
