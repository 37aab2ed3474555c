"""A script for torchrun: several buckets, BatchNorm, a mean of the losses, a barrier."""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset


def main() -> None:
    dist.init_process_group("gloo")
    torch.manual_seed(2)
    inputs = torch.randn(64, 20, generator=torch.Generator().manual_seed(7))
    data = TensorDataset(inputs, (inputs.sum(1) > 0).long())
    sampler = DistributedSampler(data, seed=3)
    loader = DataLoader(data, 8, sampler=sampler)
    net = nn.Sequential(nn.Linear(20, 64), nn.BatchNorm1d(64), nn.ReLU(), nn.Linear(64, 2))
    model = DistributedDataParallel(net, bucket_cap_mb=0.004)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    for epoch in range(2):
        sampler.set_epoch(epoch)
        total = torch.zeros(1)
        for x, y in loader:
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(model(x), y)
            loss.backward()
            optimizer.step()
            total += loss.detach()
        dist.all_reduce(total)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
