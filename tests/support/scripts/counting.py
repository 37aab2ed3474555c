"""A task whose gradients count samples, and in which something may happen to a worker."""

from __future__ import annotations

import multiprocessing
import os
import signal
import time
from collections.abc import Mapping

import torch

import outpace

SAMPLES = 97

HAPPENINGS = {
    "killed": lambda: os.kill(os.getpid(), signal.SIGKILL),
    "stopped": lambda: os.kill(os.getpid(), signal.SIGSTOP),
    "asleep": lambda: time.sleep(60),
}


def make_task(happens: Mapping[str, tuple[int, str]] | None = None) -> outpace.Task:
    """The gradient says how often each sample is in the batch; parameters start from zero.

    happens: to which worker what, when it computes the gradient of which iteration.
    """
    name = multiprocessing.current_process().name
    when, what = (happens or {}).get(name, (-1, ""))
    iteration = 0

    def loss(output: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        nonlocal iteration
        if output.requires_grad:
            if iteration == when:
                HAPPENINGS[what]()
            iteration += 1
        return output.sum()

    model = torch.nn.Linear(SAMPLES, 1, bias=False)
    torch.nn.init.zeros_(model.weight)
    data = torch.eye(SAMPLES), torch.zeros(SAMPLES)
    return outpace.Task(model, loss, data, data, accuracy=None)
