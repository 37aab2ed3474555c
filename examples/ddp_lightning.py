"""A Lightning module with strategy="ddp": Lightning wraps the model and divides the data.

    pip install pytorch-lightning
    python ddp_lightning.py --devices 2

A perceptron learns to tell five clusters of points apart.
"""

import argparse

import pytorch_lightning as pl
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


def make_data(count, seed):
    """Return points of shape (count, 16) and the class of each, from 0 to 4."""
    numbers = torch.Generator().manual_seed(seed)
    centers = 0.7 * torch.randn(5, 16, generator=torch.Generator().manual_seed(0))
    labels = torch.randint(5, (count,), generator=numbers)
    return TensorDataset(centers[labels] + torch.randn(count, 16, generator=numbers), labels)


class Classifier(pl.LightningModule):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 5))

    def training_step(self, batch, number):
        inputs, targets = batch
        loss = F.cross_entropy(self.layers(inputs), targets)
        if number % 10 == 0 and self.global_rank == 0:
            print(f"epoch {self.current_epoch}, batch {number}: loss {loss:.6f}", flush=True)
        return loss

    def validation_step(self, batch, number):
        inputs, targets = batch
        right = (self.layers(inputs).argmax(dim=1) == targets).float().mean()
        self.log("accuracy", right, sync_dist=True)

    def on_validation_epoch_end(self):
        if self.global_rank == 0 and not self.trainer.sanity_checking:
            print(f"end of epoch {self.current_epoch}", flush=True)

    def configure_optimizers(self):
        return torch.optim.AdamW(self.parameters(), lr=3e-3)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--devices", type=int, default=2)
    parser.add_argument("--epochs", type=int, default=2)
    args = parser.parse_args()

    pl.seed_everything(42)
    trainer = pl.Trainer(
        max_epochs=args.epochs,
        accelerator="cpu",
        devices=args.devices,
        strategy="ddp",
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    train_loader = DataLoader(make_data(1200, seed=1), batch_size=16, shuffle=True)
    test_loader = DataLoader(make_data(300, seed=2), batch_size=100)
    trainer.fit(Classifier(), train_loader, test_loader)
    if trainer.is_global_zero:
        print(f"accuracy {trainer.callback_metrics['accuracy']:.4f}")


if __name__ == "__main__":
    main()
