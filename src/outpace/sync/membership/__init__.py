"""Membership of a run: its processes, and what follows when they are lost."""

from outpace.sync.membership.fence import Fence, Verdict
from outpace.sync.membership.machine import MOST_LOSSES, Membership
from outpace.sync.membership.orders import (
    BeginAgain,
    EndRun,
    Kill,
    Loss,
    OnLoss,
    Order,
    Removed,
    Replace,
    Rules,
    Start,
)

__all__ = [
    "MOST_LOSSES",
    "BeginAgain",
    "EndRun",
    "Fence",
    "Kill",
    "Loss",
    "Membership",
    "OnLoss",
    "Order",
    "Removed",
    "Replace",
    "Rules",
    "Start",
    "Verdict",
]
