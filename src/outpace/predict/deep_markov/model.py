"""The fitted model, and the filter that follows a run with it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, ClassVar, Final

import numpy as np
import torch
from torch import Tensor

from outpace.errors import ConfigError
from outpace.predict.deep_markov.mixture import Known, Mixture, log_times
from outpace.predict.deep_markov.network import RANGE, DeepMarkovNetwork, Seen
from outpace.predict.recorded import Mask, Nodes, Seconds
from outpace.support.checks import require
from outpace.support.repeatable import left_as_they_were

COMPONENTS: Final = 100  # number of components of a prediction: the paper's K
UNKNOWN: Final = -3.0  # the lower bound of an unknown run time
_CLOCK_S: Final = 1e-9  # shortest run time
_WIDTH: Final = 4.652695748081682  # width of the middle 98 % of a standard normal distribution


@dataclass(frozen=True, slots=True)
class Shape:
    """The settings of a model.

    Args:
        workers: number of workers, N.
        ordered: True: the model is for the sorted run times; False: for each worker's own.
        lag: length of the window in iterations.
        latent: dimensions of the state.
        hidden: width of the networks.
        factors: number of factors of the emission.
    """

    workers: int
    ordered: bool
    lag: int
    latent: int
    hidden: int
    factors: int

    def __post_init__(self) -> None:
        require(self.lag >= 2, "lag", "at least 2", self.lag)

    @property
    def shortest(self) -> int:
        """Length of the shortest window that the model is trained on."""
        return self.lag // 2

    def network(self, seed: int) -> DeepMarkovNetwork:
        """Return a network with initial weights drawn from the seed."""
        with left_as_they_were():
            torch.set_default_dtype(torch.float64)
            torch.manual_seed(seed & (2**63 - 1))
            return DeepMarkovNetwork(self.workers, self.latent, self.hidden, self.factors)


@dataclass(frozen=True, slots=True, eq=False)
class RunTimeScale:
    """Centres and width for the standardisation of log run times.

    Each worker is centred by its own median, so that permanent differences between workers need not
    be learned. All workers have the same width, since the distance of a slow worker from a normal
    one must mean the same for all, and a worker that was never slow has no width of its own. The
    width is the width of the middle 98 %: quartiles miss slow nodes, and a single glitch would
    dominate a standard deviation.

    Args:
        centre: the median of each variable's log seconds, shape (N,).
        width: the width of all variables, shape ().
    """

    centre: Tensor
    width: Tensor

    @classmethod
    def of(cls, logs: Tensor) -> RunTimeScale:
        """Return the scale of log run times of shape (T, N), float64."""
        centre = logs.median(0).values
        rest = (logs - centre).flatten().sort().values
        low, high = (rest[round(q * (len(rest) - 1))] for q in (0.01, 0.99))
        return cls(centre, ((high - low) / _WIDTH).clamp(min=1e-3))  # 0 if all times are equal

    def inward(self, logs: Tensor) -> Tensor:
        return ((logs - self.centre) / self.width).clamp(-RANGE, RANGE)


class DeepMarkov:
    """The fitted deep Markov model, made by `fit` or `from_parts`. Implements `Model`."""

    kind: ClassVar[str] = "deep-markov"

    def __init__(self, shape: Shape, scale: RunTimeScale, network: DeepMarkovNetwork) -> None:
        self.shape = shape
        self._scale = scale
        self._network = network.eval().requires_grad_(False)

    @property
    def needs(self) -> int:
        return self.shape.shortest

    def follow(self, node: Nodes, seed: int) -> DeepMarkovFilter:
        """Return a filter. Raises ConfigError for another number of workers than in the fit."""
        if len(node) != self.shape.workers:
            raise ConfigError(
                f"this deep Markov model was fitted to {self.shape.workers} workers, and the run "
                f"has {len(node)}: fit it to run times of {len(node)} workers, or use a model "
                "of kind pooled, which serves any number"
            )
        generator = torch.Generator().manual_seed(seed & (2**63 - 1))
        return DeepMarkovFilter(self.shape, self._scale, self._network, generator)

    def tensors(self) -> Mapping[str, Tensor]:
        scale = {"scale.centre": self._scale.centre, "scale.width": self._scale.width}
        return {**self._network.state_dict(), **scale}

    def settings(self) -> dict[str, Any]:
        return asdict(self.shape)

    @classmethod
    def from_parts(cls, tensors: Mapping[str, Tensor], settings: Mapping[str, Any]) -> DeepMarkov:
        shape = Shape(**settings)
        learned = dict(tensors)
        scale = RunTimeScale(*(learned.pop(f"scale.{name}") for name in ("centre", "width")))
        network = shape.network(seed=0)
        network.load_state_dict(learned)
        centres = tuple(scale.centre.shape)
        require(centres == (shape.workers,), "scale.centre", "one for each worker", centres)
        return cls(shape, scale, network)


class DeepMarkovFilter:
    """Follows a run with a deep Markov model. Implements `Filter`.

    The input of the guide says which workers were cut off, and when. The paper draws their run
    times from the prediction (section 3.1.4), so its guide cannot tell them from real ones.
    """

    def __init__(
        self,
        shape: Shape,
        scale: RunTimeScale,
        network: DeepMarkovNetwork,
        generator: torch.Generator,
    ) -> None:
        self._shape, self._scale = shape, scale
        self._network, self._generator = network, generator
        nothing = scale.centre.new_empty(0, len(scale.centre))
        self._window = Seen(nothing, nothing)  # the newest last
        self._prediction: Mixture | None = None

    def observe(self, seconds: Seconds, censored: Mask) -> None:
        logs = log_times(np.maximum(seconds, _CLOCK_S))
        x = logs.masked_fill(torch.from_numpy(np.array(censored)), torch.nan)
        low = logs.masked_fill(torch.from_numpy(seconds <= _CLOCK_S), -torch.inf)
        low = low.nan_to_num(-torch.inf, neginf=-torch.inf)
        known = Known.arranged(x, low, self._generator, self._shape.ordered)
        cut = known.x.isnan()
        inward = self._scale.inward(torch.where(cut, known.low, known.x))
        newest = torch.where(cut, inward.clamp(min=UNKNOWN), inward), cut.double()
        parts = zip(self._window, newest, strict=True)
        self._window = Seen(
            *(torch.cat([old, new[None]])[-self._shape.lag :] for old, new in parts)
        )
        self._prediction = None

    def predict(self) -> Mixture:
        if self._prediction is None:
            scale, workers = self._scale, self._shape.workers
            with torch.inference_mode():
                mean, std = self._network.ahead(self._window, COMPONENTS, self._generator)
                mean, std = scale.centre + scale.width * mean, scale.width * std
            even = mean.new_full((COMPONENTS,), 1.0 / COMPONENTS)
            ordered, nothing = self._shape.ordered, Known.nothing(workers)
            self._prediction = Mixture(mean, std, self._generator, ordered, even, nothing)
        return self._prediction
