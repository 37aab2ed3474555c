"""The parts of a run that bring lost processes back."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from outpace.config.experiment import Experiment
from outpace.kernel import Kernel
from outpace.real.coordinator.observers import RunObserver
from outpace.real.coordinator.recovery.losses import Losses
from outpace.real.coordinator.recovery.processes import Processes
from outpace.real.coordinator.reports import Reports
from outpace.real.coordinator.saving.kept_scripts import KeptScripts
from outpace.real.net.messages import Go, StopRun
from outpace.real.net.sparse_log import Log
from outpace.real.net.transport import Listener


@dataclass(frozen=True, slots=True)
class RunAround:
    """The parts of a run that replacements use.

    start_s: for a new process to be ready. lost: called with a name if the run goes on without
    this worker. began: called with a worker whose new process begins with its work. observer: is
    told of each worker that begins again, or is removed. kept: what the scripts of new processes go
    on with. go: returns the order to start. ending: returns the order to stop, once it was given.
    """

    experiment: Experiment
    start_s: float
    kernel: Kernel
    listener: Listener
    losses: Losses
    reports: Reports
    processes: Processes
    lost: Callable[[str], None]
    began: Callable[[int], None]
    observer: RunObserver
    log: Log
    kept: KeptScripts
    go: Callable[[], Go]
    ending: Callable[[], StopRun | None]
