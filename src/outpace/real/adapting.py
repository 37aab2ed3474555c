"""An adaptive strategy in a real run: its rule observes the rows that workers report."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Any, Final

from outpace.config.experiment import Experiment
from outpace.engine.adapting import Adaptation, adaptive_policy, note_again, policy_in_force
from outpace.engine.resuming import ResumePoint
from outpace.real.control import RealControl
from outpace.real.coordinator.coordinator import Coordinator
from outpace.real.coordinator.observers import RunObserver
from outpace.record.event_log import LAUNCHER, EventLog
from outpace.record.switches import Switch
from outpace.record.totals import Totals
from outpace.record.trace import ITERATION, NONE, SCHEMA, Table, Trace
from outpace.sync.membership import Removed, Start

_RULE: Final = "the rule of the adaptive strategy"  # a name for its sums
_COLUMNS: Final = [
    SCHEMA.names.index(name)
    for name in ("worker", "iteration", "start_ns", "end_ns", "computed_ns", "held_ns", "bound")
]


def adapt(
    experiment: Experiment,
    coordinator: Coordinator,
    control: RealControl,
    trace: Trace,
    events: EventLog,
    resume: ResumePoint | None,
) -> Adaptation | None:
    """Let the rule of an adaptive strategy, if it is one, observe this attempt and change it.

    resume: where the attempt goes on; None: it begins. Without servers the workers have the rule.
    """
    if resume is not None:
        note_again(resume.totals, resume.now, trace.row)
    policy = adaptive_policy(experiment)
    if policy is None:
        return None

    def note(switch: Switch) -> None:
        trace.row(*switch.row())
        totals = coordinator.reports.totals_of.setdefault(_RULE, Totals())
        totals.switches.append(switch)
        said = switch.summary()
        before, after = said.pop("from"), said.pop("to")
        events.add("switch", role=LAUNCHER, before=before, after=after, **said)

    saved: Mapping[str, Any] = {}
    if resume is not None:
        saved = resume.adaptive
        if (ordered := policy_in_force(experiment, saved)) is not None:
            control.save_as_under(ordered)
    observer = _Adapting(coordinator.reports.totals_of, lambda: coordinator.taking_part)
    observer.adaptation = Adaptation(
        experiment,
        policy,
        control.follow,
        note,
        lambda: coordinator.clock.now,
        lambda: observer.noise,
        saved,
    )
    coordinator.observers.add(observer)
    return observer.adaptation


class _Adapting(RunObserver):
    """Passes the iterations of workers on to a rule, and says which workers take part.

    Args:
        totals: the sums that each process has reported.
        taking_part: returns the workers that have not left for good.

    Attributes:
        noise: sums `noise` and `signal` when the last rows came.
    """

    adaptation: Adaptation

    def __init__(
        self, totals: Mapping[str, Totals], taking_part: Callable[[], Collection[int]]
    ) -> None:
        self._totals, self._taking_part = totals, taking_part
        self.noise = self._sums()

    def _sums(self) -> tuple[float, float]:
        every = self._totals.values()
        return sum(each.noise for each in every), sum(each.signal for each in every)

    def started(self) -> None:
        self.adaptation.start()

    def recovered(self, recovered: Start | Removed) -> None:
        if isinstance(recovered, Removed):
            left = set(self._taking_part()) - {recovered.worker}
            self.adaptation.go_on_with(left)

    def scaled(self, before: int, workers: int, first: int, took_s: float) -> None:
        self.adaptation.go_on_with(self._taking_part())

    def traced(self, rows: Table) -> None:
        self.noise = self._sums()
        found = rows[rows[:, 0] == ITERATION][:, _COLUMNS]
        for worker, iteration, started, finished, computed, held, bound in found.tolist():
            would_end = computed if bound == NONE else bound
            self.adaptation.iteration_finished(
                worker, iteration, started, finished, computed, held, would_end
            )
