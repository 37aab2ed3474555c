"""An adaptive strategy in a real run: its rule observes the rows that workers report."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import numpy as np

from outpace.config.experiment import Experiment
from outpace.engine.adapting import Adaptation, adaptive_policy
from outpace.real.control import RealControl
from outpace.real.coordinator.coordinator import Coordinator
from outpace.real.coordinator.observers import RunObserver
from outpace.record.event_log import LAUNCHER, EventLog
from outpace.record.switches import Switch
from outpace.record.totals import Totals
from outpace.record.trace import ITERATION, SCHEMA, Table, Trace

_RULE: Final = "the rule of the adaptive strategy"  # a name for its sums
_COLUMNS: Final = [
    SCHEMA.names.index(name) for name in ("worker", "iteration", "start_ns", "end_ns", "held_ns")
]


def adapt(
    experiment: Experiment,
    coordinator: Coordinator,
    control: RealControl,
    trace: Trace,
    events: EventLog,
) -> None:
    """Let the rule of an adaptive strategy, if it is one, observe this attempt and change it."""
    policy = adaptive_policy(experiment)
    if policy is None:
        return

    def note(switch: Switch) -> None:
        trace.row(*switch.row())
        totals = coordinator.reports.totals_of.setdefault(_RULE, Totals())
        totals.switches.append(switch)
        said = switch.summary()
        before, after = said.pop("from"), said.pop("to")
        events.add("switch", role=LAUNCHER, before=before, after=after, **said)

    observer = _Adapting(coordinator.reports.totals_of)
    observer.adaptation = Adaptation(
        experiment,
        policy,
        control.follow,
        note,
        lambda: coordinator.clock.now,
        lambda: observer.noise,
    )
    coordinator.observers.add(observer)


class _Adapting(RunObserver):
    """Passes the iterations of workers on to a rule.

    Args:
        totals: the sums that each process has reported.

    Attributes:
        noise: sums `noise` and `signal` when the last rows came.
    """

    adaptation: Adaptation

    def __init__(self, totals: Mapping[str, Totals]) -> None:
        self._totals = totals
        self.noise = 0.0, 0.0

    def traced(self, rows: Table) -> None:
        every = self._totals.values()
        self.noise = sum(each.noise for each in every), sum(each.signal for each in every)
        found = rows[rows[:, 0] == ITERATION][:, _COLUMNS]
        for worker, iteration, started, finished, held in np.asarray(found).tolist():
            self.adaptation.iteration_finished(worker, iteration, started, finished, held)
