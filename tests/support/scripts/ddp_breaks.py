"""A script for torchrun in which worker 1 does not join a collective of worker 0."""

import time
from datetime import timedelta

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

dist.init_process_group("gloo", timeout=timedelta(seconds=2))
rank = dist.get_rank()
model = DistributedDataParallel(nn.Linear(4, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for iteration in range(3):
    if rank == 1 and iteration == 2:
        time.sleep(60)
    model(torch.randn(3, 4)).mean().backward()
    optimizer.step()
if rank == 0:
    dist.all_reduce(torch.zeros(3))
