"""A small GPT learns to write, character by character.

    python examples/train_transformer.py
    outpace run examples/train_transformer.py --workers 2 sync.kind=bsp -- --steps 100
    outpace simulate examples/train_transformer.py --workers 8 compute.kind=measured -- --steps 20

AdamW with weight decay for matrices only, gradient accumulation, gradient clipping, and a learning
rate that rises linearly and falls as a cosine, as for large models.
"""

import argparse
import inspect
import math
from pathlib import Path
from statistics import fmean

import torch
from torch import nn

import outpace

LENGTH, WIDTH, BATCH = 64, 64, 8


class Transformer(nn.Module):
    def __init__(self, characters: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(characters, WIDTH)
        self.place = nn.Parameter(torch.zeros(LENGTH, WIDTH))
        layer = nn.TransformerEncoderLayer(
            WIDTH,
            nhead=4,
            dim_feedforward=4 * WIDTH,
            dropout=0.0,
            batch_first=True,
            norm_first=True,
        )
        self.layers = nn.TransformerEncoder(layer, num_layers=2, enable_nested_tensor=False)
        self.head = nn.Linear(WIDTH, characters)

    def forward(self, characters: torch.Tensor) -> torch.Tensor:
        mask = nn.Transformer.generate_square_subsequent_mask(LENGTH)
        hidden = self.embedding(characters) + self.place
        return self.head(self.layers(hidden, mask=mask, is_causal=True))


def make_optimizer(model: nn.Module) -> torch.optim.AdamW:
    matrices = [p for p in model.parameters() if p.ndim > 1]
    vectors = [p for p in model.parameters() if p.ndim <= 1]
    groups = [
        {"params": matrices, "weight_decay": 0.1},
        {"params": vectors, "weight_decay": 0.0},
    ]
    return torch.optim.AdamW(groups, lr=3e-3, betas=(0.9, 0.95))


def learning_rate(step: int, steps: int) -> float:
    """Return the share of the highest learning rate: warm-up, then a cosine down to a tenth."""
    warm_up = max(1, steps // 10)
    if step < warm_up:
        return (step + 1) / warm_up
    return 0.55 + 0.45 * math.cos(math.pi * (step - warm_up) / max(1, steps - warm_up))


def batch(corpus: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Return inputs and targets of shape (BATCH, LENGTH)."""
    starts = torch.randint(len(corpus) - LENGTH, (BATCH,))
    characters = torch.stack([corpus[start : start + LENGTH + 1] for start in starts])
    return characters[:, :-1], characters[:, 1:]


def loss_of(model: nn.Module, characters: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    return nn.functional.cross_entropy(model(characters).flatten(0, 1), targets.flatten())


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=150)
    parser.add_argument("--accumulate", type=int, default=2, help="batches per step")
    parser.add_argument(
        "--log-every", type=int, default=10, help="steps of which a loss is the mean"
    )
    parser.add_argument("--text", type=Path, help="default: the source of argparse")
    arguments = parser.parse_args()

    text = arguments.text.read_text() if arguments.text else inspect.getsource(argparse)
    alphabet = {character: number for number, character in enumerate(sorted(set(text)))}
    corpus = torch.tensor([alphabet[character] for character in text])
    torch.manual_seed(0)
    model = Transformer(len(alphabet))
    optimizer = make_optimizer(model)
    scheduler = torch.optim.lr_scheduler.LambdaLR(
        optimizer, lambda step: learning_rate(step, arguments.steps)
    )
    # Each worker has different batches; with a data set, outpace.sampler would divide it. A run
    # that is resumed continues with the scheduler, which counts the steps, and the random numbers.
    torch.manual_seed(outpace.rank())
    model, optimizer = outpace.attach(model, optimizer, scheduler=scheduler)

    losses = []
    for step in range(scheduler.last_epoch + 1, arguments.steps + 1):
        for _ in range(arguments.accumulate):
            loss = loss_of(model, *batch(corpus))
            (loss / arguments.accumulate).backward()
            losses.append(loss.item())
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        scheduler.step()
        optimizer.zero_grad()
        if step % arguments.log_every == 0:
            loss_then, losses = fmean(losses), []
            if outpace.rank() == 0:
                outpace.log(loss=loss_then, lr=scheduler.get_last_lr()[0])
                print(f"step {step}: loss {loss_then:.3f}", flush=True)
    outpace.finish()


if __name__ == "__main__":
    main()
