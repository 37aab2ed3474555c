"""Synchronization strategies.

`POLICIES` lists those of servers: when a shard may answer a pull, when it may advance. `Peers`
lists those without servers, whose workers average among themselves.
"""

from typing import TypeAlias

from outpace.sync.decision import ANYBODY, ASK_AGAIN, Decision, Reason
from outpace.sync.peers.diloco import DiLoCo
from outpace.sync.peers.gossip import Gossip
from outpace.sync.peers.hpsgd import Commit, Hpsgd
from outpace.sync.peers.local_sgd import LocalSgd
from outpace.sync.peers.psgd import Psgd
from outpace.sync.peers.ssgd import Ssgd
from outpace.sync.peers.strategy import AllReduce, PeerStrategy, Wire
from outpace.sync.policies.asp import Asp
from outpace.sync.policies.at_once import AtOnce
from outpace.sync.policies.bsp import Bsp
from outpace.sync.policies.cutoff import CutOff
from outpace.sync.policies.drop_stragglers import DropStragglers
from outpace.sync.policies.dsps import Dsps
from outpace.sync.policies.partial_push import PartialPush
from outpace.sync.policies.psp_sampling import PspSampling
from outpace.sync.policies.pssp import Coin, DynamicPssp, Pssp
from outpace.sync.policies.ssp import Ssp
from outpace.sync.policies.ssptable import SspTable
from outpace.sync.policy import Apply, Buffer, Policy, Scale, ShardView

POLICIES: dict[str, type[Policy]] = {
    "bsp": Bsp,
    "asp": Asp,
    "ssp": Ssp,
    "pssp": Pssp,
    "dynamic-pssp": DynamicPssp,
    "dsps": Dsps,
    "drop-stragglers": DropStragglers,
    "partial-push": PartialPush,
    "psp-sampling": PspSampling,
    "ssptable": SspTable,
    "cutoff": CutOff,
}

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
    "PeerStrategy",
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
