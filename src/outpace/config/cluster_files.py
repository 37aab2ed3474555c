"""Cluster files: the machines of a run, described in a file of their own.

A configuration names one by `include`. The file has the keys `compute`, `network` and the service
times of servers, `include` for another cluster file, and `calibrated`: what `outpace calibrate`
says of its origin. A configuration's own keys win over those of the file, by the rule of
`support.yaml_files`; of several files the later ones win.

With `draw_cluster: true` the law of run times is drawn anew for each seed, within the errors that
the file's calibration states, or in blocks of recorded times, so that several seeds show how well
the cluster is known.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from outpace.config.clusters import KEYS, ClusterFile
from outpace.errors import ConfigError, did_you_mean
from outpace.support.yaml_files import merged, read_yaml

INCLUDE: Final = "include"
CALIBRATED: Final = "calibrated"
BUSY: Final = "busy"  # under `calibrated`: a sentence about other processes meanwhile
DRAW: Final = "draw_cluster"
_DRAWN: Final = ("errors", "block", "speed_cv")  # keys of a law, said of it under `calibrated`


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


def read_cluster(path: Path) -> ClusterFile:
    """Read a cluster file, and the files that it includes.

    Raises:
        ConfigError: naming the file, if it cannot be read or is not a cluster file.
    """
    return _merged_files(_files(str(path), Path.cwd(), str(path)))


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
        ConfigError: if a file cannot be read, is not a cluster file, or describes too few servers;
            or if run times are to be drawn within errors that it does not state.
    """
    own = {key: value for key, value in data.items() if key not in (INCLUDE, DRAW)}
    is_drawn = data.get(DRAW, False)
    if type(is_drawn) is not bool:
        raise ConfigError(f"{source}: {DRAW} must be true or false, not {is_drawn!r}")
    cluster = _merged_files(_files(data.get(INCLUDE), folder, source))
    if is_drawn:
        cluster = _drawn(cluster, own, source)
    if INCLUDE not in data:
        return own, {}
    keys = cluster.fitted(own, folder)
    origin = {key: path for key, path in cluster.origin.items() if key in keys and key not in own}
    return merged(keys, own), origin


def _files(
    names: Any, folder: Path, source: str, including: tuple[Path, ...] = ()
) -> Iterator[tuple[Path, dict[str, Any]]]:
    """Yield the files that an `include` names and their content, each after those it includes.

    Args:
        source: names the data in errors.
        including: the files that led to this one, to find circles.
    """
    if names is None:
        return
    paths = names if isinstance(names, list) else [names]
    if not all(isinstance(name, str) and name for name in paths):
        raise ConfigError(
            f"{source}: include must be the path of a cluster file, or a list of paths, "
            f"not {names!r}"
        )
    for name in paths:
        path = (folder / Path(name).expanduser()).resolve()
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
        yield from _files(data.get(INCLUDE), path.parent, str(path), (*including, path))
        yield path, data


def _merged_files(files: Iterable[tuple[Path, Mapping[str, Any]]]) -> ClusterFile:
    """Return the content of files, of which the later ones win."""
    found = ClusterFile(Path.cwd(), {}, {}, None, None)
    for path, data in files:
        calibrated = data.get(CALIBRATED)
        workers, servers = _counts(calibrated, path)
        drawn: Mapping[str, Any] = found.drawn
        if "compute" in data:
            of_compute = (calibrated or {}).get("compute")
            said = of_compute if isinstance(of_compute, Mapping) else {}
            drawn = {key: said[key] for key in _DRAWN if key in said}
        own = {
            key: _with_absolute_paths(key, data[key], path.parent) for key in KEYS if key in data
        }
        found = ClusterFile(
            path,
            merged(found.keys, own),
            {**found.origin, **dict.fromkeys(own, path)},
            workers or found.workers,
            found.servers if servers is None else servers,
            drawn,
        )
    return found


def _drawn(cluster: ClusterFile, run: Mapping[str, Any], source: str) -> ClusterFile:
    """Return the content with a law of run times that is drawn for each seed."""
    compute = cluster.keys.get("compute")
    if run.get("compute") is None and isinstance(compute, Mapping) and cluster.drawn:
        keys = {**cluster.keys, "compute": {**compute, **cluster.drawn}}
        return dataclasses.replace(cluster, keys=keys)
    if run.get("compute") is not None:
        why = "the run has its own law, compute: remove it"
    elif compute is None:
        why = f"there is no cluster file with such a law: name one by {INCLUDE} or --cluster"
    else:
        why = (
            f"{cluster.path} does not state the errors of its law; outpace calibrate does so "
            "unless run times switch between regimes"
        )
    raise ConfigError(f"{source}: {DRAW}: the law of run times cannot be drawn: {why}")


def _counts(calibrated: Any, path: Path) -> tuple[int | None, int | None]:
    """Return the numbers of workers and servers that the file says it describes."""
    if calibrated is None:
        return None, None
    if not isinstance(calibrated, Mapping):
        raise ConfigError(f"{path}: calibrated must be a mapping, not {calibrated!r}")
    counts = []
    for key, least in (("workers", 1), ("servers", 0)):
        count = calibrated.get(key)
        if count is not None and (type(count) is not int or count < least):
            raise ConfigError(f"{path}: calibrated.{key} must be at least {least}, not {count!r}")
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
