"""The content of cluster files, and how it is fitted to a run.

Workers that it does not describe are drawn from those that it does, with the seed of the run, the
same for run times and links. Each is on another machine like the machine of the worker that it
resembles: the second worker that resembles worker 3 is on the second machine of this kind, with the
second ones that resemble the other workers of the machine. What it says
about the links of nodes that the run does not have is left out; so is `service_size` if the run has
service times of its own.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from outpace.config.keys import SERVICE_TIMES, without_servers
from outpace.errors import ConfigError
from outpace.support.notices import warn
from outpace.support.randomness import generator
from outpace.sync.assignment import described
from outpace.sync.messages import server_name, worker_name

KEYS: Final = (
    "compute",
    "network",
    *SERVICE_TIMES,
    "service_size",
    "evaluation_time",
    "forward_share",
)


@dataclass(frozen=True, slots=True)
class ClusterFile:
    """The content of a cluster file.

    Args:
        keys: Plain data of those of KEYS that it has; its paths are absolute.
        origin: The file in which each of these keys is written.
        workers: Number of workers that it describes one by one; None: any number.
        servers: Number of servers that it describes one by one; None: any number; 0: it was
            calibrated on runs without servers, and says nothing about messages to servers.
        drawn: Keys that `compute` has in addition if it is drawn for each seed; empty: unknown.
    """

    path: Path
    keys: dict[str, Any]
    origin: dict[str, Path]
    workers: int | None
    servers: int | None
    drawn: Mapping[str, Any] = field(default_factory=dict)

    def fitted(self, run: Mapping[str, Any], folder: Path) -> dict[str, Any]:
        """Return the keys for the workers, servers and strategy of this run.

        Args:
            folder: that paths of the run are relative to.

        Raises:
            ConfigError: if the file does not describe the servers of the run.
        """
        keys = dict(self.keys)
        task = run.get("task")
        if (task.get("kind") if isinstance(task, Mapping) else task) != "script":
            keys.pop("evaluation_time", None)  # of scripts only
            if run.get("overlap", "none") == "none":
                keys.pop("forward_share", None)
        if any(key in run for key in SERVICE_TIMES):
            keys.pop("service_size", None)
        workers, servers, seed = run.get("workers"), run.get("servers", 1), run.get("seed", 0)
        if not (type(workers) is int and type(servers) is int and type(seed) is int):
            return keys  # reported when the run is read
        if workers < 1 or servers < 1 or seed < 0:
            return keys
        sync = run.get("sync")
        strategy = described(sync, folder)
        has_servers = strategy is None or strategy.has_servers
        sends_others = strategy is None or strategy.has_servers or strategy.exchanges
        if self.servers == 0 and "network" not in run and sends_others:
            kind = sync.get("kind") if isinstance(sync, Mapping) else None
            raise ConfigError(
                f"{self.path}: it was calibrated on runs without servers, so it describes no "
                f"messages but those of all-reduces, and sync.kind={kind} has others: calibrate on "
                "a run with servers as well, or give network in the configuration"
            )
        if not has_servers:
            servers = 0
            keys = without_servers(keys)
        compute, network = keys.get("compute"), keys.get("network")
        factors = compute.get("factors") if isinstance(compute, Mapping) else None
        known = self.workers or (len(factors) if isinstance(factors, list) and factors else None)
        machines = _machines(known, workers, seed)
        for key in ("compute", "evaluation_time"):
            if isinstance(keys.get(key), Mapping) and known:
                keys[key] = _of_workers(keys[key], machines, known)
        for key in SERVICE_TIMES:
            if isinstance(keys.get(key), Mapping) and self.servers and servers:
                keys[key] = self._of_servers(key, servers)
        if isinstance(network, Mapping) and known:
            keys["network"] = _of_nodes(network, self, machines, servers)
        _say_what_was_drawn(self, known, workers, servers)
        return keys

    def _of_servers(self, key: str, servers: int) -> dict[str, Any]:
        """Return the law of a service time with one factor for each server of the run.

        Raises:
            ConfigError: if the file tells its servers apart, and the run has more.
        """
        law = dict(self.keys[key])
        factors = law.get("factors")
        if not isinstance(factors, list) or len(factors) != self.servers:
            return law  # if its number is wrong, this is reported when the run is read
        if servers > len(factors):
            raise ConfigError(_too_many(self, f"work takes different times ({key})", servers))
        return {**law, "factors": factors[:servers]}


def _machines(known: int | None, workers: int, seed: int) -> list[int]:
    """Return for each worker the worker of the file that it resembles; empty if unknown."""
    if not known:
        return []
    drawn = generator(seed, "machine of the cluster").integers(known, size=max(0, workers - known))
    return [*range(min(known, workers)), *drawn.tolist()]


def _of_workers(compute: Mapping[str, Any], machines: list[int], known: int) -> dict[str, Any]:
    """Return the law of the run times with one factor, or recorded worker, for each worker.

    known: number of workers that the file describes.
    """
    compute = dict(compute)
    for key in ("factors", "recorded_workers"):
        values = compute.get(key)
        if isinstance(values, list) and len(values) > max(machines):
            compute[key] = [values[machine] for machine in machines]
    if isinstance(errors := compute.get("errors"), Mapping):
        values = errors.get("factors")
        if isinstance(values, list) and len(values) > max(machines):
            errors = {**errors, "factors": [values[machine] for machine in machines]}
        if known < len(machines):
            errors = {**errors, "known": known}
        compute["errors"] = errors
    if compute.get("kind") == "trace" and not compute.get("recorded_workers"):
        compute["recorded_workers"] = machines
    return compute


def _of_nodes(
    network: Mapping[str, Any], cluster: ClusterFile, machines: list[int], servers: int
) -> dict[str, Any]:
    """Return the law of the network with the nodes, pairs and machines of this run only."""
    network = dict(network)
    nodes, pairs = network.get("nodes") or {}, network.get("pairs") or []
    shared = network.get("machines") or {}
    if not (isinstance(nodes, Mapping) and isinstance(pairs, list) and all(map(_is_pair, pairs))):
        return network  # reported when the run is read
    if not are_machines(shared):
        return network
    alike: dict[str, list[str]] = {}  # the nodes of the run by the node of the file
    for worker, machine in enumerate(machines):
        alike.setdefault(worker_name(machine), []).append(worker_name(worker))
    described = cluster.servers or 0
    for server in range(max(described, servers)):
        alike[server_name(server)] = [server_name(server)] if server < servers else []
    named = [*map(str, nodes), *(end for pair in pairs for end in pair["between"])]
    if servers > described > 0 and any(name.startswith("server-") for name in named):
        raise ConfigError(_too_many(cluster, "links differ", servers))
    places = [node for on_it in shared.values() for node in on_it]
    if servers > described > 0 and any(node.startswith("server-") for node in places):
        raise ConfigError(_too_many(cluster, "machines are named", servers))

    def present(name: Any) -> list[Any]:
        """Return the nodes of this run to which what is said about a node applies."""
        of_run = isinstance(name, str) and name.rpartition("-")[2].isdigit()
        return alike.get(name, []) if of_run else [name]

    if nodes:
        network["nodes"] = {each: law for name, law in nodes.items() for each in present(name)}
    if pairs:
        network["pairs"] = [
            {**pair, "between": [one, other]}
            for pair in pairs
            for one in present(pair["between"][0])
            for other in present(pair["between"][1])
        ]
    if shared:
        network["machines"] = machines_of_run(shared, machines, servers)
    return network


def _too_many(cluster: ClusterFile, how: str, servers: int) -> str:
    return (
        f"{cluster.path}: it describes {cluster.servers} servers whose {how}, and the run has "
        f"{servers}: calibrate on a run with {servers}, or set servers={cluster.servers}"
    )


def _is_pair(pair: Any) -> bool:
    ends = pair.get("between") if isinstance(pair, Mapping) else None
    return isinstance(ends, list) and len(ends) == 2 and all(isinstance(end, str) for end in ends)


def _say_what_was_drawn(
    cluster: ClusterFile, known: int | None, workers: int, servers: int
) -> None:
    """Warn that the run has more nodes than the file describes."""
    said = []
    if known and workers > known:
        said.append(
            f"it describes {known} workers, and the run has {workers}: each of the others is "
            f"like one of the {known}, drawn at random"
        )
    if cluster.servers and servers > cluster.servers:
        said.append(
            f"it describes {cluster.servers} servers that are alike, and the run has {servers}: "
            "they are taken to be like these"
        )
    for text in said:
        warn(f"{cluster.path}: {text}")


def are_machines(machines: Any) -> bool:
    """True if plain data are lists of nodes, each named once, by the names of machines."""
    if not isinstance(machines, Mapping):
        return False
    lists = list(machines.values())
    if not all(isinstance(nodes, list) and nodes for nodes in lists):
        return False
    names = [node for nodes in lists for node in nodes]
    return all(isinstance(name, str) for name in names) and len(set(names)) == len(names)


def machines_of_run(
    machines: Mapping[str, Sequence[str]], resembled: Sequence[int], servers: int
) -> dict[str, list[str]]:
    """Return the machines of a run and their nodes.

    Args:
        machines: Those of the file.
        resembled: For each worker of the run the worker of the file that it resembles.
        servers: Number of servers of the run.
    """
    place = {node: name for name, nodes in machines.items() for node in nodes}
    found: dict[tuple[str, int], list[str]] = {(name, 0): [] for name in machines}
    for node, like, copy in _nodes(resembled, servers):
        if like in place:
            found.setdefault((place[like], copy), []).append(node)
    for node, name in place.items():  # such as the scheduler
        if not node.rpartition("-")[2].isdigit():
            found[name, 0].append(node)
    names: dict[str, list[str]] = {}
    for (name, copy), nodes in found.items():
        if nodes:
            name = name if not copy else f"{name} ({copy + 1})"
            while name in names or (copy and name in machines):
                name += "'"
            names[name] = nodes
    return names


def _nodes(resembled: Sequence[int], servers: int) -> Iterator[tuple[str, str, int]]:
    """Yield each node of a run, the node of the file that it resembles, and how many did before."""
    before: Counter[int] = Counter()
    for worker, like in enumerate(resembled):
        yield worker_name(worker), worker_name(like), before[like]
        before[like] += 1
    for server in range(servers):
        yield server_name(server), server_name(server), 0
