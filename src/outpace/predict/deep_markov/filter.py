"""The filter: a window of the last iterations, completed where times were cut off."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from outpace.predict.deep_markov.history import log_times
from outpace.predict.deep_markov.mixture import Mixture
from outpace.predict.deep_markov.network import DeepMarkovNetwork
from outpace.predict.deep_markov.scale import RunTimeScale
from outpace.predict.recorded.table import Mask, Seconds

COMPONENTS = 100  # of a prediction: the paper's K
_CLOCK_S = 1e-9  # shortest run time


class DeepMarkovFilter:
    """Follows a run with a deep Markov model. Implements `Filter`.

    The RNN needs all run times of an iteration. Those of workers that were cut off are drawn from
    the predictive distribution truncated to longer times (section 3.1.4). Here it is also
    conditioned on the times of the other workers, so that a node that has just changed is
    recognised by its workers that did arrive.
    """

    def __init__(
        self,
        network: DeepMarkovNetwork,
        scale: RunTimeScale,
        lag: int,
        ordered: bool,
        generator: torch.Generator,
    ) -> None:
        self._network, self._scale = network, scale
        self._lag, self._ordered = lag, ordered
        self._generator = generator
        self._window = scale.centre.new_empty(0, len(scale.centre))  # the newest last
        self._prediction: Mixture | None = None

    def observe(self, seconds: Seconds, censored: Mask) -> None:
        self.complete(seconds, censored)

    def complete(self, seconds: Seconds, censored: Mask) -> Tensor:
        """Observe an iteration; return its completed log run times, shape (N,), float64."""
        logs = log_times(np.maximum(seconds, _CLOCK_S))
        known = logs.masked_fill(torch.from_numpy(censored.copy()), torch.nan)
        if known.isnan().any():
            low = logs.nan_to_num(-torch.inf)
            logs = self.predict().knowing(known, low).draw(1)[0]
        seen = logs.sort().values if self._ordered else logs
        self._window = torch.cat([self._window, self._scale.inward(seen)[None]])[-self._lag :]
        self._prediction = None
        return logs

    def predict(self) -> Mixture:
        if self._prediction is None:
            with torch.inference_mode():
                ahead = self._network.ahead(self._window, COMPONENTS, self._generator)
                mean, std = self._scale.outward(*ahead)
            self._prediction = Mixture(mean, std, self._generator, self._ordered)
        return self._prediction
