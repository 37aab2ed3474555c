"""Cluster files: the machines of a run, described in a file of their own.

A configuration names one by `include`. The file has the keys `compute`, `network` and the service
times of servers, `include` for another cluster file, and `calibrated`: what `outpace calibrate`
says of its origin. A configuration's own keys win over those of the file, by the rule of
`support.yaml_files`; of several files the later ones win.

A file is fitted to the run that includes it. Workers that it does not describe are drawn from those
that it does, with the seed of the run, the same for run times and links. What it says about the
links of nodes that the run does not have is left out.
"""

from __future__ import annotations

import dataclasses
import typing
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from outpace.config.experiment import SERVICE_TIMES
from outpace.errors import ConfigError, did_you_mean
from outpace.support.notices import warn
from outpace.support.randomness import generator
from outpace.support.yaml_files import merged, read_yaml
from outpace.sync import Peers
from outpace.sync.messages import server_name, worker_name

INCLUDE: Final = "include"
CALIBRATED: Final = "calibrated"
KEYS: Final = ("compute", "network", *SERVICE_TIMES)
_PEERS: Final = {  # kinds of the strategies without servers
    str(entry.default)
    for strategy in typing.get_args(Peers)
    for entry in dataclasses.fields(strategy)
    if entry.name == "kind"
}


@dataclass(frozen=True, slots=True)
class ClusterFile:
    """The content of a cluster file.

    Args:
        keys: Plain data of those of KEYS that it has; its paths are absolute.
        origin: The file in which each of these keys is written.
        workers: Number of workers that it describes one by one; None: any number.
        servers: Number of servers that it describes one by one; None: any number.
    """

    path: Path
    keys: dict[str, Any]
    origin: dict[str, Path]
    workers: int | None
    servers: int | None


def with_cluster(data: Mapping[str, Any], path: str | Path) -> dict[str, Any]:
    """Return the data with a cluster file whose keys replace those of the data, each as a whole.

    Raises ConfigError if the file cannot be read.
    """
    path = Path(path).expanduser().resolve()
    found = read_cluster(path)
    kept = {key: value for key, value in data.items() if key not in found.keys}
    before = data.get(INCLUDE)
    names = [] if before is None else before if isinstance(before, list) else [before]
    return {**kept, INCLUDE: [*names, str(path)]}


def read_cluster(path: Path, including: tuple[Path, ...] = ()) -> ClusterFile:
    """Read a cluster file, and the files that it includes.

    Args:
        including: The files that led to this one, to find circles.

    Raises:
        ConfigError: naming the file, if it cannot be read or is not a cluster file.
    """
    path = path.resolve()
    if path in including:
        circle = " includes ".join(str(each) for each in (*including, path))
        raise ConfigError(f"{path}: files include each other: {circle}; remove one include")
    data = read_yaml(path)
    known = (*KEYS, INCLUDE, CALIBRATED)
    for key in data:
        if key not in known:
            raise ConfigError(
                f"{path}: {key}: a cluster file has the keys {', '.join(known)}."
                f"{did_you_mean(key, known)}"
            )
    found = _merged_files(data.get(INCLUDE), path.parent, str(path), (*including, path))
    keys, origin = dict(found.keys), dict(found.origin)
    for key in KEYS:
        if key in data:
            value = _with_absolute_paths(key, data[key], path.parent)
            keys[key] = merged(keys[key], value) if key in keys else value
            origin[key] = path
    counts = _counts(data.get(CALIBRATED), path)
    return ClusterFile(path, keys, origin, counts[0] or found.workers, counts[1] or found.servers)


def included(
    data: Mapping[str, Any], source: str, folder: Path
) -> tuple[dict[str, Any], dict[str, Path]]:
    """Return the data of a run with the keys of the cluster files that it includes.

    Args:
        source: Names the data in errors.
        folder: The folder that `include` is relative to.

    Returns:
        The data without `include`, and the cluster file in which a key is written.

    Raises:
        ConfigError: if a file cannot be read, is not a cluster file, or describes too few servers.
    """
    if INCLUDE not in data:
        return dict(data), {}
    own = {key: value for key, value in data.items() if key != INCLUDE}
    cluster = _merged_files(data[INCLUDE], folder, source, ())
    keys = _fitted(cluster, own)
    origin = {key: path for key, path in cluster.origin.items() if key in keys and key not in own}
    return merged(keys, own), origin


def _merged_files(
    names: Any, folder: Path, source: str, including: tuple[Path, ...]
) -> ClusterFile:
    """Return the content of the files that an `include` names."""
    if names is None:
        return ClusterFile(folder, {}, {}, None, None)
    paths = names if isinstance(names, list) else [names]
    if not all(isinstance(name, str) and name for name in paths):
        raise ConfigError(
            f"{source}: include must be the path of a cluster file, or a list of paths, "
            f"not {names!r}"
        )
    keys: dict[str, Any] = {}
    origin: dict[str, Path] = {}
    workers = servers = None
    path = folder
    for name in paths:
        found = read_cluster(folder / Path(name).expanduser(), including)
        keys, origin = merged(keys, found.keys), {**origin, **found.origin}
        path, workers = found.path, found.workers or workers
        servers = found.servers or servers
    return ClusterFile(path, keys, origin, workers, servers)


