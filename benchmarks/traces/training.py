"""One rank of a DDP training over Gloo, whose computation is mostly sleep.

A rank sleeps in the forward pass and in the backward pass, between the layers, so that DDP sends
the buckets of the later layers during the backward pass of the earlier ones. The times are drawn
from a log-normal law by (seed, rank, step). Sleeping needs no core, so that several ranks fit on
two of them.
"""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.profiler import ProfilerActivity, profile, schedule

CV: Final = 0.15
WARM_UP: Final = 3  # steps before the profiler, in which DDP arranges its buckets anew
_LAYERS: Final = 4
_BATCH: Final = 4


@dataclass(frozen=True, slots=True)
class Training:
    """The work of each rank.

    Args:
        mean_s: Mean of the sleep of a step.
        mb: Parameters, in million bytes.
        slow: Factors of ranks that sleep longer.
        traces: The folder for rank*.json; None: without a profiler.
        every: Local SGD: ranks average their parameters after so many steps; 0: DDP.
    """

    workers: int
    steps: int
    mean_s: float
    mb: float
    seed: int
    slow: dict[int, float]
    traces: Path | None = None
    every: int = 0


def sleeps(training: Training, rank: int) -> Any:
    """Return the sleeps of the steps of a rank, in s, shape (WARM_UP + steps,)."""
    source = np.random.default_rng([training.seed, rank])
    sigma = np.sqrt(np.log1p(CV**2))
    draws = source.normal(size=WARM_UP + training.steps)
    mean_s = training.mean_s * training.slow.get(rank, 1.0)
    return mean_s * np.exp(sigma * draws - sigma**2 / 2)


def train(rank: int, trainings: Sequence[Training], port: int, results: Any) -> None:
    """Train, one after the other, and put the times in s at which recorded steps ended.

    Args:
        trainings: With the same number of workers.
        results: A queue for a list of these times for each training.
    """
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    torch.set_num_threads(1)
    dist.init_process_group("gloo", rank=rank, world_size=trainings[0].workers)
    try:
        results.put([_steps(rank, training) for training in trainings])
        dist.barrier()
    finally:
        dist.destroy_process_group()


def _steps(rank: int, training: Training) -> list[float]:
    torch.manual_seed(training.seed)
    width = max(8, round((training.mb * 1e6 / 4 / _LAYERS) ** 0.5))
    model: nn.Module = _Sleeping(width)
    if not training.every:
        model = DistributedDataParallel(model, bucket_cap_mb=training.mb / 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    inputs = torch.randn(_BATCH, width)
    ends: list[float] = []

    def step(sleep_s: float) -> None:
        optimizer.zero_grad()
        model(inputs, sleep_s).square().mean().backward()
        optimizer.step()
        if training.every and (len(ends) - WARM_UP + 1) % training.every == 0:
            _average(model)
        ends.append(time.monotonic())

    drawn = sleeps(training, rank)
    if training.traces is None:
        for sleep_s in drawn:
            step(sleep_s)
    else:
        path = training.traces / f"rank{rank}.json"
        with profile(
            activities=[ProfilerActivity.CPU],
            schedule=schedule(wait=0, warmup=WARM_UP, active=training.steps, repeat=1),
            on_trace_ready=lambda profiler: profiler.export_chrome_trace(str(path)),
            record_shapes=True,
        ) as profiler:
            for sleep_s in drawn:
                step(sleep_s)
                profiler.step()
    return ends[WARM_UP - 1 :]


def _average(model: nn.Module) -> None:
    with torch.no_grad():
        flat = torch.cat([parameter.flatten() for parameter in model.parameters()])
        dist.all_reduce(flat)
        nn.utils.vector_to_parameters(flat / dist.get_world_size(), model.parameters())


class _Sleeping(nn.Module):
    """Linear layers. Half of the sleep is before the first, the rest in their backward passes.

    None is in that of the first layer: so the last bucket, which has its gradient, overlaps with
    nothing.
    """

    def __init__(self, width: int) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(width, width, bias=False) for _ in range(_LAYERS))

    def forward(self, inputs: torch.Tensor, sleep_s: float) -> torch.Tensor:
        time.sleep(sleep_s / 2)
        first, *others = self.layers
        found = first(inputs)
        for layer in others:
            found = layer(_SleepBackward.apply(found, sleep_s / 2 / len(others)))
        return found


class _SleepBackward(torch.autograd.Function):
    """The identity, which sleeps in the backward pass."""

    @staticmethod
    def forward(context: Any, value: torch.Tensor, sleep_s: float) -> torch.Tensor:
        context.sleep_s = sleep_s
        return value.view_as(value)

    @staticmethod
    def backward(context: Any, gradient: torch.Tensor) -> tuple[torch.Tensor, None]:
        time.sleep(context.sleep_s)
        return gradient, None
