"""A script for torchrun: trains with DDP, and writes the result to FOLDER/RANK.pt."""

import sys
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

EPOCHS = 2


def main() -> None:
    folder = Path(sys.argv[1])
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(rank)
    inputs = torch.randn(96, 20, generator=torch.Generator().manual_seed(7))
    data = TensorDataset(inputs, (inputs.sum(1) > 0).long())
    sampler = DistributedSampler(data, seed=3)
    loader = DataLoader(data, 8, sampler=sampler)
    net = nn.Sequential(nn.Linear(20, 64), nn.BatchNorm1d(64), nn.ReLU(), nn.Linear(64, 2))
    model = DistributedDataParallel(net, bucket_cap_mb=0.004)  # several buckets
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    losses = []
    for epoch in range(EPOCHS):
        sampler.set_epoch(epoch)
        total = torch.zeros(1)
        for x, y in loader:
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(model(x), y)
            loss.backward()
            optimizer.step()
            total += loss.detach()
        dist.all_reduce(total)
        losses.append(total.item())
    dist.barrier()
    parameters = {name: p.detach() for name, p in net.named_parameters()}
    torch.save({"losses": losses, "parameters": parameters}, folder / f"{rank}.pt")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
