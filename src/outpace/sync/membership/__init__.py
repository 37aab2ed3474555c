"""Membership in a run with servers: the processes behind its workers."""

from outpace.sync.membership.fence import Fence
from outpace.sync.membership.machine import Membership
from outpace.sync.membership.orders import (
    EndRun,
    Kill,
    Lacks,
    OnLoss,
    Order,
    Reconnect,
    Removed,
    Replace,
    Rules,
    Start,
)

__all__ = [
    "EndRun",
    "Fence",
    "Kill",
    "Lacks",
    "Membership",
    "OnLoss",
    "Order",
    "Reconnect",
    "Removed",
    "Replace",
    "Rules",
    "Start",
]
