"""Fits the content of a cluster file to a run.

If a run has more workers than the file describes, each further worker resembles a described worker,
which is drawn with the seed of the run and is the same for run times and links. The further worker
is on a copy of the machine of the worker that it resembles: the second worker that resembles worker
3 is on the second machine of this kind, together with the second workers that resemble the other
workers of this machine. Links of nodes that the run does not have are left out; `service_size` is
left out if the run gives its own service times.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from outpace.config.keys import SERVICE_TIMES, without_servers
from outpace.errors import ConfigError
from outpace.support.notices import warn
from outpace.support.randomness import generator
from outpace.sync.assignment import described
from outpace.sync.messages import server_name, worker_name


@dataclass(frozen=True, slots=True)
class ClusterFile:
    """The checked content of a cluster file.

    Args:
        keys: Plain data of the file's keys; paths are absolute.
        origin: The file in which each of these keys is written.
        workers: Number of workers that the file describes one by one; None: any number.
        servers: Number of servers that the file describes one by one; None: any number; 0: it was
            calibrated on runs without servers, and says nothing about messages to servers.
        drawn: Additional keys of `compute` if it is drawn for each seed; empty: unknown.
    """

    path: Path
    keys: dict[str, Any]
    origin: dict[str, Path]
    workers: int | None
    servers: int | None
    drawn: Mapping[str, Any]

    def fitted(self, run: Mapping[str, Any], folder: Path) -> dict[str, Any]:
        """Return the keys for the workers, servers and strategy of a run.

        Args:
            folder: the folder that paths of the run are relative to.

        Raises:
            ConfigError: if the file does not describe the servers of the run.
        """
        keys = dict(self.keys)
        task = run.get("task")
        if (task.get("kind") if isinstance(task, Mapping) else task) != "script":
            keys.pop("evaluation_time", None)  # for scripts only
            if run.get("overlap", "none") == "none":
                keys.pop("forward_share", None)
        if any(key in run for key in SERVICE_TIMES):
            keys.pop("service_size", None)
        numbers: list[Any] = [run.get("seed", 0), run.get("workers"), run.get("servers", 1)]
        if not all(type(number) is int for number in numbers) or min(numbers[1:]) < 1:
            return keys  # the error is reported when the run is read
        seed, workers, servers = numbers
        strategy = described(run.get("sync"), folder)
        sends_others = strategy is None or strategy.has_servers or strategy.exchanges
        if self.servers == 0 and "network" not in run and sends_others:
            raise ConfigError(
                f"{self.path}: it was calibrated on runs without servers, so it describes only "
                f"messages of all-reduces, and sync.kind={run['sync']['kind']} has "
                "others: calibrate on a run with servers as well, or give network in the "
                "configuration"
            )
        if strategy is not None and not strategy.has_servers:
            servers = 0
            keys = without_servers(keys)
        compute = keys.get("compute") or {}
        if known := self.workers or len(compute.get("factors", ())):
            more = generator(seed, "machine of the cluster").integers(
                known, size=max(0, workers - known)
            )
            alike = [*range(min(known, workers)), *more.tolist()]
            for key in {"compute", "evaluation_time"} & keys.keys():
                keys[key] = _of_workers(keys[key], alike, known)
            if network := keys.get("network"):
                keys["network"] = self._of_nodes(network, alike, servers)
            if workers > known:
                warn(
                    f"{self.path}: it describes {known} workers, and the run has {workers}: each "
                    f"of the others is like one of the {known}, drawn at random"
                )
        for key in SERVICE_TIMES:
            factors = (keys.get(key) or {}).get("factors", ())
            if self.servers and len(factors) == self.servers:
                if servers > self.servers:
                    raise ConfigError(
                        self._too_many(f"work takes different times ({key})", servers)
                    )
                keys[key] = {**keys[key], "factors": factors[:servers]}
        if self.servers and servers > self.servers:
            warn(
                f"{self.path}: it describes {self.servers} servers that are alike, and the run has "
                f"{servers}: they are taken to be like these"
            )
        return keys

    def _of_nodes(
        self, network: Mapping[str, Any], alike: Sequence[int], servers: int
    ) -> dict[str, Any]:
        """Return the law of the network with the nodes, pairs and machines of this run only.

        alike: for each worker of the run, the worker of the file that it resembles.
        """
        nodes, pairs = network.get("nodes", {}), network.get("pairs", [])
        machines = network.get("machines", {})
        described_servers = self.servers or 0
        # the nodes of the run that resemble each node of the file
        of_run: dict[str, list[str]] = {}
        for worker, like in enumerate(alike):
            of_run.setdefault(worker_name(like), []).append(worker_name(worker))
        for server in range(max(described_servers, servers)):
            of_run[server_name(server)] = [server_name(server)] if server < servers else []
        for names, how in (
            ([*nodes, *(end for pair in pairs for end in pair["between"])], "links differ"),
            ([node for on_it in machines.values() for node in on_it], "machines are named"),
        ):
            if servers > described_servers > 0 and any(n.startswith("server-") for n in names):
                raise ConfigError(self._too_many(how, servers))

        def present(name: str) -> list[str]:
            """Return the nodes of this run that a setting of a node applies to."""
            return of_run.get(name, []) if name.rpartition("-")[2].isdigit() else [name]

        return {
            **network,
            "nodes": {each: law for name, law in nodes.items() for each in present(name)},
            "pairs": [
                {**pair, "between": [one, other]}
                for pair in pairs
                for one in present(pair["between"][0])
                for other in present(pair["between"][1])
            ],
            "machines": machines_of_run(machines, alike, servers),
        }

    def _too_many(self, how: str, servers: int) -> str:
        return (
            f"{self.path}: it describes {self.servers} servers whose {how}, and the run has "
            f"{servers}: calibrate on a run with {servers}, or set servers={self.servers}"
        )


def _of_workers(law: Mapping[str, Any], alike: Sequence[int], known: int) -> dict[str, Any]:
    """Return a law with one factor, or recorded worker, for each worker of a run.

    Args:
        alike: for each worker of the run, the worker of the file that it resembles.
        known: number of workers that the file describes.
    """

    def chosen(section: Mapping[str, Any]) -> dict[str, Any]:
        lists = {"factors", "recorded_workers"} & section.keys()
        values = {key: section[key] for key in lists if len(section[key]) > max(alike)}
        return {**section, **{key: [of[like] for like in alike] for key, of in values.items()}}

    found = chosen(law)
    if errors := law.get("errors"):
        more = {"known": known} if known < len(alike) else {}
        found["errors"] = {**chosen(errors), **more}
    if law["kind"] == "trace" and not law.get("recorded_workers"):
        found["recorded_workers"] = list(alike)
    return found


def machines_of_run(
    machines: Mapping[str, Sequence[str]], resembled: Sequence[int], servers: int
) -> dict[str, list[str]]:
    """Return the machines of a run and their nodes.

    Args:
        machines: The machines of the file and their nodes.
        resembled: For each worker of the run, the worker of the file that it resembles.
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
    """Yield each node, the node of the file that it resembles, and its number among such nodes."""
    before: Counter[int] = Counter()
    for worker, like in enumerate(resembled):
        yield worker_name(worker), worker_name(like), before[like]
        before[like] += 1
    for server in range(servers):
        yield server_name(server), server_name(server), 0
