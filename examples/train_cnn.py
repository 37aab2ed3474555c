"""Your own training script: a CNN on handwritten digits.

    python examples/train_cnn.py
    outpace run examples/train_cnn.py --workers 4 --servers 2 sync.kind=bsp

The lines with `outpace` are all that a script needs to train on several workers.
"""

import argparse
from statistics import fmean

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import outpace
from outpace.tasks import load_digits


def digits() -> tuple[TensorDataset, TensorDataset]:
    images, targets = load_digits()
    inputs = images.float().unsqueeze(1) / 16
    order = torch.randperm(len(targets), generator=torch.Generator().manual_seed(0))
    train, test = order[360:], order[:360]
    return TensorDataset(inputs[train], targets[train]), TensorDataset(inputs[test], targets[test])


def make_model() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(1, 16, 3, padding=1),
        nn.BatchNorm2d(16),
        nn.ReLU(),
        nn.Conv2d(16, 32, 3, padding=1),
        nn.BatchNorm2d(32),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(512, 64),
        nn.ReLU(),
        nn.Linear(64, 10),
    )


def accuracy(model: nn.Module, data: TensorDataset) -> float:
    inputs, targets = data.tensors
    model.eval()
    with torch.no_grad():
        correct = model(inputs).argmax(dim=1) == targets
    model.train()
    return float(correct.float().mean())


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=8)
    arguments = parser.parse_args()

    torch.manual_seed(0)
    train, test = digits()
    model = make_model()
    # Without momentum, so that strategies with stale gradients train as well: see docs/real.md.
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, weight_decay=1e-4)
    sampler = outpace.sampler(train)
    loader = DataLoader(train, batch_size=32, sampler=sampler)
    steps = arguments.epochs * len(loader)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, steps)
    model, optimizer = outpace.attach(model, optimizer, scheduler=scheduler)

    for epoch in range(sampler.epoch, arguments.epochs):  # 0 at first, later if it is resumed
        sampler.set_epoch(epoch)
        losses = []
        for inputs, targets in loader:
            loss = nn.functional.cross_entropy(model(inputs), targets)
            loss.backward()
            optimizer.step()
            scheduler.step()
            optimizer.zero_grad()
            losses.append(loss.item())
        if outpace.rank() == 0:
            with outpace.untimed():
                reached = accuracy(model, test)
            outpace.log(loss=fmean(losses), accuracy=reached)
            print(f"epoch {epoch}: loss {fmean(losses):.3f}", flush=True)

    outpace.finish()
    if outpace.rank() == 0:
        reached = accuracy(model, test)
        outpace.log(accuracy=reached)
        print(f"accuracy {reached:.3f}")


if __name__ == "__main__":
    main()
