"""Steps with precomputed gradients: a task, and a training script whose steps have a given length.

Each rank of the script writes the seconds of its steps to FOLDER/RANK.json. A step sleeps instead
of computing, as if it left its core to others while a device computes.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from pathlib import Path
from typing import Any

import torch

WARM_UP = 5


class GivenLoss(torch.autograd.Function):
    """A loss whose gradient was computed before."""

    @staticmethod
    def forward(ctx: Any, parameters: torch.Tensor, gradient: torch.Tensor) -> torch.Tensor:
        ctx.gradient = gradient
        return parameters.new_zeros(())

    @staticmethod
    def backward(ctx: Any, _: torch.Tensor) -> tuple[torch.Tensor, None]:
        return ctx.gradient, None


class GivenModel(torch.nn.Module):
    """Tensors of equal size, whose gradients were computed before."""

    def __init__(self, elements: int, tensors: int) -> None:
        super().__init__()
        size = elements // tensors
        self.weights = torch.nn.ParameterList(torch.zeros(size) for _ in range(tensors))
        self.given = torch.full((size,), 1e-6)

    def forward(self, *_: torch.Tensor) -> torch.Tensor:
        return torch.stack([GivenLoss.apply(each, self.given) for each in self.weights]).sum()


def make_task(elements: int) -> Any:
    """Return an `outpace.Task` whose model is one tensor."""
    import outpace  # not in the ranks of plain DDP

    samples = torch.zeros(8, 1), torch.zeros(8, 1)
    return outpace.Task(GivenModel(elements, tensors=1), lambda loss, _: loss, samples)


def step_s(model: torch.nn.Module, optimizer: Any, compute_s: float) -> float:
    """Take a step; return how long it took, in s."""
    started = time.perf_counter()
    optimizer.zero_grad()
    loss = model()
    time.sleep(compute_s)
    loss.backward()
    optimizer.step()
    return time.perf_counter() - started


def train(model: torch.nn.Module, optimizer: Any, steps: int, compute_s: float) -> list[float]:
    """Return the seconds of each step."""
    return [step_s(model, optimizer, compute_s) for _ in range(WARM_UP + steps)][WARM_UP:]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("elements", type=int)
    parser.add_argument("steps", type=int)
    parser.add_argument("milliseconds", type=float)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--ddp-rank", type=int, help="train with DDP as this rank of two")
    options = parser.parse_args()
    compute_s, rank = options.milliseconds / 1e3, options.ddp_rank
    torch.set_num_threads(1)
    model = GivenModel(options.elements, tensors=10)
    if rank is not None:
        store = f"file://{options.folder}/store"
        torch.distributed.init_process_group("gloo", init_method=store, rank=rank, world_size=2)
        wrapped = torch.nn.parallel.DistributedDataParallel(model, gradient_as_bucket_view=True)
        optimizer = torch.optim.SGD(wrapped.parameters(), lr=0.1)
        seconds = train(wrapped, optimizer, options.steps, compute_s)
    else:
        import outpace

        rank = outpace.rank()
        attached = outpace.attach(model, torch.optim.SGD(model.parameters(), lr=0.1))
        seconds = train(*attached, options.steps, compute_s)
    (options.folder / f"{rank}.json").write_text(json.dumps(seconds))
    if options.ddp_rank is not None:
        # The times are measured. The end of a group hangs or aborts in some processes (torch 2.13:
        # "terminate called without an active exception"), so that neither rank ends its group.
        torch.distributed.barrier()
        os._exit(0)


if __name__ == "__main__":
    main()
