"""A Lightning module as a worker: each worker has its share of the data.

    pip install "outpace[recipes]"
    python examples/train_lightning.py
    outpace run examples/train_lightning.py --workers 2 sync.kind=hpsgd -- --epochs 4

A perceptron learns to tell digits apart. The package `lightning` has the same classes.
"""

import argparse

import pytorch_lightning as pl
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import outpace
from outpace.tasks import load_digits


class Digits(pl.LightningModule):
    def __init__(self, data: TensorDataset) -> None:
        super().__init__()
        self.data = data
        self.layers = nn.Sequential(nn.Flatten(), nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 10))
        self.losses: list[float] = []

    def training_step(self, batch: list[torch.Tensor], number: int) -> torch.Tensor:
        images, labels = batch
        loss = nn.functional.cross_entropy(self.layers(images), labels)
        self.losses.append(loss.item())
        return loss

    def configure_optimizers(self) -> torch.optim.Optimizer:
        optimizer = torch.optim.AdamW(self.parameters(), lr=3e-3)
        outpace.attach(self, optimizer)
        return optimizer

    def train_dataloader(self) -> DataLoader[tuple[torch.Tensor, ...]]:
        return DataLoader(self.data, batch_size=32, sampler=outpace.sampler(self.data))

    def on_train_epoch_end(self) -> None:
        outpace.log(loss=self.losses[-1])


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=4)
    arguments = parser.parse_args()

    pl.seed_everything(0)
    images, labels = load_digits()
    model = Digits(TensorDataset(images.float() / 16, labels))
    trainer = pl.Trainer(
        max_epochs=arguments.epochs,
        accelerator="cpu",
        devices=1,  # each worker is a separate process
        use_distributed_sampler=False,  # the data is divided already
        logger=False,
        enable_checkpointing=False,  # checkpoints would be written by every worker
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    trainer.fit(model)
    outpace.finish()  # the final parameters of all workers
    if outpace.rank() == 0:
        print(f"loss: first {model.losses[0]:.3f}, last {model.losses[-1]:.3f}")


if __name__ == "__main__":
    main()
