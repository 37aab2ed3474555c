"""Synchronization policies: when a shard may answer a pull, when it may advance."""

from outpace.sync.asp import Asp
from outpace.sync.at_once import AtOnce
from outpace.sync.bsp import Bsp
from outpace.sync.decision import Decision, Reason
from outpace.sync.policy import Apply, Buffer, Policy, Scale, ShardView
from outpace.sync.ssp import Ssp
from outpace.sync.ssptable import SspTable

POLICIES: dict[str, type[Policy]] = {"bsp": Bsp, "asp": Asp, "ssp": Ssp, "ssptable": SspTable}

__all__ = [
    "POLICIES",
    "Apply",
    "Asp",
    "AtOnce",
    "Bsp",
    "Buffer",
    "Decision",
    "Policy",
    "Reason",
    "Scale",
    "ShardView",
    "Ssp",
    "SspTable",
]
