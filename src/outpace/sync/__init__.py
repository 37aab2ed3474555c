"""Synchronization strategies.

Most are policies of servers: when a shard may answer a pull, when it may advance. `Peers` are
those without servers, whose workers average among themselves.
"""

from typing import TypeAlias

from outpace.sync.asp import Asp
from outpace.sync.at_once import AtOnce
from outpace.sync.bsp import Bsp
from outpace.sync.cutoff import CutOff
from outpace.sync.decision import ANYBODY, ASK_AGAIN, Decision, Reason
from outpace.sync.diloco import DiLoCo
from outpace.sync.drop_stragglers import DropStragglers
from outpace.sync.dsps import Dsps
from outpace.sync.gossip import Gossip
from outpace.sync.hpsgd import Commit, Hpsgd
from outpace.sync.local_sgd import LocalSgd
from outpace.sync.partial_push import PartialPush
from outpace.sync.policy import Apply, Buffer, Policy, Scale, ShardView
from outpace.sync.psgd import Psgd
from outpace.sync.psp_sampling import PspSampling
from outpace.sync.pssp import Coin, DynamicPssp, Pssp
from outpace.sync.ssgd import AllReduce, Ssgd, Wire
from outpace.sync.ssp import Ssp
from outpace.sync.ssptable import SspTable

POLICIES: dict[str, type[Policy]] = {
    "bsp": Bsp, "asp": Asp, "ssp": Ssp, "pssp": Pssp, "dynamic-pssp": DynamicPssp, "dsps": Dsps,
    "drop-stragglers": DropStragglers, "partial-push": PartialPush, "psp-sampling": PspSampling,
    "ssptable": SspTable, "cutoff": CutOff,
}  # fmt: skip

Peers: TypeAlias = Ssgd | LocalSgd | Psgd | Hpsgd | DiLoCo | Gossip

__all__ = [
    "ANYBODY",
    "ASK_AGAIN",
    "POLICIES",
    "AllReduce",
    "Apply",
    "Asp",
    "AtOnce",
    "Bsp",
    "Buffer",
    "Coin",
    "Commit",
    "CutOff",
    "Decision",
    "DiLoCo",
    "DropStragglers",
    "Dsps",
    "DynamicPssp",
    "Gossip",
    "Hpsgd",
    "LocalSgd",
    "PartialPush",
    "Peers",
    "Policy",
    "Psgd",
    "PspSampling",
    "Pssp",
    "Reason",
    "Scale",
    "ShardView",
    "Ssgd",
    "Ssp",
    "SspTable",
    "Wire",
]
