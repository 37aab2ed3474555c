"""The arguments of a coordinator, which its parts share."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from outpace.config.experiment import Experiment
from outpace.engine.resuming import ResumePoint
from outpace.predict.interface import Rule
from outpace.real.coordinator.saving.open import Saving
from outpace.real.coordinator.snapshots import Evaluate
from outpace.real.net.addresses import LOOPBACK
from outpace.real.net.sparse_log import Log
from outpace.real.net.transport import Session
from outpace.record.timing import Timing
from outpace.record.trace import Trace
from outpace.sync.membership import Membership

JOIN_S: Final = 120.0  # for the slowest process to start and make its task


@dataclass(frozen=True, slots=True, kw_only=True)
class CoordinatorSetting:
    """The arguments of a `Coordinator`.

    Attributes:
        members: the processes of the run; they begin with this attempt.
        keys: public key of each process; empty in an insecure run.
        evaluate: called with consistent snapshots of the parameters; it may call
            `Coordinator.end`.
        join_s: seconds for the processes to come through each phase before the training.
        address: of this machine, at which the processes reach it.
        rule: decides when an iteration is cut off; None if none is.
        warn: called with a line for each warning; None: `log`.
        timing: takes the times of messages and computations.
        saving: where checkpoints go; None: none are taken.
        resume: where the run goes on; None: it begins.
        copies: True if servers and workers do not see the folder of the run: the parts of
            checkpoints are copied to this process, and back.
    """

    experiment: Experiment
    members: Membership
    session: Session
    keys: dict[str, str]
    trace: Trace
    evaluate: Evaluate
    log: Log
    join_s: float = JOIN_S
    address: str = LOOPBACK
    rule: Rule | None = None
    warn: Log | None = None
    timing: Timing = field(default_factory=lambda: Timing(lambda _: None))
    saving: Saving | None = None
    resume: ResumePoint | None = None
    copies: bool = False

    @property
    def log_warning(self) -> Log:
        """Takes a line for each warning."""
        return self.warn or self.log
