"""Writes a comparison of strategies and networks on the profiled cluster."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

from outpace.cluster.network import AllReduceLaw, NetworkLaw
from outpace.errors import ConfigError
from outpace.experiment.calibrating.calibration import plain
from outpace.experiment.calibrating.trace_calibration import TracedCalibration
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
    if found.slow is not None and found.factors:
        slow, like = found.slow
        name = f"all-reduce, rank {slow} as fast as rank {like}"
        compute = {"factors": list(found.factors)}
        variants.append({"name": name, "sync": {"kind": "ssgd"}, "compute": compute})
    variants += [
        {
            "name": f"local SGD, average every {_EVERY} steps",
            "sync": {"kind": "local-sgd", "every": _EVERY},
            # Nothing is computed during the average of local SGD.
            "network": {"all_reduce": plain(found.alone)},
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


def _faster(found: TracedCalibration) -> dict[str, Any]:
    """Return the changes of a network on which each message takes a quarter of its time."""
    law = found.calibration.network_law
    assert law is not None
    assert law.all_reduce is not None
    return {**_faster_link(law), "all_reduce": _faster_link(law.all_reduce)}


def _faster_link(law: NetworkLaw | AllReduceLaw) -> dict[str, float]:
    return {
        "latency_s": (law.latency_s or 0.0) / _FASTER,
        "bandwidth_bytes_per_s": (law.bandwidth_bytes_per_s or 0.0) * _FASTER,
    }
