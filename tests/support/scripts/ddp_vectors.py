"""Trains two large vectors with DistributedDataParallel: two buckets of 1.2 MB.

The first argument names further actions of the script.
"""

import sys
from pathlib import Path

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

case, folder = sys.argv[1], Path(sys.argv[2])
ELEMENTS = 300_000  # more than 1 MB, so each vector fills a bucket


class Vectors(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.one = torch.nn.Parameter(torch.zeros(ELEMENTS))
        self.two = torch.nn.Parameter(torch.zeros(ELEMENTS))

    def forward(self, value: float) -> torch.Tensor:
        return value * self.one.sum() + 2 * value * self.two.sum()


dist.init_process_group("nccl")  # any backend
rank, size = dist.get_rank(), dist.get_world_size()
model = Vectors()
ddp = DistributedDataParallel(model)
optimizer = torch.optim.SGD(ddp.parameters(), lr=1.0)


def step(value: float) -> None:
    optimizer.zero_grad()
    ddp(value).backward()
    optimizer.step()


def note(text: object) -> None:
    with (folder / f"notes-{rank}").open("a") as file:
        file.write(f"{text}\n")


if case == "steps":
    for n in range(3):
        step(rank + 1.0 + n)
    note(model.one[0].item())
elif case == "accumulates":
    for _ in range(3):
        optimizer.zero_grad()
        with ddp.no_sync():
            ddp(rank + 1.0).backward()
        ddp(rank + 3.0).backward()
        optimizer.step()
    note(model.two[-1].item())
elif case == "collects":
    step(rank + 1.0)
    value = torch.tensor([rank + 1.0])
    both = [torch.zeros(1) for _ in range(size)]
    dist.all_gather(both, value)
    work = dist.all_reduce(value, async_op=True)  # 3
    work.wait()
    shared = [f"from {rank}"]
    dist.broadcast_object_list(shared, src=1)
    objects = [None] * size
    dist.all_gather_object(objects, {"rank": rank})
    mean = torch.tensor([float(rank)])
    dist.all_reduce(mean, op=dist.ReduceOp.AVG)
    into = torch.zeros(2)
    dist.all_gather_into_tensor(into, torch.tensor([float(rank)]))
    part = torch.zeros(1)
    dist.reduce_scatter_tensor(part, torch.tensor([1.0 + rank, 5.0]))
    given = torch.zeros(1)
    dist.scatter(given, [torch.tensor([7.0]), torch.tensor([8.0])] if rank == 0 else None)
    group = dist.new_group([0, 1])
    dist.barrier(group)
    step(rank + 1.0)
    found = [torch.cat(both), value, mean, into, part, given]
    note([tensor.tolist() for tensor in found])
    note([shared, objects])
elif case == "differs":
    step(rank + 1.0)
    if rank == 0:
        dist.all_reduce(torch.ones(10))
    else:
        dist.barrier()
elif case == "leaves":
    for _ in range(3 if rank == 0 else 2):
        step(rank + 1.0)
elif case == "before":
    if rank == 0:
        dist.barrier()
    step(rank + 1.0)
elif case == "rounds":
    for _ in range(2):
        for _ in range(int(sys.argv[3])):
            step(rank + 1.0)
        value = torch.ones(1)
        dist.all_reduce(value)
        note(value.item())
