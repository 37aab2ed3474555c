"""A training step of DDP on Gloo whose gradient is there already."""

from __future__ import annotations

import os
import statistics
import tempfile

from benchmarks.micro.real.processes import laps, measuring, started, value_of
from benchmarks.micro.steps import GivenModel

from outpace.support.processes import forking


def ddp(elements: int, steps: int) -> float:
    """Return the median seconds of the steps of rank 0 of two."""
    with tempfile.TemporaryDirectory() as folder:
        ranks = [
            measuring(forking.start, f"rank-{n}", train, n, f"{folder}/store", elements, steps)
            for n in range(2)
        ]
        with started(*(process for process, _ in ranks)):
            seconds = [value_of(result) for _, result in ranks]  # of both: neither ends early
            return statistics.median(seconds[0])


def train(rank: int, store: str, elements: int, steps: int) -> list[float]:
    import torch.distributed

    os.environ["GLOO_SOCKET_IFNAME"] = "lo"
    torch.distributed.init_process_group(
        "gloo", init_method=f"file://{store}", rank=rank, world_size=2
    )
    model = torch.nn.parallel.DistributedDataParallel(
        GivenModel(elements, tensors=1), gradient_as_bucket_view=True
    )
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    def step() -> None:
        optimizer.zero_grad()
        model().backward()
        optimizer.step()

    # The group ends with the process. If it was destroyed here, before the model is dropped, about
    # three in ten processes hung while they dropped it on a busy machine (torch 2.13).
    return laps(step, steps)
