"""A small transformer that predicts the next character of a text."""

from __future__ import annotations

import math
from collections import OrderedDict
from dataclasses import dataclass, field
from typing import Annotated, Final, Literal

import torch
from pydantic import Field
from torch import nn

from outpace.support.checks import check_ranges, require
from outpace.support.paths import FILE
from outpace.tasks.data.text import read_characters
from outpace.tasks.supervised import supervised
from outpace.tasks.task import Task, Workload

_DEVIATION: Final = 0.02  # standard deviation of initial weights (GPT-2)


@dataclass(frozen=True, slots=True)
class CharGpt:
    """A transformer that predicts the next character of a text.

    Attributes:
        path: path of a UTF-8 text, whose last tenth is for testing; by default at most 2,000,000
            characters of the source files of Python's standard library.
        context: number of characters that the model sees.
        layers, heads, width: size of the transformer.
    """

    kind: Literal["char-gpt"] = "char-gpt"
    path: str | None = field(default=None, metadata=FILE)
    context: Annotated[int, Field(ge=1, le=10_000)] = 64
    layers: Annotated[int, Field(ge=1, le=1000)] = 2
    heads: Annotated[int, Field(ge=1, le=1000)] = 4
    width: Annotated[int, Field(ge=1, le=10**5)] = 64

    def __post_init__(self) -> None:
        check_ranges(self)
        divisible = self.width % self.heads == 0
        require(divisible, "width", f"divisible by heads ({self.heads})", self.width)

    def load(self) -> None:
        """See `HasData`. The text of a file is read for each workload, since it may change."""
        if self.path is None:
            read_characters(None, self.context)

    def workload(self, workers: int, batch_size: int, seed: int) -> Workload:
        """Return the task for a run. Raises ConfigError if the text is missing or too short."""
        return supervised(
            lambda: char_gpt(self.path, self.context, self.layers, self.heads, self.width),
            workers,
            batch_size,
            seed,
        )


def char_gpt(path: str | None, context: int, layers: int, heads: int, width: int) -> Task:
    """Return a transformer with the text of a file, by default the standard library's sources.

    The loss is the cross-entropy in nats per character, the accuracy the share of characters
    predicted correctly. Raises ConfigError if the text cannot be read or is too short.
    """
    text = read_characters(path, context)
    model = Transformer(len(text.distinct), context, layers, heads, width)
    train, test = text.train_windows(context), text.test_windows(context)
    return Task(model, next_character_loss, train, test, next_character_accuracy)


def next_character_loss(output: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
    """Return the mean cross-entropy of output (n, context, characters) and target (n, context)."""
    return nn.functional.cross_entropy(output.flatten(0, 1), target.flatten())


def next_character_accuracy(output: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
    """Return the share of positions whose largest output is the next character."""
    return (output.argmax(dim=-1) == target).float().mean()


class Transformer(nn.Module):
    """A pre-norm decoder with learned positions, like GPT-2 (Radford et al. 2019).

    It maps indices of characters, int64 of shape (n, positions), with at most `context` positions,
    to scores (n, positions, characters) of the next character. There is no dropout; input and
    output weights are not shared.
    """

    def __init__(self, characters: int, context: int, layers: int, heads: int, width: int) -> None:
        super().__init__()
        self.characters = nn.Embedding(characters, width)
        self.positions = nn.Embedding(context, width)
        self.blocks = nn.Sequential(*(_TransformerBlock(heads, width) for _ in range(layers)))
        self.norm = nn.LayerNorm(width)
        self.output = nn.Linear(width, characters, bias=False)
        self._initialise(layers)

    def _initialise(self, layers: int) -> None:
        for name, parameter in self.named_parameters():
            if parameter.dim() == 2:
                # Each layer adds two terms to the residual stream; the sum of all terms has
                # variance one.
                last = name.endswith(("attention.last.weight", "perceptron.last.weight"))
                shrink = math.sqrt(2 * layers) if last else 1
                nn.init.normal_(parameter, std=_DEVIATION / shrink)
            elif name.endswith("bias"):
                nn.init.zeros_(parameter)

    def forward(self, numbers: torch.Tensor) -> torch.Tensor:
        places = torch.arange(numbers.shape[1], device=numbers.device)
        x = self.characters(numbers) + self.positions(places)
        output: torch.Tensor = self.output(self.norm(self.blocks(x)))
        return output


class _TransformerBlock(nn.Module):
    def __init__(self, heads: int, width: int) -> None:
        super().__init__()
        self.attention_norm = nn.LayerNorm(width)
        self.attention = _Attention(heads, width)
        self.perceptron_norm = nn.LayerNorm(width)
        first, last = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        self.perceptron = nn.Sequential(OrderedDict(first=first, gelu=nn.GELU(), last=last))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x + self.attention(self.attention_norm(x))
        perceived: torch.Tensor = self.perceptron(self.perceptron_norm(x))
        return x + perceived


class _Attention(nn.Module):
    """Causal self-attention: each position attends to itself and the positions before it."""

    def __init__(self, heads: int, width: int) -> None:
        super().__init__()
        self._heads = heads
        self.first = nn.Linear(width, 3 * width)  # queries, keys, values
        self.last = nn.Linear(width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        # (n, positions, 3·width) → three times (n, heads, positions, width / heads)
        queries, keys, values = (
            part.unflatten(-1, (self._heads, -1)).transpose(1, 2)
            for part in self.first(x).chunk(3, dim=-1)
        )
        seen = nn.functional.scaled_dot_product_attention(queries, keys, values, is_causal=True)
        output: torch.Tensor = self.last(seen.transpose(1, 2).flatten(-2))
        return output
