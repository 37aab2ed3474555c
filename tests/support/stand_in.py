"""A model that learns one number, for tests that hold for every model."""

from __future__ import annotations

import numpy as np
import torch

from outpace.errors import ConfigError


class StandIn:
    kind = "stand-in"

    ordered: bool | None = None

    def __init__(self, mean: torch.Tensor, seed: int, begun_with: float | None = None) -> None:
        self.mean, self.seed, self.begun_with = mean, seed, begun_with

    @property
    def needs(self) -> int:
        return 0

    def follow(self, node, seed):
        raise NotImplementedError

    def tensors(self):
        return {"mean": self.mean, "weights": torch.arange(6.0).reshape(2, 3).T}

    def settings(self):
        return {"seed": self.seed, "name": "a", "lags": [1, 2]}

    @classmethod
    def from_parts(cls, tensors, settings):
        return cls(tensors["mean"], settings["seed"])


def fit(histories, *, seed=0, progress=lambda _: None, earlier=None, ordered=None):
    if sum(times.iterations for times in histories) < 2:
        raise ConfigError("1 iteration is too few to fit stand-in: record at least 2")
    assert torch.get_num_threads() == 1
    progress(1.0)
    mean = np.nanmean(np.concatenate([times.seconds.ravel() for times in histories]))
    model = StandIn(torch.tensor(mean), seed, None if earlier is None else earlier.mean.item())
    model.ordered = ordered
    return model
