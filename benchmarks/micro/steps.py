"""A script that trains for the benchmarks: `steps.py ELEMENTS STEPS MS FOLDER WITH`.

WITH: outpace, or ddp. Each rank writes the seconds that its steps took into FOLDER/RANK.json. A
step sleeps for MS, as a computation on a device leaves the core to others, and has a backward pass
whose gradient is there already.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Any

import torch

WARM_UP = 5


class GivenLoss(torch.autograd.Function):
    """A loss whose gradient is there already."""

    @staticmethod
    def forward(ctx: Any, parameters: torch.Tensor, gradient: torch.Tensor) -> torch.Tensor:
        ctx.gradient = gradient
        return parameters.new_zeros(())

    @staticmethod
    def backward(ctx: Any, _: torch.Tensor) -> tuple[torch.Tensor, None]:
        return ctx.gradient, None


class GivenModel(torch.nn.Module):
    """Ten tensors of the same size."""

    def __init__(self, elements: int) -> None:
        super().__init__()
        self.weights = torch.nn.ParameterList(torch.zeros(elements // 10) for _ in range(10))
        self.given = torch.full((elements // 10,), 1e-6)

    def forward(self) -> torch.Tensor:
        return torch.stack([GivenLoss.apply(each, self.given) for each in self.weights]).sum()


def train(model: torch.nn.Module, optimizer: Any, steps: int, compute_s: float) -> list[float]:
    """Return the seconds that each step took."""
    seconds = []
    for _ in range(WARM_UP + steps):
        started = time.perf_counter()
        optimizer.zero_grad()
        loss = model()
        time.sleep(compute_s)
        loss.backward()
        optimizer.step()
        seconds.append(time.perf_counter() - started)
    return seconds[WARM_UP:]


def main() -> None:
    elements, steps, compute_s = int(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3]) / 1e3
    folder, kind = Path(sys.argv[4]), sys.argv[5]
    torch.set_num_threads(1)
    model = GivenModel(elements)
    if kind == "ddp":
        rank = int(sys.argv[6])
        store = f"file://{folder}/store"
        torch.distributed.init_process_group("gloo", init_method=store, rank=rank, world_size=2)
        wrapped = torch.nn.parallel.DistributedDataParallel(model, gradient_as_bucket_view=True)
        optimizer = torch.optim.SGD(wrapped.parameters(), lr=0.1)
        seconds = train(wrapped, optimizer, steps, compute_s)
        torch.distributed.destroy_process_group()
    else:
        import outpace

        rank = outpace.rank()
        attached = outpace.attach(model, torch.optim.SGD(model.parameters(), lr=0.1))
        seconds = train(*attached, steps, compute_s)
    (folder / f"{rank}.json").write_text(json.dumps(seconds))


if __name__ == "__main__":
    main()
