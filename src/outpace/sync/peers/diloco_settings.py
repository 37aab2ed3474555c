"""DiLoCo: workers train alone for long; an outer optimizer makes a step of what they changed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

from outpace.support.checks import positive, require
from outpace.sync.peers.ssgd_settings import TIMEOUT_S, AllReduce, Wire, require_timeout

_MOST: Final = 2**31


@dataclass(frozen=True, slots=True)
class DiLoCo:
    """Each worker takes n steps with the run's optimizer; the mean change is an outer gradient.

    (Douillard et al., DiLoCo: distributed low-communication training of language models, 2023,
    algorithm 1.) The paper's optimizers are AdamW inside, and outside SGD with Nesterov momentum:
    outer_lr and outer_momentum are those of it. every: n. overlap: workers go on with steps of
    their own while the outer gradient is averaged (`programs.diloco`; the idea is Streaming
    DiLoCo's, Douillard et al. 2025). timeout_s: as in `Ssgd`. Raises ValueError for numbers out
    of range.
    """

    every: int
    outer_lr: float = 0.7
    outer_momentum: float = 0.9
    overlap: bool = False
    all_reduce: AllReduce = "ring"
    wire: Wire = "full"
    timeout_s: float = TIMEOUT_S
    kind: Literal["diloco"] = "diloco"

    def __post_init__(self) -> None:
        require_timeout(self.timeout_s)
        require(0 < self.every < _MOST, "every", "from 1 to 2^31 − 1", self.every)
        rate, momentum = self.outer_lr, self.outer_momentum
        require(positive(rate), "outer_lr", "a positive number, at most 1e9", rate)
        require(0 <= momentum < 1, "outer_momentum", "in [0, 1)", momentum)
