"""Membership in a run with servers: the processes behind its workers."""

from outpace.sync.membership.fence import Fence, Verdict
from outpace.sync.membership.machine import (
    EndRun,
    Kill,
    Membership,
    OnLoss,
    Order,
    Removed,
    Replace,
    Rules,
    Start,
)

__all__ = [
    "EndRun",
    "Fence",
    "Kill",
    "Membership",
    "OnLoss",
    "Order",
    "Removed",
    "Replace",
    "Rules",
    "Start",
    "Verdict",
]
