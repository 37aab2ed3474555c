"""A script in the manner of PyTorch's MNIST example, on handwritten digits.

    python examples/train_mnist.py
    outpace run examples/train_mnist.py --workers 4 -- --epochs 4
    outpace simulate examples/train_mnist.py --workers 8 compute.kind=measured -- --epochs 4

docs/your-script.md walks through the path from this script to the strategy that suits a cluster.
"""

import argparse

import torch
import torch.nn.functional as F
from torch import nn, optim
from torch.optim.lr_scheduler import StepLR
from torch.utils.data import DataLoader, TensorDataset

import outpace
from outpace.tasks import load_digits


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2d(1, 16, 3, padding=1)
        self.conv2 = nn.Conv2d(16, 32, 3, padding=1)
        self.dropout1 = nn.Dropout(0.25)
        self.dropout2 = nn.Dropout(0.5)
        self.fc1 = nn.Linear(512, 64)
        self.fc2 = nn.Linear(64, 10)

    def forward(self, x):
        x = F.relu(self.conv1(x))
        x = F.relu(self.conv2(x))
        x = self.dropout1(F.max_pool2d(x, 2))
        x = F.relu(self.fc1(torch.flatten(x, 1)))
        return F.log_softmax(self.fc2(self.dropout2(x)), dim=1)


def train(args, model, train_loader, optimizer, epoch):
    model.train()
    total = 0.0
    for batch_idx, (data, target) in enumerate(train_loader):
        optimizer.zero_grad()
        loss = F.nll_loss(model(data), target)
        loss.backward()
        optimizer.step()
        total += loss.item()
        if batch_idx % args.log_interval == 0:
            done = f"{batch_idx * len(data)}/{len(train_loader.sampler)}"
            print(f"Train epoch: {epoch} [{done}]\tLoss: {loss.item():.4f}", flush=True)
            if args.dry_run:
                break
    return total / (batch_idx + 1)


def test(model, test_loader):
    model.eval()
    loss, correct = 0.0, 0
    with torch.no_grad():
        for data, target in test_loader:
            output = model(data)
            loss += F.nll_loss(output, target, reduction="sum").item()
            correct += (output.argmax(dim=1) == target).sum().item()
    count = len(test_loader.dataset)
    print(f"Test: average loss {loss / count:.4f}, accuracy {correct}/{count}", flush=True)
    return correct / count


def main():
    parser = argparse.ArgumentParser(description="PyTorch digits example")
    parser.add_argument("--batch-size", type=int, default=16)
    parser.add_argument("--test-batch-size", type=int, default=360)
    parser.add_argument("--epochs", type=int, default=8)
    parser.add_argument("--lr", type=float, default=1.0)
    parser.add_argument("--gamma", type=float, default=0.7, help="learning rate per epoch")
    parser.add_argument("--dry-run", action="store_true", help="one batch per epoch")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--log-interval", type=int, default=10, help="batches between lines")
    parser.add_argument("--save-model", action="store_true")
    args = parser.parse_args()

    torch.manual_seed(args.seed)
    images, labels = load_digits()
    digits = TensorDataset(images.float().unsqueeze(1) / 16, labels)
    train_data, test_data = torch.utils.data.random_split(digits, [1437, 360])
    model = Net()
    optimizer = optim.Adadelta(model.parameters(), lr=args.lr)
    scheduler = StepLR(optimizer, step_size=1, gamma=args.gamma)
    # First line of Outpace. A run that is resumed continues with the scheduler as it was.
    model, optimizer = outpace.attach(model, optimizer, scheduler=scheduler)
    sampler = outpace.sampler(train_data, seed=args.seed)  # second line, in place of shuffle=True
    train_loader = DataLoader(train_data, batch_size=args.batch_size, sampler=sampler)
    test_loader = DataLoader(test_data, batch_size=args.test_batch_size)

    for epoch in range(sampler.epoch or 1, args.epochs + 1):  # or 1: at first it is 0
        sampler.set_epoch(epoch)
        loss = train(args, model, train_loader, optimizer, epoch)
        if outpace.rank() == 0:
            outpace.log(loss=loss, accuracy=test(model, test_loader))
        scheduler.step()

    outpace.finish()
    if args.save_model and outpace.rank() == 0:
        torch.save(model.state_dict(), "mnist_cnn.pt")


if __name__ == "__main__":
    main()
