"""The simulated machines: how long workers compute, what the network takes."""

from outpace.cluster.collectives import Cost, Costs, Pattern, rounds_of
from outpace.cluster.delays import Delay, Lateness
from outpace.cluster.links import LinkLaw, NetworkLaw, PairLaw, Paths
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
    "Cost",
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