def _counts(calibrated: Any, path: Path) -> tuple[int | None, int | None]:
    """Return the numbers of workers and servers that the file says it describes."""
    if calibrated is None:
        return None, None
    if not isinstance(calibrated, Mapping):
        raise ConfigError(f"{path}: calibrated must be a mapping, not {calibrated!r}")
    counts = []
    for key in ("workers", "servers"):
        count = calibrated.get(key)
        if count is not None and (type(count) is not int or count < 1):
            raise ConfigError(f"{path}: calibrated.{key} must be at least 1, not {count!r}")
        counts.append(count)
    return counts[0], counts[1]


def _with_absolute_paths(key: str, value: Any, folder: Path) -> Any:
    """Return a part of a cluster file with the paths in it relative to the file's folder."""
    if not isinstance(value, Mapping):
        return value
    value = dict(value)
    if key == "compute" and isinstance(value.get("path"), str):
        value["path"] = str((folder / value["path"]).resolve())
    matrix = value.get("matrix")
    if key == "network" and isinstance(matrix, Mapping) and isinstance(matrix.get("path"), str):
        value["matrix"] = {**matrix, "path": str((folder / matrix["path"]).resolve())}
    return value


# -- fitting a file to a run ---------------------------------------------------------


def _fitted(cluster: ClusterFile, run: Mapping[str, Any]) -> dict[str, Any]:
    """Return the keys of the file for the workers, servers and strategy of this run."""
    keys = dict(cluster.keys)
    workers, servers, seed = run.get("workers"), run.get("servers", 1), run.get("seed", 0)
    if not (type(workers) is int and type(servers) is int and type(seed) is int):
        return keys  # reported when the run is read
    if workers < 1 or servers < 1 or seed < 0:
        return keys
    sync = run.get("sync")
    if isinstance(sync, Mapping) and sync.get("kind") in _PEERS:
        servers = 0
        keys = {key: value for key, value in keys.items() if key not in SERVICE_TIMES}
    compute, network = keys.get("compute"), keys.get("network")
    factors = compute.get("factors") if isinstance(compute, Mapping) else None
    known = cluster.workers or (len(factors) if isinstance(factors, list) and factors else None)
    machines = _machines(known, workers, seed)
    if isinstance(compute, Mapping) and machines:
        keys["compute"] = _of_workers(compute, machines)
    if isinstance(network, Mapping) and known:
        network = keys["network"] = _of_nodes(network, cluster, machines, servers)
    if isinstance(network, Mapping) and not servers:  # delays are of messages to and from servers
        keys["network"] = {key: value for key, value in network.items() if key != "delays"}
    _say_what_was_drawn(cluster, known, workers, servers)
    return keys


def _machines(known: int | None, workers: int, seed: int) -> list[int]:
    """Return for each worker the worker of the file that it resembles; empty if unknown."""
    if not known:
        return []
    drawn = generator(seed, "machine of the cluster").integers(known, size=max(0, workers - known))
    return [*range(min(known, workers)), *drawn.tolist()]


def _of_workers(compute: Mapping[str, Any], machines: list[int]) -> dict[str, Any]:
    """Return the law of the run times with one factor, or recorded worker, for each worker."""
    compute = dict(compute)
    for key in ("factors", "recorded_workers"):
        values = compute.get(key)
        if isinstance(values, list) and len(values) > max(machines):
            compute[key] = [values[machine] for machine in machines]
    if compute.get("kind") == "trace" and not compute.get("recorded_workers"):
        compute["recorded_workers"] = machines
    return compute


def _of_nodes(
    network: Mapping[str, Any], cluster: ClusterFile, machines: list[int], servers: int
) -> dict[str, Any]:
    """Return the law of the network with the nodes and pairs of this run only."""
    network = dict(network)
    nodes, pairs = network.get("nodes") or {}, network.get("pairs") or []
    if not (isinstance(nodes, Mapping) and isinstance(pairs, list) and all(map(_is_pair, pairs))):
        return network  # reported when the run is read
    alike: dict[str, list[str]] = {}  # the nodes of the run by the node of the file
    for worker, machine in enumerate(machines):
        alike.setdefault(worker_name(machine), []).append(worker_name(worker))
    described = cluster.servers or 0
    for server in range(max(described, servers)):
        alike[server_name(server)] = [server_name(server)] if server < servers else []
    named = [*map(str, nodes), *(end for pair in pairs for end in pair["between"])]
    if servers > described > 0 and any(name.startswith("server-") for name in named):
        raise ConfigError(
            f"{cluster.path}: it describes {described} servers whose links differ, and the run has "
            f"{servers}: calibrate on a run with {servers}, or set servers={described}"
        )

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
    return network


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
            "push_time and pull_time are kept, though each server has fewer parameters"
        )
    for text in said:
        warn(f"{cluster.path}: {text}")
