"""Optimizers: how an aggregated gradient changes parameters."""

from typing import TypeAlias

from outpace.optim.elementwise import Adam, AdamW, Sgd
from outpace.optim.lars import Lars
from outpace.optim.step import Optimizer, OptimizerState, Step, Updater

UpdaterKind: TypeAlias = Sgd | Adam | AdamW | Lars

__all__ = [
    "Adam",
    "AdamW",
    "Lars",
    "Optimizer",
    "OptimizerState",
    "Sgd",
    "Step",
    "Updater",
    "UpdaterKind",
]
