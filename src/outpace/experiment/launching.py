"""Starts the processes of a real run: from this process, or on a Ray cluster."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from outpace.config.experiment import Experiment
from outpace.config.launchers import Local, Ray
from outpace.config.reading import plain, to_plain
from outpace.errors import ConfigError
from outpace.real.elastic.deciding import SERVER, WORKER, Rules
from outpace.real.elastic.watching import Elastic, Look
from outpace.real.ray.placing import Group, groups_of
from outpace.support.words import plural
from outpace.sync.messages import server_name, worker_name

_COPY_OF_JOB = "/runtime_resources/working_dir_files/"  # part of the path of such a folder
_STAYS_HERE = ("trackers", "launcher")  # keys whose files only this process reads


@contextmanager
def launch_of(
    experiment: Experiment,
    out: Path | None,
    log: Callable[[str], None],
    *,
    resumes: bool = False,
) -> Iterator[dict[str, Any]]:
    """Yield the options of `RealRun` about how the processes of this run are started.

    There are none if this process starts them on this machine.

    Args:
        out: the folder of the run, which need not exist.
        log: called with a line about what the run waits for.
        resumes: True: the run is resumed from a checkpoint.

    Raises:
        ConfigError: if there is no Ray, no cluster, or no room on it; if a node cannot take part;
            or if `launcher.elastic` asks for something that the run cannot do.
    """
    settings = experiment.launcher
    if isinstance(settings, Local):
        yield {}
        return
    _require_elastic(experiment, settings)
    try:
        from outpace.real.ray.cluster import RayCluster
    except ImportError as error:
        raise no_ray("launcher", error) from None
    from outpace.real.ray.launcher import RayLauncher

    servers = [server_name(server) for server in range(experiment.servers_in_run)]
    workers = [worker_name(worker) for worker in range(experiment.workers)]
    groups = groups_of(settings, servers, workers)
    with RayCluster(settings, groups, log) as cluster:
        if out is not None and _COPY_OF_JOB in str(out.absolute()):
            log(
                f"the run is written to {out.absolute()}, into Ray's copy of the working folder of "
                "the job, which Ray removes: name a folder that stays with --out"
            )
        shared = out if experiment.checkpoint is not None or resumes else None
        if blind := cluster.survey(files_of(experiment), shared):
            raise ConfigError(
                f"launcher: node {blind} does not see {out}, in which the checkpoints are to be: "
                "name a folder on storage that all nodes reach with --out"
            )
        yield {
            "launcher": partial(RayLauncher, cluster),
            "address": cluster.address,
            "elastic": _elastic(settings, groups, cluster.look),
        }


def _elastic(settings: Ray, groups: Sequence[Group], look: Look) -> Elastic | None:
    """Return the object that adapts the processes to the nodes; None: their number is fixed."""
    given = settings.elastic
    if given is None:
        return None
    kinds = {WORKER: given.workers, SERVER: given.servers}
    bounds = {kind: (each[0], each[1]) for kind, each in kinds.items() if each}
    resources = {group.kind: group.bundle for group in groups}
    return Elastic(Rules(bounds, resources, given.settle_s), look)


def no_ray(key: str, error: ImportError) -> ConfigError:
    """Return the error for a computer without Ray. key: the setting that asks for Ray."""
    return ConfigError(
        f"{key}: Ray cannot be imported ({error}): install it with pip install 'outpace[cluster]'"
    )


def files_of(experiment: Experiment) -> list[str]:
    """Return the files and folders of this machine that the configuration names."""
    data = {key: value for key, value in to_plain(experiment).items() if key not in _STAYS_HERE}
    named = {text.partition(":")[0] for text in _texts(plain(data))}
    absolute = {str(Path(text).absolute()) for text in named if text.endswith(".py")}
    absolute |= {text for text in named if text.startswith("/")}
    return sorted(path for path in absolute if Path(path).exists())


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for each in value.values():
            yield from _texts(each)
    elif isinstance(value, list):
        for each in value:
            yield from _texts(each)


def _require_elastic(experiment: Experiment, settings: Ray) -> None:
    """Raise ConfigError if `launcher.elastic` asks for something that this run cannot do."""
    elastic = settings.elastic
    if elastic is None:
        return
    if experiment.checkpoint is None:
        raise ConfigError(
            "launcher.elastic: a run begins again from a checkpoint with other numbers of "
            "processes, and this run takes none: add checkpoint.every_s=60"
        )
    if elastic.servers and experiment.peers is not None:
        why = f"{experiment.peers.kind} has none"
        raise ConfigError(f"launcher.elastic.servers: {why}; leave it out")
    for workers in elastic.workers:
        try:
            replace(experiment, workers=workers, launcher=replace(settings, elastic=None))
        except (ConfigError, ValueError) as error:
            number = plural(workers, "worker")
            raise ConfigError(
                f"launcher.elastic.workers: the configuration does not fit {number}: {error}"
            ) from None
