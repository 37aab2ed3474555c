"""Where the runs of `compare`, `sweep` and `advise` are carried out: here, or on Ray."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

from outpace.config.experiment import Experiment
from outpace.config.launchers import MOST_WAIT_S, Ray
from outpace.config.reading import section_from
from outpace.experiment.launching import no_ray
from outpace.experiment.trials.pool import Carrier, Pool, stays_here
from outpace.support.checks import require
from outpace.support.notices import warn

On: TypeAlias = str | Mapping[str, Any] | None
"""None or "local": this machine. "ray", or the attributes of `OnRay` with `kind: ray`."""


@dataclass(frozen=True, slots=True)
class OnThisMachine:
    """Carries out the runs on this machine."""

    kind: Literal["local"] = "local"


@dataclass(frozen=True, slots=True)
class OnRay:
    """Carries out the runs on a Ray cluster.

    Attributes:
        address: HOST:PORT of the cluster; auto: a cluster that runs on this machine; local: a
            cluster that is started on this machine, and stopped afterwards. None: RAY_ADDRESS, else
            auto, else local.
        cpus: CPUs of each run; None: 1, or if a run needs all cores, as many as the largest node
            has.
        wait_s: seconds to wait for a run to begin, if none is running.
        runtime_env: the environment of the processes, as Ray describes it.
    """

    address: str | None = None
    cpus: float | None = None
    wait_s: float = 60.0
    runtime_env: dict[str, Any] = field(default_factory=dict)
    kind: Literal["ray"] = "ray"

    def __post_init__(self) -> None:
        cpus, wait_s = self.cpus, self.wait_s
        require(cpus is None or 0 < cpus <= 1e6, "cpus", "more than 0, at most 1e6", cpus)
        require(0 < wait_s <= MOST_WAIT_S, "wait_s", "more than 0, at most 1e6", wait_s)


def on_of(on: On, launcher: object = None) -> OnRay | None:
    """Return the meaning of the argument `on` of `compare`, `sweep` and `advise`.

    Args:
        launcher: launcher of the configuration. If it is of the kind ray, its address, `wait_s` and
            `runtime_env` are used for values that `on` does not give.

    Raises:
        ConfigError: if `on` is invalid, or asks for Ray and Ray is not installed.
    """
    if on is None:
        return None
    given = {"kind": "ray", **on} if isinstance(on, Mapping) else {"kind": on}
    if isinstance(launcher, Ray):
        launcher = dataclasses.asdict(launcher)
    if isinstance(launcher, Mapping) and launcher.get("kind") == given["kind"] == "ray":
        keys = ("address", "wait_s", "runtime_env")
        given = {key: launcher[key] for key in keys if key in launcher} | given
    found = section_from(OnThisMachine | OnRay, given, "on", "where the runs are carried out")
    if not isinstance(found, OnRay):
        return None
    try:
        import outpace.experiment.trials.on_ray  # noqa: F401
    except ImportError as error:
        raise no_ray("on", error) from None
    return found


@contextmanager
def pool_on(
    settings: OnRay | None,
    experiments: Sequence[Experiment],
    *,
    processes: int | None = None,
    progress: Callable[[Any, float], None] = lambda _, __: None,
    warning: Callable[[Any, str], None] = lambda _, __: None,
) -> Iterator[Pool]:
    """Yield the pool that carries out runs like these, here or on a cluster.

    Args:
        settings: settings of the cluster; None: this machine.
        experiments: one experiment for each kind of run.
        processes: largest number of runs at a time; None: as many as there is room for.
        progress, warning: see `Pool`.

    Raises:
        ConfigError: if there is no cluster, or if it cannot carry out the runs.
    """
    if settings is not None and any(map(stays_here, experiments)):
        warn(
            "the runs stay on this machine: a task was given from Python (name its file: task: "
            "{kind: python, target: file.py:function}), or run times are measured (name a law of "
            "run times, or a cluster file)"
        )
        settings = None
    with ExitStack() as stack:
        carrier: Carrier | None = None
        if settings is not None:
            from outpace.experiment.trials.on_ray import RunsOnRay
            from outpace.real.ray.connecting import connected

            stack.enter_context(connected(settings.address, 0, "on.address"))
            carrier = RunsOnRay(
                cpus=settings.cpus,
                most=processes,
                wait_s=settings.wait_s,
                runtime_env=settings.runtime_env,
            )
        pool = Pool(processes, progress=progress, warning=warning, carrier=carrier)
        yield stack.enter_context(pool)
