"""Writes a comparison of strategies and networks on the profiled cluster."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

import numpy as np

from outpace.cluster.network import AllReduceLaw, NetworkLaw
from outpace.errors import ConfigError
from outpace.experiment.calibrating.plain import law_data
from outpace.experiment.calibrating.traced import TracedCalibration
from outpace.record.folder import write_text
from outpace.support.regular_files import named, read_text
from outpace.support.yaml_files import write_yaml

_BEGIN: Final = "# What the profiled run would take otherwise, written by outpace calibrate"
_HEAD: Final = """\
{begin}.
# It compares times, not losses: `timing` sends messages of the model's size and trains nothing.
#     outpace compare {name}
"""
_ITERATIONS: Final = 300
_EVERY: Final = 8  # local SGD
_FASTER: Final = 4
_FASTER_NAME: Final = "all-reduce, 4 times the bandwidth, a quarter of the latency"
_SLOWER: Final = 1.1  # mean run time of a slow rank over that of the median of the others


def comparison_path(cluster: Path) -> Path:
    """Return the path of the comparison beside a cluster file."""
    return cluster.with_name(f"{cluster.stem}.compare.yaml")


def require_comparison(path: Path) -> None:
    """Raise ConfigError if there is such a file, and `write_comparison` did not write it."""
    try:
        if path.exists() and not read_text(path, named).startswith(_BEGIN):
            raise ConfigError(
                f"{path} exists and was not written by outpace calibrate, so it is not "
                "overwritten; name another file with -o"
            )
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"cannot read {path}: {error}") from error


def write_comparison(found: TracedCalibration, cluster: Path) -> Path:
    """Write the comparison beside the cluster file; return its path.

    Raises:
        ConfigError: if it cannot be written.
    """
    path = comparison_path(cluster)
    head = _HEAD.format(begin=_BEGIN, name=path)
    try:
        write_text(path, head + write_yaml(comparison(found, cluster.name)))
    except OSError as error:
        raise ConfigError(f"cannot write {path}: {error.strerror or error}") from error
    return path


def comparison(found: TracedCalibration, cluster: str) -> dict[str, Any]:
    """Return a comparison of strategies, whose first variant is the profiled run.

    Strategies with servers have a server beside each worker.

    Args:
        cluster: Path of the cluster file, relative to the comparison.
    """
    servers = {"servers": found.workers}
    variants: list[dict[str, Any]] = [
        {"name": "all-reduce, as profiled", "sync": {"kind": "ssgd"}},
        {
            "name": _FASTER_NAME,
            "sync": {"kind": "ssgd"},
            "network": _faster(found),
        },
    ]
    if (alike := without_slowest(found)) is not None:
        slow, like, changes = alike
        name = f"all-reduce, rank {slow} as fast as rank {like}"
        variants.append({"name": name, "sync": {"kind": "ssgd"}, **changes})
    variants += [
        {
            "name": f"local SGD, average every {_EVERY} steps",
            "sync": {"kind": "local-sgd", "every": _EVERY},
            # Nothing is computed during the average of local SGD.
            "network": {"all_reduce": law_data(found.alone)},
        },
        {"name": "BSP with servers", "sync": {"kind": "bsp"}, **servers},
        {"name": "SSP with servers", "sync": {"kind": "ssp", "staleness": 3}, **servers},
        {
            "name": "cut-offs, deadline",
            "sync": {"kind": "cutoff", "model": "last-5", "decision": "deadline", "warmup": 5},
            **servers,
        },
    ]
    return {
        "include": cluster,
        "task": {"kind": "timing", "parameters": found.parameters},
        "workers": found.workers,
        "sync": {"kind": "ssgd"},
        "stop": {"iterations": _ITERATIONS},
        "variants": variants,
    }


def slowest(found: TracedCalibration) -> tuple[int, int] | None:
    """Return the slowest rank, and the median of the other ranks, which may replace it.

    None if the slowest rank takes less than 10 % longer.
    """
    means = found.recorded().seconds.mean(axis=0)
    ranks = np.argsort(means)
    slow, like = int(ranks[-1]), int(ranks[(len(ranks) - 1) // 2])
    return None if means[slow] < _SLOWER * means[like] else (slow, like)


def without_slowest(found: TracedCalibration) -> tuple[int, int, dict[str, Any]] | None:
    """Return the slowest rank, the rank that replaces it, and the configuration for that.

    Returns None without a slow rank, or without factors of the ranks. So if run times are replayed:
    the copy of a rank is replayed from another iteration on, so ranks that were slow together would
    be slow one after the other.
    """
    pair, law = slowest(found), found.compute.law
    if pair is None or law is None or not law.factors:
        return None
    slow, like = pair
    factors = [law.factors[like if rank == slow else rank] for rank in range(found.workers)]
    return slow, like, {"compute": {"factors": factors}}


def left_out(found: TracedCalibration) -> str:
    """Return why a slow rank has no variant without it; empty if it has one, or there is none."""
    pair = slowest(found)
    if pair is None or without_slowest(found) is not None:
        return ""
    slow, like = pair
    why = (
        "the recorded run times are replayed, and a copy of another rank would be slow at other "
        "times than that rank"
        if found.compute.law is None
        else "the ranks differ no more than chance makes them"
    )
    return (
        f"rank {slow} is slow, but the comparison has no variant in which it is as fast as rank "
        f"{like}: {why}. Profile more steps, for a law of the run times"
    )


def _faster(found: TracedCalibration) -> dict[str, Any]:
    """Return the changes of a network on which each message takes a quarter of its time."""
    law = found.network_law
    assert law.all_reduce is not None
    return {**_faster_link(law), "all_reduce": _faster_link(law.all_reduce)}


def _faster_link(law: NetworkLaw | AllReduceLaw) -> dict[str, float]:
    return {
        "latency_s": (law.latency_s or 0.0) / _FASTER,
        "bandwidth_bytes_per_s": (law.bandwidth_bytes_per_s or 0.0) * _FASTER,
    }
