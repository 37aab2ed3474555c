"""Cluster files, which describe the machines of a run in a separate file.

A configuration names a cluster file with `include`. The file has the keys of `Cluster`. The
configuration's own keys override the keys of the file, by the rule of `support.yaml_files`; if
there are several files, later files override earlier ones. `clusters` fits the content to the
workers and servers of a run.

With `draw_cluster: true` the law of run times is drawn for each seed, within the errors that the
file's calibration states, or as blocks of recorded times. So several seeds show how well the
cluster is known.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Final

import pydantic

from outpace.cluster.laws import ServiceLaw, ServiceSize
from outpace.cluster.network import NetworkLaw
from outpace.cluster.observed import ComputeLaw
from outpace.config.clusters import ClusterFile
from outpace.config.sections import read_section
from outpace.errors import ConfigError
from outpace.support.checks import Count, Decay, Number
from outpace.support.yaml_files import merged, read_yaml

INCLUDE: Final = "include"
CALIBRATED: Final = "calibrated"
BUSY: Final = "busy"  # key of `calibrated`: a sentence about other processes during the calibration
DRAW: Final = "draw_cluster"
_DRAWN: Final = ("errors", "block", "speed_cv")  # keys of a law that `calibrated` gives


@dataclass(frozen=True, slots=True, kw_only=True)
class Calibrated:
    """The data about the origin of a cluster file that `outpace calibrate` writes and a run needs.

    Attributes:
        workers: number of workers that the file describes one by one; None: any number.
        servers: number of servers that it describes one by one; None: any number; 0: it was
            calibrated on runs without servers.
        compute: additional keys that the law of run times has if it is drawn for each seed.
    """

    __pydantic_config__: ClassVar = pydantic.ConfigDict(extra="ignore")

    workers: Count | None = None
    servers: Number | None = None
    compute: dict[str, Any] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Cluster:
    """The keys of a cluster file."""

    __pydantic_config__: ClassVar = pydantic.ConfigDict(extra="forbid")

    compute: ComputeLaw | None = None
    network: NetworkLaw | None = None
    push_time: ServiceLaw | None = None
    pull_time: ServiceLaw | None = None
    update_time: ServiceLaw | None = None
    judge_time: ServiceLaw | None = None
    service_size: ServiceSize | None = None
    evaluation_time: ServiceLaw | None = None
    forward_share: Decay | None = None
    calibrated: Calibrated | None = None


def with_cluster(data: Mapping[str, Any], path: str | Path) -> dict[str, Any]:
    """Return the data with the keys of a cluster file, which replace equal keys of the data.

    Raises ConfigError if the file cannot be read.
    """
    path = Path(path).expanduser().resolve()
    found = read_cluster(path)
    kept = {key: value for key, value in data.items() if key not in found.keys}
    return {**kept, INCLUDE: [*_names(data.get(INCLUDE), str(path)), str(path)]}


def read_cluster(path: Path) -> ClusterFile:
    """Read a cluster file.

    Raises:
        ConfigError: naming the file, if it cannot be read or is not a cluster file.
    """
    return _cluster([str(path)], Path.cwd(), str(path))


def included(
    data: Mapping[str, Any], source: str, folder: Path
) -> tuple[dict[str, Any], dict[str, Path]]:
    """Return the data of a run with the keys of the cluster files that it includes.

    Args:
        source: Name of the data in errors.
        folder: The folder that `include` is relative to.

    Returns:
        The data without `include`, and the cluster file of each key that comes from one.

    Raises:
        ConfigError: if a file cannot be read, is not a cluster file, or describes too few servers;
            or if the law is to be drawn and the file does not state its errors.
    """
    own = {key: value for key, value in data.items() if key not in (INCLUDE, DRAW)}
    is_drawn = data.get(DRAW, False)
    if type(is_drawn) is not bool:
        raise ConfigError(f"{source}: {DRAW} must be true or false, not {is_drawn!r}")
    if INCLUDE not in data and not is_drawn:
        return own, {}
    cluster = _cluster(_names(data.get(INCLUDE), source), folder, source)
    if is_drawn:
        if own.get("compute") is not None or not (cluster.drawn and cluster.keys.get("compute")):
            raise ConfigError(
                f"{source}: {DRAW}: only the law of a cluster file that states its errors can be "
                "drawn: leave compute out, and name such a file by include or --cluster; outpace "
                "calibrate writes one"
            )
        cluster.keys["compute"] |= cluster.drawn
    keys = cluster.fitted(own, folder)
    origin = {key: path for key, path in cluster.origin.items() if key in keys and key not in own}
    return merged(keys, own), origin


def _names(include: Any, source: str) -> list[str]:
    """Return the names of the files in an `include`."""
    names = [] if include is None else include if isinstance(include, list) else [include]
    if not all(isinstance(name, str) and name for name in names):
        raise ConfigError(
            f"{source}: include must be the path of a cluster file, or a list of paths, "
            f"not {include!r}"
        )
    return names


def _cluster(names: list[str], folder: Path, source: str) -> ClusterFile:
    """Return the checked content of cluster files."""
    content, origin = _content(names, folder)
    last = next(reversed(origin.values()), Path(source))
    checked = read_section(Cluster, content, "", str(last), origin)
    said = checked.calibrated or Calibrated()
    drawn = {key: value for key, value in (said.compute or {}).items() if key in _DRAWN}
    content.pop(CALIBRATED, None)
    return ClusterFile(last, content, origin, said.workers, said.servers, drawn)


def _content(names: list[str], folder: Path) -> tuple[dict[str, Any], dict[str, Path]]:
    """Return the keys of cluster files, where a later file wins, and the file of each key."""
    content: dict[str, Any] = {}
    origin: dict[str, Path] = {}
    for name in names:
        path = (folder / Path(name).expanduser()).resolve()
        own = _with_absolute_paths(read_yaml(path), path.parent)
        if "compute" in own and isinstance(content.get(CALIBRATED), dict):
            content[CALIBRATED].pop("compute", None)  # what an earlier file said about the law
        content, origin = merged(content, own), {**origin, **dict.fromkeys(own, path)}
    return content, origin


def _with_absolute_paths(value: Any, folder: Path) -> Any:
    """Return a part of a cluster file with absolute paths, resolved against the file's folder."""
    if not isinstance(value, dict):
        return value
    return {
        key: str((folder / each).resolve())
        if key == "path" and isinstance(each, str)
        else _with_absolute_paths(each, folder)
        for key, each in value.items()
    }
