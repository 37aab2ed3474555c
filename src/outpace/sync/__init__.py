"""Synchronization strategies.

For a strategy with servers, start with `policies/ssp.py`: a policy decides when a shard may
answer a pull and when it may advance. `policy.py` is the interface of policies, `shard.py` the
state machine that calls them, and `programs/` has the programs of workers and servers. For a
strategy without servers, whose workers average among themselves, start with `peers/ssgd.py`.

`ServerPolicy` and `Peers` are the lists of built-in strategies. A strategy in a user's file imports
what it needs from here.
"""

from dataclasses import fields
from typing import Final, TypeAlias, get_args

from outpace.blocks.narrowing import Wire
from outpace.sync.baselines.ssptable import SspTable
from outpace.sync.decision import ANYBODY, ASK_AGAIN, Decision, Reason
from outpace.sync.messages import Pull
from outpace.sync.peers.adaptive import AdaptivePeriod
from outpace.sync.peers.context import PeerContext
from outpace.sync.peers.diloco import DiLoCo
from outpace.sync.peers.gossip import Gossip
from outpace.sync.peers.hpsgd import Commit, Hpsgd
from outpace.sync.peers.iterations import iterations
from outpace.sync.peers.local_sgd import LocalSgd
from outpace.sync.peers.psgd import Psgd
from outpace.sync.peers.ssgd import Ssgd
from outpace.sync.peers.strategy import AllReduce, AllReduceStrategy, PeerStrategy
from outpace.sync.policies.adaptive import Adaptive
from outpace.sync.policies.asp import Asp
from outpace.sync.policies.bsp import Bsp
from outpace.sync.policies.cutoff import CutOff
from outpace.sync.policies.drop_stragglers import DropStragglers
from outpace.sync.policies.dsps import Dsps
from outpace.sync.policies.partial_push import PartialPush
from outpace.sync.policies.psp_sampling import PspSampling
from outpace.sync.policies.pssp import Coin, DynamicPssp, Pssp
from outpace.sync.policies.specsync import SpecSync
from outpace.sync.policies.ssp import Ssp
from outpace.sync.policy import Apply, Buffer, Policy, Scale, ShardView, quorum_arrived
from outpace.sync.programs.skipping import PushView, WorkerView

ServerPolicy: TypeAlias = (
    Bsp
    | Asp
    | Ssp
    | Pssp
    | DynamicPssp
    | Dsps
    | DropStragglers
    | PartialPush
    | PspSampling
    | CutOff
    | SpecSync
    | SspTable
    | Adaptive
)

Peers: TypeAlias = Ssgd | LocalSgd | Psgd | Hpsgd | DiLoCo | Gossip | AdaptivePeriod

POLICIES: Final[dict[str, type[ServerPolicy]]] = {
    str(entry.default): policy
    for policy in get_args(ServerPolicy)
    for entry in fields(policy)
    if entry.name == "kind"
}

__all__ = [
    "ANYBODY",
    "ASK_AGAIN",
    "POLICIES",
    "Adaptive",
    "AdaptivePeriod",
    "AllReduce",
    "AllReduceStrategy",
    "Apply",
    "Asp",
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
    "PeerContext",
    "PeerStrategy",
    "Peers",
    "Policy",
    "Psgd",
    "PspSampling",
    "Pssp",
    "Pull",
    "PushView",
    "Reason",
    "Scale",
    "ServerPolicy",
    "ShardView",
    "SpecSync",
    "Ssgd",
    "Ssp",
    "SspTable",
    "Wire",
    "WorkerView",
    "iterations",
    "quorum_arrived",
]
