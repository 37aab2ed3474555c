"""The cost of a run's failures: the losses, the lost times, and the goodput."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from copy import copy
from dataclasses import asdict, dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final

from outpace.config.experiment import Experiment
from outpace.config.goals import Evaluate, Stop
from outpace.record.trace import Trace
from outpace.support.units import Time, seconds
from outpace.tasks import Timing, Workload

if TYPE_CHECKING:
    from outpace.simulation.virtual import VirtualRun

CAUSES: Final = ("detection", "restart", "repeated")
_KEPT: Final = ("lost", "worker_losses", "server_losses")


@dataclass(slots=True)
class Costs:
    """Counts of losses, and lost time by its cause, in ns summed over workers.

    detection: from the death of a process until it was known. restart: from then until its
    successor began. repeated: time of work that was done a second time.
    """

    workers: int
    lost: dict[str, Time] = field(default_factory=lambda: dict.fromkeys(CAUSES, 0))
    worker_losses: int = 0
    server_losses: int = 0
    goodput: float | None = None

    def add(self, cause: str, duration: Time, workers: int = 1) -> None:
        """Add time (ns) that a number of workers lost."""
        self.lost[cause] += max(0, duration) * workers

    def state(self) -> dict[str, Any]:
        """Return the counts as plain data, for `restore`."""
        found = asdict(self)
        return {key: found[key] for key in _KEPT}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Continue from the counts of a run that was resumed; an empty state has no counts."""
        for key, value in state.items():
            if key in _KEPT:
                setattr(self, key, copy(value))

    def summary(self) -> dict[str, Any]:
        """Return the part of summary.json about the costs; seconds are means per worker."""
        return {
            "worker_losses": self.worker_losses,
            "server_losses": self.server_losses,
            "lost_s": {cause: seconds(time) / self.workers for cause, time in self.lost.items()},
            "goodput": self.goodput,
        }


def undisturbed_rate(
    run: VirtualRun, plain: Callable[[Experiment, Workload, Trace], VirtualRun]
) -> float:
    """Return the gradients per second that a run would apply without failures; 0: unknown.

    The run without failures has no evaluations and no checkpoints, and computes only times. If
    workers may have been in the middle of their iterations, it ends when this run ended. Otherwise
    it ends with its last iteration, because a run with failures can be shorter than the same run
    without them: averages of fewer workers take less time.

    Args:
        plain: makes a run of a task without failures.
    """
    experiment, stop = run.experiment, run.experiment.stop
    iterations = max(run.totals.iterations.values(), default=0)
    if not iterations:
        return 0.0
    is_early = stop.virtual_time_s is not None or stop.target_accuracy is not None
    task = Timing(layers=run.layers)
    undisturbed = replace(
        experiment,
        task=task,
        faults=None,
        checkpoint=None,
        evaluate=Evaluate(),
        target=None,
        stop=Stop(
            iterations=iterations,
            virtual_time_s=seconds(run.kernel.now) if is_early else None,
        ),
    )
    sizes = task.workload(experiment.workers, experiment.batch_size, experiment.seed)
    twin = plain(undisturbed, sizes, Trace())
    try:
        twin.run()
        return twin.totals.applied / seconds(twin.kernel.now) if twin.kernel.now else 0.0
    finally:
        twin.close()
