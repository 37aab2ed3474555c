"""Makes the parts of a coordinator that differ in runs with and without servers."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

import torch

from outpace.kernel import Kernel
from outpace.real.coordinator.saving.base import Checkpoints
from outpace.real.coordinator.saving.of_servers import CheckpointsOfServers
from outpace.real.coordinator.saving.of_workers import CheckpointsOfWorkers
from outpace.real.coordinator.saving.open import SavedRun
from outpace.real.coordinator.setting import CoordinatorSetting
from outpace.real.coordinator.with_servers import SchedulerResources, WithServers
from outpace.real.coordinator.without_servers import WithoutServers
from outpace.real.net.clock import RealClock
from outpace.real.net.transport import Listener
from outpace.record.totals import Totals

Architecture: TypeAlias = WithServers | WithoutServers


def new_architecture(
    setting: CoordinatorSetting,
    kernel: Kernel,
    clock: RealClock,
    listener: Listener,
    totals_of: dict[str, Totals],
    store: str,
) -> Architecture:
    """Return the coordinator's part in the training.

    Args:
        totals_of: the sums that each process has reported.
        store: endpoint of the store, if the run has one.

    Raises:
        ConfigError: the run cannot be continued from its checkpoint.
    """
    experiment, evaluate, resume = setting.experiment, setting.evaluate, setting.resume
    if experiment.peers is not None:
        return WithoutServers(experiment, kernel, listener, evaluate, store, resume)
    resources = SchedulerResources(experiment, kernel, clock, listener, setting.trace)
    return WithServers(resources, totals_of, evaluate, setting.rule, resume)


def new_checkpoints(
    run: SavedRun, architecture: Architecture, sent: Callable[[int, torch.Tensor, int], None]
) -> Checkpoints:
    """Return what takes the checkpoints of a run. sent: see `CheckpointsOfServers`."""
    if isinstance(architecture, WithoutServers):
        checkpoints = CheckpointsOfWorkers(run, architecture.groups)
        architecture.when_left = lambda name, lost: checkpoints.leave(name, lost=lost)
        return checkpoints
    return CheckpointsOfServers(run, sent)
