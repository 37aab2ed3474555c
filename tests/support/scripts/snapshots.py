"""Scripts that save a snapshot at the end of each epoch and resume from it.

`snapshots.py KIND STEPS`: KIND is ddp or attach, STEPS the number of steps of an epoch.
"""

import sys
from pathlib import Path

import torch
import torch.distributed as dist

import outpace

EPOCHS = 2
FILE = Path("snapshot.pt")


def main(kind: str, steps: int) -> None:
    torch.manual_seed(0)
    model: torch.nn.Module = torch.nn.Linear(3, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    first = 0
    if FILE.exists():
        snapshot = torch.load(FILE)
        model.load_state_dict(snapshot["model"])
        first = snapshot["epochs"]
    if kind == "ddp":
        dist.init_process_group("gloo")
        net, rank = torch.nn.parallel.DistributedDataParallel(model), dist.get_rank()
    else:
        net, rank = outpace.attach(model, optimizer)[0], outpace.rank()
    for epoch in range(first, EPOCHS):
        for step in range(steps):
            source = torch.Generator().manual_seed(100 * epoch + 10 * step + rank)
            x = torch.randn(4, 3, generator=source)
            optimizer.zero_grad()
            (net(x) - x.sum(1, keepdim=True)).square().mean().backward()
            optimizer.step()
        if rank == 0:
            torch.save({"model": model.state_dict(), "epochs": epoch + 1}, FILE)


main(sys.argv[1], int(sys.argv[2]))
