"""A training loop for Hugging Face accelerate, which wraps the model in DDP.

    pip install accelerate
    accelerate launch --cpu --num_processes 2 ddp_accelerate.py

A perceptron learns to tell five clusters of points apart.
"""

import argparse

import torch
import torch.nn.functional as F
from accelerate import Accelerator
from accelerate.utils import set_seed
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


def make_data(count, seed):
    """Return points of shape (count, 16) and the class of each, from 0 to 4."""
    numbers = torch.Generator().manual_seed(seed)
    centers = 0.7 * torch.randn(5, 16, generator=torch.Generator().manual_seed(0))
    labels = torch.randint(5, (count,), generator=numbers)
    return TensorDataset(centers[labels] + torch.randn(count, 16, generator=numbers), labels)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--batch-size", type=int, default=16, help="per process")
    parser.add_argument("--accumulate", type=int, default=2, help="batches per step")
    parser.add_argument("--lr", type=float, default=1e-2)
    args = parser.parse_args()

    accelerator = Accelerator(
        cpu=not torch.cuda.is_available(), gradient_accumulation_steps=args.accumulate
    )
    set_seed(42)
    train_loader = DataLoader(make_data(1200, seed=1), batch_size=args.batch_size, shuffle=True)
    test_loader = DataLoader(make_data(300, seed=2), batch_size=100)
    model = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 5))
    optimizer = torch.optim.AdamW(model.parameters(), lr=args.lr)
    scheduler = torch.optim.lr_scheduler.LinearLR(optimizer, 1.0, 0.1, total_iters=100)
    model, optimizer, train_loader, test_loader, scheduler = accelerator.prepare(
        model, optimizer, train_loader, test_loader, scheduler
    )

    for epoch in range(1, args.epochs + 1):
        model.train()
        for number, (inputs, targets) in enumerate(train_loader):
            with accelerator.accumulate(model):
                loss = F.cross_entropy(model(inputs), targets)
                accelerator.backward(loss)
                if accelerator.sync_gradients:
                    accelerator.clip_grad_norm_(model.parameters(), 1.0)
                optimizer.step()
                scheduler.step()
                optimizer.zero_grad()
            if number % 10 == 0:
                mean = accelerator.reduce(loss.detach(), reduction="mean").item()
                accelerator.print(f"epoch {epoch}, batch {number}: loss {mean:.6f}", flush=True)
        model.eval()
        correct = total = 0
        for inputs, targets in test_loader:
            with torch.no_grad():
                predicted = model(inputs).argmax(dim=1)
            found, expected = accelerator.gather_for_metrics((predicted, targets))
            correct += (found == expected).sum().item()
            total += len(expected)
        accelerator.print(f"test: accuracy {correct}/{total}", flush=True)
    accelerator.wait_for_everyone()
    accelerator.end_training()


if __name__ == "__main__":
    main()
