"""A small transformer learns to write Python, character by character.

    python examples/train_transformer.py
    outpace run examples/train_transformer.py --workers 2 sync.kind=bsp -- --steps 200

AdamW with two parameter groups, gradient clipping and warm-up, as for large models.
"""

import argparse
import inspect

import torch
from torch import nn

import outpace

LENGTH, WIDTH, BATCH = 64, 64, 16


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


def batch(corpus: torch.Tensor, step: int) -> torch.Tensor:
    """Return this worker's own batch of shape (BATCH, LENGTH + 1)."""
    numbers = torch.Generator().manual_seed(step * outpace.world_size() + outpace.rank())
    starts = torch.randint(len(corpus) - LENGTH, (BATCH,), generator=numbers)
    return torch.stack([corpus[start : start + LENGTH + 1] for start in starts])


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=300)
    arguments = parser.parse_args()

    source = inspect.getsource(argparse)  # any other text would do
    alphabet = sorted(set(source))
    corpus = torch.tensor([alphabet.index(character) for character in source])
    torch.manual_seed(0)
    model = Transformer(len(alphabet))
    matrices = [p for p in model.parameters() if p.ndim > 1]
    vectors = [p for p in model.parameters() if p.ndim <= 1]
    optimizer = torch.optim.AdamW(
        [{"params": matrices, "weight_decay": 0.1}, {"params": vectors, "weight_decay": 0.0}],
        lr=3e-3,
    )
    model, optimizer = outpace.attach(model, optimizer)
    warm_up = torch.optim.lr_scheduler.LinearLR(optimizer, 0.05, total_iters=20)

    for step in range(arguments.steps):
        characters = batch(corpus, step)
        output = model(characters[:, :-1])
        loss = nn.functional.cross_entropy(output.flatten(0, 1), characters[:, 1:].flatten())
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        warm_up.step()
        optimizer.zero_grad()
        if step % 25 == 0 and outpace.rank() == 0:
            outpace.log(loss=loss)
            print(f"step {step}: loss {loss.item():.3f}", flush=True)
    outpace.finish()
    if outpace.rank() == 0:
        outpace.log(loss=loss)
        print(f"done: loss {loss.item():.3f}")


if __name__ == "__main__":
    main()
