"""Makes the parts of a coordinator that differ in runs with and without servers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

import torch

from outpace.config.experiment import Experiment
from outpace.engine.resuming import ResumePoint
from outpace.kernel import Kernel
from outpace.predict.interface import Rule
from outpace.real.coordinator.evaluation.snapshots import Evaluate
from outpace.real.coordinator.saving.base import Checkpoints
from outpace.real.coordinator.saving.of_servers import CheckpointsOfServers
from outpace.real.coordinator.saving.of_workers import CheckpointsOfWorkers
from outpace.real.coordinator.saving.open import SavedRun, Saving
from outpace.real.coordinator.saving.scripts import CheckpointsOfScripts
from outpace.real.coordinator.saving.sent_parts import CheckpointsOfSentParts
from outpace.real.coordinator.with_servers import SchedulerResources, WithServers
from outpace.real.coordinator.without_servers import WithoutServers
from outpace.real.net.clock import RealClock
from outpace.real.net.transport import Listener
from outpace.real.node.saving.thread import Beside
from outpace.record.totals import Totals
from outpace.record.trace import Trace
from outpace.tasks import Script

Architecture: TypeAlias = WithServers | WithoutServers


@dataclass(frozen=True, slots=True, kw_only=True)
class Making:
    """The objects that runs with and without servers are made of.

    evaluate: called with consistent snapshots. rule: decides when an iteration is cut off; None if
    none is. saving: where checkpoints go; None: none are taken. resume: where the run goes on;
    None: it begins. totals_of: the sums that each process has reported. store: endpoint of the
    store, if the run has one. sent: see `CheckpointsOfScripts`. beside: writes files that are sent.
    copies: servers and workers do not see the folder of the run.
    """

    experiment: Experiment
    kernel: Kernel
    clock: RealClock
    listener: Listener
    trace: Trace
    evaluate: Evaluate
    rule: Rule | None
    saving: Saving | None
    resume: ResumePoint | None
    totals_of: dict[str, Totals]
    store: str
    sent: Callable[[int, torch.Tensor, int], None]
    beside: Beside
    copies: bool

    def architecture(self) -> tuple[Architecture, Checkpoints | None]:
        """Return the coordinator's part in the training, and the checkpoints of the run.

        Raises:
            ConfigError: the run cannot go on from its checkpoint.
        """
        return self._with_servers() if self.experiment.peers is None else self._without_servers()

    def _with_servers(self) -> tuple[WithServers, Checkpoints | None]:
        experiment, kernel, listener = self.experiment, self.kernel, self.listener
        resources = SchedulerResources(experiment, kernel, self.clock, listener, self.trace)
        architecture = WithServers(resources, self.totals_of, self.evaluate, self.rule, self.resume)
        if self.saving is None:
            return architecture, None
        run = self._saved_run(self.saving)
        if isinstance(experiment.task, Script):
            return architecture, CheckpointsOfScripts(run, self.beside, self.sent)
        return architecture, CheckpointsOfServers(run)

    def _saved_run(self, saving: Saving) -> SavedRun:
        return SavedRun(
            self.experiment,
            self.kernel,
            self.listener,
            saving,
            self.totals_of,
            self.resume,
            self.beside if self.copies else None,
        )

    def _without_servers(self) -> tuple[WithoutServers, Checkpoints | None]:
        experiment, kernel, listener = self.experiment, self.kernel, self.listener
        architecture = WithoutServers(
            experiment, kernel, listener, self.evaluate, self.store, self.resume
        )
        if self.saving is None:
            return architecture, None
        given = self._saved_run(self.saving), architecture.groups
        kind = CheckpointsOfSentParts if self.copies else CheckpointsOfWorkers
        checkpoints = kind(*given)
        architecture.when_left = lambda name, lost: checkpoints.leave(name, lost=lost)
        return architecture, checkpoints
