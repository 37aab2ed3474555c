"""A script as users write them: argparse, shuffled data, StepLR, BatchNorm, evaluation."""

import argparse

import torch

import outpace

parser = argparse.ArgumentParser()
parser.add_argument("--epochs", type=int, default=2)
parser.add_argument("--optimizer", default="sgd")
given = parser.parse_args()

source = torch.Generator().manual_seed(0)
inputs = torch.randn(96, 6, generator=source)
targets = (inputs @ torch.randn(6, 3, generator=source)).argmax(1)
data = torch.utils.data.TensorDataset(inputs, targets)

model = torch.nn.Sequential(
    torch.nn.Linear(6, 8), torch.nn.BatchNorm1d(8), torch.nn.ReLU(), torch.nn.Linear(8, 3)
)
made = {
    "sgd": lambda: torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9),
    "adamw": lambda: torch.optim.AdamW(model.parameters(), lr=0.05),
}
model, optimizer = outpace.attach(model, made[given.optimizer]())
sampler = outpace.sampler(data)
loader = torch.utils.data.DataLoader(data, 8, sampler=sampler)
scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 1, 0.5)
for epoch in range(given.epochs):
    sampler.set_epoch(epoch)
    for batch, target in loader:
        optimizer.zero_grad()
        loss = torch.nn.functional.cross_entropy(model(batch), target)
        loss.backward()
        optimizer.step()
    scheduler.step()
    model.eval()
    with torch.no_grad():
        accuracy = (model(inputs).argmax(1) == targets).float().mean()
    model.train()
    outpace.log(loss=loss, accuracy=accuracy, rate=scheduler.get_last_lr()[0])
outpace.finish()
torch.save(
    {"model": model.state_dict(), "optimizer": optimizer.state_dict()},
    outpace.output_dir() / "end.pt",
)
print(f"finished {epoch + 1} epochs")  # noqa: T201
