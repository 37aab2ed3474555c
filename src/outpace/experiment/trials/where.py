"""Where the runs of `compare`, `sweep` and `advise` are carried out: here, or on a Ray cluster."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias

from outpace.config.experiment import Experiment
from outpace.config.launchers import MOST_WAIT_S, Ray
from outpace.config.reading import section_from
from outpace.config.trackers import Mlflow, TensorBoard, Wandb
from outpace.errors import ConfigError
from outpace.experiment.launching import files_of, no_ray
from outpace.experiment.trials.elsewhere import RunsElsewhere
from outpace.experiment.trials.pool import Pool, needs_all_cores, stays_here
from outpace.support.checks import require
from outpace.support.notices import warn
from outpace.support.words import plural

if TYPE_CHECKING:
    from outpace.real.process.ray.tasks import RayTasks

On: TypeAlias = str | Mapping[str, Any] | None
"""None or "local": this machine. "ray", or the attributes of `OnRay` with `kind: ray`."""

_SHOWN: Final = 3  # nodes that cannot take part, in an error


@dataclass(frozen=True, slots=True)
class OnThisMachine:
    """The runs are carried out on this machine."""

    kind: Literal["local"] = "local"


@dataclass(frozen=True, slots=True)
class OnRay:
    """The runs are carried out on a Ray cluster.

    Attributes:
        address: HOST:PORT of the cluster; auto: one that runs on this machine; local: one is
            started on this machine, and stopped afterwards. None: RAY_ADDRESS, else as auto, else
            as local.
        cpus: that each run takes up; None: 1, and if a run needs all cores, those of the node that
            has most.
        wait_s: seconds to wait for the first of these CPUs, and for the nodes to answer.
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
    """Return what the argument `on` of `compare`, `sweep` and `advise` means; None: this machine.

    Args:
        launcher: of the configuration. If it is of the kind ray, its address, `wait_s` and
            `runtime_env` are used where `on` does not say them.

    Raises:
        ConfigError: `on` is invalid.
    """
    if on is None:
        return None
    given = {"kind": "ray", **on} if isinstance(on, Mapping) else {"kind": on}
    if "elastic" in given:
        raise ConfigError(
            "on: elastic is for one real run, whose workers and servers join and leave "
            "(launcher.elastic); simulated runs use nodes that join without it: leave it out"
        )
    if isinstance(launcher, Ray):
        launcher = dataclasses.asdict(launcher)
    if isinstance(launcher, Mapping) and launcher.get("kind") == given["kind"] == "ray":
        keys = ("address", "wait_s", "runtime_env")
        given = {key: launcher[key] for key in keys if key in launcher} | given
    found = section_from(OnThisMachine | OnRay, given, "on", "where the runs are carried out")
    return found if isinstance(found, OnRay) else None


def carrier_of(
    settings: OnRay,
    tasks: RayTasks,
    experiments: Sequence[Experiment],
    *,
    processes: int | None = None,
    have_folders: bool,
    say: Callable[[str], None] = warn,
) -> RunsElsewhere | None:
    """Return the carrier of runs like these, when there is room for one on the cluster.

    Args:
        tasks: the cluster.
        say: called with a line about it.
        processes, have_folders: see `pool_on`.

    Returns:
        None if all of these runs stay on this machine, which is said.

    Raises:
        ConfigError: a node cannot take part, or there is no room in time, or the runs cannot
            be on a cluster.
    """
    away = [each for each in experiments if not stays_here(each)]
    if len(away) < len(experiments):
        count = plural(len(experiments) - len(away), "configuration")
        say(
            f"runs of {count} stay on this machine: their task was given from Python (name its "
            "file: task: {kind: python, target: file.py:function}), or their run times are "
            "measured (name a law of run times, or a cluster file)"
        )
    if not away:
        return None
    for each in away:
        _require_trackers(each, have_folders)
    paths = sorted({path for each in away for path in files_of(each)})
    if problems := tasks.survey(paths, settings.wait_s):
        lines = [f"on: node {node} {what}" for node, what in list(problems.items())[:_SHOWN]]
        if len(problems) > _SHOWN:
            lines.append(f"on: and {plural(len(problems) - _SHOWN, 'more node')}")
        raise ConfigError("\n".join(lines))
    carrier = RunsElsewhere(
        tasks, cpus=settings.cpus, most=processes, wait_s=settings.wait_s, say=say
    )
    carrier.require_room(needs_all_cores(away[0]))
    return carrier


def check_on(on: On, launcher: object = None) -> None:
    """Raise ConfigError if `on` is invalid, see `on_of`, or says Ray and there is none here."""
    if on_of(on, launcher) is not None:
        try:
            import outpace.real.process.ray.tasks  # noqa: F401
        except ImportError as error:
            raise no_ray("on", error) from None


@contextmanager
def pool_on(
    on: On,
    experiments: Sequence[Experiment],
    *,
    processes: int | None = None,
    have_folders: bool = False,
    progress: Callable[[Any, float], None] = lambda _, __: None,
    warning: Callable[[Any, str], None] = lambda _, __: None,
) -> Iterator[Pool]:
    """Yield the pool that carries out runs like these, here or on a cluster.

    Args:
        on: where, as for `compare`; see `on_of`.
        experiments: one for each kind of run. The first one's launcher counts.
        processes: most runs at a time; None: as many as there is room for.
        have_folders: False if runs without a folder are among them.
        progress, warning: see `Pool`.

    Raises:
        ConfigError: there is no cluster, or it cannot carry the runs out.
    """
    check_on(on, experiments[0].launcher)
    settings = on_of(on, experiments[0].launcher)
    with ExitStack() as stack:
        elsewhere = None
        if settings is not None:
            from outpace.real.process.ray.tasks import RayTasks

            tasks = stack.enter_context(
                RayTasks(settings.address, "on.address", settings.runtime_env)
            )
            elsewhere = carrier_of(
                settings, tasks, experiments, processes=processes, have_folders=have_folders
            )
        pool = Pool(processes, progress=progress, warning=warning, elsewhere=elsewhere)
        yield stack.enter_context(pool)


def _require_trackers(experiment: Experiment, have_folders: bool) -> None:
    """Raise ConfigError if a tracker would write to the disk of a node."""
    for place, tracker in enumerate(experiment.trackers):
        match tracker:
            case TensorBoard():
                stays = tracker.folder is not None or not have_folders
            case Mlflow():
                uri = tracker.tracking_uri or ""
                stays = not uri.startswith(("http://", "https://", "databricks"))
            case Wandb():
                stays = tracker.mode == "offline"
        if stays:
            raise ConfigError(
                f"trackers[{place}]: {tracker.kind} would write to the node on which a run is: "
                "leave it out, name a server, or leave `on` (--on) out"
            )
