"""A training loop of Ray Train, whose workers are synchronized by Outpace.

    outpace serve --workers 2 --servers 1 --connect run.json sync.kind=ssp sync.staleness=3
    python ray_train.py --connect run.json --epochs 4  # in another terminal

`outpace serve` runs the coordinator and the servers on this machine; Ray Train places and starts
the workers. On a cluster, `outpace serve` needs --host with the address of this machine.
"""

import argparse
import tempfile
import time
from functools import partial
from pathlib import Path

import ray.train
import torch
from ray.train.torch import TorchTrainer
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import outpace
from outpace.tasks import load_digits


def train(connection, config):
    """The training loop of one worker: a function, in a process that continues afterwards."""
    images, labels = load_digits()
    digits = TensorDataset(images.float().flatten(1) / 16, labels)
    train_data, test_data = torch.utils.data.random_split(
        digits, [1437, 360], torch.Generator().manual_seed(1)
    )
    with outpace.joined(connection):
        torch.manual_seed(1)
        model = nn.Sequential(nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 10))
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        model, optimizer = outpace.attach(model, optimizer)
        sampler = outpace.sampler(train_data)
        loader = DataLoader(train_data, batch_size=16, sampler=sampler)
        for epoch in range(config["epochs"]):
            sampler.set_epoch(epoch)
            for inputs, targets in loader:
                loss = nn.functional.cross_entropy(model(inputs), targets)
                loss.backward()
                optimizer.step()
                optimizer.zero_grad()
            outpace.log(loss=loss.item())
        outpace.finish()  # the model has the final parameters
    inputs, targets = test_data[:]
    accuracy = (model(inputs).argmax(dim=1) == targets).float().mean().item()
    # Workers wait for each other in `report`. In the loop, the fast ones would wait for the slow.
    with tempfile.TemporaryDirectory() as folder:
        checkpoint = None
        if outpace.rank() == 0:  # Ray keeps what is reported with a checkpoint
            torch.save(model.state_dict(), Path(folder) / "model.pt")
            checkpoint = ray.train.Checkpoint.from_directory(folder)
        ray.train.report({"accuracy": accuracy}, checkpoint=checkpoint)


def main():
    parser = argparse.ArgumentParser(description="Ray Train with Outpace")
    parser.add_argument("--connect", type=Path, required=True, help="the file of outpace serve")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--epochs", type=int, default=4)
    parser.add_argument("--storage", type=Path, default="ray_results", help="for Ray's results")
    args = parser.parse_args()

    while not args.connect.exists():  # outpace serve is still starting
        time.sleep(0.2)
    # The keys in this text go with the function. Ray would show them if they were in
    # `train_loop_config`.
    connection = args.connect.read_text()
    trainer = TorchTrainer(
        partial(train, connection),
        train_loop_config={"epochs": args.epochs},
        scaling_config=ray.train.ScalingConfig(num_workers=args.workers),
        run_config=ray.train.RunConfig(storage_path=str(args.storage.absolute())),
    )
    print(f"accuracy {trainer.fit().metrics['accuracy']:.3f}")


if __name__ == "__main__":
    main()
