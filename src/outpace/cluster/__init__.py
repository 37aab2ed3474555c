"""The simulated machines: how long workers compute, what the network takes."""

from typing import TypeAlias

from outpace.cluster.collectives import Costs, Pattern, rounds_of
from outpace.cluster.delays import Delay, Lateness
from outpace.cluster.laws import (
    Constant,
    Exponential,
    Lognormal,
    Normal,
    RunTime,
    ShiftedExponential,
)
from outpace.cluster.machines import Machines
from outpace.cluster.matrix import Matrix
from outpace.cluster.network import LinkLaw, NetworkLaw, PairLaw
from outpace.cluster.observed import Measured, Recorded
from outpace.cluster.paths import Paths
from outpace.cluster.regimes import Regime, Regimes
from outpace.cluster.slow import Slow

# How long a server needs for a push or pull, and a worker for a gradient.
ServiceLaw: TypeAlias = Constant | Normal | Lognormal | Exponential | ShiftedExponential
ComputeLaw: TypeAlias = ServiceLaw | Regimes | Recorded | Measured

__all__ = [
    "ComputeLaw",
    "Constant",
    "Costs",
    "Delay",
    "Exponential",
    "Lateness",
    "LinkLaw",
    "Lognormal",
    "Machines",
    "Matrix",
    "Measured",
    "NetworkLaw",
    "Normal",
    "PairLaw",
    "Paths",
    "Pattern",
    "Recorded",
    "Regime",
    "Regimes",
    "RunTime",
    "ServiceLaw",
    "ShiftedExponential",
    "Slow",
    "rounds_of",
]
