"""Writes a comparison of strategies and networks on the profiled cluster."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

from outpace.cluster.network import AllReduceLaw, NetworkLaw
from outpace.errors import ConfigError
from outpace.experiment.calibrating.cluster_file import Calibration, plain
from outpace.record.folder import write_text
from outpace.support.regular_files import named, read_text
from outpace.support.yaml_files import write_yaml

_BEGIN: Final = "# What the profiled run would take otherwise, written by outpace calibrate"
_HEAD: Final = """\
{begin}.
# It compares times, not losses: `timing` sends messages of the model's size and trains nothing.
#     outpace compare {name}
"""
_FASTER: Final = 4
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


def write_comparison(found: Calibration, cluster: Path) -> list[str]:
    """Write the comparison beside the cluster file; return notes about what it lacks.

    Raises:
        ConfigError: if it cannot be written.
    """
    path, (content, notes) = comparison_path(cluster), comparison(found, cluster.name)
    try:
        write_text(path, _HEAD.format(begin=_BEGIN, name=path) + write_yaml(content))
    except OSError as error:
        raise ConfigError(f"cannot write {path}: {error.strerror or error}") from error
    return notes


def comparison(found: Calibration, cluster: str) -> tuple[dict[str, Any], list[str]]:
    """Return a comparison of strategies, whose first variant is the profiled run, and notes.

    Strategies with servers have a server beside each worker. One variant has the slowest rank as
    fast as the median of the others; there is none without factors of the ranks: if run times are
    replayed, the copy of a rank would be slow at other times than that rank.

    Args:
        cluster: Path of the cluster file, relative to the comparison.
    """
    fit, law, all_reduces = found.shown.compute, found.network_law, found.shown.all_reduces
    assert law is not None
    assert law.all_reduce is not None
    assert all_reduces is not None
    means = fit.recorded.mean(axis=0)
    ranks, notes = means.argsort().tolist(), []
    slow, like = ranks[-1], ranks[(len(ranks) - 1) // 2]
    changed: dict[str, dict[str, Any]] = {
        "all-reduce, as profiled": {},
        f"all-reduce, {_FASTER} times the bandwidth, a quarter of the latency": {
            "network": {**_faster(law), "all_reduce": _faster(law.all_reduce)}
        },
    }
    if means[slow] >= _SLOWER * means[like]:
        name = f"as fast as rank {like}"
        if fit.law is not None and (factors := list(fit.law.factors)):
            factors[slow] = factors[like]
            changed[f"all-reduce, rank {slow} {name}"] = {"compute": {"factors": factors}}
        else:
            notes.append(
                f"rank {slow} is slow, but the comparison has no variant in which it is {name}: "
                "the run times have no law with factors; profile more steps"
            )
    servers = {"servers": len(means)}
    changed |= {
        "local SGD, average every 8 steps": {
            "sync": {"kind": "local-sgd", "every": 8},
            # Nothing is computed during the average of local SGD.
            "network": {"all_reduce": plain(all_reduces.law_alone)},
        },
        "BSP with servers": {"sync": {"kind": "bsp"}, **servers},
        "SSP with servers": {"sync": {"kind": "ssp", "staleness": 3}, **servers},
        "cut-offs, deadline": {
            "sync": {"kind": "cutoff", "model": "last-5", "decision": "deadline", "warmup": 5},
            **servers,
        },
    }
    return {
        "include": cluster,
        "task": {"kind": "timing", "parameters": found.parameters},
        "workers": len(means),
        "sync": {"kind": "ssgd"},
        "stop": {"iterations": 300},
        "variants": [
            {"name": name, "sync": {"kind": "ssgd"}, **change} for name, change in changed.items()
        ],
    }, notes


def _faster(law: NetworkLaw | AllReduceLaw) -> dict[str, float]:
    """Return the changes of a network on which each message takes a quarter of its time."""
    return {
        "latency_s": (law.latency_s or 0.0) / _FASTER,
        "bandwidth_bytes_per_s": (law.bandwidth_bytes_per_s or 0.0) * _FASTER,
    }
