"""Generated clusters in virtual time with a slow server or link: what is named, and should be."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import numpy as np
from benchmarks.explain.clusters import LEAST
from benchmarks.parts import Cells

import outpace
from outpace.report.explaining import explained

ITERATIONS: Final = 40
SYNCS: Final = ({"kind": "bsp"}, {"kind": "ssp", "staleness": 2}, {"kind": "asp"})
SHAPES: Final = ((4, 2), (8, 4), (16, 4))  # workers, servers
_NETWORK: Final = {"latency_s": 0.001, "bandwidth_bytes_per_s": 1e9, "log": True}
_MEAN_S: Final = 0.1


def servers(seeds: int, *, quick: bool = False) -> list[Cells]:
    """Return the counts of each kind of cluster, over strategies, sizes and seeds."""
    found: dict[str, Cells] = {}
    for sync in SYNCS[: 1 if quick else None]:
        for workers, count in SHAPES[: 1 if quick else None]:
            for seed in range(seeds):
                source = np.random.default_rng([seed, workers, count])
                for what, name, keys in _kinds(source, workers, count):
                    names = _named(sync, workers, count, seed, keys)
                    begun = {"slow": what, "clusters": 0, "named": 0, "not named": 0}
                    each = found.setdefault(what, {**begun, "others named": 0})
                    each["clusters"] += 1
                    if name is not None:
                        each["named" if name in names else "not named"] += 1
                    each["others named"] += len(names - {name})
    for each in found.values():
        right, missed, wrong = (each[name] for name in ("named", "not named", "others named"))
        if right + missed == 0:
            each["met"] = wrong <= max(1, 0.01 * each["clusters"])
        else:
            each["met"] = right >= LEAST * (right + max(missed, wrong))
    return list(found.values())


def _kinds(
    source: np.random.Generator, workers: int, servers: int
) -> Iterator[tuple[str, str | None, dict[str, Any]]]:
    """Yield kinds of clusters, what is slow in them, and their keys."""
    server, worker = int(source.integers(servers)), int(source.integers(workers))
    cv = float(source.choice([0.1, 0.3, 1.0]))  # of service times
    law = {"kind": "lognormal", "mean_s": 0.06 / workers, "cv": cv}
    answers = {"push_time": law, "pull_time": {**law, "mean_s": 0.001}}
    yield "nothing is slow", None, {**answers, "network": _NETWORK}
    factors = [3.0 if other == server else 1.0 for other in range(servers)]
    slow = {key: {**each, "factors": factors} for key, each in answers.items()}
    yield "a server, 3 times as slow", f"server {server}", {**slow, "network": _NETWORK}
    far: dict[str, Any] = {f"server-{server}": {"latency_s": 0.01}}
    network = {**_NETWORK, "nodes": far}
    yield (
        "the link of a server, 10 ms instead of 1",
        f"link of server {server}",
        {**answers, "network": network},
    )
    far = {f"worker-{worker}": {"latency_s": 0.03}}
    network = {**_NETWORK, "nodes": far}
    yield (
        "the link of a worker, 30 ms instead of 1",
        f"link of worker {worker}",
        {**answers, "network": network},
    )


def _data(sync: dict[str, Any], workers: int, servers: int, seed: int) -> dict[str, Any]:
    return {
        "task": {"kind": "timing", "parameters": 10_000},
        "workers": workers,
        "servers": servers,
        "sync": sync,
        "seed": seed,
        "compute": {"kind": "lognormal", "mean_s": _MEAN_S, "cv": 0.05},
        "stop": {"iterations": ITERATIONS},
    }


def _named(
    sync: dict[str, Any], workers: int, servers: int, seed: int, keys: dict[str, Any]
) -> set[str]:
    data = {**_data(sync, workers, servers, seed), **keys}
    with tempfile.TemporaryDirectory() as folder:
        run = Path(folder) / "run"
        outpace.simulate(data, run)
        return {cause.name for cause in explained(run).causes}
