"""The settings of a run on real processes, including those that change if all begin again."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final

from outpace.config.experiment import Experiment
from outpace.engine.keeper import CheckpointKeeper
from outpace.engine.output import OnOutput
from outpace.engine.resuming import ResumePoint
from outpace.predict.interface import Rule
from outpace.real.coordinator.snapshots import Evaluate
from outpace.real.net.addresses import LOOPBACK
from outpace.real.net.report_messages import ScriptLog
from outpace.real.net.sparse_log import Log
from outpace.real.process.launcher import MakeLauncher
from outpace.record.checkpoints import Index
from outpace.record.event_log import EventLog
from outpace.record.timing import Timing
from outpace.record.trace import Trace
from outpace.support.units import Time
from outpace.sync.membership.decide import Membership

JOIN_S: Final = 120.0  # seconds for the slowest process to start and make its task


@dataclass(frozen=True, slots=True)
class Saving:
    """Stores the checkpoints of a run.

    complete: called with a checkpoint whose parts are on the disk, and the time of the run when
    each saved script was saved, by worker; it adds data that the processes do not have.
        Raises OSError.
    """

    keeper: CheckpointKeeper
    complete: Callable[[Index, Mapping[int, Time]], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """The settings of a coordinator.

    Attributes:
        experiment: the experiment with the present numbers of workers and servers.
        members: the processes of the run, of all attempts.
        launcher: makes the launcher of the processes.
        trace: the trace of the run.
        evaluate: called with consistent snapshots of the parameters; it may call
            `Coordinator.end`.
        lease_s: seconds of silence after which a connection counts as lost.
        on_output: takes the output of processes.
        events: the observer of what happens to the processes.
        on_start: called when the time of the run has begun, and the processes are told to train.
        on_log: called with the number of a worker and the values that its script has logged.
        on_answer: called when a request for other numbers of processes is answered, with the asker,
            the text of the answer, and whether the request is carried out.
        join_s: seconds that the processes may take for each phase before the training.
        address: address of this machine, at which the processes reach it.
        rule: the rule that decides when an iteration is cut off; None: there is no rule.
        warn: called with a line for each warning; None: `log`.
        timing: takes the times of messages and computations.
        saving: stores the checkpoints; None: none are taken.
        resume: the point at which the run is resumed; None: it begins.
    """

    experiment: Experiment
    members: Membership
    launcher: MakeLauncher
    trace: Trace
    evaluate: Evaluate
    log: Log
    lease_s: float
    on_output: OnOutput
    events: EventLog
    on_start: Callable[[], object] = lambda: None
    on_log: Callable[[int, ScriptLog], object] = lambda *_: None
    on_answer: Callable[[str, str, bool], object] = lambda *_: None
    join_s: float = JOIN_S
    address: str = LOOPBACK
    rule: Rule | None = None
    warn: Log | None = None
    timing: Timing = field(default_factory=lambda: Timing(lambda _: None))
    saving: Saving | None = None
    resume: ResumePoint | None = None

    @property
    def log_warning(self) -> Log:
        """Log a warning."""
        return self.warn or self.log
