"""Your own task: the function returns the model, its loss and its data."""

import torch

from outpace import Task


def make_task(width: int = 64) -> Task:
    model = torch.nn.Sequential(
        torch.nn.Linear(20, width), torch.nn.ReLU(), torch.nn.Linear(width, 2)
    )
    x = torch.randn(4000, 20, generator=torch.Generator().manual_seed(0))
    y = (x[:, 0] + x[:, 1].abs() > 0.7).long()
    return Task(
        model=model,
        loss=torch.nn.functional.cross_entropy,
        train=(x[:3000], y[:3000]),
        test=(x[3000:], y[3000:]),
    )
