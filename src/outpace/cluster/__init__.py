"""The simulated machines: how long workers compute, what the network takes."""

from outpace.cluster.links import Link, NetworkLaw
from outpace.cluster.run_times import (
    ComputeLaw,
    Constant,
    Exponential,
    Lognormal,
    Measured,
    Normal,
    Recorded,
    Regime,
    Regimes,
    RunTime,
    ShiftedExponential,
    Slow,
)

__all__ = [
    "ComputeLaw",
    "Constant",
    "Exponential",
    "Link",
    "Lognormal",
    "Measured",
    "NetworkLaw",
    "Normal",
    "Recorded",
    "Regime",
    "Regimes",
    "RunTime",
    "ShiftedExponential",
    "Slow",
]
