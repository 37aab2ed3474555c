"""A task whose gradients count samples, and in which worker 1 may stand still."""

from __future__ import annotations

import multiprocessing
import time

import torch

import outpace

SAMPLES = 97


def make_task(asleep: int | None = None) -> outpace.Task:
    """The gradient says how often each sample is in the batch; parameters start from zero.

    asleep: iteration whose gradient takes worker 1 a minute.
    """
    is_one = multiprocessing.current_process().name == "worker-1"
    iteration = 0

    def loss(output: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        nonlocal iteration
        if output.requires_grad:
            if is_one and iteration == asleep:
                time.sleep(60)
            iteration += 1
        return output.sum()

    model = torch.nn.Linear(SAMPLES, 1, bias=False)
    torch.nn.init.zeros_(model.weight)
    data = torch.eye(SAMPLES), torch.zeros(SAMPLES)
    return outpace.Task(model, loss, data, data, accuracy=None)
