"""Writes a comparison of strategies and networks on the profiled cluster."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

from outpace.cluster.calibration.run_times import RunTimeFit
from outpace.cluster.network import AllReduceLaw
from outpace.experiment.calibrating.cluster_file import WRITTEN, Calibration, plain, write_file
from outpace.support.yaml_files import write_yaml

_HEAD: Final = f"""\
# What the profiled run would take otherwise, {WRITTEN}.
# It compares times, not losses: `timing` trains nothing.
"""
_FASTER: Final = 4
_SLOWER: Final = 1.1  # mean run time of a slow rank over that of the median of the others


def comparison_path(cluster: Path) -> Path:
    """Return the path of the comparison beside a cluster file."""
    return cluster.with_name(f"{cluster.stem}.compare.yaml")


def write_comparison(found: Calibration, cluster: Path) -> list[str]:
    """Write the comparison beside the cluster file; return notes about what it lacks.

    Raises:
        ConfigError: if it cannot be written.
    """
    content, notes = comparison(found, cluster.name)
    write_file(comparison_path(cluster), _HEAD + write_yaml(content))
    return notes


def comparison(found: Calibration, cluster: str) -> tuple[dict[str, Any], list[str]]:
    """Return a comparison of strategies, whose first variant is the profiled run, and notes.

    Strategies with servers have a server beside each worker.

    Args:
        cluster: Path of the cluster file, relative to the comparison.
    """
    all_reduces = found.shown.all_reduces
    assert all_reduces is not None
    faster = {**_faster(all_reduces.law_alone), "all_reduce": _faster(all_reduces.law)}
    repaired, notes = _without_slowest(found.shown.compute)
    workers = found.shown.compute.recorded.shape[1]
    # Nothing is computed during the average of local SGD.
    alone = {"all_reduce": plain(all_reduces.law_alone)}
    cut_off = {"kind": "cutoff", "model": "last-5", "decision": "deadline", "warmup": 5}
    ssp, local = {"kind": "ssp", "staleness": 3}, {"kind": "local-sgd", "every": 8}
    changes: dict[str, dict[str, Any]] = {
        "all-reduce, as profiled": {},
        f"all-reduce, {_FASTER} times the bandwidth, a quarter of the latency": {"network": faster},
        **repaired,
        "local SGD, average every 8 steps": {"sync": local, "network": alone},
        "BSP with servers": {"sync": {"kind": "bsp"}, "servers": workers},
        "SSP with servers": {"sync": ssp, "servers": workers},
        "cut-offs, deadline": {"sync": cut_off, "servers": workers},
    }
    ssgd = {"sync": {"kind": "ssgd"}}
    return {
        "include": cluster,
        "task": {"kind": "timing", "parameters": found.parameters},
        "workers": workers,
        **ssgd,
        "stop": {"iterations": 300},
        "variants": [{"name": name, **ssgd, **change} for name, change in changes.items()],
    }, notes


def _without_slowest(fit: RunTimeFit) -> tuple[dict[str, dict[str, Any]], list[str]]:
    """Return a variant in which the slowest rank is as fast as the median of the others.

    There is none without factors of the ranks, with a note: if run times are replayed, the copy of
    a rank would be slow at other times than that rank.
    """
    means = fit.recorded.mean(axis=0)
    ranks = means.argsort().tolist()
    slow, like = ranks[-1], ranks[(len(ranks) - 1) // 2]
    if means[slow] < _SLOWER * means[like]:
        return {}, []
    factors = [] if fit.law is None else list(fit.law.factors)
    if not factors:
        return {}, [
            f"rank {slow} is slow, but the comparison has no variant in which it is as fast as "
            f"rank {like}: the run times have no law with factors; profile more steps"
        ]
    factors[slow] = factors[like]
    name = f"all-reduce, rank {slow} as fast as rank {like}"
    return {name: {"compute": {"factors": factors}}}, []


def _faster(law: AllReduceLaw) -> dict[str, float]:
    """Return the changes of a network on which each message takes a quarter of its time."""
    latency_s, bandwidth = law.latency_s or 0.0, law.bandwidth_bytes_per_s or 0.0
    return {"latency_s": latency_s / _FASTER, "bandwidth_bytes_per_s": bandwidth * _FASTER}
