"""Groups of configuration keys, and the configuration without servers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from outpace.sync.peers.strategy import OF_SERVERS
from outpace.sync.peers.strategy import SERVICE_TIMES as SERVICE_TIMES

MACHINES: Final = ("servers", "workers")
FORWARD_SHARE: Final = 1 / 3  # one matrix product in the forward pass, two in the backward pass
# largest number of workers, and of servers: each needs 15 kB of memory, and 1 ms per iteration
MOST_NODES: Final = 20_000


def without_servers(data: Mapping[str, Any]) -> dict[str, Any]:
    """Return the keys of a configuration that a strategy without servers can have."""
    left = {key: value for key, value in data.items() if key not in OF_SERVERS}
    # delays are only for messages to and from servers
    if isinstance(network := left.get("network"), Mapping):
        left["network"] = {key: value for key, value in network.items() if key != "delays"}
    return faults_of_workers(left)


def faults_of_workers(data: Mapping[str, Any]) -> dict[str, Any]:
    """Return a configuration without its failures of servers."""
    if not isinstance(faults := data.get("faults"), Mapping):
        return dict(data)
    left = {key: value for key, value in faults.items() if key != "servers"}
    if isinstance(schedule := left.get("schedule"), list):
        left["schedule"] = [
            each for each in schedule if not isinstance(each, Mapping) or "server" not in each
        ]
    return {**data, "faults": left}
