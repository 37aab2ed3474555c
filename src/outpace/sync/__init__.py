"""Synchronization policies: when a shard may answer a pull, when it may advance."""

from outpace.sync.asp import Asp
from outpace.sync.at_once import AtOnce
from outpace.sync.bsp import Bsp
from outpace.sync.cutoff import CutOff
from outpace.sync.decision import ANYBODY, ASK_AGAIN, Decision, Reason
from outpace.sync.drop_stragglers import DropStragglers
from outpace.sync.dsps import Dsps
from outpace.sync.partial_push import PartialPush
from outpace.sync.policy import Apply, Buffer, Policy, Scale, ShardView
from outpace.sync.psp_sampling import PspSampling
from outpace.sync.pssp import Coin, DynamicPssp, Pssp
from outpace.sync.ssp import Ssp
from outpace.sync.ssptable import SspTable

POLICIES: dict[str, type[Policy]] = {
    "bsp": Bsp, "asp": Asp, "ssp": Ssp, "pssp": Pssp, "dynamic-pssp": DynamicPssp, "dsps": Dsps,
    "drop-stragglers": DropStragglers, "partial-push": PartialPush, "psp-sampling": PspSampling,
    "ssptable": SspTable, "cutoff": CutOff,
}  # fmt: skip

__all__ = [
    "ANYBODY",
    "ASK_AGAIN",
    "POLICIES",
    "Apply",
    "Asp",
    "AtOnce",
    "Bsp",
    "Buffer",
    "Coin",
    "CutOff",
    "Decision",
    "DropStragglers",
    "Dsps",
    "DynamicPssp",
    "PartialPush",
    "Policy",
    "PspSampling",
    "Pssp",
    "Reason",
    "Scale",
    "ShardView",
    "Ssp",
    "SspTable",
]
