"""A classic DDP script: a small CNN learns digits, with a sampler and a checkpoint of rank 0.

    torchrun --nproc-per-node 2 ddp_mnist.py

The pictures are drawn: digits of seven segments, somewhere in the picture, with noise. Nothing is
downloaded.
"""

import argparse
import os

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn, optim
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.optim.lr_scheduler import StepLR
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2d(1, 8, 3, padding=1)
        self.bn1 = nn.BatchNorm2d(8)
        self.conv2 = nn.Conv2d(8, 16, 3, padding=1)
        self.dropout = nn.Dropout(0.25)
        self.fc1 = nn.Linear(16 * 6 * 6, 32)
        self.fc2 = nn.Linear(32, 10)

    def forward(self, x):
        x = F.relu(self.bn1(self.conv1(x)))
        x = F.max_pool2d(F.relu(self.conv2(x)), 2)
        x = F.relu(self.fc1(torch.flatten(x, 1)))
        return F.log_softmax(self.fc2(self.dropout(x)), dim=1)


def draw_digits(count, seed):
    """Return pictures of shape (count, 1, 12, 12) and their digits."""
    segments = [  # top, upper left, upper right, middle, lower left, lower right, bottom
        *("1110111", "0010010", "1011101", "1011011", "0111010"),
        *("1101011", "1101111", "1010010", "1111111", "1111011"),
    ]
    shapes = torch.zeros(10, 9, 6)
    for digit, lit in enumerate(segments):
        top, upper_left, upper_right, middle, lower_left, lower_right, bottom = map(int, lit)
        shapes[digit, 0, 1:5] += top
        shapes[digit, 1:4, 0] += upper_left
        shapes[digit, 1:4, 5] += upper_right
        shapes[digit, 4, 1:5] += middle
        shapes[digit, 5:8, 0] += lower_left
        shapes[digit, 5:8, 5] += lower_right
        shapes[digit, 8, 1:5] += bottom
    numbers = torch.Generator().manual_seed(seed)
    labels = torch.randint(10, (count,), generator=numbers)
    pictures = 0.3 * torch.randn(count, 1, 12, 12, generator=numbers)
    rows = torch.randint(4, (count,), generator=numbers)
    columns = torch.randint(2, 5, (count,), generator=numbers)
    for picture, label, row, column in zip(pictures, labels, rows, columns, strict=True):
        picture[0, row : row + 9, column : column + 6] += shapes[label]
    return pictures, labels


def train(args, model, device, train_loader, optimizer, epoch):
    model.train()
    for batch_idx, (data, target) in enumerate(train_loader):
        data, target = data.to(device), target.to(device)
        optimizer.zero_grad()
        loss = F.nll_loss(model(data), target)
        loss.backward()
        optimizer.step()
        if batch_idx % args.log_interval == 0 and dist.get_rank() == 0:
            print(f"epoch {epoch}, batch {batch_idx}: loss {loss.item():.6f}", flush=True)


def test(model, device, test_loader):
    model.eval()
    total = torch.zeros(3, device=device)  # loss, correct, samples
    with torch.no_grad():
        for data, target in test_loader:
            data, target = data.to(device), target.to(device)
            output = model(data)
            total[0] += F.nll_loss(output, target, reduction="sum")
            total[1] += (output.argmax(dim=1) == target).sum()
            total[2] += len(target)
    dist.all_reduce(total, op=dist.ReduceOp.SUM)
    loss, correct, samples = total.tolist()
    if dist.get_rank() == 0:
        print(f"test: loss {loss / samples:.6f}, accuracy {correct:.0f}/{samples:.0f}", flush=True)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--batch-size", type=int, default=32, help="per process")
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--lr", type=float, default=0.05)
    parser.add_argument("--gamma", type=float, default=0.7, help="factor of the rate per epoch")
    parser.add_argument("--samples", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--log-interval", type=int, default=10, help="batches between lines")
    parser.add_argument("--checkpoint", default="", help="file to save the model in")
    args = parser.parse_args()

    use_cuda = torch.cuda.is_available()
    dist.init_process_group(backend="nccl" if use_cuda else "gloo")
    local_rank = int(os.environ["LOCAL_RANK"])
    device = torch.device(f"cuda:{local_rank}" if use_cuda else "cpu")
    torch.manual_seed(args.seed)

    train_data = TensorDataset(*draw_digits(args.samples, seed=args.seed))
    test_data = TensorDataset(*draw_digits(args.samples // 4, seed=args.seed + 1))
    train_sampler = DistributedSampler(train_data, shuffle=True, seed=args.seed)
    test_sampler = DistributedSampler(test_data, shuffle=False)
    train_loader = DataLoader(train_data, batch_size=args.batch_size, sampler=train_sampler)
    test_loader = DataLoader(test_data, batch_size=500, sampler=test_sampler)

    model = DDP(Net().to(device), device_ids=[local_rank] if use_cuda else None)
    optimizer = optim.SGD(model.parameters(), lr=args.lr, momentum=0.9)
    scheduler = StepLR(optimizer, step_size=1, gamma=args.gamma)
    for epoch in range(1, args.epochs + 1):
        train_sampler.set_epoch(epoch)
        train(args, model, device, train_loader, optimizer, epoch)
        test(model, device, test_loader)
        scheduler.step()

    if args.checkpoint and dist.get_rank() == 0:
        torch.save(model.module.state_dict(), args.checkpoint)
    dist.barrier()  # the file is complete when any process continues
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
