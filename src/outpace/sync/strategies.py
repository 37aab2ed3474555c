"""The lists of built-in strategies."""

from __future__ import annotations

from dataclasses import fields
from typing import Final, TypeAlias, get_args

from outpace.sync.peers.diloco import DiLoCo
from outpace.sync.peers.gossip import Gossip
from outpace.sync.peers.hpsgd import Hpsgd
from outpace.sync.peers.local_sgd import LocalSgd
from outpace.sync.peers.psgd import Psgd
from outpace.sync.peers.ssgd import Ssgd
from outpace.sync.policies.asp import Asp
from outpace.sync.policies.bsp import Bsp
from outpace.sync.policies.cutoff import CutOff
from outpace.sync.policies.drop_stragglers import DropStragglers
from outpace.sync.policies.dsps import Dsps
from outpace.sync.policies.partial_push import PartialPush
from outpace.sync.policies.psp_sampling import PspSampling
from outpace.sync.policies.pssp import DynamicPssp, Pssp
from outpace.sync.policies.ssp import Ssp

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
)

Peers: TypeAlias = Ssgd | LocalSgd | Psgd | Hpsgd | DiLoCo | Gossip

STRATEGIES: Final[dict[str, type[ServerPolicy | Peers]]] = {
    str(entry.default): strategy
    for strategy in (*get_args(ServerPolicy), *get_args(Peers))
    for entry in fields(strategy)
    if entry.name == "kind"
}
POLICIES: Final = {kind: each for kind, each in STRATEGIES.items() if each.has_servers}
