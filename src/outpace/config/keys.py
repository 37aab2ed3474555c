"""Names of keys of a configuration that belong together, and a default with a reason."""

from __future__ import annotations

from typing import Final

SERVICE_TIMES: Final = ("push_time", "pull_time", "update_time", "judge_time")
OF_SERVERS: Final = (  # what a strategy without servers cannot have
    "servers",
    "sync_changes",
    "conditions",
    "colocate",
    "pull",
    "skip",
    *SERVICE_TIMES,
    "service_size",
    "slicing",
    "overlap",
    "on_server_loss",
)
MACHINES: Final = ("servers", "workers")
FORWARD_SHARE: Final = 1 / 3  # one matrix product forward, two backward
MOST_NODES: Final = 20_000  # workers, and servers: 15 kB of memory each, 1 ms per iteration
