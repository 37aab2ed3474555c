"""The task of these benchmarks: a model of many bytes that is trained quickly."""

from __future__ import annotations

import math

import torch

import outpace

_ROWS = 32


def make_task(megabytes: float = 100.0) -> outpace.Task:
    """Return a task with a linear model of this many MB of float32 parameters."""
    width = round(math.sqrt(megabytes * 1e6 / 4))
    torch.manual_seed(0)
    model = torch.nn.Linear(width, width, bias=False)
    x, y = torch.randn(_ROWS, width), torch.randn(_ROWS, width)
    return outpace.Task(model, torch.nn.functional.mse_loss, (x, y), (x[:2], y[:2]))
