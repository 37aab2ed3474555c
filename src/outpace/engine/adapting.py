"""Lets the rule of an adaptive strategy observe a run and change the policy of its servers.

The state of the rule is here, in one place. A checkpoint has it as plain data (`Adaptation.state`),
and a run that goes on from there begins with the policy in force (`policy_in_force`).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any
from weakref import WeakSet

import msgspec

from outpace.config.experiment import Experiment
from outpace.record.switches import Switch
from outpace.record.totals import Totals
from outpace.support.units import Time, seconds
from outpace.sync import Adaptive, AdaptivePeriod, Policy
from outpace.sync.adaptive.adacomm import SavedPeriod
from outpace.sync.adaptive.interface import Family, Observation, Order, Rule, RuleState, Setting
from outpace.sync.assignment import Sync
from outpace.sync.decision import Reason


class Cut:
    """The rule at a moment from which a run can go on, and what it observes of the time before.

    An iteration that servers have finished at that moment ends a little later, when the worker has
    their answers.

    Args:
        state: of the rule.
        first: the iteration with which each worker begins if the run goes on from here.
        settled: called when no further iteration before `first` is awaited.
    """

    def __init__(
        self, state: Mapping[str, Any], first: Sequence[int], settled: Callable[[], object]
    ) -> None:
        self.state, self._first, self._settled = state, first, settled
        self.seen: list[Observation] = []
        self._awaited = {worker for worker in state["workers"] if first[worker]}

    @property
    def is_settled(self) -> bool:
        """True if every worker has ended the iteration before its first one, or one is past it."""
        return not self._awaited

    def add(self, seen: Observation) -> None:
        worker, first = seen.worker, self._first[seen.worker]
        if seen.iteration < first:
            self.seen.append(seen)
        if self._awaited and seen.iteration >= first:
            self._awaited.clear()
            self._settled()
        elif worker in self._awaited and seen.iteration == first - 1:
            self._awaited.discard(worker)
            if not self._awaited:
                self._settled()


class Adaptation:
    """The rule of one run.

    Args:
        follow: has all servers follow a policy.
        note: called with each switch.
        clock: returns ns since the start of the run.
        noise: returns the sums `noise` and `signal` of the run's totals.
        saved: what `state` has returned for a checkpoint; None or empty: the run begins.
    """

    def __init__(
        self,
        experiment: Experiment,
        policy: Adaptive,
        follow: Callable[[Sync], None],
        note: Callable[[Switch], object],
        clock: Callable[[], Time],
        noise: Callable[[], tuple[float, float]],
        saved: Mapping[str, Any] | None = None,
    ) -> None:
        self._experiment, self._noise = experiment, noise
        self._policy, self._follow, self._note, self._clock = policy, follow, note, clock
        self._cuts: WeakSet[Cut] = WeakSet()
        self._rule: Rule
        self._begin(saved)

    def _begin(self, saved: Mapping[str, Any] | None) -> None:
        """Make the rule, as it was at a checkpoint if there is one. All workers take part."""
        # By worker that takes part: its number in the rule.
        self._places = {worker: worker for worker in range(self._experiment.workers)}
        self._switches, self._iteration = 0, 0
        # What the sums of noise and signal lack of those that the rule knows.
        self._lack = 0.0, 0.0
        self._saved = saved
        if not saved:
            self._rule = self._made()
            return
        self._switches, self._iteration = saved["switches"], saved["iteration"]
        (noise, signal), now = saved["sums"], self._noise()
        self._lack = noise - now[0], signal - now[1]
        self._rule = self._made(saved["rule"], saved["workers"])

    def _made(self, state: RuleState | None = None, workers: Sequence[int] = ()) -> Rule:
        """Return a rule for the present workers; it goes on from a state of the rule of others."""
        rule = self._policy.rule_for(len(self._places), self._experiment.stop.iterations)
        if state is not None:
            before = {worker: place for place, worker in enumerate(workers)}
            rule.restore(state, [before.get(worker) for worker in self._places])
        return rule

    # -- what happens ----------------------------------------------------------------

    def start(self) -> None:
        """The servers can be told what to follow, if it is another setting than at a checkpoint."""
        saved, self._saved = self._saved, None
        if saved:
            self._changed(_setting_of(saved), len(saved["workers"]))

    def iteration_finished(
        self,
        worker: int,
        iteration: int,
        started: Time,
        finished: Time,
        computed: Time,
        held: Time,
        would_end: Time,
    ) -> None:
        """Take an iteration of a worker; times in ns since the start of the run.

        would_end: when the computation would have ended, if it was stopped; else `computed`.
        """
        compute_s = seconds(would_end - started)
        busy_s = compute_s + seconds(finished - computed - held)
        self._take(
            Observation(seconds(finished), worker, iteration, busy_s, compute_s, *self._sums)
        )

    @property
    def _sums(self) -> tuple[float, float]:
        """The sums of noise and signal over the run."""
        noise, signal = self._noise()
        return noise + self._lack[0], signal + self._lack[1]

    def _take(self, seen: Observation) -> None:
        place = self._places.get(seen.worker)
        if place is not None:  # else it has left for good
            self._iteration = max(self._iteration, seen.iteration)
            before = self._rule.setting
            order = self._rule.observe(seen._replace(worker=place))
            if order is not None:
                self._switch(before, order, seen.iteration)
        for cut in tuple(self._cuts):
            cut.add(seen)

    def _switch(self, before: Setting, order: Order, iteration: int) -> None:
        now = self._clock()  # before any server can know
        self._follow(self._policy.at(order.to, len(self._places)))
        self._note(Switch.of(self._switches, now, iteration, before, order))
        self._switches += 1

    def go_on_with(self, workers: Collection[int]) -> None:
        """From now on these workers take part, at least one: others have left for good or joined.

        One that is lost and comes back takes part all the time.
        """
        if not workers or self._places.keys() == set(workers):
            return
        state, setting, before = self._rule.state(), self._rule.setting, list(self._places)
        self._places = {worker: place for place, worker in enumerate(sorted(workers))}
        self._rule = self._made(state, before)
        self._changed(setting, len(before))

    def _changed(self, before: Setting, workers: int) -> None:
        """The rule is for other workers. before: its setting for so many workers."""
        if before != self._rule.setting:
            figures = float(workers), float(len(self._places))
            order = Order(self._rule.setting, Reason.OTHER_WORKERS, figures)
            self._switch(before, order, self._iteration)

    # -- checkpoints -----------------------------------------------------------------

    @property
    def waits_for_all(self) -> bool:
        """True if the setting in force lets no worker begin before all have ended an iteration."""
        family, value, grace = self._rule.setting
        return not grace and value == (0 if family is Family.BOUND else len(self._places))

    def state(self) -> dict[str, Any]:
        """Return all with which the rule can go on, as plain data."""
        return {
            "rule": self._rule.state(),
            "setting": list(self._rule.setting),
            "workers": list(self._places),
            "switches": self._switches,
            "iteration": self._iteration,
            "sums": list(self._sums),
        }

    def cut(self, first: Sequence[int], settled: Callable[[], object] = lambda: None) -> Cut:
        """Return the rule as it is now; it takes what comes later as long as it is kept.

        first, settled: see `Cut`.
        """
        cut = Cut(self.state(), first, settled)
        self._cuts.add(cut)
        return cut

    def go_back(self, cut: Cut | None) -> None:
        """Go on as at a cut, with what it has seen since; None: as at the start."""
        seen = [] if cut is None else cut.seen
        self._cuts.clear()
        self._begin(None if cut is None else cut.state)
        self.start()
        if cut is not None:
            cut.seen = []
            self._cuts.add(cut)
        for each in seen:
            self._take(each)


def is_adaptive(experiment: Experiment) -> bool:
    """True if a rule changes the strategy while the run goes on."""
    return isinstance(experiment.sync, Adaptive | AdaptivePeriod)


def adaptive_policy(experiment: Experiment) -> Adaptive | None:
    """Return the policy of an adaptive strategy with servers; None: the strategy is another."""
    if experiment.peers is not None:
        return None
    policy = experiment.policies.strategy
    return policy if isinstance(policy, Adaptive) else None


def policy_in_force(experiment: Experiment, saved: Mapping[str, Any]) -> Policy | None:
    """Return what servers followed when a rule was saved; None: what they begin a run with.

    saved: see `Adaptation.state`; empty: nothing was saved.
    """
    policy = adaptive_policy(experiment)
    if policy is None or not saved or not saved["switches"]:
        return None
    return policy.at(_setting_of(saved), len(saved["workers"]))


def _setting_of(saved: Mapping[str, Any]) -> Setting:
    """Return the setting of a checkpoint; those written before there were graces have none."""
    family, *numbers = saved["setting"]
    return Setting(Family(family), *numbers)


def saved_period(saved: Mapping[str, Any]) -> SavedPeriod | None:
    """Return the rule of a strategy without servers in a checkpoint; None: it has none."""
    return msgspec.convert(saved, SavedPeriod) if saved else None


def note_again(totals: Totals, now: Time, row: Callable[..., object]) -> None:
    """Add the rows of switches that a checkpoint has and its trace lacks, see `drop_after`.

    totals: of the checkpoint. now: its time. row: adds a row to the trace.
    """
    for switch in totals.switches:
        if switch.time >= now:
            row(*switch.row())
