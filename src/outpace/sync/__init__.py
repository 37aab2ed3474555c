"""Synchronization strategies.

For a strategy with servers, start with `policies/ssp.py`: a policy decides when a shard may
answer a pull and when it may advance. `policy.py` is the interface of policies, `shard.py` the
state machine that calls them, and `programs/` has the programs of workers and servers. For a
strategy without servers, whose workers average among themselves, start with `peers/ssgd.py`.

`strategies.py` has the lists of built-in strategies. A strategy in a user's file imports what it
needs from here.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from outpace.blocks.narrowing import Wire
    from outpace.sync.decision import ANYBODY, ASK_AGAIN, Decision, Reason
    from outpace.sync.messages import Pull
    from outpace.sync.peers.context import PeerContext
    from outpace.sync.peers.diloco import DiLoCo
    from outpace.sync.peers.gossip import Gossip
    from outpace.sync.peers.hpsgd import Commit, Hpsgd
    from outpace.sync.peers.iterations import iterations
    from outpace.sync.peers.local_sgd import LocalSgd
    from outpace.sync.peers.psgd import Psgd
    from outpace.sync.peers.ssgd import Ssgd
    from outpace.sync.peers.strategy import AllReduce, AllReduceStrategy, PeerStrategy
    from outpace.sync.policies.asp import Asp
    from outpace.sync.policies.bsp import Bsp
    from outpace.sync.policies.cutoff import CutOff
    from outpace.sync.policies.drop_stragglers import DropStragglers
    from outpace.sync.policies.dsps import Dsps
    from outpace.sync.policies.partial_push import PartialPush
    from outpace.sync.policies.psp_sampling import PspSampling
    from outpace.sync.policies.pssp import Coin, Draw, DynamicPssp, Pssp
    from outpace.sync.policies.ssp import Ssp
    from outpace.sync.policy import Apply, Buffer, Policy, Scale, ShardView, quorum_arrived
    from outpace.sync.programs.skipping import PushView, WorkerView
    from outpace.sync.strategies import POLICIES, Peers, ServerPolicy

_NAMES: Final = {  # by module
    "blocks.narrowing": ["Wire"],
    "sync.decision": ["ANYBODY", "ASK_AGAIN", "Decision", "Reason"],
    "sync.messages": ["Pull"],
    "sync.peers.context": ["PeerContext"],
    "sync.peers.diloco": ["DiLoCo"],
    "sync.peers.gossip": ["Gossip"],
    "sync.peers.hpsgd": ["Commit", "Hpsgd"],
    "sync.peers.iterations": ["iterations"],
    "sync.peers.local_sgd": ["LocalSgd"],
    "sync.peers.psgd": ["Psgd"],
    "sync.peers.ssgd": ["Ssgd"],
    "sync.peers.strategy": ["AllReduce", "AllReduceStrategy", "PeerStrategy"],
    "sync.policies.asp": ["Asp"],
    "sync.policies.bsp": ["Bsp"],
    "sync.policies.cutoff": ["CutOff"],
    "sync.policies.drop_stragglers": ["DropStragglers"],
    "sync.policies.dsps": ["Dsps"],
    "sync.policies.partial_push": ["PartialPush"],
    "sync.policies.psp_sampling": ["PspSampling"],
    "sync.policies.pssp": ["Coin", "Draw", "DynamicPssp", "Pssp"],
    "sync.policies.ssp": ["Ssp"],
    "sync.policy": ["Apply", "Buffer", "Policy", "Scale", "ShardView", "quorum_arrived"],
    "sync.programs.skipping": ["PushView", "WorkerView"],
    "sync.strategies": ["POLICIES", "Peers", "ServerPolicy"],
}


def __getattr__(name: str) -> Any:
    """Import on first use: what reads traces needs `decision` and `observer`, and not torch."""
    for module, names in _NAMES.items():
        if name in names:
            found = globals()[name] = getattr(import_module(f"outpace.{module}"), name)
            return found
    raise AttributeError(f"module 'outpace.sync' has no attribute {name!r}")


__all__ = [
    "ANYBODY",
    "ASK_AGAIN",
    "POLICIES",
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
    "Draw",
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
    "Ssgd",
    "Ssp",
    "Wire",
    "WorkerView",
    "iterations",
    "quorum_arrived",
]
