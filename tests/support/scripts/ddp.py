"""Trains with DistributedDataParallel, as users write it.

python ddp.py FOLDER: rank 0 writes the model and the losses to that folder.
"""

import json
import sys
from pathlib import Path

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

dist.init_process_group("gloo")
rank, size = dist.get_rank(), dist.get_world_size()
torch.manual_seed(7)
inputs = torch.randn(48, 6)
data = TensorDataset(inputs, (inputs.sum(dim=1) > 0).long())
torch.manual_seed(rank)  # DistributedDataParallel broadcasts the weights of rank 0
model = torch.nn.Sequential(
    torch.nn.Linear(6, 16, bias=False),
    torch.nn.BatchNorm1d(16),
    torch.nn.ReLU(),
    torch.nn.Linear(16, 2),
)
ddp = DistributedDataParallel(model)
optimizer = torch.optim.AdamW(ddp.parameters(), lr=0.01)
sampler = DistributedSampler(data, seed=3)
losses = []
for epoch in range(2):
    sampler.set_epoch(epoch)
    for x, y in DataLoader(data, batch_size=4, sampler=sampler):
        optimizer.zero_grad()
        loss = torch.nn.functional.cross_entropy(ddp(x), y)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(ddp.parameters(), 1.0)
        optimizer.step()
    mean = loss.detach().clone()
    dist.all_reduce(mean, op=dist.ReduceOp.SUM)
    losses.append(float(mean) / size)
    dist.barrier()
if rank == 0:
    torch.save(model.state_dict(), Path(sys.argv[1]) / "model.pt")
    (Path(sys.argv[1]) / "losses.json").write_text(json.dumps(losses))
dist.destroy_process_group()
