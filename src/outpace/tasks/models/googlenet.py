"""GoogLeNet: Szegedy et al. 2015, table 1, for small pictures.

The stem is one 3×3 convolution to 192 channels; the published stem shrinks ImageNet's pictures to
an eighth. Batch normalisation replaces the auxiliary classifiers.
"""

from __future__ import annotations

from typing import Final

import torch
from torch import nn

from outpace.tasks.models.layers import conv_norm_relu, he_normal, head

# Columns of the paper's table: 1×1, 3×3 reduce, 3×3, 5×5 reduce, 5×5, pool proj.
_STAGES: Final = (
    ((64, 96, 128, 16, 32, 32), (128, 128, 192, 32, 96, 64)),
    (
        (192, 96, 208, 16, 48, 64),
        (160, 112, 224, 24, 64, 64),
        (128, 128, 256, 24, 64, 64),
        (112, 144, 288, 32, 64, 64),
        (256, 160, 320, 32, 128, 128),
    ),
    ((256, 160, 320, 32, 128, 128), (384, 192, 384, 48, 128, 128)),
)


def googlenet(classes: int, channels: int) -> nn.Module:
    """Return nine inception modules in three stages with max-pooling between them."""
    layers: list[nn.Module] = [conv_norm_relu(channels, 192)]
    inputs = 192
    for place, stage in enumerate(_STAGES):
        if place > 0:
            layers.append(nn.MaxPool2d(3, stride=2, padding=1))
        for columns in stage:
            layers.append(_Inception(inputs, *columns))
            inputs = columns[0] + columns[2] + columns[4] + columns[5]
    return he_normal(nn.Sequential(*layers, head(inputs, classes)))


class _Inception(nn.Module):
    """Four branches over the same input, whose channels are concatenated."""

    def __init__(
        self, inputs: int, one: int, to_three: int, three: int, to_five: int, five: int, pool: int
    ) -> None:
        super().__init__()
        self.branches = nn.ModuleList(
            [
                conv_norm_relu(inputs, one, 1),
                nn.Sequential(
                    conv_norm_relu(inputs, to_three, 1), conv_norm_relu(to_three, three, 3)
                ),
                nn.Sequential(conv_norm_relu(inputs, to_five, 1), conv_norm_relu(to_five, five, 5)),
                nn.Sequential(
                    nn.MaxPool2d(3, stride=1, padding=1), conv_norm_relu(inputs, pool, 1)
                ),
            ]
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.cat([branch(x) for branch in self.branches], dim=1)
