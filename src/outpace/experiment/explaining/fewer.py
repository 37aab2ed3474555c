"""The network of a run without one of its workers, whose later workers are numbered anew."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from outpace.config.cluster_machines import machines_of_run
from outpace.errors import ConfigError
from outpace.sync.messages import worker_name


def network_without(network: Any, worker: int, workers: int, servers: int) -> Any:
    """Return the key `network` of the run without a worker. Patterns stay as they are.

    Args:
        network: The key; None if there is none.
        workers, servers: Their numbers in the run.

    Raises:
        ConfigError: the network is a matrix, which has a row for each worker.
    """
    if not isinstance(network, Mapping):
        return network
    if network.get("matrix") is not None:
        raise ConfigError("network.matrix has a row for each worker")
    left = [number for number in range(workers) if number != worker]
    new_names = {worker_name(old): worker_name(new) for new, old in enumerate(left)}
    gone = worker_name(worker)

    def renamed(names: Any) -> list[str]:
        return [new_names.get(name, name) for name in names if name != gone]

    found = dict(network)
    if nodes := network.get("nodes"):
        found["nodes"] = {
            new_names.get(name, name): law for name, law in nodes.items() if name != gone
        }
    if pairs := network.get("pairs"):
        found["pairs"] = [
            {**pair, "between": renamed(pair["between"])}
            for pair in pairs
            if gone not in pair["between"]
        ]
    if delays := network.get("delays"):
        found["delays"] = [
            {**rule, "nodes": renamed(rule["nodes"])} if "nodes" in rule else rule
            for rule in delays
            if rule.get("nodes") != [gone]
        ]
    if machines := network.get("machines"):
        found["machines"] = machines_of_run(machines, left, servers)
    return found
