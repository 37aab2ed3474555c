"""The simulated machines: how long workers compute, what the network takes."""

from outpace.cluster.delays import Delay, Lateness
from outpace.cluster.links import Link, NetworkLaw, Pair, Paths
from outpace.cluster.machines import Machines
from outpace.cluster.matrix import Matrix
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
    ServiceLaw,
    ShiftedExponential,
    Slow,
)

__all__ = [
    "ComputeLaw",
    "Constant",
    "Delay",
    "Exponential",
    "Lateness",
    "Link",
    "Lognormal",
    "Machines",
    "Matrix",
    "Measured",
    "NetworkLaw",
    "Normal",
    "Pair",
    "Paths",
    "Recorded",
    "Regime",
    "Regimes",
    "RunTime",
    "ServiceLaw",
    "ShiftedExponential",
    "Slow",
]
