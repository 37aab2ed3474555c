"""The modules that are imported before the processes of a run are forked."""

from __future__ import annotations

from typing import Final

# By name, because `support` must not import from the layers above it.
MODULES: Final = (
    "outpace.simulation.executors.child",
    "outpace.real.node.server",
    "outpace.real.node.task",
    "torch._dynamo",  # 1.5 s; torch imports it when the first optimizer is made
)
