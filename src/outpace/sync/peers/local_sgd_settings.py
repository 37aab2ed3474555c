"""Local SGD: workers train alone and average their parameters now and then."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

from outpace.support.checks import require
from outpace.sync.peers.ssgd_settings import TIMEOUT_S, AllReduce, Buffers, Wire, require_timeout

_MOST: Final = 2**31


@dataclass(frozen=True, slots=True)
class LocalSgd:
    """Averages the parameters after every n steps (`programs.local_sgd`; Stich, ICLR 2019).

    every: n. In HPSGD's words (section 3.2) it is γ + 1. after: until a worker has taken so many
    steps it averages after each (post-local SGD; Lin et al., ICLR 2020). timeout_s, buffers: as in
    `Ssgd`. Raises ValueError if `every` is not positive, or `after` negative.
    """

    every: int
    after: int = 0
    all_reduce: AllReduce = "ring"
    wire: Wire = "full"
    timeout_s: float = TIMEOUT_S
    buffers: Buffers = "average"
    kind: Literal["local-sgd"] = "local-sgd"

    def __post_init__(self) -> None:
        require_timeout(self.timeout_s)
        require(0 < self.every < _MOST, "every", "from 1 to 2^31 − 1", self.every)
        require(0 <= self.after < _MOST, "after", "from 0 to 2^31 − 1", self.after)
