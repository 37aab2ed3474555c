"""Who takes part in a run with servers: the processes behind its workers."""

from outpace.sync.membership.machine import EndRun, Kill, Membership, Order, Replace, Rules, Start

__all__ = ["EndRun", "Kill", "Membership", "Order", "Replace", "Rules", "Start"]
