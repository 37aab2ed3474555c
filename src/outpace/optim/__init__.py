"""Optimizers: how an aggregated gradient changes parameters."""

from typing import TypeAlias

from outpace.optim.elementwise import Adagrad, Adam, AdamW, RmsProp, Sgd
from outpace.optim.lars import Lars
from outpace.optim.step import Optimizer, OptimizerState, Step, Updater

UpdaterKind: TypeAlias = Sgd | Adam | AdamW | Adagrad | RmsProp | Lars

__all__ = [
    "Adagrad",
    "Adam",
    "AdamW",
    "Lars",
    "Optimizer",
    "OptimizerState",
    "RmsProp",
    "Sgd",
    "Step",
    "Updater",
    "UpdaterKind",
]
